"""Whether comparisons find a slowdown of 3 % planted in one layer, and call the same thing twice the same.

python -m tests.benchmarks.known_slowdown [--cells 20] [--first 0] [--budget 60s] [--repeats 5] [--width 2048]
    [--layers 11] [--threads 1] [--parts 3] [--parts-by nsys torch] [--phase train] [--steps 20]

Each cell is a step of equal products of matrices, three for each layer in training (tests/benchmarks/slowed.py) and one
in inference (slowed_forward.py). One layer, another in each cell, makes one more. The cell is compared with that, and
with itself: each by a run of its own until it is decided within the budget, or all together with --repeats processes a
side. Of some cells nsys, where it is, and torch.profiler say where the difference lies. Collects by the workflow into
results/slowdown, then prints. `--repeats 0` leaves out the first part.
"""

import argparse
import json
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tests.benchmarks import slowed, slowed_forward

RESULTS, SLOW, SAME = Path("results/slowdown"), "slow", "same"
CHAINS = {"train": slowed, "inference": slowed_forward}


def cells(numbers: Iterable[int], phase: str, **settings: Any) -> dict[str, dict[str, Any]]:
    """Settings of each cell, by its name: those given, and a layer of its own."""
    own = {"module": CHAINS[phase].__name__, **settings}
    return {f"chain{number:02d}": {**own, "at": number % settings["layers"] + 1} for number in numbers}


def compare(results: Path, table: str | None = None, **config: Any) -> None:
    """Have the workflow compare cells in turn, with its results there; table: to end with, if not with the page."""
    config["pathvars"] = {"results": str(results)}
    words = [f"{key}={json.dumps(value)}" for key, value in config.items()]
    target = str(results / "tables" / f"{table}.csv") if table else "compare"
    # Cells on a CPU use all cores that the workflow has, so that one runs at a time.
    jobs = "-j4" if shutil.which("nvidia-smi") else "-j2"
    options = ["--keep-going", jobs, "--resources", f"gpu={2 if 'locks' in config else 1}"]
    subprocess.run(["snakemake", target, *options, "--config", *words], check=False)


def of_chains(given: Mapping[str, Mapping[str, Any]], phase: str, *candidates: str) -> dict[str, Any]:
    """The configuration in which these cells are compared with those candidates."""
    variants = {SLOW: {"products": 2}, SAME: {}}
    own = {"settings": given, "models": list(given), "phases": [phase]}
    return own | {"variants": {name: variants[name] for name in candidates}, "candidate": list(candidates)}


def whole(path: Path) -> Path:
    """A table that the workflow makes last; SystemExit where it was cut off before."""
    if not path.exists():
        raise SystemExit(f"{path} is not there yet: call this again, which goes on, or see above what failed")
    return path


def verdicts(*results: Path) -> None:
    """Print how often each candidate was called what, by how much slower it was, and the seconds of a comparison."""
    table = pd.concat([pd.read_csv(whole(folder / "tables/compare.csv")) for folder in results])
    for candidate, rows in table.groupby("candidate"):
        said = ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())
        off = rows["ratio"] - 1
        print(f"{candidate}: {said} of {len(rows)}; slower by {off.median():.2%}, {off.min():.2%} to {off.max():.2%}")
    # Only sidecars tell the seconds of all processes with their start.
    sidecars = [path for folder in results for path in folder.glob("*/*.rounds.csv.json")]
    seconds = [json.loads(path.read_text())["wall_s"] for path in sidecars]
    print(
        f"{min(seconds):.0f} to {max(seconds):.0f} s of a comparison, {statistics.median(seconds):.0f} s in the median"
    )


def places(results: Path, given: Mapping[str, Mapping[str, Any]]) -> None:
    """Print where the workflow saw the largest difference of each cell."""
    table = pd.read_csv(whole(results / "tables/compare_parts.csv"))
    for model, rows in table.groupby("model"):
        # Without kernels, as on a CPU, there are layers alone.
        largest = rows[rows["level"].isin(["range", "layer"])].sort_values("delta_ns").groupby("level").tail(1)
        told = ", ".join(
            f"{row.level} {row.range} {row.name} ({row.delta_share:.2%})"
            for row in largest.fillna({"range": "", "name": ""}).itertuples(index=False)
        )
        print(f"{model}: planted in forward of blocks.{given[str(model)]['at'] - 1}; {told}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.known_slowdown", description=__doc__)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first cell")
    parser.add_argument("--budget", default="60s", help="of a comparison without --repeats")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, help="of the chain, of 33 products")
    parser.add_argument("--parts", type=int, default=3, help="so many cells, the first, are profiled")
    parser.add_argument("--parts-by", nargs="+", default=["nsys", "torch"], choices=["nsys", "torch"])
    parser.add_argument("--phase", default="train", choices=list(CHAINS))
    parser.add_argument("--steps", type=int, default=20, help="that are timed in a process")
    parser.add_argument("--threads", type=int, help="of a process, for a machine without a GPU")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.cells)
    layers = options.layers or CHAINS[options.phase].SHAPE["layers"]
    more = {"width": options.width, "layers": layers, "threads": options.threads, "window": options.steps}
    given = cells(numbers, options.phase, **more)
    planted = 1 / (layers * (3 if options.phase == "train" else 1))
    print(f"planted: {planted:.2%} of the products of {len(given)} cells")
    if options.repeats:
        compare(RESULTS, **of_chains(given, options.phase, SLOW, SAME), tool="time", repeats=options.repeats)
        verdicts(RESULTS)
    for candidate in () if options.repeats is not None else (SLOW, SAME):
        for name, settings in given.items():
            own = of_chains({name: settings}, options.phase, candidate) | {"trials": {"budget": options.budget}}
            compare(RESULTS / candidate / name, "compare", **own, tool="time")
        verdicts(*(RESULTS / candidate / name for name in given))
    some = {name: given[name] for name in list(given)[: options.parts]}
    if some:
        tools = [tool for tool in options.parts_by if tool == "torch" or shutil.which(tool)]
        own = {**of_chains(some, options.phase, SLOW), "repeats": 1}
        if shutil.which("nvidia-smi"):
            # Profiled kernels take as long with another process starting beside.
            own["locks"] = {"overlap": True}
        compare(RESULTS / "parts", "compare_parts", **own, tool=tools)
        places(RESULTS / "parts", some)


if __name__ == "__main__":
    main()
