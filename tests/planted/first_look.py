"""Collects the sealed cases on a machine with a GPU, scores them, and packs what the first look shows.

python -m tests.planted.first_look --results build/sealed --minutes 5.8 --into FOLDER [--score] [--cases a,b]

The next call goes on. Each packs all files that tables are made of into `FOLDER/sealed-1.tar.xz` and so on. Scores are
made once all cases are complete, or with `--score` of those that are; `FOLDER/sealed.tar.xz` then holds steps, tables and
scores, and is small.
"""

import argparse
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import planted_score
from tests.planted import collect, derive, packing, running
from tests.planted.cases import SEALED

# What the small archive holds of the results, as patterns.
KEPT = ("*/*.time.csv", "peaks/*.csv", *(f"tables/{name}" for name in derive.TABLES))
SCORES = "scores.csv"
# Minutes that tables, scores and archives take at the end.
AT_END = 1.4


def pack_look(folder: Path, into: Path) -> Path:
    """Pack steps, tables and scores of a folder of results; returns the archive."""
    into.mkdir(parents=True, exist_ok=True)
    archive, results = into / f"{SEALED}.tar.xz", folder / "results"
    with tarfile.open(archive, "w:xz") as packed:
        for path in [folder / SCORES, *(path for pattern in KEPT for path in sorted(results.glob(pattern)))]:
            packed.add(path, path.relative_to(folder))
    return archive


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.first_look")
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="where archives go")
    parser.add_argument("--minutes", type=float, default=5.8, help="when to end, counted from the start")
    parser.add_argument("--cases", default="", help="names, separated by commas; all by default")
    parser.add_argument("--side-by-side", type=int, default=collect.SIDE_BY_SIDE, help="cases that start up at a time")
    parser.add_argument("--score", action="store_true", help="score those that are complete, whatever lacks")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, under time and torch alone")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    cases, folder = collect.choose_cases(SEALED, options.cases), options.results.absolute()
    until = began + 60 * (options.minutes - AT_END) - running.ENDING_S
    failed = collect.collect(cases, folder, until, options.side_by_side, options.tiny)
    complete = collect.report(cases, folder, options.tiny)
    for name in [name for name, code in failed.items() if code is not None]:
        print(f"snakemake failed for {name}:\n{running.last_lines(folder, name)}")
    names = [name for case in complete for name in (case.name, case.twin)]
    archives = packing.pack(folder / "results", names, options.into, SEALED) if complete else []
    if complete and (options.score or len(complete) == len(cases)):
        derive.derive(complete, folder, options.tiny)
        planted_score.print_folder(folder, SEALED).to_csv(folder / SCORES, index=False)
        archives.append(pack_look(folder, options.into))
    for archive in archives:
        print(f"packed {archive.name}: {archive.stat().st_size / 2**20:.2f} MiB")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
