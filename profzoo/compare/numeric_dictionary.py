"""Declares the columns that say whether two sides of a comparison or trial compute the same."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from profzoo.io import column_types
from profzoo.io.column_types import Kind
from profzoo.io.columns import RATIO, Column

NUMBER = column_types.or_missing(column_types.NUMBER)
COLUMNS: Mapping[str, Kind] = {
    "numerics": column_types.TEXT,
    "numerics_by": column_types.TEXT,
    "numerics_difference": NUMBER,
    "numerics_tolerance": NUMBER,
    "numerics_why": column_types.TEXT,
    "seed_spread": NUMBER,
    "work": column_types.TEXT,
}
# Values of what was not compared.
UNKNOWN: Mapping[str, Any] = {name: "" if kind is column_types.TEXT else np.nan for name, kind in COLUMNS.items()}
ABOUT: Mapping[str, Column] = {
    "numerics": Column(
        "Whether the candidate computes what the unchanged side computes: `same`, `within precision` (as far off as "
        "its number format explains), `different` or `undecided`."
    ),
    "numerics_by": Column("Quantity that decided `numerics`: the one that is farthest off for its tolerance."),
    "numerics_difference": Column("Difference of this quantity, relative to the exact one.", RATIO, "time"),
    "numerics_tolerance": Column("Largest such difference that rounding explains.", RATIO, "time"),
    "numerics_why": Column("Why `numerics` is `different` or `undecided`, or what limits another result."),
    "seed_spread": Column(
        "Standard deviation of the unchanged side's loss between seeds after as many steps, relative to the loss.",
        RATIO,
        "time",
    ),
    "work": Column("What differs in the work of a step, as counted in double precision."),
}
