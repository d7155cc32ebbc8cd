"""Prints, of each cell of a results folder, its measured step, the same step replayed, and how far off that is.

python -m tests.benchmarks.replayed [RESULTS]

After `snakemake all --config tool=nsys`. Of starts of operations on the GPU it prints the median distance. That a
program unchanged takes as long as it took says that nothing was lost; whether it predicts is for
tests/unit/test_replay_predictions.py, and for trials on a GPU.
"""

import sys
import time
from pathlib import Path

from profzoo.files import read_json
from profzoo.replay import rerun, tables

CLOSE = 0.03


def main(results: Path) -> None:
    """Print a row a cell and process, and how many of them are within CLOSE."""
    found = []
    print("| cell | process | launches | measured ms | replayed ms | off | starts off, us | s |")
    print("|---|---|---|---|---|---|---|---|")
    for trace in sorted(results.glob("*/*.nsys.sqlite")):
        capture = read_json(trace.with_name(trace.name.replace(".sqlite", "-rep.json"))).get("capture")
        began = time.monotonic()
        for program in tables.programs(trace, capture == "run"):
            off, starts = rerun.differences(program)
            measured = rerun.walls(program, rerun.measured(program)).mean()
            replayed = rerun.walls(program, rerun.run(program)).mean()
            cell = f"{trace.parent.name} {trace.name.partition('.')[0]}"
            took = time.monotonic() - began
            print(
                f"| {cell} | {program.process >> 24 & 0xFFFFFF} | {len(program.gpu):,} | {measured / 1e6:.3f} "
                f"| {replayed / 1e6:.3f} | {off:.2%} | {starts / 1e3:.2f} | {took:.2f} |"
            )
            found.append(abs(off))
    print(f"\n{sum(off <= CLOSE for off in found)} of {len(found)} within {CLOSE:.0%}")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["results"]))
