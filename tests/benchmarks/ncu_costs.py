"""What each of ncu's sections costs on this GPU: passes, and seconds a launch, as a CSV of `docs` and of the planner.

python -m tests.benchmarks.ncu_costs [MODEL PHASE [LAUNCHES [NAME ...]]]

NAME is a section set of the configuration or one spelled out (`{sections: [...], metrics: [...]}`), a section of ncu's
own, or metrics with commas between them; without any, all of ncu's own sections and all sets. The first LAUNCHES launches of the window are profiled. ncu says which launch it
is at as it goes: what a launch costs is the time from its line to the next one, of which this prints the median.
"""

import itertools
import os
import pty
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.tools.ncu import command as ncu

PROFILED = re.compile(r'==PROF== Profiling "(?P<kernel>.*)" - \d+.*?(?P<passes>\d+) pass')
COLUMNS = ("cell", "collected", "passes", "seconds_a_launch", "start_s", "wall_s", "launches", "report_mib")


def sections() -> list[str]:
    """The sections that ncu brings."""
    listed = subprocess.run(["ncu", "--list-sections"], capture_output=True, text=True, check=True).stdout
    table = listed.partition("Display Name")[2].splitlines()[2:]
    return [line.split()[0] for line in table if line.strip() and not line.startswith((" ", "-"))]


def wanted(name: str, sets: Mapping[str, Any]) -> list[str]:
    """ncu's words that collect what the name stands for."""
    if name in sets:
        return ncu.section_options(sets[name])
    if name.startswith("{"):
        return ncu.section_options(yaml.safe_load(name))
    return ncu.section_options({"metrics": name.split(",")} if "__" in name else {"sections": [name]})


def lines(command: list[str]) -> Iterator[tuple[float, str]]:
    """What the command prints, line by line, with the time that each line ended; a terminal keeps it from waiting."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdout=slave, stderr=slave, stdin=subprocess.DEVNULL)
    os.close(slave)
    text = b""
    try:
        while chunk := os.read(master, 65536):
            now = time.monotonic()
            *whole, text = (text + chunk).split(b"\n")
            yield from ((now, line.decode(errors="replace").strip()) for line in whole)
    except OSError:
        # Linux ends a terminal whose other side is closed with an error.
        pass
    os.close(master)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")


def measure(name: str, words: list[str], model: str, phase: str, launches: int, folder: str) -> tuple[object, ...]:
    report = f"{folder}/costs.ncu-rep"
    command = ["ncu", "--force-overwrite", "--profile-from-start", "off", "--clock-control", "none", "--import-sass",
               "no", "--launch-count", str(launches), *words, "--export", report, "python", "-m", "models.run",
               *settings.setting_words(settings.resolve_cell(model, phase, "ncu", config.normalise_config({})))]  # fmt: skip
    start, ended, passes = time.monotonic(), [], []
    for now, line in lines(command):
        if found := PROFILED.search(line):
            ended.append(now)
            passes.append(int(found["passes"]))
    wall = time.monotonic() - start
    if len(ended) < 2:
        raise SystemExit(f"{name}: fewer than two launches were profiled")
    each = statistics.median(later - earlier for earlier, later in itertools.pairwise(ended))
    size = Path(report).stat().st_size / 2**20
    return (f"{model} {phase}", name, statistics.mode(passes), f"{each:.4f}", f"{ended[0] - start:.2f}",
            f"{wall:.2f}", len(ended), f"{size:.1f}")  # fmt: skip


def main() -> None:
    model, phase, launches, *names = [*sys.argv[1:], *["mobilenetv2", "train", "16"][len(sys.argv) - 1 :]]
    options = config.normalise_config({})["ncu"]
    print(",".join(COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [*sections(), *options["sets"]]:
            row = measure(name, wanted(name, options["sets"]), model, phase, int(launches), folder)
            print(",".join(f'"{value}"' if "," in str(value) else str(value) for value in row), flush=True)


if __name__ == "__main__":
    main()
