"""Has a process that has imported torch fork for cells, which else take two seconds each to import it.

Python imports this module as it starts, where a copy of it is on PYTHONPATH, with a `server.json` beside it that names
the process and the folder of what asks it. What other folders on PYTHONPATH have of this name goes first, as they would
without this one.
"""

import os
import sys


def run_next() -> None:
    """Run the next module of this name."""
    for folder in sys.path[sys.path.index(os.path.dirname(__file__)) + 1 :]:  # noqa: PTH120
        path = f"{folder}/sitecustomize.py"
        if os.path.exists(path):  # noqa: PTH110
            with open(path) as file:  # noqa: PTH123
                exec(compile(file.read(), path, "exec"), {"__name__": __name__, "__file__": path})
            return


def open_files() -> list[int]:
    """The open files that a program inherits."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:
            # The folder's own, which is closed by now.
            continue
    return found


run_next()
if sys.orig_argv[1:3] == ["-m", "models.run"]:
    # Here, as this slows down every start of Python.
    import json

    with open(f"{os.path.dirname(__file__)}/server.json") as file:  # noqa: PTH120, PTH123
        told = json.load(file)
    sys.path.append(told["client"])
    import fork_client

    sys.path.remove(told["client"])
    # Words may have been added.
    fork_client.ask(told["socket"], [*sys.orig_argv[:3], *sys.argv[1:]], open_files())
