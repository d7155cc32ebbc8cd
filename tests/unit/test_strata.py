"""strata, and the spreads that intervals and plans are made of, with answers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates, guess_spread
from profzoo.tools.ncu.launch_sampling import LaunchSampling, Run, RunPrices, choose_launches, relative_half_width
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window, group_like_times


def census(kernels: str, times: list[float] | float, ranges: list[str] | str = "") -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"mangled": list(kernels), GPU_TIME: times, "range": ranges})
    return table.assign(**dict.fromkeys(KEYS[1:], 1))


@pytest.mark.parametrize(("longer", "alike"), [(11_300.0, True), (11_301.0, False)])
def test_like_times_are_within_a_tenth_and_300_ns(longer: float, alike: bool) -> None:
    window = Window(census("aa", [10_000.0, longer]))
    # What came before either is told by coarser times.
    assert len(window.sizes) == (1 if alike else 2)


@pytest.mark.parametrize(("longer", "alike"), [(14_000.0, True), (14_001.0, False)])
def test_histories_are_told_apart_from_three_tenths_and_1000_ns_on(longer: float, alike: bool) -> None:
    """Of b, launched after a short a and after a longer one."""
    window = Window(census("abab", [10_000.0, 5e4, longer, 5e4]))
    assert (window.cells[1] == window.cells[3]) == alike


def test_a_set_of_like_times_begins_with_its_shortest() -> None:
    times = np.array([10_000.0, 11_000.0, 12_000.0, 30_000.0])
    assert group_like_times(times, np.zeros(4, dtype=int), 1.1, 300).tolist() == [0, 0, 1, 2]


def test_totals_leave_out_what_a_launch_itself_takes() -> None:
    """10 us and 50 us, of which 8 us are the launch; no more than 40 us of each are traffic."""
    window = Window(census("ab", [1e4, 5e4]))
    assert window.totals.tolist() == [2_000 + 42_000, 10_000 + 40_000]


def test_unlike_work_is_twice_what_times_differ_by_beyond_chance() -> None:
    """12 us apart; by chance the square root of 2 * (0.005 * 112 us)^2 + 2 * (100 ns)^2."""
    window = Window(census("aa", [1e5, 1.12e5]))
    chance = 2 * 560.0**2 + 2 * 100.0**2
    assert window.work[0][0, 1] == pytest.approx(2 * np.sqrt(12_000.0**2 - chance), rel=1e-12)
    # Times that differ by no more than chance tell nothing.
    assert Window(census("aa", [1e4, 1.14e4])).work[0].shape == (2, 2)
    assert Window(census("aba", [1e6, 5e3, 1.005e6])).work[0].max() == 0


@pytest.mark.parametrize(
    ("kernels", "ranges", "squares"),
    [
        ("xaxa", ["", "forward", "", "backward"], 0.5**2),
        # What came before differs from the last launch on, from the last but one, from the third, from the fifth.
        ("xaya", "", 0.17**2 + 0.05**2 + 0.05**2 + 0.15**2),
        ("xzayza", "", 0.05**2 + 0.05**2 + 0.15**2),
        ("xzzayzza", "", 0.05**2 + 0.15**2),
        ("xzzzzayzzzza", "", 0.15**2),
    ],
)
def test_unlike_traffic_is_by_range_and_what_came_before(kernels: str, ranges: list[str], squares: float) -> None:
    """In parts of 40 us, which is all that counts of a launch of 60 us."""
    window = Window(census(kernels, 6e4, ranges))
    (part,) = (one for one in window.parts if window.cells[kernels.index("a")] in one)
    traffic = window.traffic[window.configurations[part[0]]]
    assert traffic.shape == (2, 2) and traffic[0, 1] == pytest.approx(40_000 * np.sqrt(squares), rel=1e-12)


def test_the_planned_error_of_one_launch_of_ten_alike() -> None:
    """Work: 10 times 50 us less 40 us. One of ten leaves 10^2 * (1 - 1/10) squares of 2 % of 50 us open, and of traffic
    of 3 % of 40 us, of ten times 40 us."""
    sampling = LaunchSampling(census("a" * 10, 5e4))
    found = sampling.variance(sampling.samples(np.arange(10) == 0))
    assert found.tolist() == pytest.approx([90 * 1000.0**2 / 1e5**2, 90 * 1200.0**2 / 4e5**2])
    assert relative_half_width(found) == pytest.approx(1.6449 * np.sqrt(0.009), rel=1e-4)


def test_what_is_added_is_what_gains_most_by_second() -> None:
    """Beside the first launches, the second of a: in the first run 0.25 s more, in one of its own 0.1 s more than that."""
    sample = choose_launches(census("aab", [1e4, 9e4, 1e4]), 0.001, RunPrices(start_s=0.1, launch_s=0.2, launches=3))
    assert sample.runs == [Run(frozenset({1, 2}))] and sample.launches == 3


def of_each(window: Window, places: list[int], values: dict[str, list[float]]) -> pd.DataFrame:
    """Totals of each launch by itself."""
    found = Estimates(window, np.array(places), pd.DataFrame(values))
    return found.totals(np.arange(len(window.launches)))


INSTRUCTIONS, DRAM = "smsp__inst_executed.sum", "dram__bytes_read.sum"


@pytest.mark.parametrize(("name", "chance", "typical"), [(INSTRUCTIONS, 0.0025, 0.0005), (DRAM, 0.009, 0.018)])
def test_one_launch_of_ten_alike_is_off_by_chance(name: str, chance: float, typical: float) -> None:
    found = Estimates(Window(census("a" * 10, 5e4)), np.array([0]), pd.DataFrame({name: [100.0]}))
    total = found.totals(np.zeros(10, dtype=int)).iloc[0]
    assert total[name] == 1000
    # Of the one that was profiled, and of the mean of ten.
    squares = ((100 * chance) ** 2 + (100 * typical) ** 2) * (1 / 1 + 1 / 10)
    assert total[f"{name}_se"] == pytest.approx(10 * np.sqrt(squares))


BEFORE = np.sqrt(0.17**2 + 0.05**2 + 0.05**2 + 0.15**2)


@pytest.mark.parametrize(
    ("name", "squares"),
    [
        (INSTRUCTIONS, (0.015 * BEFORE) ** 2 + (0.0025**2 + 0.0005**2) * 2),
        (DRAM, (0.9 * BEFORE) ** 2 + (0.55 * BEFORE) ** 2 + (0.009**2 + 0.018**2) * 2),
    ],
)
def test_a_launch_after_others_is_off_by_what_came_before(name: str, squares: float) -> None:
    """Of a after x, and a after y, the first was profiled; all take 20 us and count 100."""
    found = of_each(Window(census("xaya", 2e4)), [0, 1, 2], {name: [100.0] * 3})
    assert found[name].tolist() == [100] * 4
    assert found[f"{name}_se"][3] == pytest.approx(100 * np.sqrt(squares))


# Launches of 10 and 30 us: apart by more than chance, in parts of 10 us.
UNLIKE = np.sqrt(20_000.0**2 - 2 * 150.0**2 - 2 * 100.0**2) / 10_000


@pytest.mark.parametrize(("name", "unlike"), [(INSTRUCTIONS, 1.2), (DRAM, 0.9)])
def test_a_launch_of_other_length_is_off_by_that(name: str, unlike: float) -> None:
    found = of_each(Window(census("aa", [1e4, 3e4])), [0], {name: [100.0]})
    squares = (unlike * UNLIKE) ** 2
    squares += {
        INSTRUCTIONS: (0.015 * BEFORE) ** 2 + (0.0025**2 + 0.0005**2) * 2,
        DRAM: (0.9 * BEFORE) ** 2 + (0.55 * BEFORE) ** 2 + (0.009**2 + 0.018**2) * 2,
    }[name]
    assert found[f"{name}_se"][1] == pytest.approx(100 * np.sqrt(squares), rel=1e-9)


def test_a_run_learns_how_far_its_guess_is_off() -> None:
    """Of launches of 10 and 30 us both were profiled, and count 100 and 300, which is 200 apart.

    The guess expects the square root of 1.2 times two thirds of 300 squared, and next to nothing more. It counts as four
    observations of the run beside the pair, and what the run says as two of the configuration beside the pair.
    """
    found = of_each(Window(census("aa", [1e4, 3e4])), [0, 1], {INSTRUCTIONS: [100.0, 300.0]})
    guessed = (1.2 * UNLIKE / 3 * 300) ** 2 + (0.015 * BEFORE * 300) ** 2 + (0.0025**2 + 0.0005**2) * 300**2 * 2
    seen = 200**2 / guessed
    ratio = (2 * (4 + seen) / 5 + seen) / 3
    assert found[f"{INSTRUCTIONS}_freedom"].tolist() == pytest.approx([3, 3])
    assert found[f"{INSTRUCTIONS}_se"][0] == pytest.approx(100 * np.sqrt((0.0025**2 + 0.0005**2) * 2 * ratio))


@pytest.mark.parametrize(("name", "dram"), [("dram_bytes", True), (DRAM, True), ("l2_bytes", False), ("waves", False)])
def test_traffic_of_dram_has_a_spread_of_its_own(name: str, dram: bool) -> None:
    assert (guess_spread(name).before > 0) == dram
