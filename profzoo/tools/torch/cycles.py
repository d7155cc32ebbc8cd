"""Tabulates all cycles of torch.profiler's schedule, and how they differ."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, GPU, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tools.torch import losses
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch.tables import TIMES
from profzoo.tools.torch.trace import count_steps, read_trace

if TYPE_CHECKING:
    from profzoo.cell.cell_types import ProfilerSettings

# Files of an earlier cycle in the folder of further files; of harness/observers/recorders.py.
OPERATORS, TRACE = "cycle-{}.operators.csv", "cycle-{}.trace.json.gz"
GROUP = ["kind", "name", "range"]
TABLE = Table(
    columns={
        "cycle": Column(COUNT, "Number of the profiler's cycle, counted from 0.", tool="torch"),
        **select(torch_tables.TABLE.columns, "kind", "name", "range"),
        "steps": Column(COUNT, "Traced steps of the cycle that are complete.", "count", "torch"),
        "count": Column(COUNT, "Calls or launches in these steps.", "count", "torch"),
        **select(torch_tables.TABLE.columns, "self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns"),
    },
    key=["cycle", *GROUP],
)
MEASURES = ("count_per_step", "ns_per_step")
DIFFERENCES = Table(
    columns={
        **select(TABLE.columns, "kind", "name", "range"),
        "cycles": Column(COUNT, "Cycles that have it.", "count", "torch"),
        "count_per_step": Column(AMOUNT, "Calls or launches per step, the mean over the cycles.", "count", "torch"),
        "least_count_per_step": Column(AMOUNT, "Fewest calls or launches per step of a cycle.", "count", "torch"),
        "most_count_per_step": Column(AMOUNT, "Most calls or launches per step of a cycle.", "count", "torch"),
        "ns_per_step": Column(
            AMOUNT, "Time per step, the mean over the cycles: of launches on the GPU, of operators and calls their "
            "own host time, of ranges the host time for which they were open.", "ns", "torch", GPU),
        "least_ns_per_step": Column(AMOUNT, "Shortest time per step of a cycle.", "ns", "torch", GPU),
        "most_ns_per_step": Column(AMOUNT, "Longest time per step of a cycle.", "ns", "torch", GPU),
        "spread": Column(
            AMOUNT.or_missing, "Longest less shortest time per step, relative to the mean.", "ratio", "torch"),
    },
    key=GROUP,
    ranges={name: (f"least_{name}", f"most_{name}") for name in MEASURES},
)  # fmt: skip
FACTS: fact.Needs = {
    "cell": {"profiler": {"memory": fact.FLAG, "repeat": fact.COUNT}, "window": fact.COUNT},
    "device_type": fact.TEXT,
}


def main(
    operators: str,
    traced: str,
    sidecar: str,
    folder: str,
    outputs: dict[str, str],
    say: Callable[[str], object] = print,
) -> None:
    """Read the last cycle and, in a folder, the earlier ones; write `csv`, a row per cycle, and `differences`.

    Raises:
        DataError: the table or trace of a cycle is missing, or no cycle has a complete step.
    """
    facts = read_facts(sidecar, FACTS)
    profiler, gpu = facts["cell"]["profiler"], facts["device_type"] == "cuda"
    last = profiler["repeat"] - 1
    files = [(Path(folder, OPERATORS.format(one)), Path(folder, TRACE.format(one))) for one in range(last)]
    tables = []
    for cycle, (table, trace) in enumerate([*files, (Path(operators), Path(traced))]):
        if missing := [path for path in (table, trace) if not path.exists()]:
            raise DataError(f"cycle {cycle} of {last + 1} has no {missing[0]}: collect the trace again")
        found = tabulate_cycle(cycle, table, trace, profiler, gpu, say)
        steps = int(found["steps"].iloc[0]) if len(found) else 0
        if steps != facts["cell"]["window"]:
            say(f"{outputs['csv']}: cycle {cycle} has {steps} complete steps of {facts['cell']['window']}")
        tables.append(found)
    whole = pd.concat(tables, ignore_index=True)
    if whole.empty:
        raise DataError(f"{traced}: no cycle has a complete step of the window")
    write_csv(whole, outputs["csv"])
    write_csv(compare_cycles(whole), outputs["differences"])


def tabulate_cycle(
    cycle: int, operators: Path, traced: Path, profiler: "ProfilerSettings", gpu: bool, say: Callable[[str], object]
) -> pd.DataFrame:
    """Return one row per operator, range, call and launch of a cycle, by part of the step; none without a whole step.

    A step that lacks kernels is left out of its launches. Operators then have no GPU time, as in `{phase}.torch.csv`.
    """
    trace = read_trace(traced, say)
    lost = losses.find_losses(trace) if gpu else losses.Losses(count_steps(trace), {})
    steps = count_steps(trace) - len(lost.lacking)
    if steps < 1:
        return TABLE.empty()
    kept = losses.drop_steps(trace, sorted(lost.lacking)) if lost.lacking else trace
    raw = reading.read(operators, torch_tables.OPERATORS)
    table = torch_tables.tidy_operators(raw, kept, profiler, gpu, bool(lost.lacking))
    sums = table.groupby(GROUP, sort=False)[["count", *TIMES]].sum(min_count=1).reset_index()
    return sums.assign(cycle=cycle, steps=steps)[list(TABLE.columns)]


def compare_cycles(cycles: pd.DataFrame) -> pd.DataFrame:
    """Return one row per operator, range, call and launch, the largest difference between cycles first.

    What a cycle does not have counts as 0 there. Times are those of GPU launches on the GPU, else host times.

    cycles: rows of TABLE.
    """
    launched = cycles["kind"].isin(["kernel", "memcpy", "memset"])
    time = cycles["self_cpu_ns"].mask(cycles["kind"].eq("range"), cycles["cpu_ns"]).mask(launched, cycles["device_ns"])
    each = cycles.assign(ns=time.fillna(0).astype(float), count=cycles["count"].astype(float))
    number = cycles["cycle"].nunique()
    found = each.groupby(GROUP, sort=False)["cycle"].nunique().to_frame("cycles")
    for name, column in (("count_per_step", "count"), ("ns_per_step", "ns")):
        grouped = (each[column] / each["steps"]).groupby([each[key] for key in GROUP], sort=False)
        some = found["cycles"] < number
        found[name] = grouped.sum() / number
        found[f"least_{name}"], found[f"most_{name}"] = grouped.min().mask(some, 0.0), grouped.max()
    wide = found["most_ns_per_step"] - found["least_ns_per_step"]
    found["spread"] = (wide / found["ns_per_step"]).where(found["ns_per_step"] > 0)
    order = wide.sort_values(ascending=False, kind="stable").index
    return found.loc[order].reset_index()[list(DIFFERENCES.columns)]
