"""The kernel table of the launches in a simulated program, as far as a trace contains it."""

import pandas as pd

from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.what_if import predicted_gains
from profzoo.what_if.program import Program


def configurations(program: Program) -> pd.DataFrame:
    """Return one row per range and launch configuration: launches per step, their total time and mean time in ns."""
    found = predicted_gains.Operations(program)
    rows = found.keys.assign(ns=program.gpu["ns"])[found.kernels]
    table = rows.groupby(["range", *CONFIGURATION])["ns"].agg(["size", "sum"]).reset_index()
    table["launches"], table["total_ns"] = table["size"] / program.steps, table["sum"] / program.steps
    table["mean_ns"] = table["total_ns"] / table["launches"]
    return table
