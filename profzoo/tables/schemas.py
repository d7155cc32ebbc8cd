"""Declares the tables across cells, for those who write them and those who read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from profzoo import tools
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, CPU, FLAG, GPU, NUMBER, TEXT, Column, select
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.tables import cell_counters, kernel_table, latency, layers, repetition, roofline, user_ranges
from profzoo.tables.layers import COUNTED
from profzoo.tables.tokens import OF_CELL
from profzoo.tables.tokens import TABLE as TOKENS
from profzoo.tools.nsys.steps import ranks as nsys_ranks
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.torch import collective_tables
from profzoo.what_if import tables as replay

# Chooses which tool's numbers of a cell to show.

EXTENDED = ("tools/*/activity.py",)


def prefer_tool(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one tool per cell: the preferred one among those that have any."""
    place = {name: number for number, name in enumerate(tools.activities())}
    rank = table["tool"].map(place)
    return table[rank == rank.groupby([table["model"], table["phase"]]).transform("min")]


FILES = ("../tools/*/activity.py",)
CELL = ["model", "phase"]
QUARTILES = ("step_lower_quartile_ns", "step_upper_quartile_ns")
# What a cell was measured with.
VERSION = "_version"
VERSIONS = ("torch_version", "driver_version", "nsys_version", "ncu_version")


def _across(
    table: Table, key: Sequence[str] = (), holds: Callable[[pd.DataFrame], str | None] = lambda table: None
) -> Table:
    """Return the declaration of a table that joins the tables of all cells."""
    return replace(table, columns=shared(*CELL) | dict(table.columns), key=[*CELL, *key], holds=holds)


def _shares_whole(table: pd.DataFrame) -> str | None:
    for cell, rows in table.groupby(CELL, sort=False):
        if wrong := kernel_table.shares_whole(rows):
            return f"{' '.join(cell)}: {wrong}"
    return None


def _traced(table: pd.DataFrame) -> str | None:
    lacking = [name for name in [*STEPS_OF_TRACES, "waiting_ns"] if name not in table]
    return f"there is no column {lacking[0]}" if len(table) and lacking else None


STEP_LEADING = [
    *CELL, "process", "steps", "step_ns", "step_median_ns", "cpu_taken_share", "busy_share", "nsys_busy_share",
]  # fmt: skip
STEPS_OF_TRACES = {name: kind for name, kind in nsys_steps.TABLE.columns.items() if name not in STEP_LEADING}
COVERAGE = ["configurations", "covered", "coverage", "time_coverage", "uneven_time", "other_launches", "extra",
            "other_choice", "missing"]  # fmt: skip
RANK_SHARES = ["waiting_ns", "communication_share", "exposed_share", "overlap_share", "imbalance"]
LAUNCH = ["class", "function", "mangled", "range", "grid_x", "grid_y", "grid_z"]
# Columns that tools add to the table of cells.
_ADDED: Mapping[str, Column] = {
    name: column for one in tools.activities().values() for name, column in getattr(one, "OF_CELL", {}).items()
}
TABLES: Mapping[str, Table] = {
    "cells": Table(
        columns={
            **shared("model", "phase", "device", "date"),
            "workload": Column(TEXT, "Workload, such as `trimmed`, or AI Benchmark's `reference`."),
            "precision": Column(TEXT, "Precision of the cell: `fp32`, `tf32`, `bf16`, `fp16`, ..."),
            "parameters": Column(COUNT.or_missing, "Parameters of the model.", "count"),
            "batch": Column(COUNT.or_missing, "Samples of the data in a batch.", "count"),
            "steps": Column(COUNT, "Steps of the baseline's window.", "count", "time"),
            **shared("step_ns", "step_median_ns"),
            "items_per_s": Column(
                AMOUNT.or_missing, "Throughput: samples of the data per second, by the mean step.", "1/s", "time", GPU),
            "peak_memory_bytes": Column(
                COUNT.or_missing, "Most GPU memory that torch had allocated; empty on a CPU.", "byte", "time"),
            "peak_rss_bytes": Column(
                COUNT.or_missing, "Most host memory that the process had (resident set size).", "byte", "time"),
            "loss": Column(NUMBER.or_missing, "Loss of the last step; empty in inference.", "1", "time"),
        },
        # Of a table that an earlier version made there are none, and of clocks only where they were sampled.
        optional={
            **shared("unsteady"),
            "clocks": _ADDED["clocks"],
            "arguments": Column(
                TEXT, "Arguments of `python -m models.run` that run the cell again; empty where model and phase are "
                "enough."),
            "imported": Column(
                TEXT, "Of a cell whose reports were made elsewhere: what its steps are taken from, its files, and what "
                "these lack; empty for others. Times are those under the tool that the text names."),
            "timed_under": Column(
                TEXT, "Tool under which the steps were timed, of a cell whose reports were made elsewhere: the tool "
                "makes steps longer. Empty for an unprofiled cell."),
            **dict.fromkeys(VERSIONS, Column(
                TEXT, "Version that the cell was measured with; of several, all are named, with the tools that had "
                "each.")),
            "whole": Column(
                FLAG, "Whether the only step is the whole report, because no step repeats in it. Nothing is known per "
                "step then."),
            "step_low_ns": Column(NUMBER.or_missing, "Lower end of the 95 % interval of `step_ns`.", "ns", "time", GPU),
            "step_high_ns": Column(
                NUMBER.or_missing, "Upper end of the 95 % interval of `step_ns`.", "ns", "time", GPU),
            "step_lower_quartile_ns": Column(
                NUMBER.or_missing, "Lower quartile of the steps of all processes.", "ns", "time", GPU),
            "step_upper_quartile_ns": Column(
                NUMBER.or_missing, "Upper quartile of the steps of all processes.", "ns", "time", GPU),
            **shared("processes", kind=NUMBER.or_missing),
            **shared("between_share", "cpu_taken_share"),
            **OF_CELL,
            **_ADDED,
        },
        others=NUMBER.or_missing,
        key=CELL,
        ranges={"step_median_ns": QUARTILES, "step_ns": ("step_low_ns", "step_high_ns")},
    ),
    "latency": latency.TABLE,
    "tokens": _across(TOKENS, TOKENS.key),
    "activity": Table(
        columns={
            **shared("model", "phase", "tool"),
            "kind": Column(TEXT, "`kernel`; on a CPU `operator`."),
            **shared("range"),
            "name": Column(TEXT, "Name of the kernel, or of the operator on a CPU."),
            "launches_per_step": Column(NUMBER, "Launches (on a CPU: calls) per step.", "count"),
            "ns_per_step": Column(NUMBER, "GPU time per step; on a CPU the operator's own host time.", "ns", clock=GPU),
            "share": Column(NUMBER, "Part of the time that the tool saw in the cell.", "fraction", clock=GPU),
        },
        key=[*CELL, "tool", "kind", "range", "name"],
    ),
    "kernels": _across(kernel_table.TABLE, kernel_table.TABLE.key, _shares_whole),
    "ranges": Table(
        columns={
            **shared("model", "phase", "tool"),
            "clock": Column(TEXT, "Clock of `ns_per_step`: `gpu`, or `cpu` where the cell ran on one."),
            "range": Column(
                TEXT, "Part of the step; empty for launches outside all parts, `other` for the rest of a CPU's step; "
                "or a range of the program's own (see `api`)."),
            "ns_per_step": Column(
                NUMBER.or_missing, "Time per step: GPU time of the kernels launched in the range, or host time; see "
                "`clock`.", "ns", clock=GPU),
            "launches_per_step": Column(NUMBER.or_missing, "Launches per step; empty on a CPU.", "count"),
        },
        # Where a program opened ranges of its own.
        optional={
            "api": Column(
                TEXT, "Of a range of the program's own, what opened it: `nvtx`, or `record_function` of "
                "torch.profiler; else empty."),
            **select(user_ranges.TABLE.columns, "parent"),
            "calls_per_step": Column(
                AMOUNT.or_missing, "How often a range of the program's own was opened per step.", "count"),
            "cpu_ns_per_step": Column(
                AMOUNT.or_missing, "Host time per step for which such a range was open.", "ns", clock=CPU),
            "self_ns_per_step": Column(AMOUNT.or_missing, "`ns_per_step` without ranges within.", "ns", clock=GPU),
            **select(user_ranges.TABLE.columns, "share"),
            **COUNTED,
        },
        holds=user_ranges.find_repeated,
    ),
    "steps": Table(
        columns={
            **shared("model", "phase"),
            **select(nsys_steps.TABLE.columns, "process", "steps"),
            **shared("step_ns", "step_median_ns", kind=NUMBER.or_missing),
            "busy_share": Column(
                NUMBER.or_missing, "Part of the unprofiled step in which the GPU works, without waiting for other "
                "processes.", "fraction", clock=GPU),
            "nsys_busy_share": Column(
                NUMBER.or_missing, "The same part of the step under nsys, which takes longer.", "fraction", "nsys",
                GPU),
        },
        # Without a trace it has no others.
        optional={
            **STEPS_OF_TRACES,
            **nsys_steps.TABLE.optional,
            "waiting_ns": Column(
                NUMBER, "Time per step in which only kernels ran that communicate and waited for other processes.",
                "ns", "nsys", GPU),
            **shared("cpu_taken_share"),
        },
        key=[*CELL, "process"],
        holds=_traced,
    ),
    "agreement": Table(
        columns={
            **shared("model", "phase"),
            "flag": Column(TEXT, "What the tools disagree on: `launches`, `time`, both, or nothing."),
            "cause": Column(TEXT, "Why they disagree, where that is known."),
            **shared("step_ns"),
        },
        optional={
            "launches_spread": Column(
                NUMBER.or_missing, "Largest less smallest number of launches over the largest, over the tools.",
                "fraction"),
            "gpu_ns_spread": Column(
                NUMBER.or_missing, "Largest less smallest GPU time over the largest, over the tools.",
                "fraction", clock=GPU),
        },
        families={
            "*_launches": Column(
                NUMBER.or_missing, "Launches per step by the tool that the name begins with.", "count"),
            "*_gpu_ns": Column(
                NUMBER.or_missing, "GPU time per step of all kernels by the tool that the name begins with.",
                "ns", clock=GPU),
            "*_slowdown": Column(
                NUMBER.or_missing, "Wall time of a step under the tool that the name begins with, over the unprofiled "
                "step.", "ratio", clock=CPU),
        },
        key=CELL,
    ),
    "coverage": Table(
        columns={
            **shared("model", "phase"),
            "set": Column(TEXT, "Section set of Nsight Compute."),
            "missing": Column(TEXT, "Functions of the configurations that ncu did not profile, the longest first."),
            "configurations": Column(COUNT, "Launch configurations that nsys traced.", "count", "nsys"),
            "covered": Column(COUNT, "Those of them that ncu profiled.", "count", "ncu"),
            "extra": Column(COUNT, "Configurations that ncu profiled and nsys did not trace.", "count", "ncu"),
            "coverage": Column(NUMBER.or_missing, "`covered` over `configurations`.", "fraction"),
            "time_coverage": Column(
                NUMBER.or_missing, "Part of the cell's GPU time in configurations that ncu profiled.", "fraction",
                clock=GPU),
            "uneven_time": Column(
                NUMBER.or_missing, "Part of the cell's GPU time in configurations of which one profiled launch stands "
                "for launches that take unlike times.", "fraction", clock=GPU),
            "other_launches": Column(
                NUMBER.or_missing, "Part of the cell's GPU time in configurations of which other launches were "
                "profiled than planned.", "fraction", clock=GPU),
            "other_choice": Column(
                FLAG, "Whether a kernel was launched in one of the two runs only, as by another choice of algorithm."),
        },
        key=[*CELL, "set"],
    ),
    "ranks": Table(
        columns={
            **shared("model", "phase"),
            **nsys_ranks.TABLE.columns,
            "waiting_ns": Column(
                NUMBER.or_missing, "Communication beyond the shortest of the cell's processes: time spent on waiting "
                "for others.", "ns", "nsys", GPU),
            "communication_share": Column(
                NUMBER.or_missing, "Communication, as a part of the step's wall time.", "fraction", "nsys", GPU),
            "exposed_share": Column(
                NUMBER.or_missing, "Communication with no other kernel beside it, as a part of the step's wall time.",
                "fraction", "nsys", GPU),
            "overlap_share": Column(
                NUMBER.or_missing, "Part of the communication beside other kernels.", "fraction", "nsys", GPU),
            "imbalance": Column(
                NUMBER.or_missing, "`compute_ns` over the mean of the cell's processes, less one.", "ratio", "nsys",
                GPU),
        },
        key=[*CELL, "rank"],
    ),
    "collectives": _across(collective_tables.CALL_TABLE, collective_tables.KEY),
    "skew": _across(collective_tables.TABLE, collective_tables.RANK_SKEW_KEY),
    "repetition": _across(repetition.TABLE),
    "layers": _across(layers.TABLE, layers.NODE),
    "owners": _across(layers.OWNER_COVERAGE_TABLE),
    "replay": _across(replay.GAINS, replay.GAINS.key),
    "host": _across(replay.TAX, replay.TAX.key, replay.TAX.holds),
    "roofline": Table(
        columns={
            **shared("model", "phase"),
            "level": Column(TEXT, "`cell`, `class`, `range` or `launch` (launch configuration and range)."),
            **shared("class", "function", "mangled", "range", "bound"),
            **shared("grid_x", "grid_y", "grid_z", kind=COUNT.or_missing),
            **shared("counted_share", kind=NUMBER.or_missing),
            **{name: column for name, column in roofline.COLUMNS.items() if name != "bound"},
        },
    ),
    **{name: _across(table, table.key) for name, table in cell_counters.TABLES.items()},
    "peaks": roofline.PEAKS,
}  # fmt: skip


def read_table(name: str, path: str | Path) -> pd.DataFrame:
    """Read a table across cells by its name; raise DataError if the file does not match the declaration."""
    return reading.read(path, TABLES[name])


def rows_of_cell(table: pd.DataFrame, model: str, phase: str) -> pd.DataFrame:
    """Return the rows of one cell."""
    return table[(table["model"] == model) & (table["phase"] == phase)]
