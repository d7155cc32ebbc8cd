"""The report's section of a cell: what holds it back, where its step goes, its processes, kernels and files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.figures.plots import STEP_COLOURS
from profzoo.report.fields import PROCESS_COLUMNS, shown
from profzoo.tables import kernel_names, step_shares
from profzoo.tables.preference import preferred
from profzoo.text import duration

# So many kernels are shown of a cell.
TOP = 10
# Parts of a step that take less are not shown, in %.
LEAST = 0.5


def anchor(row: pd.Series) -> str:
    """The cell's place in the page."""
    return f"{row['model']}-{row['phase']}"


def detail(row: pd.Series, tables: Mapping[str, pd.DataFrame], results: Path) -> dict[str, Any]:
    """The section of a cell.

    row: of the table of cells; tables: activity, steps, verdicts and ranks, of all cells; results: where its files are.
    """
    files = _files(row, results)
    return {
        "anchor": anchor(row),
        "model": row["model"],
        "phase": row["phase"],
        "step": duration(row["step_ns"]),
        "strip": _strip(_of_cell(tables["steps"], row)),
        "advice": _advice(_of_cell(tables["verdicts"], row)),
        "processes": _processes(_of_cell(tables["ranks"], row)),
        **_largest(_of_cell(tables["activity"], row)),
        "files": files,
        "trace": next((name for name in files if name.endswith(".trace.json.gz")), None),
    }


def _of_cell(table: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    return table[(table["model"] == row["model"]) & (table["phase"] == row["phase"])]


def _strip(steps: pd.DataFrame) -> list[dict[str, Any]]:
    """A step as a strip: its parts with their share in % and their colour; empty where nsys did not trace the cell."""
    if steps.empty:
        return []
    shares = step_shares.shares(steps).mean().rename(lambda name: name.replace("idle_", "idle: "))
    parts = ((part, shares[part] * 100, colour) for part, colour in STEP_COLOURS.items())
    return [{"part": part, "percent": percent, "colour": colour} for part, percent, colour in parts if percent >= LEAST]


def _advice(verdicts: pd.DataFrame) -> list[dict[str, str]]:
    """The verdicts of a cell, its kernels and its layers as the page shows them."""
    return [
        {
            "level": row.level,
            "verdict": row.verdict,
            "about": _about(row),
            "share": shown(row.share, "{:.1%}".format),
            "gain": shown(row.gain, "{:.2f}×".format),
            "next": row.next_step,
            "settings": row.settings if row.level == "cell" else "",
            "by": row.by,
            "source": shown(row.source, str),
        }
        for row in verdicts.itertuples()
    ]


def _about(row: Any) -> str:
    """What of the cell a verdict is on."""
    names = {"kernel": shown(row.function, str), "layer": f"{row.module} {row.direction}"}
    return names.get(row.level, "the step")


def _processes(ranks: pd.DataFrame) -> list[list[str]]:
    """The processes of a cell on several GPUs, each as the fields of PROCESS_COLUMNS."""
    return [[shown(row[name], form) for name, form in PROCESS_COLUMNS.values()] for _, row in ranks.iterrows()]


def _largest(activity: pd.DataFrame) -> dict[str, Any]:
    """The cell's TOP kernels (or operators) by one tool."""
    chosen = preferred(activity).head(TOP)
    names = kernel_names.shortened(chosen["name"])
    return {
        "kind": chosen["kind"].iloc[0] if len(chosen) else "",
        "tool": chosen["tool"].iloc[0] if len(chosen) else "",
        "kernels": [
            {
                "name": names[row["name"]],
                "whole": row["name"],
                "range": shown(row["range"], str),
                "launches": f"{row['launches_per_step']:,.4g}",
                "time": duration(row["ns_per_step"]),
                "share": f"{row['share']:.1%}",
            }
            for row in chosen.to_dict("records")
        ],
    }


def _files(row: pd.Series, results: Path) -> list[str]:
    """What the cell's folder holds of its phase, but for sidecars, relative to the page."""
    found = (results / row["model"]).glob(f"{row['phase']}.*")
    return sorted(f"{row['model']}/{path.name}" for path in found if path.suffix != ".json" and path.is_file())
