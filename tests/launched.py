"""The table of kernels of the launches in a replayed program, as far as a trace tells it."""

import pandas as pd

from profzoo.replay import matched
from profzoo.replay.program import Program
from profzoo.tools.ncu.tables import CONFIGURATION


def configurations(program: Program) -> pd.DataFrame:
    """A row a range and launch configuration: launches a step, their time together and each one's, in ns."""
    found = matched.Operations(program)
    rows = found.keys.assign(ns=program.gpu["ns"])[found.kernels]
    table = rows.groupby(["range", *CONFIGURATION])["ns"].agg(["size", "sum"]).reset_index()
    table["launches"], table["total_ns"] = table["size"] / program.steps, table["sum"] / program.steps
    table["mean_ns"] = table["total_ns"] / table["launches"]
    return table
