"""The report's tables of all cells: overview, agreement of the tools, and how they were measured."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo import tools as registry
from profzoo.formatting import duration, span
from profzoo.json_types import TemplateVariables
from profzoo.report import heading_hints, mixed_versions, savings_section, step_bars, value_formats
from profzoo.report.cell_section import make_anchor
from profzoo.report.savings import Saving, first_savings, unsteady_reason
from profzoo.report.value_formats import (
    CELL_COLUMNS,
    DEFAULT_COLUMNS,
    choose_agreement_format,
    format_value,
    make_field,
)
from profzoo.tables.cell_tables import LINE_SEPARATOR
from profzoo.tables.schemas import CELL, TABLES
from profzoo.verdicts.verdict import BY_PROFZOO

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

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
# Columns with more than a plain value, in order; they stand before those of CELL_COLUMNS.
SAVED = "time saved per step"
LEADING_COLUMNS = ("model", "phase", "parts of the step", "bottleneck", SAVED, "what to do", "time per step")
NOT_MEASURED = "not measured"


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
    columns = {name: form for name, form in offered.items() if form[0] in table and _has_values(table[form[0]])}
    best = {one.cell: one for one in first_savings([promise for promise in promises if not promise.about])}
    usual = mixed_versions.most_common_versions(tables["cells"])
    rows = [
        _make_row(row, tables, best.get((row["model"], row["phase"])), columns)
        | {"versions": mixed_versions.name_unusual_versions(row, usual)}
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
        "hidden_columns": [
            index for index, name in enumerate(names) if name not in (*LEADING_COLUMNS, *DEFAULT_COLUMNS)
        ],
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
    row: pd.Series,
    tables: Mapping[str, pd.DataFrame],
    promise: Saving | None,
    columns: Mapping[str, tuple[str, Any]],
) -> TemplateVariables:
    """Return the template's row of a cell."""
    strip = step_bars.step_parts(tables, row["model"], row["phase"])
    return {
        "anchor": make_anchor(row),
        "model": row["model"],
        "phase": row["phase"],
        "strip": strip,
        "strip_told": step_bars.describe_parts(strip),
        "busy": next((part["percent"] for part in strip if part["part"] == "kernels"), ""),
        "verdict": promise.verdict if promise else format_value(row["verdict"], str),
        "promise": savings_section.saving_context(promise) if promise else None,
        "saved": promise.saved_ns if promise else 0.0,
        "next": promise.next_step if promise else format_value(row["next_step"], str),
        "step": duration(row["step_ns"]),
        "step_ns": row["step_ns"],
        "spread": _format_interval(row),
        "steps": _count_steps(row),
        "unsteady": unsteady_reason(row),
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
    ('20 steps × 3 processes', '1 step')
    """
    processes = row.get("processes")
    runs = f" × {processes:.0f} processes" if pd.notna(processes) and processes > 1 else ""
    return f"{row['steps']:.0f} {'step' if row['steps'] == 1 else 'steps'}{runs}"


def _has_values(column: pd.Series) -> bool:
    return bool((column.notna() & column.ne("")).any())


def _join_cells(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the table of cells with each cell's first verdict, GPU busy share and launches."""
    steps, verdicts = tables["steps"], tables["verdicts"]
    first = verdicts[(verdicts["level"] == "cell") & (verdicts["rank"] == 1) & (verdicts["by"] == BY_PROFZOO)]
    busiest = steps.sort_values("busy_share", ascending=False).drop_duplicates(CELL) if len(steps) else steps
    table = tables["cells"].merge(first[[*CELL, "verdict", "gain", "next_step"]], on=CELL, how="left")
    return table.merge(busiest.reindex(columns=[*CELL, "busy_share", "launches"]), on=CELL, how="left")


def agreement_context(agreement: pd.DataFrame, tools: Sequence[str]) -> TemplateVariables:
    """Return the agreement table for the template; no rows without tools."""
    # An empty column belongs to a tool that was not selected.
    known = agreement.loc[:, (agreement.notna() & agreement.ne("")).any()]
    rows = [
        [make_field(row[column], choose_agreement_format(column)) for column in known] for _, row in known.iterrows()
    ]
    headings = {column: _name_agreement(column) for column in known}
    return {
        "agreement": rows if tools else [],
        "agreement_texts": [index for index, name in enumerate(known) if name in AGREEMENT_TEXTS],
        "agreement_columns": list(headings.values()),
        "agreement_titles": {
            heading: heading_hints.describe_column(column, "agreement") for column, heading in headings.items()
        },
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
    return {
        "tools": tools,
        # On a CPU no GPU profiler is missing.
        "missing": [] if all_on_cpu(cells) else sorted(set(registry.compared_activities()) - set(tools)),
        "models": cells["model"].nunique(),
        "devices": sorted(set(cells["device"])),
        "dates": sorted({*cells["date"]} - {""}) or ["at an unknown time"],
        "software": ", ".join(sorted({_format_versions(sidecar) for sidecar in sidecars})),
        "on_cpu": _cpu_reasons(sidecars),
        "clocks": _unsteady_clocks(cells),
        "versions": mixed_versions.format_versions(cells),
        "imported": _imported_cells(cells),
    }


def _imported_cells(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the cells that were made elsewhere, with lines on their steps, their files, and what these lack."""
    if "imported" not in cells:
        return []
    known = cells[cells["imported"].notna() & cells["imported"].ne("")]
    return [{"cell": row.model, "lines": row.imported.split(LINE_SEPARATOR)} for row in known.itertuples()]


def _unsteady_clocks(cells: pd.DataFrame) -> list[str]:
    """Return lines on sampled cells whose SM clocks varied or were throttled."""
    known = cells[cells["clocks"].notna() & cells["clocks"].ne("")] if "clocks" in cells else cells.iloc[:0]
    return [f"{row.model} {row.phase}: {row.clocks}" for row in known.itertuples()]


def _format_versions(sidecar: "Sidecar") -> str:
    """Format the versions of torch, CUDA and driver that a cell was measured with."""
    gpu = f", CUDA {sidecar['cuda']}, driver {sidecar['driver']}" if sidecar["cuda"] and "driver" in sidecar else ""
    return f"torch {sidecar['torch'] or 'of an unknown version'}{gpu}"


def all_on_cpu(cells: pd.DataFrame) -> bool:
    """Return whether all cells ran on a CPU."""
    return bool(len(cells)) and all(map(value_formats.is_cpu_device, cells["device"]))


def _cpu_reasons(sidecars: "Sequence[Sidecar]") -> list[str]:
    """Return why cells were measured on the CPU: each reason with its number of cells."""
    reasons = Counter(why for sidecar in sidecars if (why := sidecar.get("device_why")))
    return [f"{count} of {len(sidecars)} cells: {why}" for why, count in reasons.most_common()]
