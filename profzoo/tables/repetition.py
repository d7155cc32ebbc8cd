"""Compares the launches of a cell's traced steps: what all steps repeat, what only some have, and what that leaves
unknown."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, GPU, TEXT, Column
from profzoo.io.common_columns import IN_STEPS, OF_STEPS, shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.launches.joined_step import KERNEL, select_typical_process
from profzoo.launches.step_alignment import StepLayout, lay_steps, steps_differ
from profzoo.range_names import STEP
from profzoo.tables.layers import Others
from profzoo.tables.steps_per_export import NEEDS as OF_SIDECAR
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.raw_page import CONFIGURATION, SHARED_MEMORY, function_name
from profzoo.tools.nsys import TOOL as NSYS
from profzoo.tools.nsys.events import launches
from profzoo.tools.torch import TOOL as TORCH
from profzoo.tools.torch import owners

OPERATOR = "operator"
SHAPE = [name for name in CONFIGURATION if name != "mangled"]
TIMES = ["mean_ns", "min_ns", "max_ns"]
LAUNCHES = ["place", "range", "function", "mangled", *SHAPE, IN_STEPS, OF_STEPS, "configurations", *TIMES]
_OF_PLACE = "GPU time (on a CPU: host time) of the launch among the steps that have it."
_OF_STEPS = "Part of the launches of all traced steps"
LAUNCHES_TABLE = Table(
    columns={
        **shared("range", "function", "mangled"),
        "place": Column(
            COUNT, "Place of the launch in the sequence that holds the launches of all steps once, from 0.", "count"),
        **shared("in_steps", "of_steps", kind=COUNT),
        "configurations": Column(COUNT, "Different launch configurations that the kernel has in these steps.", "count"),
        **shared("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", kind=COUNT.or_missing),
        **shared("smem_static_bytes", "smem_dynamic_bytes"),
        "mean_ns": Column(AMOUNT, f"Mean {_OF_PLACE}", "ns", clock=GPU),
        "min_ns": Column(AMOUNT, f"Shortest {_OF_PLACE}", "ns", clock=GPU),
        "max_ns": Column(AMOUNT, f"Longest {_OF_PLACE}", "ns", clock=GPU),
    },
    key=["place"],
    ranges={"mean_ns": ("min_ns", "max_ns")},
)  # fmt: skip
SHARES = ["shared_launches", "shared_time", "same_launches"]
CENSUS = ["census_launches", "census_time", "census_kernel_time"]
REPETITION = ["tool", "kind", "steps", "kinds", "launches", "least_launches", "most_launches", *SHARES, "ns",
              "least_ns", "most_ns", "ranges", *CENSUS, "says"]  # fmt: skip
TABLE = Table(
    columns={
        "tool": Column(TEXT, "Tool whose steps are compared: `nsys` where it traced kernels, else `torch`."),
        "kind": Column(TEXT, "What is compared: each `kernel`, or on a CPU each call of an `operator`."),
        "ranges": Column(TEXT, "Parts of the step whose launches differ, the part with the most first."),
        "says": Column(TEXT, "How the steps differ and what therefore cannot be told, as a sentence."),
        "steps": Column(COUNT, "Steps that are compared.", "count"),
        "kinds": Column(COUNT, "Different steps among them.", "count"),
        "least_launches": Column(COUNT, "Launches of the step with the fewest.", "count"),
        "most_launches": Column(COUNT, "Launches of the step with the most.", "count"),
        "shared_launches": Column(
            AMOUNT, f"{_OF_STEPS} that every step has: the same kernel, in the same order.", "fraction"),
        "shared_time": Column(AMOUNT, "Part of the time of all traced steps in these.", "fraction", clock=GPU),
        "same_launches": Column(
            AMOUNT, f"{_OF_STEPS} that every step has with the same launch configuration.", "fraction"),
        "launches": Column(AMOUNT, "Launches per step, as a mean over the steps.", "count"),
        "ns": Column(AMOUNT, "GPU time of a step's launches, as a mean over the steps.", "ns", clock=GPU),
        "least_ns": Column(AMOUNT, "GPU time of the launches of the shortest step.", "ns", clock=GPU),
        "most_ns": Column(AMOUNT, "GPU time of the launches of the longest step.", "ns", clock=GPU),
        "census_launches": Column(
            AMOUNT.or_missing, "Launches that ncu saw in its own run; empty without counters.", "count", "ncu"),
        "census_time": Column(
            AMOUNT.or_missing, "Part of the GPU time of all traced steps in launch configurations that ncu saw.",
            "fraction", "nsys", GPU),
        "census_kernel_time": Column(
            AMOUNT.or_missing, "The same in kernels that ncu saw in other shapes only.", "fraction", "nsys", GPU),
    },
    ranges={"launches": ("least_launches", "most_launches"), "ns": ("least_ns", "most_ns")},
)  # fmt: skip


def main(torch_launches: str, others: Others, summary: str, csv: str) -> None:
    """Read what nsys traced, else what torch recorded (its path may be empty); write the summary and the launches.

    Neither has rows where all steps launch the same.
    """
    launches, tool = _traced(others), NSYS
    if launches is None and torch_launches:
        launches, tool = _recorded(torch_launches), TORCH
    if launches is None or launches.empty or not steps_differ(launches):
        write_csv(TABLE.empty(), summary)
        write_csv(LAUNCHES_TABLE.empty(), csv)
        return
    laid = lay_steps(launches)
    census = export_schema.read_census(others.census) if others.census and tool == NSYS else None
    write_csv(summarise_steps(launches, laid, tool, census), summary)
    write_csv(tabulate_places(launches, laid), csv)


def _traced(others: Others) -> pd.DataFrame | None:
    """Return the launches of nsys by step, of one process; None without any, or where the trace cannot be read.

    In that case it costs the comparison of steps alone, and not the ranges that the same job adds up: other jobs that
    need the trace fail, and say why.
    """
    if not others.nsys:
        return None
    whole_run = read_facts(others.sidecar, OF_SIDECAR).get("capture") == "run"
    try:
        found = launches.read_step_launches(others.nsys, whole_run)
    except DataError as error:
        print(f"steps of nsys are not compared: {error}")
        return None
    return select_typical_process(found).reset_index(drop=True) if len(found) else None


def _recorded(path: str) -> pd.DataFrame:
    """Return the kernels of torch by step, or on a CPU the calls of operators."""
    rows = reading.read(path, owners.TABLE)
    kind = KERNEL if rows["kind"].eq(KERNEL).any() else OPERATOR
    rows = rows[rows["kind"].eq(kind) & rows[STEP].notna()].rename(columns={"name": "kernel"}).reset_index(drop=True)
    texts = dict.fromkeys(["kernel", "range", "shapes"], "object")
    rows = rows.astype(texts).assign(mangled="", **dict.fromkeys(SHARED_MEMORY, pd.NA))
    functions = {name: function_name(name) if kind == KERNEL else name for name in rows["kernel"].unique()}
    columns = [STEP, "kind", "range", "kernel", "mangled", *SHAPE, "ns", "smem_bytes" if kind == KERNEL else "shapes"]
    return rows[columns].assign(function=rows["kernel"].map(functions))


def tabulate_places(launches: pd.DataFrame, laid: StepLayout) -> pd.DataFrame:
    """Return LAUNCHES, a row per place of the steps' common sequence, described by its first launch."""
    rows = launches.assign(place=laid.places, configurations=laid.configurations)
    grouped = rows.groupby("place", sort=True)
    first = grouped[["range", "function", "mangled", *SHAPE]].first()
    times = grouped["ns"].agg(["mean", "min", "max"]).set_axis(TIMES, axis=1)
    counts = {IN_STEPS: grouped.size(), OF_STEPS: laid.count, "configurations": grouped["configurations"].nunique()}
    table = first.join(times).assign(**counts).reset_index()
    return table.assign(range=table["range"].fillna(""), mangled=table["mangled"].fillna(""))[LAUNCHES]


def summarise_steps(
    launches: pd.DataFrame, laid: StepLayout, tool: str, census: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return REPETITION, one row; census: launches that ncu itself saw, None without ncu."""
    every = laid.in_steps[laid.places] == laid.count
    shapes = pd.Series(laid.configurations).groupby(laid.places).nunique().to_numpy()[laid.places]
    ns, steps = launches["ns"].to_numpy(dtype=float), laid.steps
    each, times = np.bincount(steps), np.bincount(steps, ns)
    other = pd.Series(~every | (shapes > 1)).groupby(launches["range"].astype("object").fillna("").to_numpy()).sum()
    orders = {laid.configurations[steps == step].tobytes() for step in range(laid.count)}
    row = {
        "tool": tool,
        "kind": OPERATOR if "shapes" in launches else KERNEL,
        "steps": laid.count,
        "kinds": len(orders),
        "launches": float(each.mean()),
        "least_launches": int(each.min()),
        "most_launches": int(each.max()),
        "shared_launches": float(every.mean()),
        "shared_time": float(ns[every].sum() / max(ns.sum(), 1.0)),
        "same_launches": float((every & (shapes == 1)).mean()),
        "ns": float(times.mean()),
        "least_ns": float(times.min()),
        "most_ns": float(times.max()),
        "ranges": ", ".join(name or "outside all" for name in other[other > 0].sort_values(ascending=False).index),
        **_of_census(launches, census),
    }
    return pd.DataFrame([row | {"says": describe_differences(row)}])[REPETITION]


def _of_census(launches: pd.DataFrame, census: pd.DataFrame | None) -> dict[str, float]:
    """Return CENSUS: launches that ncu saw, and parts of the traced GPU time that these stand for."""
    if census is None:
        return dict.fromkeys(CENSUS, float("nan"))
    ns = launches["ns"].to_numpy(dtype=float)
    whole = max(ns.sum(), 1.0)
    same = pd.MultiIndex.from_frame(launches[CONFIGURATION]).isin(pd.MultiIndex.from_frame(census[CONFIGURATION]))
    like = launches["mangled"].isin(census["mangled"]).to_numpy() & ~same
    return {
        "census_launches": float(len(census)),
        "census_time": float(ns[same].sum() / whole),
        "census_kernel_time": float(ns[like].sum() / whole),
    }


def describe_differences(row: Mapping[str, Any]) -> str:
    """Say in one sentence how steps differ and what therefore cannot be told; row: REPETITION without `says`.

    >>> row = {"kind": "kernel", "steps": 4, "least_launches": 90, "most_launches": 120, "shared_launches": 0.5,
    ...        "shared_time": 0.75, "same_launches": 0.25, "census_launches": float("nan")}
    >>> describe_differences(row)[:96]
    'the 4 traced steps launch differently (90 to 120 kernels): 50 % of the launches, with 75 % of th'
    """
    least, most, shared = row["least_launches"], row["most_launches"], row["shared_launches"]
    number = f"{least:,} to {most:,} {row['kind']}s" if least < most else f"{least:,} {row['kind']}s each"
    every = (
        f"{_percent(shared)} of the launches, with {_percent(row['shared_time'])} of the time, are in all of them"
        if shared < 1
        else "all of them have the same ones"
    )
    says = (
        f"the {row['steps']} traced steps launch differently ({number}): {every}, "
        f"{_percent(row['same_launches'])} also in the same shape; times, ranges, classes and layers are means over "
        "these steps, and what other steps launch is not known"
    )
    if np.isnan(row["census_launches"]):
        return says
    rest = max(1 - row["census_time"] - row["census_kernel_time"], 0.0)
    return (
        f"{says}; counters are those of the {row['census_launches']:,.0f} launches that ncu saw in a run of its own, "
        f"in whose configurations {_percent(row['census_time'])} of the traced time is spent, and in the same kernels "
        f"of other shapes {_percent(row['census_kernel_time'])}; nothing was counted of {_percent(rest)}"
    )


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
