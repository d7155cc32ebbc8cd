"""Judge from NVML's samples whether the GPU's clock dropped during the steps, and by how much that slows them down."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from profzoo.tables.schemas import CELL
from profzoo.tables.step_shares import amdahl
from profzoo.verdicts.advice_scores import UNSCORED
from profzoo.verdicts.gain_methods import AMDAHL
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, CellRules
from profzoo.verdicts.verdict import Verdict

DROPPED = "dropped clocks"
# Columns of the table of cells, there where clocks were sampled: mean and high clock, share of the samples in which
# something slowed the GPU down, and what did.
MEAN, HIGH, THROTTLED, WHY = "sm_clock_hz", "sm_clock_high_hz", "throttled_share", "clocks"
COLUMNS = (MEAN, HIGH, THROTTLED, WHY)
# The least share of the step that the lower clock costs, and of the samples in which something slowed the GPU down.
LEAST_LOST, LEAST_THROTTLED = 0.03, 0.05
ADVICE = (
    "the GPU cannot hold its clock: cool it better, raise its power limit (nvidia-smi --power-limit) if you may, or "
    "leave the GPUs beside it idle; do not compare these times with those at another clock"
)


def add_clocks(steps: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of steps with what the table of cells says of clocks (COLUMNS); nan where it was not sampled."""
    known = cells.reindex(columns=[*CELL, *COLUMNS])
    return steps.merge(known, on=CELL, how="left")


def judge_clocks(judged: CellRules) -> Iterator[Verdict]:
    """Yield the verdict on a clock that dropped: kernels that only the clock limits take longer in proportion.

    The high clock is that of the fastest samples, so a GPU that was slow all the time is not noticed. Kernels that wait
    for memory do not follow the clock; the gain is therefore between none and that of all kernels.
    """
    row = judged.step
    mean, high, throttled = (float(row.get(name, np.nan)) for name in (MEAN, HIGH, THROTTLED))
    lost = 1 - mean / high if high > 0 else 0.0
    share = judged.shares["kernels"]
    if not throttled >= LEAST_THROTTLED or share * lost < LEAST_LOST:
        return
    gain = amdahl(share, lost)
    yield Verdict(
        level=CELL_LEVEL,
        verdict=DROPPED,
        metric="share of the step: lost to a lower SM clock",
        value=share * lost,
        threshold=LEAST_LOST,
        share=share * lost,
        evidence=f"cells.csv: {MEAN}, {HIGH}, {THROTTLED}",
        cured=1.0,
        gain=gain,
        gain_low=1.0,
        gain_high=gain,
        method=AMDAHL,
        trials=0,
        score=UNSCORED,
        next_step=f"the SM clock was {mean / 1e6:,.0f} MHz in the mean and {high / 1e6:,.0f} MHz at best"
        f"{_reason(row.get(WHY))}: {ADVICE}",
        source="NVML API reference, clocks event reasons; nvidia-smi, power limits",
    )


def _reason(said: object) -> str:
    """Return what the samples say of the reasons, in brackets; empty without any."""
    return f" ({said})" if isinstance(said, str) and said else ""
