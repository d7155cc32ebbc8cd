"""STAND-IN for cells: leaves a step time for each step of the window, or weights, and may wait on its way.

Python imports this module as it starts, where this folder is on PYTHONPATH. `python -m models.run` then measures
nothing; with precision=bf16 its steps take four fifths of the time. With PYTHON_GATE="window=60 begun FILE" a cell with that word waits before it writes anything, with `half` in
the place of `begun` once it has written half of its files, until there is the file; it says so by FILE.reached.

With PYTHON_KILLED_AT=2 the collecting process is killed when it is about to move its second file into place.
"""

import os
import sys

# Of a row of what a step holds in memory.
HELD = ["begin", "peak", "end", "weights", "optimizer", "gradients", "inputs", "activations", "workspace", "other"]


def leave(words: list[str]) -> None:
    """Write the files that the words name."""
    # Here, as this slows down every start of Python.
    import itertools
    import json
    import time
    import zipfile
    from pathlib import Path

    def gate(moment: str) -> None:
        word, when, file = os.environ.get("PYTHON_GATE", "- - -").split(" ", 2)
        if word in words and when == moment:
            Path(f"{file}.reached").touch()
            while not Path(file).exists():
                time.sleep(0.02)

    given = {word: Path(path) for word, path in itertools.pairwise(words) if word.startswith("--")}
    window = int(next((word.removeprefix("window=") for word in words if word.startswith("window=")), 1))
    gate("begun")
    if "--steps" in given:
        step_ns = 800 if "precision=bf16" in words else 1000
        rows = "".join(f"{step},{step_ns},,4,\n" for step in range(window))
        given["--steps"].write_text("step,wall_ns,gpu_ns,items,peak_memory_bytes\n" + rows)
    if "--memory" in given:
        held = [f"{name}_bytes" for name in HELD]
        given["--memory"].write_text(",".join(["order", "range", *held]) + "\n0,step" + ",0" * len(held) + "\n")
    if "--save" in given:
        with zipfile.ZipFile(given["--save"], "w") as archive:
            archive.writestr("weights/data.pkl", b"x" * 1000)
    gate("half")
    facts = {
        "torch": "2",
        "device": "CPU",
        "device_type": "cpu",
        "steps": window,
        "step_ns": 1000.0,
        "items": 4 * window,
        "batch": 4,
        "parameters": 1,
        "peak_rss_bytes": 1,
        "peak_memory_bytes": None,
        "loss": None,
    }
    given["--facts"].write_text(json.dumps(facts))


def be_killed(last: int) -> None:
    """Have this process end by SIGKILL when it comes to rename so many files."""
    import itertools
    import signal
    from pathlib import Path

    numbers, replace = itertools.count(1), Path.replace

    def replaced(self: Path, target: Path) -> Path:
        if next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    Path.replace = replaced


if sys.orig_argv[1:3] == ["-m", "profzoo.collect"] and "PYTHON_KILLED_AT" in os.environ:
    be_killed(int(os.environ["PYTHON_KILLED_AT"]))
if sys.orig_argv[1:3] == ["-m", "profzoo.experiments.fork_server"]:
    # Forks would run the real cell; without this server each process starts by itself, and pretends.
    os._exit(1)
if sys.orig_argv[1:3] == ["-m", "models.run"]:
    try:
        leave(sys.orig_argv[3:])
    except OSError as error:
        print(error, flush=True)
        os._exit(1)
    os._exit(0)
