"""What a sweep of the zoo takes with and without what saves starts of processes, and whether its numbers are the same.

python -m tests.benchmarks.zoo_minutes run VARIANT [MODEL ...]    collects into results/sweeps/VARIANT
python -m tests.benchmarks.zoo_minutes compare FIRST SECOND       holds the numbers of two against each other

A sweep is time, nsys, torch and the counters of the set `survey`, of all models or of these. Variants, of which any may
have a suffix for being done once more (`before-again`), which says what numbers differ by anyway:

before    a process for each: ncu's own census, the baseline by itself, one process at a time
census    launches and their times from the trace of nsys
shared    the baseline in torch.profiler's process
overlap   a program starts while another has the GPU
after     all three

A call takes nine minutes at most (SECONDS=300 before it: five): call it again, which goes on where it ended, until
nothing is left.
"""

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from profzoo.io.scripts import read_json

SWEEPS = Path("results/sweeps")
CENSUS, SHARED, OVERLAP = {"census": "auto"}, {"baseline": 20}, {"overlap": True}
VARIANTS: dict[str, tuple[dict, dict, dict]] = {
    "before": ({"census": "ncu"}, {"baseline": 0}, {"overlap": False}),
    "census": (CENSUS, {"baseline": 0}, {"overlap": False}),
    "shared": ({"census": "ncu"}, SHARED, {"overlap": False}),
    "overlap": ({"census": "ncu"}, {"baseline": 0}, OVERLAP),
    "after": (CENSUS, SHARED, OVERLAP),
}
LIMIT_S = int(os.environ.get("SECONDS", 540))
# By tool, how the names of sidecars of its processes end.
PROCESSES = {"time": ".time.csv.json", "ncu": ".ncu-rep.json", "nsys": ".nsys-rep.json", "torch": ".trace.json.gz.json"}
KEYS = ["model", "phase"]


def run(variant: str, models: Sequence[str]) -> int:
    """Collect, for as long as a command may take; snakemake's exit code. Seconds are added to what was noted before."""
    ncu, torch, locks = VARIANTS[variant.partition("-")[0]]
    folder = SWEEPS / variant
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "tool": "[ncu,nsys,torch]",
        "ncu": json.dumps({"set": "survey", **ncu}),
        "torch": json.dumps(torch),
        "locks": json.dumps(locks),
        "pathvars": json.dumps({"results": str(folder)}),
        **({"models": json.dumps(list(models))} if models else {}),
    }
    words = ["-j8", "--keep-going", "--resources", f"gpu={2 if locks['overlap'] else 1}"]
    given = [f"{key}={value}" for key, value in config.items()]
    began = time.monotonic()
    command = ["timeout", "-s", "INT", str(LIMIT_S), "snakemake", "all", *words, "--config", *given]
    code = subprocess.run(command, check=False).returncode
    with (folder / "seconds.txt").open("a") as file:
        file.write(f"{time.monotonic() - began:.1f}\n")
    print(spent(variant))
    return code


def spent(variant: str) -> str:
    """What a sweep took, and its processes of each tool, in words."""
    folder = SWEEPS / variant
    seconds = sum(map(float, (folder / "seconds.txt").read_text().split()))
    each = []
    for tool, ending in PROCESSES.items():
        walls = [read_json(path)["wall_s"] for path in folder.glob(f"*/*{ending}")]
        each.append(f"{tool} {sum(walls):.0f} s in {len(walls)}")
    return f"{variant}: {seconds:.0f} s; processes: {', '.join(each)}"


def numbers(variant: str) -> pd.DataFrame:
    """A row a cell and number: the step of the baseline, kernels by nsys and torch, and each total that ncu counted."""
    folder, rows = SWEEPS / variant, []
    cells = pd.read_csv(folder / "tables/cells.csv")
    rows += [(cell.model, cell.phase, "time", "step_ns", cell.step_median_ns, 0.0) for cell in cells.itertuples()]
    activity = pd.read_csv(folder / "tables/activity.csv")
    kernels = activity[(activity["kind"] == "kernel") & activity["tool"].isin(["nsys", "torch"])]
    sums = kernels.groupby([*KEYS, "tool"])[["launches_per_step", "ns_per_step"]].sum().reset_index()
    for one in sums.itertuples():
        rows.append((one.model, one.phase, one.tool, "launches", one.launches_per_step, 0.0))
        rows.append((one.model, one.phase, one.tool, "gpu_ns", one.ns_per_step, 0.0))
    for path in sorted(folder.glob("*/*.ncu.survey.csv.json")):
        for name, (total, low, high) in read_json(path).get("totals", {}).items():
            rows.append((path.parent.name, path.name.partition(".")[0], "ncu", name, total, (high - low) / 2))
    return pd.DataFrame(rows, columns=[*KEYS, "tool", "number", "value", "wide"])


def compare(first: str, second: str) -> None:
    """Print by how much the numbers of two sweeps differ: by kind, and those of ncu that their intervals do not explain."""
    both = numbers(first).merge(numbers(second), on=[*KEYS, "tool", "number"], suffixes=("", "_second"))
    both = both[(both["value"] > 0) | (both["value_second"] > 0)]
    both["off"] = both["value_second"] / both["value"] - 1
    print(spent(first), spent(second), sep="\n")
    print("| tool | number | cells | median | largest | of |\n|---|---|---|---|---|---|")
    for (tool, name), rows in both.groupby(["tool", "number"], sort=False):
        worst = rows.loc[rows["off"].abs().idxmax()]
        median = rows["off"].abs().median()
        cell = f"{worst['model']} {worst['phase']}"
        print(f"| {tool} | {name} | {len(rows)} | {median:.2%} | {worst['off']:+.2%} | {cell} |")
    counted = both[both["tool"] == "ncu"]
    apart = (counted["value_second"] - counted["value"]).abs()
    inside = apart <= counted["wide"] + counted["wide_second"]
    print(f"{inside.mean():.1%} of {len(counted)} totals of ncu lie within both intervals together")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.zoo_minutes", description=__doc__)
    parser.add_argument("what", choices=("run", "compare"))
    parser.add_argument("variant", help=f"{', '.join(VARIANTS)}, or one with a suffix")
    parser.add_argument("rest", nargs="*", help="models, or the sweep to compare with")
    given = parser.parse_args(arguments)
    if given.what == "run":
        return run(given.variant, given.rest)
    compare(given.variant, given.rest[0])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
