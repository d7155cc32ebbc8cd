"""Has cells run in forks of a process that has imported torch, which otherwise takes two seconds per cell.

Python imports this module as it starts if a copy of it is on PYTHONPATH. `server.json` beside the copy names the socket
of the process that forks, and the folder of `fork_client.py`. If another folder on PYTHONPATH has a module of this name,
that module runs first.
"""

import os
import sys

# Folders of other modules of this name that only add words to a cell's command line, or run the cell themselves.
HARMLESS = ("gpu", "recorded")
# Modules of cells and of what is measured of a GPU before them, which import torch.
FORKED = ("models.run", "profzoo.calibration.peaks", "profzoo.calibration.launch_costs")


def run_next() -> bool:
    """Run the next module of this name on the path; returns whether a fork of another process may do without it."""
    for folder in sys.path[sys.path.index(os.path.dirname(__file__)) + 1 :]:  # noqa: PTH120
        path = f"{folder}/sitecustomize.py"
        if os.path.exists(path):  # noqa: PTH110
            with open(path) as file:  # noqa: PTH123
                exec(compile(file.read(), path, "exec"), {"__name__": __name__, "__file__": path})
            return os.path.basename(folder) in HARMLESS  # noqa: PTH119
    return True


def open_files() -> list[int]:
    """Return the numbers of the open files that a program inherits."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:
            # The number of the listed folder, which is closed by now.
            continue
    return found


if run_next() and sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in FORKED:
    # Imported here, because this module slows down every start of Python.
    import importlib
    import json

    with open(f"{os.path.dirname(__file__)}/server.json") as file:  # noqa: PTH120, PTH123
        told = json.load(file)
    sys.path.append(told["client"])
    fork_client = importlib.import_module("fork_client")
    sys.path.remove(told["client"])
    # The module that ran first may have added words.
    fork_client.ask(told["socket"], [*sys.orig_argv[:3], *sys.argv[1:]], open_files())
