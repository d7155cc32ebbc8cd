"""The report's tables of all cells: overview, agreement of the tools, and how they were measured."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo import tools as registry
from profzoo.catalog import csv_files
from profzoo.formatting import format_ns, span
from profzoo.io.csv_tables import Row
from profzoo.json_types import TemplateVariables
from profzoo.report import glossary, savings, value_formats
from profzoo.report.cell_section import make_anchor
from profzoo.report.comparison_section import GAIN, GAIN_INTERVAL, PART_COLUMNS
from profzoo.report.savings import Saving, first_savings, read_text
from profzoo.report.value_formats import (
    CELL_COLUMNS,
    DEFAULT_COLUMNS,
    PROCESS_COLUMNS,
    choose_agreement_format,
    format_value,
    make_field,
)
from profzoo.tables.cell_tables import LINE_SEPARATOR
from profzoo.tables.schemas import CELL, TABLES, VERSION, VERSIONS
from profzoo.verdicts.verdict import BY_PROFZOO

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Explains the headings of the report's tables as hints, with the meanings of the data dictionary.

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
    ours = {name: column for one in registry.activities().values() for name, (column, _) in one.COLUMNS.items()}
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


# Find cells that were measured with different versions of torch, the driver or a profiler.

# Cells named per version.
SHOWN = 4
TORCH_VERSION = "torch_version"
# A version, and the tools that ran with it.
PER_TOOL = re.compile(r"([^\s,]+) \(([^)]*)\)")
RATIOS = "; ratios of times under different tools, such as slowdowns and forecast gains, are of both versions"


def most_common_versions(cells: pd.DataFrame) -> dict[str, str]:
    """Return the most common version by column of the table of cells, for columns with several versions."""
    found = {}
    for name in (name for name in VERSIONS if name in cells):
        counts = cells.loc[_is_known(cells[name]), name].value_counts()
        if len(counts) > 1 or any(" (" in version for version in counts.index):
            found[name] = str(counts.index[0])
    return found


def list_versions(cells: pd.DataFrame, name: str) -> list[str]:
    """Return the versions in a column of the table of cells, each once, in the order of the cells."""
    known = cells.loc[_is_known(cells[name]), name] if name in cells else []
    # A cell whose tools ran with different versions names the tools of each.
    found = [version.partition(" (")[0] for text in known for version in text.split("), ")]
    return list(dict.fromkeys(found))


def name_mixed_torch(cells: pd.DataFrame, cell: Row) -> dict[str, str]:
    """Return torch's version by tool, of a cell whose tools ran with different versions; empty for any other cell.

    >>> versions = "2.8.0 (time), 2.9.0 (nsys, torch)"
    >>> cells = pd.DataFrame({"model": ["a"], "phase": ["train"], "torch_version": [versions]})
    >>> name_mixed_torch(cells, {"model": "a", "phase": "train"})
    {'time': '2.8.0', 'nsys': '2.9.0', 'torch': '2.9.0'}
    """
    if TORCH_VERSION not in cells:
        return {}
    mine = cells.loc[cells["model"].eq(cell["model"]) & cells["phase"].eq(cell["phase"]), TORCH_VERSION]
    found = PER_TOOL.findall(mine.iloc[0]) if len(mine) and isinstance(mine.iloc[0], str) else []
    return {tool: version for version, names in found for tool in names.split(", ")}


def format_versions(cells: pd.DataFrame) -> list[str]:
    """Return a line per version with its cells, for each program that has several versions."""
    said = []
    for name in most_common_versions(cells):
        known = cells[_is_known(cells[name])]
        for version, rows in known.groupby(name, sort=False):
            names = [f"{row.model} {row.phase}" for row in rows.itertuples()]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            ratios = RATIOS if PER_TOOL.search(version) and name == TORCH_VERSION else ""
            said.append(f"{name.removesuffix(VERSION)} {version}: {', '.join(names[:SHOWN])}{more}{ratios}")
    return said


def name_unusual_versions(row: Row, usual: Mapping[str, str]) -> str:
    """Name the versions of a cell that differ from the most common ones; empty if none do.

    >>> usual = {"torch_version": "2.9.0", "nsys_version": "2025.3"}
    >>> name_unusual_versions({"torch_version": "2.8.0", "nsys_version": ""}, usual)
    'torch 2.8.0'
    """
    others = [
        (name, row[name]) for name, most in usual.items() if isinstance(row[name], str) and row[name] not in ("", most)
    ]
    return ", ".join(f"{name.removesuffix(VERSION)} {version}" for name, version in others)


def _is_known(column: pd.Series) -> pd.Series:
    return column.notna() & column.ne("")


FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)
AGREEMENT_TEXTS = (*CELL, "flag", "cause")
# Headings of the table of agreement: of whole columns, and of what stands behind the name of a tool.
AGREEMENT_HEADINGS = {
    "step_ns": "time per step",
    "launches_spread": "launches, spread",
    "gpu_ns_spread": "GPU time, spread",
}
AGREED = {"launches": "launches", "gpu_ns": "GPU time", "slowdown": "slowdown"}
WHOLE = "all of the report, as no step repeats"
# Columns with more than a plain value, in order; they stand before those of CELL_COLUMNS.
SAVED = "time saved per step"
LEADING_COLUMNS = ("model", "phase", "parts of the step", "bottleneck", SAVED, "what to do", "time per step")
NOT_MEASURED = "not measured"
# Tools under which cells are timed only if their reports are those of this tool alone.
TORCH, NCU = "torch.profiler", "Nsight Compute"


def cells_context(
    tables: Mapping[str, pd.DataFrame], promises: Sequence[Saving], missing: Sequence[Mapping[str, str]]
) -> TemplateVariables:
    """Return the table of cells for the template: non-empty columns, and a row per cell, the largest saving first.

    missing: `model`, `phase` and `why` of each missing cell, with `tool` if only one tool's measurement is missing; and
    `part` and `why` of parts that are missing across cells.
    """
    table = _join_cells(tables)
    offered = dict(CELL_COLUMNS)
    for activity in registry.activities().values():
        offered |= activity.COLUMNS
    columns = {name: form for name, form in offered.items() if form[0] in table and _is_known(table[form[0]]).any()}
    best = {one.cell: one for one in first_savings([promise for promise in promises if not promise.about])}
    usual = most_common_versions(tables["cells"])
    rows = [
        _make_row(row, tables, best.get((row["model"], row["phase"])), columns)
        | {"versions": name_unusual_versions(row, usual)}
        for _, row in table.iterrows()
    ]
    rows.sort(key=lambda row: -row["saved"])
    names = [*LEADING_COLUMNS, *columns]
    of_cells = [one for one in missing if "part" not in one]
    lacking, partial = ([one for one in of_cells if bool(one.get("tool")) == of_tool] for of_tool in (False, True))
    return {
        "cells": rows,
        "cell_columns": names,
        "saved_column": SAVED,
        "hidden_columns": [at for at, name in enumerate(names) if name not in (*LEADING_COLUMNS, *DEFAULT_COLUMNS)],
        "lacking": [{"verdict": NOT_MEASURED, **one} for one in lacking],
        "lacking_why": _group_by_reason(lacking),
        "partial": partial,
        "partial_why": _group_by_reason(partial),
        "parts": [one for one in missing if "part" in one],
    }


def _group_by_reason(missing: Sequence[Mapping[str, str]]) -> list[TemplateVariables]:
    """Group missing cells by reason, the largest group first: `tool` (empty for the whole cell), `why`, `cells`."""
    together: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        together.setdefault((one.get("tool", ""), one["why"]), []).append(f"{one['model']} {one['phase']}")
    found = [{"tool": tool, "why": why, "cells": cells} for (tool, why), cells in together.items()]
    return sorted(found, key=lambda one: -len(one["cells"]))


def _make_row(
    row: pd.Series, tables: Mapping[str, pd.DataFrame], promise: Saving | None, columns: Mapping[str, tuple[str, Any]]
) -> TemplateVariables:
    """Return the template's row of a cell."""
    strip = value_formats.step_parts(tables, row["model"], row["phase"])
    return {
        "anchor": make_anchor(row),
        "model": row["model"],
        "phase": row["phase"],
        "strip": strip,
        "strip_told": value_formats.describe_parts(strip),
        "busy": next((part["percent"] for part in strip if part["part"] == "kernels"), ""),
        "verdict": promise.verdict if promise else format_value(row["verdict"], str),
        "promise": savings.saving_context(promise) if promise else None,
        "saved": promise.saved_ns if promise else 0.0,
        "next": promise.next_step if promise else format_value(row["next_step"], str),
        "step": format_ns(row["step_ns"]),
        "step_ns": row["step_ns"],
        "spread": _format_interval(row),
        "steps": _count_steps(row),
        "unsteady": read_text(row, "unsteady"),
        "fields": [
            make_field(row[name], form, [row.get(end) for end in TABLES["cells"].ranges.get(name, ())])
            for name, form in columns.values()
        ],
    }


def _format_interval(row: pd.Series) -> str:
    """Format the confidence interval of the mean step; empty if it is unknown."""
    low, high = row.get("step_low_ns"), row.get("step_high_ns")
    return "" if pd.isna(low) or pd.isna(high) else span(low, high)


def _count_steps(row: pd.Series) -> str:
    """Count the steps that the mean is of.

    >>> _count_steps(pd.Series({"steps": 20, "processes": 3})), _count_steps(pd.Series({"steps": 1, "processes": 1}))
    ('mean of 20 steps × 3 processes', '1 step')
    >>> _count_steps(pd.Series({"steps": 1, "whole": True}))
    'all of the report, as no step repeats'
    """
    if row.get("whole", False):
        return WHOLE
    processes = row.get("processes") if pd.notna(row.get("processes")) else 1
    runs = f" × {processes:.0f} processes" if processes > 1 else ""
    return f"mean of {row['steps']:.0f} steps{runs}" if row["steps"] * (processes or 1) > 1 else "1 step"


def _join_cells(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table of cells with each cell's first verdict, GPU busy share and launches."""
    steps, verdicts = tables["steps"], tables["verdicts"]
    first = verdicts[(verdicts["level"] == "cell") & (verdicts["rank"] == 1) & (verdicts["by"] == BY_PROFZOO)]
    busiest = steps.sort_values("busy_share", ascending=False).drop_duplicates(CELL) if len(steps) else steps
    table = tables["cells"].merge(first[[*CELL, "verdict", "gain", "next_step"]], on=CELL, how="left")
    return table.merge(busiest.reindex(columns=[*CELL, "busy_share", "launches"]), on=CELL, how="left")


def agreement_context(agreement: pd.DataFrame, tools: Sequence[str], cells: pd.DataFrame) -> TemplateVariables:
    """Return the agreement table for the template; no rows without tools. cells: the table of cells.

    Below a slowdown, which is a ratio of two times, stand the versions of torch of these where they differ.
    """
    # An empty column belongs to a tool that was not selected.
    known = agreement.loc[:, (agreement.notna() & agreement.ne("")).any()]
    rows = []
    for _, row in known.iterrows():
        versions = name_mixed_torch(cells, row)
        fields = {column: make_field(row[column], choose_agreement_format(column)) for column in known}
        for column in (name for name in known if name.endswith("_slowdown") and pd.notna(row[name])):
            tool = column.removesuffix("_slowdown")
            times = {versions[name] for name in (registry.BASELINE, tool) if name in versions}
            fields[column]["between"] = f"of torch {' and '.join(sorted(times))}" if len(times) > 1 else ""
        rows.append([*fields.values()])
    headings = {column: _name_agreement(column) for column in known}
    return {
        "agreement": rows if tools else [],
        "agreement_texts": [index for index, name in enumerate(known) if name in AGREEMENT_TEXTS],
        "agreement_columns": list(headings.values()),
        "agreement_titles": {heading: describe_column(column, "agreement") for column, heading in headings.items()},
    }


def _name_agreement(column: str) -> str:
    """Return the heading of a column of the table of agreement.

    >>> [_name_agreement(column) for column in ("nsys_launches", "nsys_gpu_ns", "gpu_ns_spread", "step_ns")]
    ['launches, nsys', 'GPU time, nsys', 'GPU time, spread', 'time per step']
    """
    if column in AGREEMENT_HEADINGS:
        return AGREEMENT_HEADINGS[column]
    tool, _, what = column.partition("_")
    return f"{AGREED[what]}, {tool}" if what in AGREED else column.replace("_", " ")


def measurement_context(cells: pd.DataFrame, sidecars: "Sequence[Sidecar]", tools: Sequence[str]) -> TemplateVariables:
    """Return devices, dates, versions and tools for the template; sidecars: those of the cells' unprofiled runs."""
    # On a CPU no GPU profiler is missing, and nothing more can be collected of a report.
    whole = all_on_cpu(cells) or tools_of_imports(cells)
    return {
        "tools": tools,
        "timed_under": tools_of_imports(cells),
        "missing": [] if whole else sorted(set(registry.compared_activities()) - set(tools)),
        "models": cells["model"].nunique(),
        "devices": sorted(set(cells["device"])),
        "dates": sorted({*cells["date"]} - {""}) or ["at an unknown time"],
        "software": _format_software(cells, sidecars),
        "on_cpu": _cpu_reasons(sidecars),
        "clocks": _unsteady_clocks(cells),
        "versions": format_versions(cells),
        "imported": _imported_cells(cells),
    }


def tools_of_imports(cells: pd.DataFrame) -> list[str]:
    """Return the tools that timed the cells, where all were made elsewhere; empty where any was measured here."""
    if "timed_under" not in cells or cells.empty or not cells["timed_under"].fillna("").ne("").all():
        return []
    return sorted(set(cells["timed_under"]))


def drop_single_tools(agreement: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of agreement without imported cells that one tool alone saw, with which nothing can agree.

    The launches of a trace of torch.profiler stand under nsys too where there is no report of nsys; such a cell is
    timed under torch.profiler.
    """
    if "timed_under" not in cells:
        return agreement
    alone = cells[cells["timed_under"].isin([TORCH, NCU])]
    keys = pd.MultiIndex.from_frame(agreement[CELL])
    return agreement[~keys.isin(pd.MultiIndex.from_frame(alone[CELL]))]


def _imported_cells(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the cells that were made elsewhere, with lines on their steps, their files, and what these lack."""
    if "imported" not in cells:
        return []
    known = cells[_is_known(cells["imported"])]
    return [{"cell": row.model, "lines": row.imported.split(LINE_SEPARATOR)} for row in known.itertuples()]


def _unsteady_clocks(cells: pd.DataFrame) -> list[str]:
    """Return lines on sampled cells whose SM clocks varied or were throttled."""
    known = cells[_is_known(cells["clocks"])] if "clocks" in cells else cells.iloc[:0]
    return [f"{row.model} {row.phase}: {row.clocks}" for row in known.itertuples()]


def _format_software(cells: pd.DataFrame, sidecars: "Sequence[Sidecar]") -> str:
    """Format all versions that the cells were measured with under any tool, by program.

    >>> versions = {"torch_version": ["2.9.0 (time), 2.10.0 (nsys)", "2.9.0"], "nsys_version": ["2025.3", ""]}
    >>> cells = pd.DataFrame(versions)
    >>> _format_software(cells, [{"cuda": "13.0"}, {"cuda": None}])
    'torch 2.9.0 and 2.10.0, CUDA 13.0, nsys 2025.3'
    """
    found = {name.removesuffix(VERSION): list_versions(cells, name) for name in VERSIONS}
    cuda = sorted({str(sidecar["cuda"]) for sidecar in sidecars if sidecar["cuda"]})
    first, *others = found.items()
    named = [(f"{name} {' and '.join(known)}") for name, known in (first, ("CUDA", cuda), *others) if known]
    return ", ".join(named) or "of unknown versions"


def all_on_cpu(cells: pd.DataFrame) -> bool:
    """Return whether all cells ran on a CPU."""
    return bool(len(cells)) and all(map(value_formats.is_cpu_device, cells["device"]))


def _cpu_reasons(sidecars: "Sequence[Sidecar]") -> list[str]:
    """Return why cells were measured on the CPU: each reason with its number of cells."""
    reasons = Counter(why for sidecar in sidecars if (why := sidecar.get("device_why")))
    return [f"{count} of {len(sidecars)} cells: {why}" for why, count in reasons.most_common()]
