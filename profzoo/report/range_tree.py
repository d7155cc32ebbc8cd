"""Prepares a cell's tree of ranges that the program opened itself for the page."""

import pandas as pd

from profzoo.formatting import duration
from profzoo.tables.layers import STEP
from profzoo.tools.user_ranges import SEPARATOR


def select_tree(ranges: pd.DataFrame) -> pd.DataFrame | None:
    """Return the rows of the page's tree: `name`, `parent`, `type`, `direction`, `ns`, `own`, `share`, and its bound.

    Time is that of launches, or where no tool saw any the host's. Of ranges of both NVTX and record_function each tree
    is below the name of its kind.

    ranges: the cell's rows of the table of ranges; None is returned where none is of the program's own.
    """
    own = ranges[ranges["api"] != ""] if "api" in ranges else ranges.iloc[:0]
    if own.empty:
        return None
    several = own["api"].nunique() > 1
    known = own["ns_per_step"].notna()
    steps = own[own["range"] == STEP].set_index("api")["cpu_ns_per_step"]
    prefix = own["api"] + SEPARATOR if several else pd.Series("", index=own.index)
    outermost = own["parent"] == STEP
    table = own.assign(
        name=prefix + own["range"],
        parent=(prefix + own["parent"]).where(~outermost, own["api"] if several else STEP),
        type=[_describe(row) for row in own.itertuples()],
        direction="GPU time",
        ns=own["ns_per_step"].where(known, own["cpu_ns_per_step"]),
        own=own["self_ns_per_step"],
        share=own["share"].where(known, own["cpu_ns_per_step"] / own["api"].map(steps)),
    )
    table.loc[(own["clock"] == "cpu").to_numpy(), "direction"] = "CPU time"
    whole = own["range"] == STEP
    if several:
        table.loc[whole, ["name", "parent", "type"]] = [(api, STEP, "") for api in own.loc[whole, "api"]]
    return table[table["ns"].notna()].reset_index(drop=True)


def _describe(row: pd.Series) -> str:
    """Say how often a range was opened, and how long it was open on the host."""
    if pd.isna(row.calls_per_step) or row.range == STEP:
        return ""
    times = f"{row.calls_per_step:.3g}× per step" if row.calls_per_step else "opened earlier"
    return f"{times}, {duration(row.cpu_ns_per_step)} of CPU time"
