"""STAND-IN for cells: leaves what a real one left, for tests of what is around a cell, such as batch systems.

Python imports this module as it starts, where a copy of it is on PYTHONPATH, with a `recording.json` beside it, as few
variables reach a cell. `python -m models.run` then takes what it is to leave from the folder `results` that this names,
of a real run, and ends; a cell that was not recorded really runs. With a `pause` of "inference 60" a cell of that phase
first waits so many seconds.
"""

import os
import sys

# What profzoo.collect wrote into a sidecar, beside what the cell said of itself.
COLLECTED = (
    "tool cell environment set options planned capture data_files command tool_version host started wall_s warnings "
    "plan run variables job_keys inputs sources sources_changed read written record_version files sha256_of_the_rest"
)


def left() -> bool:
    """Leave what was recorded; whether there was all of it."""
    # Here, as this slows down every start of Python.
    import itertools
    import json
    import shutil
    import time
    from pathlib import Path

    told = json.loads(Path(__file__).with_name("recording.json").read_text())
    model, phase, *words = sys.orig_argv[3:]
    pairs = itertools.pairwise(words)
    given = {word: Path(path) for word, path in pairs if word.startswith("--") and not path.startswith("--")}
    written = {word: path for word, path in given.items() if word != "--load"}
    recorded = {word: Path(told["results"]) / model / path.name for word, path in written.items()}
    if not all(path.exists() for path in recorded.values()):
        return False
    when, _, seconds = told["pause"].partition(" ")
    time.sleep(float(seconds) if when == phase else 0)
    for word, path in recorded.items():
        shutil.copyfile(path, written[word])
    facts = json.loads(recorded["--facts"].read_text())
    written["--facts"].write_text(json.dumps({key: facts[key] for key in facts if key not in COLLECTED.split()}))
    return True


if sys.orig_argv[1:3] == ["-m", "models.run"]:
    if left():
        os._exit(0)
    # As the stand-in for a GPU has it, beside which this may be.
    sys.argv.append("device=cpu")
elif sys.orig_argv[1:3] == ["-m", "profzoo.calibration.peaks"]:
    sys.argv.append("--device=cpu")
