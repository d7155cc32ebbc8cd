"""Make a cell's strip: a bar of the step's parts, each as wide as its share."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pandas as pd

from profzoo.figures.palette import PART_COLOURS, STEP_COLOURS
from profzoo.tables import schemas, step_shares
from profzoo.tables.user_ranges import select_parts

# Smallest part to show, in %.
LEAST_PERCENT = 0.5
NO_ROWS = pd.DataFrame(columns=schemas.CELL)


class StripPart(TypedDict):
    """A part of a cell's strip: its name, its share of the step in %, and its colour."""

    part: str
    percent: float
    colour: str


def step_parts(tables: Mapping[str, pd.DataFrame], model: str, phase: str) -> list[StripPart]:
    """Return the parts with share in % and colour: ranges of a cell on a CPU, parts by nsys of a cell on a GPU.

    The strip is empty if the cell has neither. tables: steps and, if there are any, ranges of all cells.
    """
    given = (tables.get(name, NO_ROWS) for name in ("steps", "ranges"))
    steps, ranges = (select_parts(schemas.rows_of_cell(table, model, phase)) for table in given)
    if len(steps) and "busy_ns" in steps:
        shares = step_shares.step_shares(steps).mean().rename(lambda name: name.replace("idle_", "idle: "))
        colours = STEP_COLOURS
    elif len(ranges) and (ranges["clock"] == "cpu").all():
        times = ranges.groupby("range")["ns_per_step"].sum()
        shares, colours = times / times.sum(), PART_COLOURS
    else:
        return []
    parts = ((part, shares.get(part, 0.0) * 100, colour) for part, colour in colours.items())
    return [
        {"part": part, "percent": percent, "colour": colour}
        for part, percent, colour in parts
        if percent >= LEAST_PERCENT
    ]


def describe_parts(strip: Sequence[StripPart]) -> str:
    """Describe the strip in words, for screen readers."""
    return ", ".join(f"{part['part']} {part['percent']:.0f} %" for part in strip)
