"""Counts every launch of cells on a GPU, and holds against that what the launches that a plan chooses say of them.

python -m tests.benchmarks.counted_truth MODEL/PHASE ...              collects by the workflow, then prints
python -m tests.benchmarks.counted_truth --read MODEL/PHASE ...       prints what is in results/
python -m tests.benchmarks.counted_truth --recorded FOLDER MODEL/PHASE ...

The last pretends that of launches that were all counted only those were profiled that are chosen now, at the prices of
the set survey. FOLDER holds results, or every launch in MODEL.PHASE.truth.csv.gz and their times in
MODEL.PHASE.launch.csv.gz; with `--times torch`, these are medians over the steps of MODEL.PHASE.trace.json.xz, as of
another tool. `--census nsys` has launches and times from the trace of nsys. Errors are of totals of a step; intervals
are to hold 90 % of totals, of cells, and of the ranges and functions that have a fiftieth of them.
"""

import argparse
import json
import lzma
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.config import configuration as config
from profzoo.io.scripts import read_json
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs, export_schema, launch_selection, run_planning
from profzoo.tools.ncu.estimates import GPU_TIME, Estimates, Window, interval_half_width
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

METRICS = {
    "DRAM read": "dram__bytes_read.sum",
    "DRAM write": "dram__bytes_write.sum",
    "L2": "lts__t_bytes.sum",
    "instructions": "smsp__inst_executed.sum",
    "of threads": "smsp__thread_inst_executed.sum",
    "fp32 fma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}
DRAM = ("DRAM read", "DRAM write")
CHOSEN, EVERY = "counted", "every"
COLLECTED = {"metrics": ["gpu__time_duration.sum", *METRICS.values()], "cache_control": "none", "replay": "kernel"}
# What a process under ncu takes to start, for choices that were not made where they were counted.
START_S = 5.0
# Totals with less of the cell's are not looked at.
PART = 0.02


@dataclass(frozen=True)
class Counted:
    """A cell: every launch with counts and times, what was profiled of them, the launches that these are, and the plan.

    took_s: wall time of what was chosen, where it was.
    """

    cell: str
    every: pd.DataFrame
    census: pd.DataFrame
    profiled: pd.DataFrame
    launches: np.ndarray
    plan: dict
    took_s: float = float("nan")

    def metrics(self) -> dict[str, str]:
        """Those of METRICS that were counted and of which there is any."""
        return {name: metric for name, metric in METRICS.items() if metric in self.every and self.every[metric].sum()}


def collect(cells: Sequence[str], error: str, census: str) -> None:
    """Have the workflow count every launch of cells, and those chosen for an error, by the census of a tool.

    One cell after the other, so that those before are whole where this is ended.
    """
    chosen = {"error": error, "census": census, "sets": {CHOSEN: COLLECTED, EVERY: {**COLLECTED, "launches": "all"}}}
    for cell in cells:
        targets = [f"results/{cell}.ncu.{name}.csv" for name in (CHOSEN, EVERY)]
        words = ["-j4", "--keep-going", "--config", f"ncu={json.dumps(chosen)}", f"models={cell.split('/')[0]}"]
        subprocess.run(["snakemake", *targets, *words], check=False)


def read(cells: Sequence[str], results: Path, census_of: str) -> Iterator[Counted]:
    """What the workflow left of cells; one of which something is missing is said and left out."""
    for cell in cells:
        paths = {name: results / f"{cell}.ncu.{name}.csv" for name in (EVERY, CHOSEN)}
        paths[ncu.CENSUS] = results / f"{cell}{ncu_census.census_csv_name(census_of == ncu_census.NCU)}"
        if lost := [str(path) for path in paths.values() if not path.exists()]:
            print(f"{cell}: no {', '.join(lost)}")
            continue
        every, profiled = (pd.read_csv(paths[name], low_memory=False) for name in (EVERY, CHOSEN))
        census = export_schema.read_census(paths[ncu.CENSUS])
        facts = read_json(results / f"{cell}.{CHOSEN}.ncu-rep.json")
        if len(every) != len(census):
            print(f"{cell}: {len(every)} launches were counted, and {len(census)} are in the census")
        known = profiled[profiled["launch"].notna()]
        if not profiled["as_planned"].all():
            lost = profiled.loc[~profiled["as_planned"], "function"].unique()
            print(f"{cell}: other launches were profiled than planned of {', '.join(lost)}")
        launches = known["launch"].to_numpy(dtype=int)
        yield Counted(cell, every, census, known, launches, facts["plan"], facts["wall_s"])


def traced(path: Path, census: pd.DataFrame) -> pd.DataFrame:
    """A census at the times of a trace of torch.profiler, of whose steps each launches the same."""
    with lzma.open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    runtime = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    made = {event["args"]["correlation"]: event["ts"] for event in runtime if "correlation" in event["args"]}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    kernels.sort(key=lambda event: made.get(event["args"]["correlation"], event["ts"]))
    sizes = np.array([event["args"]["grid"] + event["args"]["block"] for event in kernels]).reshape(-1, len(census), 6)
    if not (sizes == census[KEYS[1:7]].to_numpy()).all():
        raise SystemExit(f"{path}: its steps do not launch what the census has")
    times = np.array([event["dur"] * 1e3 for event in kernels]).reshape(-1, len(census))
    return census.assign(**{GPU_TIME: np.median(times, axis=0)})


def recorded(cells: Sequence[str], folder: Path, error: str, times: str) -> Iterator[Counted]:
    """Cells of which every launch was counted, as if what is chosen now had been profiled; times: of `ncu` or `torch`."""
    options = config.normalise_config({"ncu": {"error": error, "sets": {CHOSEN: COLLECTED}}})["ncu"]
    price = costs.estimate_cost(options["sets"]["survey"], costs.load_costs())
    for cell in cells:
        every, census = _every(folder, cell)
        if times == "torch":
            census = traced(folder / f"{cell.replace('/', '.')}.trace.json.xz", census)
        most = run_planning.most_launches(len(census[KEYS].drop_duplicates()), ncu.parse_percent(error))
        prices = launch_selection.RunPrices(START_S, price.seconds, most)
        sample = launch_selection.select_sample(options, CHOSEN, census, census, prices, one_run=False)
        runs = [sample.options, *sample.further]
        launches = np.concatenate(
            [launch_selection.profiled_launches(census, words).index.to_numpy() for words in runs]
        )
        took = prices.of(sample.launches, len(runs))
        plan = {"launches": sample.launches, "runs": len(runs), "error": sample.error, "estimate_s": took}
        yield Counted(cell, every, census, every.iloc[launches], launches, plan)


def _every(folder: Path, cell: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every launch of a cell with its counts, and the census."""
    if (path := folder / f"{cell}.ncu.{EVERY}.csv").exists():
        return pd.read_csv(path, low_memory=False), export_schema.read_census(folder / f"{cell}.ncu.{ncu.CENSUS}.csv")
    every, census = (pd.read_csv(folder / f"{cell.replace('/', '.')}.{kind}.csv.gz") for kind in ("truth", "launch"))
    return every, census


def held(counted: Counted) -> pd.DataFrame:
    """A row a metric, and of what its total is: `error` of it, `wide`, half of its interval, both relative."""
    metrics = counted.metrics()
    values = counted.profiled[list(metrics.values())].astype(float)
    estimates = Estimates(Window(counted.census), counted.launches, values)
    whole = pd.Series("cell", counted.census.index)
    ranges, functions = ("range " + counted.census["range"].fillna("none")), ("kernel " + counted.census["function"])
    rows = []
    for groups in (whole, ranges, functions):
        numbers, names = pd.factorize(groups)
        totals = estimates.totals(numbers)
        # The two runs need not launch in the same order; sums by name do not go by it.
        own = counted.every["range"].fillna("none").radd("range ") if groups is ranges else groups
        own = ("kernel " + counted.every["function"]) if groups is functions else own
        for name, metric in metrics.items():
            truth = counted.every[metric].groupby(own.to_numpy()[: len(counted.every)]).sum().reindex(names).to_numpy()
            wide = interval_half_width(totals[f"{metric}_se"].to_numpy(), totals[f"{metric}_freedom"].to_numpy())
            table = pd.DataFrame({"of": names, "truth": truth, "total": totals[metric], "wide": wide})
            table = table[table["truth"] > PART * counted.every[metric].sum()]
            rows.append(
                table.assign(
                    metric=name, error=table["total"] / table["truth"] - 1, wide=table["wide"] / table["truth"]
                )
            )
    return pd.concat(rows, ignore_index=True).assign(cell=counted.cell)


def naive(counted: Counted) -> dict[str, float]:
    """The errors of totals that the first launch of each configuration gives, times their number."""
    first = ~counted.census.duplicated(KEYS)
    sizes = counted.census.groupby(KEYS, sort=False, dropna=False).size().to_numpy()
    if len(counted.every) != len(counted.census):
        return {}
    return {
        name: float(
            (counted.every.loc[first.to_numpy(), metric].to_numpy() * sizes).sum() / counted.every[metric].sum() - 1
        )
        for name, metric in counted.metrics().items()
    }


def line(counted: Counted, rows: pd.DataFrame) -> str:
    plan, distinct = counted.plan, len(counted.census[KEYS].drop_duplicates())
    whole = rows[rows["of"] == "cell"].set_index("metric")
    worst = max((abs(error) for error in naive(counted).values()), default=float("nan"))
    told = [
        f"{whole.loc[name, 'error']:+.2%} ± {whole.loc[name, 'wide']:.1%}" if name in whole.index else ""
        for name in METRICS
    ]
    times = f"{plan['estimate_s']:.0f} / {counted.took_s:.0f}"
    cells = [counted.cell, len(counted.census), distinct, f"{plan['launches']} in {plan['runs']}",
             f"{plan['launches'] / distinct:.2f}", f"{plan['error']:.1%}", f"{worst:.0%}", *told, times]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def summary(rows: pd.DataFrame, plans: Sequence[Counted]) -> Iterator[str]:
    whole = rows[rows["of"] == "cell"]
    for what, some in (
        ("DRAM bytes", whole["metric"].isin(DRAM)),
        ("instructions, L2, fp32", ~whole["metric"].isin(DRAM)),
    ):
        errors = whole.loc[some, "error"].abs()
        yield f"{what}: totals of cells off by {errors.mean():.2%} in the mean, {errors.max():.2%} at most"
    for what, some in (("cells", rows["of"] == "cell"), ("ranges", rows["of"].str.startswith("range ")),
                       ("kernels", rows["of"].str.startswith("kernel ")), ("all", rows["of"] != "")):  # fmt: skip
        inside = rows.loc[some, "error"].abs() <= rows.loc[some, "wide"] + 1e-9
        yield f"intervals of {what} hold {inside.mean():.1%} of {len(inside)} totals"
    ratios = [one.plan["launches"] / len(one.census[KEYS].drop_duplicates()) for one in plans]
    yield f"launches: {np.mean(ratios):.2f} times as many as configurations in the mean, {max(ratios):.2f} at most"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.counted_truth")
    parser.add_argument("cells", nargs="+", metavar="MODEL/PHASE")
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--recorded", type=Path)
    parser.add_argument("--error", default="2%")
    parser.add_argument("--census", default="ncu", choices=("ncu", "nsys"))
    parser.add_argument("--times", default="ncu", choices=("ncu", "torch"))
    given = parser.parse_args(arguments)
    if not (given.read or given.recorded):
        collect(given.cells, given.error, given.census)
    if given.recorded:
        found = recorded(given.cells, given.recorded, given.error, given.times)
    else:
        found = read(given.cells, given.results, given.census)
    print(
        f"| cell | launches | configurations | profiled | times | planned | one each | {' | '.join(METRICS)} | planned / took s |"
    )
    print("|---" * (8 + len(METRICS)) + "|")
    plans, tables = [], []
    for counted in found:
        rows = held(counted)
        print(line(counted, rows), flush=True)
        plans.append(counted)
        tables.append(rows)
    if tables:
        print("", *summary(pd.concat(tables), plans), sep="\n")
    return 0 if tables else 1


if __name__ == "__main__":
    raise SystemExit(main())
