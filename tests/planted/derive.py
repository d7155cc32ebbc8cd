"""Derives tables from results of planted cases that were collected elsewhere; needs no GPU.

python -m tests.planted.derive --half development --results FOLDER [--counters] [ARCHIVE ...]

Archives are those of `python -m tests.planted.collect --pack`; they are unpacked into the folder first.
"""

import argparse
import math
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from profzoo.referee import states
from tests.planted import running
from tests.planted.cases import GROUPS, Case, find_cases
from tests.planted.collect import missing_files

TABLES = ("verdicts.csv", "plans.csv", "cells.csv")


def unpack(archives: Sequence[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        with tarfile.open(archive) as packed:
            states.unpack(packed, folder)


def derive(cases: Sequence[Case], folder: Path, tiny: bool = False, counters: bool = False) -> Path:
    """Make the tables of those cases that are complete, with or without counters; returns their folder.

    Raises:
        SystemExit: none is complete, or snakemake failed.
    """
    complete = [case for case in cases if not missing_files(case, folder / "results", tiny, counters)]
    if not complete:
        raise SystemExit(f"{folder} holds no complete case: collect some, or unpack what was collected")
    tables = folder / "results" / "tables"
    words = [*(str(tables / name) for name in TABLES), f"-j{len(os.sched_getaffinity(0))}", "--config", "collect=false"]
    if running.wait_for(running.begin_snakemake(folder, complete, tiny, words, counters=counters), math.inf):
        raise SystemExit(f"snakemake failed:\n{running.last_lines(folder)}")
    return tables


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.derive")
    parser.add_argument("--half", choices=GROUPS, required=True)
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("archives", nargs="*", type=Path, metavar="ARCHIVE")
    parser.add_argument("--counters", action="store_true", help="of the cases that ncu counted, with its counters")
    options = parser.parse_args(arguments)
    folder = options.results.absolute()
    unpack(options.archives, folder)
    print(derive(find_cases(options.half), folder, counters=options.counters))


if __name__ == "__main__":
    main()
