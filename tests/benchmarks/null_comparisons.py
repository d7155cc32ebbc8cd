"""Compares every cell of the zoo with itself: how often is that called different?

python -m tests.benchmarks.null_comparisons [--tiny] [--repeats 3] [MODEL ...]

Of these models or all, both phases. --tiny: with the small shapes of the tests, for a machine without a GPU. Collects by
the workflow into results/nulls, then prints. A call may be cut off: the next goes on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tests import zoo
from tests.benchmarks import known_slowdown

RESULTS = Path("results/nulls")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.null_comparisons", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(zoo.TINY), metavar="MODEL")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    known_slowdown.compare(
        RESULTS,
        tool="time",
        models=given.models,
        phases=["train", "inference"],
        repeats=given.repeats,
        variants={known_slowdown.SAME: {}},
        candidate=known_slowdown.SAME,
        settings={model: zoo.TINY[model] for model in given.models} if given.tiny else {},
    )
    known_slowdown.verdicts(RESULTS)
    table = pd.read_csv(RESULTS / "tables/compare.csv")
    for row in table[table["verdict"].isin(["faster", "slower"])].itertuples():
        print(f"{row.model} {row.phase}: {row.verdict}, {row.ratio:.3f} ({row.ratio_low:.3f} to {row.ratio_high:.3f})")


if __name__ == "__main__":
    main()
