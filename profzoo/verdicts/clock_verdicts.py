"""Judge whether the GPU's clock dropped during the steps, by NVML, and by how much that slows them down.

By NVML's samples, where clocks were sampled; else by what unprofiled processes read at both ends of their windows.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo.tables.schemas import CELL
from profzoo.tables.step_shares import amdahl
from profzoo.tools.sample.clock_readings import summarise_clocks
from profzoo.verdicts.advice_scores import UNSCORED
from profzoo.verdicts.gain_methods import AMDAHL
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, CellRules
from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import ClockReading

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


def judge_clocks(judged: CellRules, readings: "Sequence[ClockReading]" = ()) -> Iterator[Verdict]:
    """Yield the verdict on a clock that dropped: kernels that only the clock limits take longer in proportion.

    The high clock is that of the fastest samples or readings, so a GPU that was slow all the time is not noticed.
    Kernels that wait for memory do not follow the clock; the gain is therefore between none and that of all kernels.

    readings: of unprofiled processes, which count where no clock was sampled. Of these, only those are lower than the
    high clock in which something limits it.
    """
    row = judged.step
    mean, high, throttled = (float(row.get(name, np.nan)) for name in (MEAN, HIGH, THROTTLED))
    why, evidence = row.get(WHY), f"cells.csv: {MEAN}, {HIGH}, {THROTTLED}"
    if np.isnan(mean) and (found := summarise_clocks(readings)):
        mean, high, throttled, why = found.kept_hz, found.high_hz, found.limited_share, found.reasons
        evidence = "sidecar of the unprofiled run: clocks"
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
        evidence=evidence,
        cured=1.0,
        gain=gain,
        gain_low=1.0,
        gain_high=gain,
        method=AMDAHL,
        trials=0,
        score=UNSCORED,
        next_step=f"the SM clock was {mean / 1e6:,.0f} MHz in the mean and {high / 1e6:,.0f} MHz at best"
        f"{_reason(why)}: {ADVICE}",
        source="NVML API reference, clocks event reasons; nvidia-smi, power limits",
    )


def _reason(said: object) -> str:
    """Return what the samples say of the reasons, in brackets; empty without any."""
    return f" ({said})" if isinstance(said, str) and said else ""
