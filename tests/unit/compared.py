"""A comparison of the recorded zoo with what it would be with faster kernels: tables for tests of what shows them."""

from typing import Any

import numpy as np
import pandas as pd

from profzoo.compare import comparison_table, contributions
from profzoo.compare.comparison_table import MeasuredSide
from profzoo.compare.contributions import TracedCell
from profzoo.compare.sides import interleave
from profzoo.tables.kernel_table import KEYS
from tests.conftest import DATA

STEPS = pd.read_csv(DATA / "zoo/steps.csv")
# The zoo's table has kept what tells configurations apart there.
_ROWS = pd.read_csv(DATA / "zoo/kernels.csv.gz").fillna({"range": "", "class": ""})
KERNELS = _ROWS.assign(kernel=_ROWS["function"], mangled=_ROWS["function"]).assign(
    **dict.fromkeys([key for key in KEYS if key not in _ROWS and key != "mangled"], 0)
)
CELLS = list(STEPS[["model", "phase"]].itertuples(index=False, name=None))
# How many times as long kernels of a class take in bf16, more or less.
FACTORS = {"convolution": 0.55, "gemm": 0.45, "attention": 0.5, "recurrent": 0.8, "copy": 1.6, "elementwise": 0.75}


def traced(model: str, phase: str) -> TracedCell:
    """A cell of the recorded zoo."""
    step = STEPS[(STEPS["model"] == model) & (STEPS["phase"] == phase)].iloc[0]
    kernels = KERNELS[(KERNELS["model"] == model) & (KERNELS["phase"] == phase)]
    return TracedCell(kernels.reset_index(drop=True), step.to_dict())


def scaled(given: TracedCell, factors: pd.Series) -> TracedCell:
    """The cell with kernels that take so many times as long (factors: by row); the step is longer by that."""
    scale = given.timed()["ns"].sum() / given.kernels["total_ns"].sum()
    more = given.kernels["total_ns"] * (factors - 1)
    kernels = given.kernels.assign(total_ns=given.kernels["total_ns"] + more)
    step = given.step["step_ns"] + more.sum() * scale
    longer = {name: given.step[name] + more.sum() for name in ("busy_ns", "kernel_ns", "wall_ns")} | {"step_ns": step}
    working = given.step["busy_share"] * given.step["step_ns"] + more.sum() * scale
    return TracedCell(kernels, {**given.step, **longer, "busy_share": working / step})


def compared(cells: list[tuple[str, str]] = CELLS, spread: float = 0.004) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of a comparison and that of its parts; spread: of processes, as a share of their time."""
    random = np.random.default_rng(18)
    rows: list[Any] = []
    pairs = []
    order = interleave(["plain", "bf16"], 5, "2")
    for number, (model, phase) in enumerate(cells):
        one = traced(model, phase)
        factors = one.kernels["class"].map(FACTORS).fillna(1.0) if number % 5 else pd.Series(1.0, one.kernels.index)
        other = scaled(one, factors ** (1.0 if number % 4 else -0.2))
        sides = {}
        for name, side in (("plain", one), ("bf16", other)):
            medians = side.step["step_ns"] * np.exp(random.normal(0, spread * (1 + 5 * (number % 7 == 3)), 5))
            steps = [median * np.exp(random.normal(0, 0.01, 20)) for median in medians]
            places = [place for place, one_of in enumerate(order) if one_of == name]
            sides[name] = MeasuredSide(
                steps, {"device": "NVIDIA H200", "started": "2026-11-22T10:00:00"}, places=places
            )
        rows.append(({"model": model, "phase": phase}, sides, True))
        pairs.append((one, other))
    table, frames = comparison_table.tabulate_comparison(rows, 0.02), []
    for row, (one, other) in zip(table.to_dict("records"), pairs, strict=True):
        timed = [TracedCell(side.kernels, {**side.step, "step_ns": row[f"{name}_ns"]})
                 for name, side in zip(contributions.SIDES, (one, other), strict=True)]  # fmt: skip
        frames.append(
            contributions.contribution_rows(*timed).assign(
                **{key: row[key] for key in ("model", "phase", *contributions.SIDES)}
            )
        )
    return table, pd.concat(frames, ignore_index=True)[list(contributions.COLUMNS)]
