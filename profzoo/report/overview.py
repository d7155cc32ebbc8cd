"""What the report says of all cells at once: their table, how far the tools agree, what they were measured on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo import tools as registry
from profzoo.report.details import anchor
from profzoo.report.fields import CELL_COLUMNS, agreement_form, field
from profzoo.tables.across import CELL

FILES = ("../tools/*/activity.py",)
TEXTS = ("model", "phase", "verdict", "clocks")
AGREEMENT_TEXTS = (*CELL, "flag", "cause")


def of_cells(cells: pd.DataFrame, steps: pd.DataFrame, verdicts: pd.DataFrame) -> dict[str, Any]:
    """The table of cells, for the template: its columns that hold anything, and a row a cell."""
    table = _overview(cells, steps, verdicts)
    offered = dict(CELL_COLUMNS)
    for activity in registry.activities().values():
        offered |= activity.COLUMNS
    columns = {name: form for name, form in offered.items() if form[0] in table and _tells(table[form[0]])}
    rows = [
        {"anchor": anchor(row), "fields": [field(row[name], form) for name, form in columns.values()]}
        for _, row in table.iterrows()
    ]
    return {"cells": rows, "cell_columns": list(columns), "texts": TEXTS}


def _tells(column: pd.Series) -> bool:
    return bool((column.notna() & column.ne("")).any())


def _overview(cells: pd.DataFrame, steps: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """The cells with what holds each back most, how busy they keep the GPU, and their launches."""
    first = verdicts[(verdicts["level"] == "cell") & (verdicts["rank"] == 1)]
    busiest = steps.sort_values("busy_share", ascending=False).drop_duplicates(CELL) if len(steps) else steps
    table = cells.merge(first[[*CELL, "verdict", "gain"]], on=CELL, how="left")
    return table.merge(busiest.reindex(columns=[*CELL, "busy_share", "launches"]), on=CELL, how="left")


def of_agreement(agreement: pd.DataFrame, tools: Sequence[str]) -> dict[str, Any]:
    """The table of agreement, for the template; no rows where there is no tool to agree."""
    # A column of nothing but gaps is of a tool that was not asked for.
    known = agreement.loc[:, (agreement.notna() & agreement.ne("")).any()]
    rows = [[field(row[column], agreement_form(column)) for column in known] for _, row in known.iterrows()]
    return {
        "agreement": rows if tools else [],
        "agreement_texts": [index for index, name in enumerate(known) if name in AGREEMENT_TEXTS],
        "agreement_columns": [column.replace("_", " ").removesuffix(" ns") for column in known],
    }


def of_measuring(cells: pd.DataFrame, sidecars: Sequence[Mapping[str, Any]], tools: Sequence[str]) -> dict[str, Any]:
    """What was measured when, on what and with what, for the template; sidecars: of the cells' unprofiled runs."""
    return {
        "tools": tools,
        "missing": sorted(set(registry.compared()) - set(tools)),
        "models": cells["model"].nunique(),
        "devices": sorted(set(cells["device"])),
        "dates": sorted(set(cells["date"])),
        "software": ", ".join(sorted({_software(sidecar) for sidecar in sidecars})),
        "on_cpu": _on_cpu(sidecars),
        "clocks": _unsteady_clocks(cells),
    }


def _unsteady_clocks(cells: pd.DataFrame) -> list[str]:
    """The cells whose clocks moved or were held back, as far as they were sampled, and how."""
    known = cells[cells["clocks"].notna() & cells["clocks"].ne("")] if "clocks" in cells else cells.iloc[:0]
    return [f"{row.model} {row.phase}: {row.clocks}" for row in known.itertuples()]


def _software(sidecar: Mapping[str, Any]) -> str:
    """Versions that a cell was measured with."""
    gpu = f", CUDA {sidecar['cuda']}, driver {sidecar['driver']}" if sidecar["cuda"] and "driver" in sidecar else ""
    return f"torch {sidecar['torch']}{gpu}"


def _on_cpu(sidecars: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why cells were measured on the CPU, each reason with how many of them it is of."""
    reasons = Counter(why for sidecar in sidecars if (why := sidecar.get("device_why")))
    return [f"{count} of {len(sidecars)} cells: {why}" for why, count in reasons.most_common()]
