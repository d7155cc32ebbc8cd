"""`profzoo advise` on a small GPT whose CPU launches too slowly, on a real GPU: its answer, its time, and a try.

ncu is not on PATH, so that the time is that of nsys and torch.profiler alone.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from profzoo.plans.plan import NO_BOTTLENECKS
from tests.gpu.running import PROJECT

SCRIPT = (PROJECT / "tests" / "scripts" / "gpt.py").read_text()
# Seconds that the command may take; 90 are the goal.
MOST_S = 120.0
# Settings of profzoo, which the user of a script need not know.
SETTINGS = re.compile(r"\b(precision|compile|optimizer|graph|workers)=|: true\b")


def environment(folder: Path) -> dict[str, str]:
    """The variables of a user who has nsys and no ncu."""
    nsys = shutil.which("nsys")
    assert nsys, "this test needs nsys"
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "nsys").write_text(f'#!/bin/sh\nexec {nsys} "$@"\n')
    (folder / "bin" / "nsys").chmod(0o755)
    found = [one for one in os.environ["PATH"].split(os.pathsep) if not Path(one, "ncu").exists()]
    paths = [str(Path(sys.executable).parent), str(folder / "bin"), *found]
    packages = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return os.environ | {"PATH": os.pathsep.join(paths), "PYTHONPATH": os.pathsep.join(packages)}


def advise(root: Path, *words: str) -> tuple[list[str], float]:
    """Lines that the command prints in the user's folder, where it must succeed, and the seconds that it takes.

    What was tried is printed on its standard output, and all else beside it.
    """
    command = [sys.executable, "-P", "-m", "profzoo", "advise", *words, "--", sys.executable, "train.py"]
    variables, began = environment(root.parent) | {"PWD": str(root)}, time.monotonic()
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, f"{time.monotonic() - began:.1f} s", sep="\n")
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout if "--try" in words else done.stderr).splitlines(), time.monotonic() - began


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], float]:
    """The user's folder, what the command prints there, and the seconds that it takes."""
    (root := tmp_path_factory.mktemp("advised") / "small").mkdir()
    (root / "train.py").write_text(SCRIPT)
    return root, *advise(root)


def test_the_answer_names_lines_of_the_script_and_what_they_gain(advised: tuple[Path, list[str], float]) -> None:
    root, lines, seconds = advised
    assert re.match(r"plan    4 runs of .* train\.py, .*: a first look, then time, nsys and torch; about ", lines[0])
    assert any(
        "small train under" in line and {"nsys", "time", "torch"} <= {*re.findall(r"\w+", line)} for line in lines
    )
    start = next(place for place, line in enumerate(lines) if line.startswith("change  "))
    rows = {line[:8].strip() or str(place): line[8:] for place, line in enumerate(lines[start:])}
    answer = "\n".join(lines[start:])
    assert [name for name in rows if not name.isdigit()] == ["change", "gain", "why", "try", "report"], answer
    # Each place is a line of the script that makes or calls what is to be changed.
    places = re.findall(r"train\.py:(\d+): (.*)", answer.partition("\nwhy ")[0])
    assert places, answer
    texts = SCRIPT.splitlines()
    for number, lines_of_torch in places:
        assert re.search(r"GPT\(\)|AdamW\(|model\(", texts[int(number) - 1]) and "torch." in lines_of_torch, answer
    assert re.search(r"(expected to run|at most) \d+\.\d+ times as fast.* of .* [mµ]s per step", rows["gain"]), answer
    assert not SETTINGS.search(answer), answer
    # The reason is the first bottleneck of the table, and the CPU's launches are among them.
    tables = root / "profzoo-results" / "results" / "tables"
    verdicts = pd.read_csv(tables / "verdicts.csv").query("level == 'cell' and by == 'profzoo'")["verdict"].tolist()
    assert "launch-bound" in verdicts and rows["why"].startswith(
        next(verdict for verdict in verdicts if verdict not in NO_BOTTLENECKS)
    )
    assert rows["report"] == "profzoo-results/results/report.html" and (root / rows["report"]).exists()
    assert {path.name for path in root.iterdir()} - {"__pycache__"} == {"train.py", "profzoo-results"}
    assert seconds < MOST_S, f"{seconds:.0f} s"


def test_a_repeated_command_says_that_nothing_has_changed(advised: tuple[Path, list[str], float]) -> None:
    root, first, _ = advised
    again, seconds = advise(root)
    start = next(place for place, line in enumerate(first) if line.startswith("change  "))
    assert again == ["nothing has changed since the last run, which said:", *first[start:]]
    assert seconds < 30


def test_a_try_measures_and_says_whether_the_script_computes_the_same(advised: tuple[Path, list[str], float]) -> None:
    lines, seconds = advise(advised[0], "--try", "2m")
    measured = [line for line in lines if re.search(r"\d+\.\d+ times as fast", line)]
    assert lines[0].startswith("change  ") and measured, lines
    assert all("comput" in line for line in measured) and "computes the same" in "\n".join(measured), lines
    if "nothing" not in lines[0]:
        gain = re.search(r"^gain    measured: (\d+\.\d+) times as fast .*; computes the same", "\n".join(lines), re.M)
        assert gain and float(gain[1]) > 1.02, lines
    assert seconds < 240
