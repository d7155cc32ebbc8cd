"""What is said of the error of totals before a run and after it, held against worlds whose truth is known."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.ncu import census_matching, interval_calibration, run_planning
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.launch_sampling import RunPrices, choose_launches
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window
from tests import slow

BYTES = "lts__t_bytes.sum"


def world(seed: int, unlike: float) -> tuple[pd.DataFrame, pd.Series]:
    """24 layers of eight kernels, some of which are larger in some layers; of each launch its time, and its bytes.

    Bytes are a thousand a ns, and off by chance from launch to launch, by the exponential of this spread, whatever the
    times, which vary by 0.4 % as one and the same launch does.
    """
    chance = np.random.default_rng(seed)
    base, sizes = 10 ** chance.uniform(3.9, 5, 8), chance.choice([1, 1, 1.5, 3], size=(24, 8))
    does = (base * sizes).ravel()
    census = pd.DataFrame(
        {"mangled": list("abcdefgh") * 24, "range": "", GPU_TIME: does * chance.normal(1, 0.004, 192)}
    )
    return census.assign(**dict.fromkeys(KEYS[1:], 1)), pd.Series(
        1000 * does * np.exp(unlike * chance.normal(size=192))
    )


def told(unlike: float, windows: int = 30) -> pd.DataFrame:
    """A row a world: the error that was planned, the true one, half of the interval afterwards, whether a note said so."""
    rows = []
    for seed in range(windows):
        census, bytes_ = world(seed, unlike)
        sample = choose_launches(census, 0.02, RunPrices(5.0, 0.2, 50))
        places = np.flatnonzero(sample.taken)
        table = census.iloc[places].assign(launch=places, **{BYTES: bytes_.iloc[places]})
        totals = census_matching.estimate_totals(table, Window(census), [BYTES])
        (wide,) = interval_calibration.relative_half_widths(totals).values()
        off = abs(totals[BYTES][0] / bytes_.sum() - 1)
        rows.append(
            (sample.error, off, wide, interval_calibration.describe_wider_intervals(totals, sample.error) is not None)
        )
    return pd.DataFrame(rows, columns=["planned", "off", "wide", "noted"])


@pytest.mark.parametrize("unlike", slow.only([0.0, 0.02, 0.05], 0.02))
def test_the_planned_error_holds_where_like_times_mean_like_work(unlike: float) -> None:
    found = told(unlike)
    assert (found["off"] <= found["planned"]).mean() >= 0.9 and found["noted"].mean() <= 0.2


@pytest.mark.slow
def test_where_they_do_not_it_does_not_and_the_export_says_so() -> None:
    """Launches of like times that do half as much, or twice as much."""
    found = told(0.5)
    assert found["off"].quantile(0.9) > 3 * found["planned"].mean()
    assert found["noted"].mean() >= 0.8 and (found["off"] <= found["wide"]).mean() >= 0.75


def test_the_line_before_a_run_says_when_it_holds() -> None:
    plan = {
        "set": "roofline", "replay": "kernel", "launches": 50, "runs": 1, "configurations": 8, "share": 1.0,
        "configurations_of_window": 8, "passes": 1, "basis": "measured", "estimate_s": 12.0, "error": 0.0424,
    }  # fmt: skip
    assert ", totals within 4.2% if launches of similar times do similar work, 1 pass" in run_planning.describe_plan(
        plan
    )
    assert "totals" not in run_planning.describe_plan({**plan, "error": 0.0})
    assert "totals" not in run_planning.describe_plan({**plan, "error": None})


def interval(total: float, wide: float) -> Sequence[float]:
    return [total, total - wide, total + wide]


def test_half_widths_are_of_quantities() -> None:
    """DRAM reads and writes may be off to one side together: 8 + 2 of 100. Of operations, fused ones count twice."""
    sass = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum"
    totals = {"dram__bytes_read.sum": interval(80, 8), "dram__bytes_write.sum": interval(20, 2), BYTES: interval(50, 1)}
    totals |= {
        sass.format("add"): interval(10, 0),
        sass.format("mul"): interval(10, 0),
        sass.format("fma"): interval(40, 5),
    }
    found = interval_calibration.relative_half_widths(totals)
    assert found == {
        "dram_bytes": pytest.approx(0.1), "l2_bytes": pytest.approx(0.02), "operations": pytest.approx(10 / 100)
    }  # fmt: skip
    # Next to none of one kind does not count by itself.
    rare = {"sm__ops_path_tensor_src_bf16_dst_fp32.sum": interval(1, 1)}
    assert interval_calibration.relative_half_widths(totals | rare)["operations"] == pytest.approx(11 / 101)
    assert (
        interval_calibration.relative_half_widths({BYTES: interval(0, 0)}) == {}
        and interval_calibration.relative_half_widths({}) == {}
    )


@pytest.mark.parametrize(
    ("expected", "noted"), [(0.02, True), (0.066, True), (0.067, False), (0.5, False), (None, False)]
)
def test_a_note_is_made_of_what_is_clearly_less_sure(expected: float | None, noted: bool) -> None:
    """By more than half as much again."""
    assert (interval_calibration.describe_wider_intervals({BYTES: interval(100, 10)}, expected) is not None) == noted


@pytest.mark.parametrize("expected", [0.0, 0.001, 0.029])
def test_what_a_launch_differs_by_from_itself_needs_no_note(expected: float) -> None:
    """All launches of a small cell were counted on an H100, and their DRAM bytes hold to 2.4 %: nothing is left to count."""
    assert interval_calibration.describe_wider_intervals({BYTES: interval(100, 2.4)}, expected) is None
    assert interval_calibration.describe_wider_intervals({BYTES: interval(100, 4.4)}, expected) is None


def test_nothing_is_left_to_count_where_all_launches_were() -> None:
    assert interval_calibration.describe_wider_intervals({BYTES: interval(100, 30)}, 0.0) is None
    assert interval_calibration.describe_wider_intervals({BYTES: interval(100, 4.6)}, 0.001) is not None
