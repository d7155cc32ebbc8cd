"""Whether comparisons find a slowdown of 3 % planted in one layer, and call the same thing twice the same.

python -m tests.benchmarks.known_slowdown [--cells 20] [--first 0] [--repeats 5] [--width 2048] [--parts 3] [--threads 1]

Each cell is a training step of 33 equal products of matrices (tests/benchmarks/slowed.py), of which one layer, another in
each cell, makes one more; it is compared with that, and with itself. Of some cells nsys, where it is, and torch.profiler
say where the difference lies. Collects by the workflow into results/slowdown, then prints.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tests.benchmarks import slowed

RESULTS, SLOW, SAME = Path("results/slowdown"), "slow", "same"
LAYERS = slowed.SHAPE["layers"]
PLANTED = 1 / (3 * LAYERS)


def cells(numbers: Iterable[int], width: int, threads: int | None) -> dict[str, dict[str, Any]]:
    """Settings of each cell, by its name; threads: of its process, None for as many as there are cores."""
    own = {"module": slowed.__name__, "width": width, "threads": threads}
    return {f"chain{number:02d}": {**own, "at": number % LAYERS + 1} for number in numbers}


def compare(results: Path, **config: Any) -> None:
    """Have the workflow compare cells in turn, with its results there."""
    config["pathvars"] = {"results": str(results)}
    words = [f"{key}={json.dumps(value)}" for key, value in config.items()]
    subprocess.run(["snakemake", "compare", "--keep-going", "-j4", "--config", *words], check=False)


def compare_chains(given: Mapping[str, Mapping[str, Any]], results: Path, repeats: int, **config: Any) -> None:
    """Have it compare these cells with both candidates."""
    config |= {
        "settings": given, "models": list(given), "phases": ["train"], "repeats": repeats,
        "variants": {SLOW: {"products": 2}, SAME: {}}, "candidate": [SLOW, SAME],
    }  # fmt: skip
    compare(results, **config)


def whole(path: Path) -> Path:
    """A table that the workflow makes last; SystemExit where it was cut off before."""
    if not path.exists():
        raise SystemExit(f"{path} is not there yet: call this again, which goes on, or see above what failed")
    return path


def verdicts(results: Path) -> None:
    """Print how often each candidate was called what, and by how much slower it was."""
    table = pd.read_csv(whole(results / "tables/compare.csv"))
    for candidate, rows in table.groupby("candidate"):
        said = ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())
        off = rows["ratio"] - 1
        print(f"{candidate}: {said} of {len(rows)}; slower by {off.median():.2%}, {off.min():.2%} to {off.max():.2%}")


def places(results: Path, given: Mapping[str, Mapping[str, Any]]) -> None:
    """Print where the workflow saw the largest difference of each cell."""
    table = pd.read_csv(whole(results / "tables/compare_parts.csv"))
    table = table[table["candidate"] == SLOW]
    for model, rows in table.groupby("model"):
        # Without kernels, as on a CPU, there are layers alone.
        largest = rows[rows["level"].isin(["range", "layer"])].sort_values("delta_ns").groupby("level").tail(1)
        told = ", ".join(
            f"{row.level} {row.range} {row.name} ({row.delta_share:.2%})"
            for row in largest.fillna({"range": "", "name": ""}).itertuples(index=False)
        )
        print(f"{model}: planted in forward of blocks.{given[str(model)]['at'] - 1}; {told}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.known_slowdown", description=__doc__)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first cell")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of a process, for a machine without a GPU")
    options = parser.parse_args(arguments)
    given = cells(range(options.first, options.first + options.cells), options.width, options.threads)
    compare_chains(given, RESULTS, options.repeats, tool="time")
    some = {name: given[name] for name in list(given)[: options.parts]}
    if some:
        compare_chains(
            some,
            RESULTS / "parts",
            2,
            tool=[tool for tool in ("nsys", "torch") if tool == "torch" or shutil.which(tool)],
        )
    print(f"planted: {PLANTED:.2%} of {len(given)} cells, {options.repeats} processes a side")
    verdicts(RESULTS)
    if some:
        places(RESULTS / "parts", some)


if __name__ == "__main__":
    main()
