"""A clock that drops during the steps costs what kernels take longer: on simulated steps, whose twins keep the clock."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.cell.job_types import ClockReading
from profzoo.verdicts import clock_verdicts, rules, verdicts
from profzoo.verdicts.verdict import Verdict
from tests import simulated_waits
from tests.simulated_waits import operator

KEPT, DROPPED = 1.98e9, 0.75
# NVML's bits for an idle GPU, for clocks that a user has set, and for the power cap.
IDLE, SET, POWER = 1, 2, 4
SLOW = [operator(2.4e4) for _ in range(150)]
QUICK = [operator(2.4e4 * DROPPED) for _ in range(150)]
SAMPLED = {
    "sm_clock_hz": KEPT * DROPPED, "sm_clock_high_hz": KEPT, "throttled_share": 0.9, "clocks": "power cap in 90% of samples",
}  # fmt: skip


def judged(
    inside: simulated_waits.Inside, folder: Path, readings: Sequence[ClockReading] = (), **clocks: Any
) -> list[Verdict]:
    told = simulated_waits.told(inside, folder)
    cells = pd.DataFrame([{"model": "m", "phase": "train", **clocks}])
    row = clock_verdicts.add_clocks(told.row.to_frame().T.infer_objects(), cells)
    judge = verdicts.judge_cell(row, simulated_waits.GIVEN, rules.load_rules(), {}, {})
    return list(clock_verdicts.judge_clocks(judge, readings))


def read_at(*readings: tuple[float, int]) -> list[ClockReading]:
    return [{"sm_clock_hz": round(clock), "throttle_reasons": reasons} for clock, reasons in readings]


def test_kernels_that_the_clock_limits_gain_what_it_lost(tmp_path: Path) -> None:
    (found,) = judged(SLOW, tmp_path, **SAMPLED)
    measured = simulated_waits.step_ns(SLOW) / simulated_waits.step_ns(QUICK)
    assert found.verdict == "dropped clocks" and found.gain == pytest.approx(measured, rel=0.05)
    assert found.gain_low == 1 and found.gain_high is not None and found.gain_high >= measured * 0.95
    assert found.next_step.startswith(
        "the SM clock was 1,485 MHz in the mean and 1,980 MHz at best (power cap in 90% of samples): the GPU cannot hold"
    )
    assert "do not compare these times" in found.next_step and found.settings is None


@pytest.mark.parametrize(
    "clocks",
    [
        SAMPLED | {"sm_clock_hz": KEPT},
        SAMPLED | {"throttled_share": 0.0},
        SAMPLED | {"throttled_share": np.nan, "sm_clock_hz": np.nan, "sm_clock_high_hz": np.nan, "clocks": np.nan},
        {},
    ],
    ids=["steady", "slow for no limit", "told nothing", "not sampled"],
)
def test_a_steady_or_unknown_clock_is_no_finding(clocks: dict[str, Any], tmp_path: Path) -> None:
    assert not judged(SLOW, tmp_path, **clocks)


def test_a_step_that_waits_for_the_host_hardly_depends_on_the_clock(tmp_path: Path) -> None:
    assert not judged([operator(1e3, host_ns=1e5) for _ in range(40)], tmp_path, **SAMPLED)


def test_readings_of_unprofiled_processes_find_it_without_samples(tmp_path: Path) -> None:
    """Two processes: the clock drops within the first window, and stays low in the second."""
    dropped = read_at((KEPT, 0), (KEPT * DROPPED, POWER), (KEPT * DROPPED, POWER), (KEPT * DROPPED, POWER))
    (found,) = judged(SLOW, tmp_path, dropped)
    measured = simulated_waits.step_ns(SLOW) / simulated_waits.step_ns(QUICK)
    # A reading of four at the full clock is taken for a quarter of the time.
    assert found.gain == pytest.approx(1 + (measured - 1) * 0.75, rel=0.06) and found.gain_low == 1
    assert found.next_step.startswith(
        "the SM clock was 1,609 MHz in the mean and 1,980 MHz at best (power cap in 3 of 4 "
    )
    assert found.evidence == "sidecar of the unprofiled run: clocks"


@pytest.mark.parametrize(
    "readings",
    [
        read_at((KEPT, 0), (KEPT, 0)),
        read_at((KEPT * DROPPED, POWER), (KEPT * DROPPED, POWER)),
        read_at((3.45e8, IDLE), (KEPT, 0)),
        read_at((KEPT * DROPPED, 0), (KEPT, POWER)),
        read_at((KEPT * DROPPED, SET), (KEPT * DROPPED, SET)),
        read_at((3.45e8, IDLE), (3.45e8, IDLE)),
    ],
    ids=["steady", "slow all the time", "idle before", "still rising", "set by a user", "never at work"],
)
def test_readings_without_a_drop_are_no_finding(readings: list[ClockReading], tmp_path: Path) -> None:
    assert not judged(SLOW, tmp_path, readings)


def test_samples_count_more_than_readings(tmp_path: Path) -> None:
    dropped = read_at((KEPT, 0), (KEPT * DROPPED, POWER))
    assert not judged(SLOW, tmp_path, dropped, **SAMPLED | {"sm_clock_hz": KEPT})
