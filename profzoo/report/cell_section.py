"""The report's section on a cell: its bottlenecks, step by parts, processes, kernels and files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo.formatting import duration
from profzoo.json_types import TemplateVariables
from profzoo.kernels import short_names
from profzoo.range_names import IMPORTED
from profzoo.report import cell_data, counter_section, process_section, step_bars
from profzoo.report.latency_text import describe_latency
from profzoo.report.value_formats import PROCESS_COLUMNS, format_interval, format_value, is_cpu_device
from profzoo.tables import schemas
from profzoo.tables.tool_preference import prefer_tool
from profzoo.tools.nsys import TOOL as NSYS
from profzoo.verdicts.other_settings import SETTING_LEVEL
from profzoo.verdicts.rule_evaluation import CELL_LEVEL
from profzoo.verdicts.verdict import BY_PROFZOO

if TYPE_CHECKING:
    from profzoo.tools.nsys.median_step import Timeline

# Kernels shown per cell.
TOP = 10
# Ends the names of traces that Perfetto opens.
TRACE = ".trace.json.gz"
# Tables from which a cell's roofline, tables and tree are drawn.
DRAWN_TABLES = ("kernels", "roofline", "layers", "ranges")


def make_anchor(row: pd.Series) -> str:
    """Return the HTML id of the cell's section."""
    return f"{row['model']}-{row['phase']}"


def describe_cell(
    row: pd.Series,
    tables: Mapping[str, pd.DataFrame],
    timelines: "Mapping[tuple[str, ...], Timeline]",
    results: Path,
) -> TemplateVariables:
    """Return the template's variables of a cell's section.

    row: the cell's row of the table of cells. tables: activity, steps, verdicts, ranks and existing tables of DRAWN, of
    all cells. timelines: timelines of typical steps, by cell. results: folder of the cells' files.
    """
    cell = row["model"], row["phase"]
    drawn = {name: schemas.rows_of_cell(tables[name], *cell) for name in DRAWN_TABLES if name in tables}
    files = _list_files(row, results)
    # Settings are for models, which a report made elsewhere has none of.
    verdicts = schemas.rows_of_cell(tables["verdicts"], *cell)
    verdicts = verdicts.assign(settings="") if row["phase"] == IMPORTED else verdicts
    return {
        "anchor": make_anchor(row),
        "model": row["model"],
        "phase": row["phase"],
        "step": duration(row["step_ns"]),
        "strip": step_bars.step_parts(tables, *cell),
        **_format_plans(tables.get("plans"), cell),
        "advice": _group_advice(verdicts, row["step_ns"], is_cpu_device(row["device"])),
        "waits": _format_waits(schemas.rows_of_cell(tables["waits"], *cell)) if "waits" in tables else [],
        "inside": [*schemas.rows_of_cell(tables["inside"], *cell)["says"]] if "inside" in tables else [],
        "differ": [*schemas.rows_of_cell(tables["repetition"], *cell)["says"]] if "repetition" in tables else [],
        "latency": describe_latency(schemas.rows_of_cell(tables["latency"], *cell)) if "latency" in tables else "",
        "processes": _format_processes(schemas.rows_of_cell(tables["ranks"], *cell)),
        "counters": counter_section.describe_counters(tables, cell),
        **process_section.describe_processes(tables, cell),
        **_largest_kernels(schemas.rows_of_cell(tables["activity"], *cell)),
        "block": cell_data.cell_block(drawn, _drop_settings(timelines.get(cell), cell), is_cpu_device(row["device"])),
        "files": files,
        "traces": _list_traces(files),
    }


def _drop_settings(timeline: "Timeline | None", cell: tuple[str, str]) -> "Timeline | None":
    """Return a timeline without lines on settings that would collect more, where the report was made elsewhere."""
    return {**timeline, "not_collected": []} if timeline and cell[1] == IMPORTED else timeline


def _group_advice(verdicts: pd.DataFrame, step_ns: float, cpu: bool) -> list[TemplateVariables]:
    """Group the verdicts on a cell, its kernels and its layers by source, formatted for the page."""
    ours, of_cell = verdicts["by"] == BY_PROFZOO, verdicts["level"] == CELL_LEVEL
    # Other settings are among the plans.
    untold = verdicts["level"] == SETTING_LEVEL
    groups = {
        "Bottlenecks": verdicts[ours & of_cell],
        f"Bottlenecks of {'operators' if cpu else 'kernels'} and layers": verdicts[ours & ~of_cell & ~untold],
    }
    others = verdicts[~ours].groupby("by", sort=False)
    groups |= {f"Advice of {source}, verbatim": rows for source, rows in others}
    return [
        {"title": title, "rows": [_format_verdict(row, step_ns) for row in rows.itertuples()], "folded": place > 0}
        for place, (title, rows) in enumerate(groups.items())
        if len(rows)
    ]


def _format_plans(plans: pd.DataFrame | None, cell: tuple[str, str]) -> TemplateVariables:
    """Return the cell's plans for the page, and the settings that are not possible with the reasons."""
    if plans is None:
        return {"plans": [], "impossible": []}
    rows = schemas.rows_of_cell(plans, *cell).sort_values("rank").to_dict("records")
    return {
        "plans": [
            {
                "settings": row["settings"],
                "changes": row["changes"],
                "gain": format_value(row["gain"], "{:.2f}×".format),
                "between": format_interval(row["gain_low"], row["gain_high"], "{:.2f}".format),
                "outlook": row["outlook"],
                "evidence": row["evidence"],
                "score": row["score"],
                "typed": row["command"],
            }
            for row in rows
            if not row["not_possible"]
        ],
        "impossible": [{"settings": row["settings"], "why": why} for row in rows if (why := row["not_possible"])],
    }


def _format_verdict(row: Any, step_ns: float) -> dict[str, str]:
    return {
        "verdict": row.verdict,
        "about": _name_subject(row),
        "time": format_value(row.share * step_ns if pd.notna(row.share) else None, duration),
        "share": format_value(row.share, "{:.1%}".format),
        "between": format_interval(getattr(row, "share_low", None), getattr(row, "share_high", None), "{:.1%}".format),
        "gain": format_value(row.gain, "{:.2f}×".format),
        "next": row.next_step,
        "settings": row.settings if row.level == CELL_LEVEL and isinstance(row.settings, str) else "",
        "score": score if isinstance(score := getattr(row, "score", None), str) else "",
        "source": format_value(row.source, str),
    }


def _name_subject(row: Any) -> str:
    """Name what a verdict is about: a kernel, a layer or the step."""
    names = {"kernel": format_value(row.function, str), "layer": f"{row.module} {row.direction}"}
    return names.get(row.level, "the step")


def _format_waits(waits: pd.DataFrame) -> list[TemplateVariables]:
    """Return the lines at which a cell's step waits for the GPU, those with the most waits first."""
    return [
        {
            "operation": row["operation"],
            "place": f"{row['file']}:{row['line']}",
            "text": row["text"],
            "range": row["range"],
            "calls": f"{row['calls']:,}",
            "waited": format_value(row["wait_ns"], duration),
        }
        for row in waits.to_dict("records")
    ]


def _format_processes(ranks: pd.DataFrame) -> list[list[str]]:
    """Return the processes of a cell on several GPUs, a row of PROCESS_COLUMNS each."""
    return [[format_value(row[name], form) for name, form in PROCESS_COLUMNS.values()] for _, row in ranks.iterrows()]


def _largest_kernels(activity: pd.DataFrame) -> TemplateVariables:
    """Return the cell's TOP kernels (or operators) as one tool measured them."""
    chosen = prefer_tool(activity).head(TOP)
    names = short_names.shorten_names(chosen["name"])
    return {
        "kind": chosen["kind"].iloc[0] if len(chosen) else "",
        "tool": chosen["tool"].iloc[0] if len(chosen) else "",
        "kernels": [
            {
                "name": names[row["name"]],
                "whole": row["name"],
                "range": format_value(row["range"], str),
                "launches": f"{row['launches_per_step']:,.4g}",
                "time": duration(row["ns_per_step"]),
                "share": f"{row['share']:.1%}",
            }
            for row in chosen.to_dict("records")
        ],
    }


def _list_traces(files: Sequence[str]) -> list[TemplateVariables]:
    """Return the traces among a cell's files that Perfetto opens, and what made each.

    >>> _list_traces(["a/train.nsys.trace.json.gz", "a/train.torch.csv", "a/train.trace.json.gz"])
    [{'file': 'a/train.trace.json.gz', 'by': 'torch.profiler'}, {'file': 'a/train.nsys.trace.json.gz', 'by': 'nsys'}]
    """
    of_nsys = f".{NSYS}{TRACE}"
    found = [(name.endswith(of_nsys), name) for name in files if name.endswith(TRACE)]
    return [{"file": name, "by": NSYS if other else "torch.profiler"} for other, name in sorted(found)]


def _list_files(row: pd.Series, results: Path) -> list[str]:
    """List the files of the cell without sidecars, by path relative to the page."""
    found = (results / row["model"]).glob(f"{row['phase']}.*")
    return sorted(f"{row['model']}/{path.name}" for path in found if path.suffix != ".json" and path.is_file())
