"""Explains the headings of the report's tables as hints, with the meanings of the data dictionary."""

from collections.abc import Mapping

from profzoo import csv_files, tools
from profzoo.report import glossary
from profzoo.report.comparison_section import GAIN, GAIN_INTERVAL, PART_COLUMNS
from profzoo.report.value_formats import CELL_COLUMNS, PROCESS_COLUMNS
from profzoo.tables.schemas import CELL

FILES = ("../tools/*/activity.py",)
# Headings whose column has another name, with that column.
CELLS = {"time per step": "step_ns", "what to do": "next_step", "bottleneck": "verdict"}
# Headings of the table of cells that are words of the glossary.
EXPLAINED = ("parts of the step", "time saved per step")
COMPARED = {
    "outcome": "verdict",
    "numerics": "numerics",
    "why": "numerics_why",
    "time, reference side": "baseline_ns",
    "time, candidate": "candidate_ns",
    "times": "per",
    "energy ratio": "energy_ratio",
    "energy interval": "energy_low",
    "J per sample, reference side": "baseline_item_j",
    "J per sample, candidate": "candidate_item_j",
}
GRID = {
    "ns": "total_ns",
    "occupancy": "occupancy_pct",
    "occupancy_limit": "occupancy_limit_pct",
    "l2_hit": "l2_hit_pct",
}
# Headings of the inverse of a column, with their hints.
GAINS = {
    GAIN: "Time of the reference side over the candidate's: above 1 it is faster. (1 / ratio in compare.csv)",
    GAIN_INTERVAL: "Confidence interval of the gain. (1 / ratio_high to 1 / ratio_low in compare.csv)",
}
# Headings that are named like their column.
SAME = {
    "comparison": ("processes", "unsteady"),
    "grid": ("range", "class", "launches", "share", "bound", "efficiency", "registers", "type", "direction"),
}


def describe_column(column: str, *tables: str) -> str:
    """Return the meaning of a column in the first of these tables that has it, with its place; empty if none has it.

    >>> describe_column("items_per_s", "cells")
    'Throughput: samples of the data per second, by the mean step. (items_per_s in cells.csv)'
    """
    for name in tables:
        table = csv_files.CSV_FILES[f"tables/{name}.csv"].table
        if table.kind(column) and (found := table.describe(column)):
            return f"{found.means.replace('`', '')} ({column} in {name}.csv)"
    return ""


def list_hints(all_on_cpu: bool = False) -> Mapping[str, Mapping[str, str]]:
    """Return the hints by table of the page and heading; `grid` holds those of the lists of kernels and layers.

    all_on_cpu: whether all cells of the page ran on a CPU; hints about GPUs are then left out.
    """
    ours = {name: column for one in tools.activities().values() for name, (column, _) in one.COLUMNS.items()}
    ours |= {name: column for name, (column, _) in CELL_COLUMNS.items()} | CELLS
    # Every table has the cell and the candidate, which need no hint.
    parts = {name: column for name, (column, _) in PART_COLUMNS.items() if column not in (*CELL, "candidate")}
    found = {
        "cells": _hints(ours, "cells", "steps", "verdicts"),
        "processes": _hints({name: column for name, (column, _) in PROCESS_COLUMNS.items()}, "ranks"),
        "comparison": _hints({**COMPARED, **{name: name for name in SAME["comparison"]}}, "compare") | GAINS,
        "parts": _hints(parts, "compare_parts"),
        "grid": _hints({**GRID, **{name: name for name in SAME["grid"]}}, "kernels", "layers", "roofline"),
    }
    meanings = glossary.load_meanings(all_on_cpu)
    found["cells"] |= {name: meanings[name]["means"] for name in EXPLAINED}
    return {
        table: {name: text for name, text in hints.items() if text and not (all_on_cpu and "GPU" in text)}
        for table, hints in found.items()
    }


def _hints(columns: Mapping[str, str], *tables: str) -> dict[str, str]:
    return {heading: describe_column(column, *tables) for heading, column in columns.items()}
