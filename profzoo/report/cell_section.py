"""The report's section on a cell: its bottlenecks, step by parts, processes, kernels and files."""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo import formatting
from profzoo.formatting import format_ns, gains, number, percent, size
from profzoo.io.csv_tables import Row, Table
from profzoo.json_types import TemplateVariables
from profzoo.kernels import short_names
from profzoo.range_names import DECODE, IMPORTED, PREFILL
from profzoo.report import cell_data, counter_section, value_formats
from profzoo.report.savings import read_text, recipe_context, verdict_recipe_context
from profzoo.report.value_formats import PROCESS_COLUMNS, format_interval, format_value, gain_fields, is_cpu_device
from profzoo.statistics.percentiles import FEWEST_PROCESSES
from profzoo.tables import cell_tables, schemas, tokens
from profzoo.tables.schemas import prefer_tool, rows_of_cell
from profzoo.tools.nsys import TOOL as NSYS
from profzoo.tools.time.tables import HELD, MEMORY
from profzoo.tools.torch import collective_tables
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL, SETTING_LEVEL
from profzoo.verdicts.verdict import BY_PROFZOO

if TYPE_CHECKING:
    from profzoo.tools.nsys.pictures.median_step import Timeline


# Says in a sentence how long most steps of a cell take, and how long the slowest ones.

# Percentiles that are named, and how.
NAMED = {50.0: "half", 90.0: "90 %", 95.0: "95 %", 99.0: "99 %"}
# Other names of those that cannot be told.
MISSING = {50.0: "the median"}


def describe_latency(rows: pd.DataFrame) -> str:
    """Return the percentiles of a cell's steps and tokens with intervals, and how many steps the missing ones need.

    rows: the cell's rows of the table `latency`; without rows the text is empty.

    >>> rows = pd.DataFrame({"percentile": [50.0, 99.0], "ns": [1.05e6, float("nan")], "low_ns": 1e6, "high_ns": 1.1e6})
    >>> rows = rows.assign(of="step", steps=99, processes=1, needed_steps=[0, 777], confidence=0.95)
    >>> describe_latency(rows)[:99]
    'Of 99 steps of one process, half take at most 1.05 ms (1 to 1.1 ms), of this process alone (95 %). '
    >>> describe_latency(rows)[99:]
    'More steps are needed for 99 % (about 780).'
    >>> describe_latency(rows.head(1).assign(processes=3, confidence=0.75))
    'Of 99 steps of 3 processes, in the median process half take at most 1.05 ms (1 to 1.1 ms, with 75 %).'
    """
    named = rows[rows["percentile"].isin([*NAMED])].sort_values("percentile")
    return " ".join(_describe(own.to_dict("records"), of) for of, own in named.groupby("of", sort=False))


def _describe(named: Sequence[Mapping[Hashable, Any]], of: str) -> str:
    """Return the sentences on the named percentiles of steps or tokens; of: which of them."""
    processes, known = int(named[0]["processes"]), [row for row in named if not row["needed_steps"]]
    several = processes > 1
    begin = f"Of {named[0]['steps']:,} {of}s of {f'{processes} processes' if several else 'one process'}, "
    sure = f"{100 * known[0]['confidence']:.0f} %" if known else ""
    with_level = f", with {sure}" if several else ""
    times = [
        f"{NAMED[row['percentile']]} take at most {formatting.format_ns(row['ns'])} "
        f"({formatting.span(row['low_ns'], row['high_ns'])}{with_level})"
        for row in known
    ]
    alone = "" if several else f", of this process alone ({sure})"
    said = f"{begin}{'in the median process ' if several else ''}{', '.join(times)}{alone}." if times else ""
    missing = [row for row in named if row["needed_steps"]]
    return " ".join(filter(None, (said, _describe_missing(missing, of, processes))))


def _describe_missing(missing: Sequence[Mapping[Hashable, Any]], of: str, processes: int) -> str:
    """Return what the percentiles without an interval need."""
    if 1 < processes < FEWEST_PROCESSES and missing:
        return f"{processes} processes tell nothing of others: {FEWEST_PROCESSES} or more are needed, 6 for 95 %."
    named = [
        f"{MISSING.get(row['percentile'], NAMED[row['percentile']])} (about {formatting.estimate(row['needed_steps'])})"
        for row in missing
    ]
    return f"More {of}s are needed for {', '.join(named)}." if named else ""


# The report's tables on a cell's several processes: its collective operations, and which process comes late. And what
# holds its memory.

# Tables by name, with the ends of their files' names.
FILES: Mapping[str, tuple[str | tuple[str, ...], Table]] = {
    "collectives": ("torch-collectives.csv", collective_tables.CALL_TABLE),
    "skew": ("torch-skew.csv", collective_tables.TABLE),
    "memory": ((".memory.csv", ".memory-remedies.csv"), MEMORY),
}
PROCESS_FILES = ("collectives", "skew")
# Most modules shown per cell, those that hold most; and most operations, those with the longest transfers.
MOST = 10
BETWEEN = "between parts"


def read_tables(paths: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Read the files of cells, as one table for each of FILES that any cell has."""
    found = {}
    for name, (ending, table) in FILES.items():
        frames = [
            rows.assign(**cell) for cell, rows in cell_tables.read([p for p in paths if p.endswith(ending)], table)
        ]
        if frames:
            found[name] = pd.concat(frames, ignore_index=True)
    return found


def describe_memory(rows: pd.DataFrame) -> TemplateVariables:
    """Return the template's variables on what holds a cell's memory at the peak of its step, and on remedies.

    rows: of a step without modules, as earlier versions wrote them, or of none, there are no variables.
    """
    if not len(rows) or "module" not in rows or rows["module"].isna().any():
        return {}
    measured, step = rows[(rows["module"] == "") & (rows["remedy"] == "")], rows.iloc[0]
    parts = measured.iloc[1:]
    within = f" in {parts['range'][parts['peak_bytes'].idxmax()]}" if len(parts) else ""
    unused = step["unused_bytes"]
    more = f" The allocator holds {size(unused)} more, which no tensor uses." if pd.notna(unused) and unused else ""
    modules = rows[rows["module"] != ""].to_dict("records")
    return {
        "says": f"At most {size(step['peak_bytes'])}{within}: {_name_held(step)}.{more}",
        "modules": [
            (row["module"], size(row["peak_bytes"]), f"{row['peak_bytes'] / step['peak_bytes']:.0%}", _name_held(row))
            for row in modules[:MOST]
        ],
        "remedies": [
            (row["remedy"], size(row["peak_bytes"]), _tell_saved(row["peak_bytes"] / step["peak_bytes"]), row["range"])
            for row in rows[rows["remedy"] != ""].to_dict("records")
        ],
    }


def _tell_saved(left: float) -> str:
    """Return the share that is saved, without the sign of a zero.

    >>> _tell_saved(0.4), _tell_saved(1.0002), _tell_saved(1.02)
    ('60%', '0%', '-2%')
    """
    return f"{round(1 - left, 2) + 0:.0%}"


def _name_held(row: Mapping[Any, Any]) -> str:
    """Return what memory is held for, the most first."""
    held = sorted(((row[f"{name}_bytes"], name) for name in HELD), reverse=True)
    return ", ".join(f"{name} {size(count)}" for count, name in held if count > 0)


def describe_processes(tables: Mapping[str, pd.DataFrame], cell: tuple[str, str]) -> TemplateVariables:
    """Return the template's variables on the processes of a cell; tables: of read_tables, and others."""
    operations, skew = (
        rows_of_cell(tables[name], *cell) if name in tables else pd.DataFrame() for name in PROCESS_FILES
    )
    return {
        "collectives": [_format_operation(row) for row in operations.head(MOST).to_dict("records")],
        "unshown_collectives": max(len(operations) - MOST, 0),
        "link": operations["link"].iloc[0] if len(operations) else "",
        "late": _format_lateness(skew) if len(skew) else [],
    }


def _format_operation(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        "name": str(row["collective"]).replace("_", "-"),
        "size": size(row["bytes"]),
        "count": f"{row['count']:,}",
        "transfer": format_ns(row["transfer_ns"]),
        "waiting": format_ns(row["waiting_ns"]),
        "rate": format_value(row["bus_bytes_per_s"], _format_rate),
        "probe": format_value(row["probe_bus_bytes_per_s"], _format_rate),
        "share": format_value(row["probe_share"], "{:.0%}".format),
    }


def _format_rate(rate: float) -> str:
    """Format a bandwidth.

    >>> _format_rate(250e9), _format_rate(1.5e8), _format_rate(2e5)
    ('250.00 GB/s', '0.15 GB/s', '0.20 MB/s')
    """
    return f"{rate / 1e9:,.2f} GB/s" if rate >= 1e8 else f"{rate / 1e6:,.2f} MB/s"


def _format_lateness(skew: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row per process: means over the steps, and the part in which it lost most."""
    steps = skew["step"].nunique()
    rows = []
    for (rank, host), own in skew.groupby(["rank", "host"]):
        parts = own.groupby("range")["late_ns"].sum() / steps
        worst = parts.idxmax()
        rows.append(
            {
                "rank": f"{rank}",
                "host": str(host),
                "last": f"{own['last'].sum():,} of {own['operations'].sum():,}",
                "late": format_ns(max(parts.sum(), 0.0)),
                "part": f"{worst or BETWEEN} ({format_ns(parts[worst])})" if parts[worst] > 0 else "",
                "waiting": format_ns(own["waiting_ns"].sum() / steps),
            }
        )
    return rows


# The report's section on the tokens that a cell generates.

# Rows of the largest times above the floor that are shown, and causes that are named.
MOST_ROWS, CAUSES_NAMED = 8, 3
# Numbers of layers of a stack, which are shown as one.
NUMBERED = re.compile(r"(?<![^.])\d+(?=\.|$)")


def describe_tokens(rows: pd.DataFrame, cell: pd.Series) -> TemplateVariables:
    """Return the template's variables on the time of tokens; none without rows.

    rows: the cell's of the table `tokens`; cell: of the table `cells`.
    """
    if rows.empty:
        return {}
    ranges = dict([*rows.groupby("range", sort=False)])
    parts = pd.DataFrame({name: tokens.list_parts(own) for name, own in ranges.items()})
    decode = ranges[DECODE].assign(module=ranges[DECODE]["module"].map(lambda name: NUMBERED.sub("*", name)))
    decode = decode.assign(above=decode["ns"] - decode[[*tokens.FLOOR]].sum(axis=1))
    causes = tokens.rank_causes(decode)[:CAUSES_NAMED]
    named = [f"{cause} {format_ns(ns)}{_name_cause(decode, str(cause))}" for cause, ns in causes.items() if ns > 0]
    floor, ns = (decode["ns"] - decode["above"]).sum(), decode["ns"].sum()
    summed = {"operators": "first", **dict.fromkeys(("launches", "ns", "above"), "sum")}
    layers = decode.groupby(["module", "kind"], sort=False).agg(summed).nlargest(MOST_ROWS, "above").reset_index()
    return {
        "says": f"The first token takes {format_ns(ranges[PREFILL]['ns'].sum())}, each further one {format_ns(ns)}: "
        f"{number(cell['user_tokens_per_s'])} tokens per second for each sample, {number(cell['tokens_per_s'])} in "
        f"all. Its bytes need {format_ns(floor)} ({floor / ns:.0%}), with a cache of "
        f"{size(decode['cache_bytes'].sum())}. Above that: {'; '.join(named) or 'nothing'}.",
        "parts": [
            [part, *(f"{format_ns(own)} ({own / parts[name].sum():.0%})" for name, own in row.items())]
            for part, row in parts.iterrows()
            if (row != 0).any()
        ],
        "layers": [
            [row.module, row.kind, row.operators, number(row.launches), format_ns(row.ns), format_ns(row.above)]
            for row in layers.itertuples()
        ],
    }


def _name_cause(rows: pd.DataFrame, cause: str) -> str:
    """Name operators and layers of a cause, such as ` (cat in blocks.*)`."""
    own = rows[rows["kind"] == (cause if cause in {*rows["kind"]} else tokens.PRODUCTS)]
    first = own.groupby(["operators", "module"])["above"].sum()
    return " ({} in {})".format(*first.idxmax()) if len(first) and first.idxmax()[0] else ""


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
    row: pd.Series, tables: Mapping[str, pd.DataFrame], timelines: "Mapping[tuple[str, ...], Timeline]", results: Path
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
        "step": format_ns(row["step_ns"]),
        "strip": value_formats.step_parts(tables, *cell),
        **_format_plans(tables.get("plans"), cell),
        "advice": _group_advice(verdicts, row["step_ns"], is_cpu_device(row["device"])),
        "waits": _format_waits(schemas.rows_of_cell(tables["waits"], *cell)) if "waits" in tables else [],
        "inside": [*schemas.rows_of_cell(tables["inside"], *cell)["says"]] if "inside" in tables else [],
        "differ": [*schemas.rows_of_cell(tables["repetition"], *cell)["says"]] if "repetition" in tables else [],
        "latency": describe_latency(schemas.rows_of_cell(tables["latency"], *cell)) if "latency" in tables else "",
        "tokens": describe_tokens(schemas.rows_of_cell(tables["tokens"], *cell), row) if "tokens" in tables else {},
        "processes": _format_processes(schemas.rows_of_cell(tables["ranks"], *cell)),
        "counters": counter_section.describe_counters(tables, cell),
        **describe_processes(tables, cell),
        "memory": describe_memory(schemas.rows_of_cell(tables["memory"], *cell)) if "memory" in tables else {},
        **_largest_kernels(schemas.rows_of_cell(tables["activity"], *cell), row),
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
                "recipe": _recipe_of(row),
                "changes": row["changes"],
                **gain_fields(row),
                "outlook": row["outlook"],
                "evidence": row["evidence"],
                "score": row["score"],
                "typed": row["command"],
            }
            for row in rows
            if not row["not_possible"]
        ],
        "impossible": [{"recipe": _recipe_of(row), "why": why} for row in rows if (why := row["not_possible"])],
    }


def _recipe_of(row: Row) -> TemplateVariables:
    return recipe_context(row["settings"], read_text(row, "recipe"), row["command"])


def _format_verdict(row: Any, step_ns: float) -> dict[str, str]:
    # A rule compares the share with its threshold.
    share = partial(percent, threshold=getattr(row, "threshold", None) or math.nan, places=1)
    return {
        "verdict": row.verdict,
        "about": _name_subject(row),
        "time": format_value(row.share * step_ns if pd.notna(row.share) else None, format_ns),
        "share": format_value(row.share, share),
        "between": format_interval(getattr(row, "share_low", None), getattr(row, "share_high", None), share),
        "gain": format_value(row.gain, lambda gain: f"{gains(gain)[0]}×"),
        "next": row.next_step,
        "recipe": verdict_recipe_context(row.verdict),
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
            "waited": format_value(row["wait_ns"], format_ns),
        }
        for row in waits.to_dict("records")
    ]


def _format_processes(ranks: pd.DataFrame) -> list[list[str]]:
    """Return the processes of a cell on several GPUs, a row of PROCESS_COLUMNS each."""
    return [[format_value(row[name], form) for name, form in PROCESS_COLUMNS.values()] for _, row in ranks.iterrows()]


def _largest_kernels(activity: pd.DataFrame, cell: pd.Series) -> TemplateVariables:
    """Return the cell's TOP kernels (or operators) as one tool measured them; cell: its row of the table of cells.

    The launches of a report made elsewhere are those of the tool that timed it, whatever they stand under.
    """
    chosen = prefer_tool(activity).head(TOP)
    names = short_names.shorten_names(chosen["name"])
    return {
        "kind": chosen["kind"].iloc[0] if len(chosen) else "",
        "tool": read_text(cell, "timed_under") or (chosen["tool"].iloc[0] if len(chosen) else ""),
        "kernels": [
            {
                "name": names[row["name"]],
                "whole": row["name"],
                "range": format_value(row["range"], str),
                "launches": number(row["launches_per_step"], 4),
                "time": format_ns(row["ns_per_step"]),
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
