"""Writes the report: one HTML page, figures inlined, that opens offline."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from profzoo import tools as registry
from profzoo.figures import known as known_figures
from profzoo.figures.plots import STEP_COLOURS
from profzoo.files import read_json
from profzoo.tables import step_shares
from profzoo.tables.cell_tables import CELL
from profzoo.tables.preference import preferred
from profzoo.tables.ranks import read as read_ranks
from profzoo.text import duration

FILES = ("page.html.j2", "../tools/*/activity.py")
TEMPLATE = Path(__file__).with_name(FILES[0])
TABLES = ("cells", "agreement", "activity", "steps", "verdicts")
TOP = 10
MISSING = "–"
CELL_COLUMNS = {
    "model": ("model", str),
    "phase": ("phase", str),
    "verdict": ("verdict", str),
    "gain": ("gain", "{:.2f}×".format),
    "batch": ("batch", "{:,.0f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "step": ("step_ns", lambda ns: duration(ns)),
    "median": ("step_median_ns", lambda ns: duration(ns)),
    "samples/s": ("items_per_s", "{:,.1f}".format),
    "GPU busy": ("busy_share", "{:.0%}".format),
    "launches": ("launches", "{:,.0f}".format),
    "peak GPU memory": ("peak_memory_bytes", lambda value: f"{value / 2**20:,.0f} MiB"),
    "loss": ("loss", "{:.4f}".format),
}
TEXTS = ("model", "phase", "verdict")
# Of a cell on several GPUs, a row a process.
PROCESS_COLUMNS = {
    "host": ("host", str),
    "rank": ("rank", "{:.0f}".format),
    "step under nsys": ("wall_ns", duration),
    "computing": ("compute_ns", duration),
    "communicating": ("communication_ns", duration),
    "of it waiting": ("waiting_ns", duration),
    "beside computing": ("overlap_share", "{:.0%}".format),
    "imbalance": ("imbalance", "{:+.1%}".format),
}


def agreement_format(column: str) -> Any:
    """How a column of the table of agreement is shown."""
    if column.endswith("_ns"):
        return duration
    if column.endswith("_spread"):
        return "{:.1%}".format
    if column.endswith("_slowdown"):
        return "{:.2f}×".format
    return "{:,.1f}".format if column.endswith("_launches") else str


def shown(value: Any, form: Any) -> str:
    """The value in its form, a dash where there is none."""
    return MISSING if pd.isna(value) else form(value)


def field(value: Any, form: Any) -> dict[str, Any]:
    """A field of a table: what is shown, and what it is sorted by."""
    return {"text": shown(value, form), "value": "" if pd.isna(value) else value}


def overview(cells: pd.DataFrame, steps: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """The cells with what holds each back most, how busy they keep the GPU, and their launches."""
    first = verdicts[(verdicts["level"] == "cell") & (verdicts["rank"] == 1)]
    busiest = steps.sort_values("busy_share", ascending=False).drop_duplicates(CELL) if len(steps) else steps
    table = cells.merge(first[[*CELL, "verdict", "gain"]], on=CELL, how="left")
    return table.merge(busiest.reindex(columns=[*CELL, "busy_share", "launches"]), on=CELL, how="left")


def render(
    cells: pd.DataFrame,
    agreement: pd.DataFrame,
    activity: pd.DataFrame,
    steps: pd.DataFrame,
    verdicts: pd.DataFrame,
    ranks: pd.DataFrame,
    figures: Sequence[str],
    results: Path,
    tools: Sequence[str],
) -> str:
    """The page, from the tables, the SVG files to inline, and the folder that the cells' files are in."""
    # A column of nothing but gaps is of a tool that was not asked for.
    agreement = agreement.dropna(axis="columns", how="all")
    rows = overview(cells, steps, verdicts)
    offered = dict(CELL_COLUMNS)
    for activity_of in registry.activities().values():
        offered |= activity_of.COLUMNS
    columns = {name: form for name, form in offered.items() if form[0] in rows and rows[form[0]].notna().any()}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    sidecars = [read_json(results / row.model / f"{row.phase}.time.csv.json") for row in cells.itertuples()]
    return template.render(
        tools=tools,
        cells=[
            {
                "anchor": anchor(row),
                "fields": [field(row[name], form) for name, form in columns.values()],
            }
            for _, row in rows.iterrows()
        ],
        cell_columns=list(columns),
        texts=TEXTS,
        missing=sorted(set(registry.compared()) - set(tools)),
        models=cells["model"].nunique(),
        devices=sorted(set(cells["device"])),
        dates=sorted(set(cells["date"])),
        software=", ".join(sorted({software(sidecar) for sidecar in sidecars})),
        on_cpu=on_cpu(sidecars),
        figures=[figure(path) for path in figures],
        agreement=[
            [field(row[column], agreement_format(column)) for column in agreement] for _, row in agreement.iterrows()
        ]
        if tools
        else [],
        agreement_texts=[index for index, name in enumerate(agreement) if name in (*CELL, "flag", "cause")],
        agreement_columns=[column.replace("_", " ").removesuffix(" ns") for column in agreement],
        process_columns=list(PROCESS_COLUMNS),
        details=[detail(row, activity, steps, verdicts, ranks, results) for _, row in cells.iterrows()],
    )


def software(sidecar: dict[str, Any]) -> str:
    """Versions that a cell was measured with."""
    gpu = f", CUDA {sidecar['cuda']}, driver {sidecar['driver']}" if sidecar["cuda"] and "driver" in sidecar else ""
    return f"torch {sidecar['torch']}{gpu}"


def on_cpu(sidecars: Sequence[dict[str, Any]]) -> list[str]:
    """Why cells were measured on the CPU, each reason with how many of them it is of."""
    reasons = Counter(why for sidecar in sidecars if (why := sidecar.get("device_why")))
    return [f"{count} of {len(sidecars)} cells: {why}" for why, count in reasons.most_common()]


def anchor(row: pd.Series) -> str:
    """The cell's place in the page."""
    return f"{row['model']}-{row['phase']}"


def figure(path: str) -> dict[str, Any]:
    """A figure's markup without XML header, its name, and its caption."""
    svg = Path(path).read_text(encoding="utf-8")
    name = Path(path).stem
    # Several SVGs in one page share one space of ids.
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", svg[svg.index("<svg") :])
    return {"name": name, "svg": Markup(svg), "caption": known_figures()[name].caption}


def of_cell(table: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    """The rows of a table that are of the same cell."""
    return table[(table["model"] == row["model"]) & (table["phase"] == row["phase"])]


def strip(steps: pd.DataFrame) -> list[dict[str, Any]]:
    """A step as a strip: its parts with their share in % and their colour; empty where nsys did not trace the cell."""
    if steps.empty:
        return []
    shares = step_shares.shares(steps).mean().rename(lambda name: name.replace("idle_", "idle: "))
    parts = ((part, shares[part] * 100, colour) for part, colour in STEP_COLOURS.items())
    return [{"part": part, "percent": percent, "colour": colour} for part, percent, colour in parts if percent >= 0.5]


def advice(verdicts: pd.DataFrame) -> list[dict[str, str]]:
    """The verdicts of a cell and its kernels as the page shows them."""
    return [
        {
            "level": row.level,
            "verdict": row.verdict,
            "about": shown(row.function, str) if row.level == "kernel" else "the step",
            "share": shown(row.share, "{:.1%}".format),
            "gain": shown(row.gain, "{:.2f}×".format),
            "next": row.next_step,
            "settings": "" if row.level == "kernel" or pd.isna(row.settings) else row.settings,
            "by": row.by,
            "source": shown(row.source, str),
        }
        for row in verdicts.itertuples()
    ]


def processes(ranks: pd.DataFrame) -> list[list[str]]:
    """The processes of a cell on several GPUs, each as the fields of PROCESS_COLUMNS."""
    return [[shown(row[name], form) for name, form in PROCESS_COLUMNS.values()] for _, row in ranks.iterrows()]


def detail(
    row: pd.Series,
    activity: pd.DataFrame,
    steps: pd.DataFrame,
    verdicts: pd.DataFrame,
    ranks: pd.DataFrame,
    results: Path,
) -> dict[str, Any]:
    """A cell's section: verdicts, where its step goes, its processes, its largest kernels by one tool, its files."""
    mine = of_cell(activity, row)
    chosen = preferred(mine).head(TOP)
    folder = results / row["model"]
    files = sorted(
        f"{row['model']}/{path.name}"
        for path in folder.glob(f"{row['phase']}.*")
        if not path.name.endswith(".json") and path.is_file()
    )
    return {
        "anchor": anchor(row),
        "model": row["model"],
        "phase": row["phase"],
        "step": duration(row["step_ns"]),
        "strip": strip(of_cell(steps, row)),
        "advice": advice(of_cell(verdicts, row)),
        "processes": processes(of_cell(ranks, row)),
        "kind": chosen["kind"].iloc[0] if len(chosen) else "",
        "tool": chosen["tool"].iloc[0] if len(chosen) else "",
        "kernels": [
            {
                "name": kernel.name_,
                "range": shown(kernel.range, str),
                "launches": f"{kernel.launches_per_step:,.4g}",
                "time": duration(kernel.ns_per_step),
                "share": f"{kernel.share:.1%}",
            }
            for kernel in chosen.rename(columns={"name": "name_"}).itertuples()
        ],
        "files": files,
        "trace": next((name for name in files if name.endswith(".trace.json.gz")), None),
    }


def main(
    tables: Mapping[str, str], ranks: Sequence[str], figures: Sequence[str], tools: Sequence[str], html: str
) -> None:
    """Read the tables (by name, their paths) and figures, write the page beside the folders of the cells."""
    read = {name: pd.read_csv(path, low_memory=False) for name, path in tables.items()}
    page = render(**read, ranks=read_ranks(ranks), figures=figures, results=Path(html).parent, tools=tools)
    Path(html).write_text(page, encoding="utf-8")
