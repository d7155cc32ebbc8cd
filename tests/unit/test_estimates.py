"""Windows, their cells and strata, totals and their intervals, with answers worked out by hand."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from profzoo.tools.ncu.estimates import (
    GPU_TIME,
    Estimates,
    Window,
    group_like_times,
    guess_spread,
    interval_half_width,
    number_histories,
)
from profzoo.tools.ncu.launch_selection import RunPrices, choose_launches
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS


def step(seed: int, layers: int = 10) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A step of layers of six kernels, half of which do other work in other layers, and what each launch counts.

    Work grows with time beyond 2 us. Bytes are those that the launch before did not leave in L2, and differ by chance.
    """
    chance = np.random.default_rng(seed)
    rows, before = [], 0
    scales = chance.choice([1.0, 1.0, 2.0, 4.0], size=(layers, 6))
    base = 10 ** chance.uniform(3.7, 5, size=6)
    for layer in range(layers):
        for kernel in chance.permutation(6) if layer % 3 == 0 else range(6):
            time = 2e3 + base[kernel] * (scales[layer, kernel] if kernel % 2 else 1.0)
            left = [0.2, 0.5, 0.8][before % 3] * chance.normal(1, 0.01)
            bytes_ = 300 * min(time, 4e4) * (1 - left)
            rows.append(("abcdef"[kernel], time * chance.normal(1, 0.003), 900 * (time - 2e3), bytes_))
            before = kernel
    frame = pd.DataFrame(rows, columns=["mangled", GPU_TIME, "instructions", "dram_bytes"])
    return frame[["mangled", GPU_TIME]].assign(range="", **dict.fromkeys(KEYS[1:], 1)), frame.iloc[:, 2:]


@pytest.mark.slow
@pytest.mark.parametrize("by_nsys", [False, True])
def test_intervals_hold_the_truth_about_nine_times_in_ten(by_nsys: bool) -> None:
    """Under nsys each launch takes 1.2 us less than under ncu, at another clock, and another time in each step."""
    held, errors = [], []
    for seed in range(40):
        census, counts = step(seed)
        chance = np.random.default_rng(1000 + seed)
        seen = 0.93 * (census[GPU_TIME].to_numpy() - 1200)[:, None] * chance.normal(1, 0.02, (len(census), 10))
        traced = census.assign(**{GPU_TIME: np.median(np.maximum(seen, 500), axis=1)}) if by_nsys else census
        taken = choose_launches(traced, 0.05, RunPrices(5.0, 0.2, 10_000)).taken
        found = Estimates(Window(traced), np.flatnonzero(taken), counts[taken]).totals(np.zeros(len(census), dtype=int))
        for name in counts:
            error = abs(found[name][0] - counts[name].sum())
            wide = interval_half_width(found[f"{name}_se"].to_numpy(), found[f"{name}_freedom"].to_numpy())[0]
            held.append(error <= wide)
            errors.append(error / counts[name].sum())
    assert 0.85 <= np.mean(held) <= (1 if by_nsys else 0.99) and np.mean(errors) < 0.03


def census(kernels: str, times: list[float] | float, ranges: list[str] | str = "") -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"mangled": list(kernels), GPU_TIME: times, "range": ranges})
    return table.assign(**dict.fromkeys(KEYS[1:], 1))


def test_like_times_are_within_a_tenth_and_300_ns_and_like_histories_within_three_tenths_and_1000_ns() -> None:
    for longer, sizes in ((11_300.0, 1), (11_301.0, 2)):
        # What came before either is told by coarser times.
        assert len(Window(census("aa", [10_000.0, longer])).sizes) == sizes
    for longer, alike in ((14_000.0, True), (14_001.0, False)):
        # Of b, launched after a short a and after a longer one.
        window = Window(census("abab", [10_000.0, 5e4, longer, 5e4]))
        assert (window.cells[1] == window.cells[3]) == alike


def test_sequences_and_times_are_told_within_a_group() -> None:
    """Before the first came the last two: 3 then 9, 9 then 5, 5 then 7, 7 then 5, 5 then 7, 7 then 3."""
    found = number_histories(np.array([5, 7, 5, 7, 3, 9]), 2).tolist()
    assert found[2] == found[4] and len(set(found)) == 5
    times, groups = np.array([100.0, 100.0, 111.0, 130.0, 100.0]), np.array([1, 0, 1, 1, 0])
    assert group_like_times(times, groups, 1.1, 1.0).tolist() == [1, 0, 1, 2, 0]
    # A set of like times begins with its shortest.
    times = np.array([10_000.0, 11_000.0, 12_000.0, 30_000.0])
    assert group_like_times(times, np.zeros(4, dtype=int), 1.1, 300).tolist() == [0, 0, 1, 2]
    # 10 us and 50 us, of which 8 us are the launch; no more than 40 us of each are traffic.
    assert Window(census("ab", [1e4, 5e4])).totals.tolist() == [2_000 + 42_000, 10_000 + 40_000]


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


# What came before differs from the last launch on.
BEFORE = np.sqrt(0.17**2 + 0.05**2 + 0.05**2 + 0.15**2)
# Squares of a launch after others.
AFTER = {
    INSTRUCTIONS: (0.015 * BEFORE) ** 2 + (0.0025**2 + 0.0005**2) * 2,
    DRAM: (0.9 * BEFORE) ** 2 + (0.55 * BEFORE) ** 2 + (0.009**2 + 0.018**2) * 2,
}


@pytest.mark.parametrize(("name", "squares"), AFTER.items())
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
    squares = (unlike * UNLIKE) ** 2 + AFTER[name]
    assert found[f"{name}_se"][1] == pytest.approx(100 * np.sqrt(squares), rel=1e-9)
    # Traffic of DRAM has a spread of its own.
    spreads = {one: guess_spread(one).before > 0 for one in ("dram_bytes", DRAM, "l2_bytes", "waves")}
    assert spreads == {"dram_bytes": True, DRAM: True, "l2_bytes": False, "waves": False}


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


def cells_of(window: Window, kernel: str) -> int:
    return len(np.unique(window.cells[window.launches["mangled"] == kernel]))


@pytest.mark.parametrize(("kernels", "cells"), [(100, 100), (101, 1)])
def test_a_configuration_of_more_than_a_hundred_cells_is_told_by_less(kernels: int, cells: int) -> None:
    """Kernel e follows each of the others once, so that nothing but its own times is left to tell its cells by."""
    others = [chr(0x4E00 + number) for number in range(kernels)]
    window = Window(census("".join(f"{other}e" for other in others), 2e4))
    assert cells_of(window, "e") == cells
    assert all(cells_of(window, other) == 1 for other in others) and len(window.sizes) == kernels + cells


def ternary(prime: int) -> str:
    """The digits of 1 / prime to the base of 3, whose period is prime - 1: any six of them in a row are there once."""
    rest, digits = 1, []
    for _ in range(prime - 1):
        digits.append("pqr"[3 * rest // prime])
        rest = 3 * rest % prime
    assert rest == 1
    return "".join(digits)


@pytest.mark.parametrize(("prime", "cells"), [(101, 100), (113, 9)])
def test_histories_are_shortened_to_four_launches_first(prime: int, cells: int) -> None:
    """Kernel e alternates with p, q and r: of the twelve launches before, six tell, and of four, two, in nine ways."""
    window = Window(census("".join(f"{digit}e" for digit in ternary(prime)), 2e4))
    assert cells_of(window, "e") == cells
    # The others are told by all of what came before.
    assert sum(cells_of(window, other) for other in "pqr") == prime - 1


def test_long_and_short_launches_stay_apart_where_histories_do_not_tell() -> None:
    """Kernel e follows each of 120 others once, the first ten times for three times as long, the next in another part."""
    others = [chr(0x4E00 + number) for number in range(120)]
    times = [time for place in range(120) for time in (2e4, 6e4 if place < 10 else 2e4)]
    ranges = [part for place in range(120) for part in ("", "loss" if 10 <= place < 15 else "")]
    window = Window(census("".join(f"{other}e" for other in others), times, ranges))
    own = window.cells[1::2]
    assert len(np.unique(own)) == 3
    assert len(set(own[:10])) == len(set(own[10:15])) == len(set(own[15:])) == 1


def test_times_of_cells_are_means() -> None:
    """Of a, 10 and 11 us, three times each in turns with b; c once."""
    window = Window(census("abababc", [1e4, 2e4, 1.1e4, 2e4, 1.02e4, 2e4, 5e4]))
    of_launch = dict(zip(window.launches["mangled"], window.cells, strict=True))
    assert window.sizes.sum() == 7 and len(window.parts) == 3
    assert window.sizes[of_launch["c"]] == 1 and window.times[of_launch["c"]] == 5e4
    assert window.moved[of_launch["c"]] == 4e4 and window.moved[of_launch["b"]] == 2e4
    of_a = window.cells[:5:2]
    assert (window.sizes[of_a] @ window.times[of_a]) / window.sizes[of_a].sum() == pytest.approx(3.12e4 / 3, rel=0.05)
    of_kernels = [sorted(np.unique(window.cells[window.launches["mangled"] == kernel])) for kernel in "abc"]
    assert [sorted(part) for part in window.parts] == of_kernels
    # Two alike launches of a step have their mean.
    window = Window(census("abab", [1e4, 2e4, 1.05e4, 2.08e4]))
    assert window.sizes.tolist() == [2, 2] and sorted(window.times) == [1.025e4, 2.04e4]


def test_empty_keys_are_a_configuration_of_their_own() -> None:
    table = census("aab", [1e4, 1e4, 2e4])
    window = Window(table.assign(smem_static_bytes=pd.array([pd.NA, 16, pd.NA], dtype="Int64"), range=[None, "", None]))
    assert len(window.parts) == 3 and window.configurations.max() == 2


def test_what_is_most_alike_stands_for_a_cell() -> None:
    """Of launches of 10, 20, 31 and 60 us the first and third are profiled: 20 us are nearer to 10, 60 to 31."""
    window = Window(census("aaaa", [1e4, 2e4, 3.1e4, 6e4]))
    of_time = window.cells
    samples = np.zeros(4, dtype=int)
    samples[of_time[[0, 2]]] = 1
    by = window.standing(0, samples)
    assert by is not None
    assert by[of_time].tolist() == of_time[[0, 0, 2, 2]].tolist()
    assert window.standing(0, np.zeros(4, dtype=int)) is None


def test_how_unlike_cells_are_is_in_parts_of_the_totals() -> None:
    """10 us apart in work, of 10 + 20 us less 16; and all that came before apart in traffic of 10 us, of 30."""
    window = Window(census("aa", [1e4, 2e4]))
    work = 2 * np.sqrt(1e4**2 - 2 * 100.0**2 - 2 * 100.0**2)
    traffic = 1e4 * BEFORE
    apart = window.apart(0)
    assert apart[0, 1] == pytest.approx((work / 1.4e4) ** 2 + (traffic / 3e4) ** 2, rel=1e-12)
    assert apart[0, 0] == apart[1, 1] == 0 and apart[1, 0] == apart[0, 1]


# Three like steps: of a two launches of 10 us and two of 30 us, of b one of 20, 60 and 70 us, one of d and one of c.
KERNELS, TIMES = "aaaabbbdc", [1e4, 1e4, 3e4, 3e4, 2e4, 6e4, 7e4, 5e4, 1.5e4]
RANGES = ["forward"] * 5 + ["backward"] * 2 + ["forward"] * 2
# Profiled: twice the first short launch of a, once the first long one, both of b but the last, and d; nothing of c.
PLACES = [0, 9, 2, 4, 5, 7]
COUNTED = [90.0, 110.0, 330.0, 50.0, 130.0, 260.0]
NOT_KNOWN = [180.0, 220.0, 300.0, np.nan, 400.0, 350.0]


def estimates() -> Estimates:
    window = Window(census(KERNELS * 3, TIMES * 3, RANGES * 3))
    return Estimates(window, np.array(PLACES), pd.DataFrame({INSTRUCTIONS: COUNTED, DRAM: NOT_KNOWN}))


def work(longer: float, shorter: float) -> float:
    """What times differ by beyond chance, in ns."""
    return sqrt((longer - shorter) ** 2 - 2 * (0.005 * longer) ** 2 - 2 * 100.0**2)


def off(mean: float, typical: float, unlike: float, before: float, chance: float) -> float:
    """The square by which work is expected to be off."""
    guess = (1.2 * unlike * mean) ** 2 + (0.015 * before * typical) ** 2
    return guess + ((0.0025 * mean) ** 2 + (0.0005 * typical) ** 2) * chance


MEAN = {"short": 100.0, "long": 330.0, "first": 50.0, "last": 130.0, "d": 260.0}


def learned() -> dict[str, float]:
    """By how many times squares are larger than guessed, of the strata of each kernel.

    Strata of a are 230 apart, each of six launches; those of b 80, the smaller of three.
    """
    guessed_a = off(330, 195, work(3e4, 1e4) / 3e4, BEFORE, 1 / 2 + 1)
    guessed_b = off(130, 260, work(6e4, 2e4) / 6e4, sqrt(BEFORE**2 + 0.5**2), 1 + 1)
    part_a, part_b = 36 * guessed_a, 9 * guessed_b
    many = (part_a + part_b) ** 2 / (part_a**2 + part_b**2)
    of_run = (4 + many * (36 * 230**2 + 9 * 80**2) / (part_a + part_b)) / (4 + many)
    return {"a": (2 * of_run + 230**2 / guessed_a) / 3, "b": (2 * of_run + 80**2 / guessed_b) / 3, "d": of_run}


def test_what_each_launch_that_was_profiled_stands_for() -> None:
    """The last launch of b takes times like those of the one before it; nothing stands for c."""
    found = estimates()
    assert found.weights().tolist() == [3, 3, 6, 3, 6, 3]
    labels = found.labels().reshape(3, 9)
    assert (labels == labels[0]).all() and (labels[0] < 0).tolist() == [False] * 8 + [True]
    short, again, long, other, first, last, like, d, _ = labels[0]
    assert short == again and long == other and last == like and {short, long, first, last, d} == set(range(5))


def test_totals_of_groups_of_launches() -> None:
    """The first step, the other two, and none; of the last of these there is nothing."""
    groups = np.repeat([0, 1, 1], 9)
    found = estimates().totals(np.where(np.arange(27) % 9 == 8, 3, groups))
    assert found["launches"].tolist() == [8, 16, 0, 0]
    assert found[INSTRUCTIONS].tolist() == [200 + 660 + 50 + 260 + 260, 2860, 0, 0]
    ratio = learned()
    for group, steps in ((0, 1), (1, 2)):
        # Of two launches of a one is off by what came before it; of b the last by its time too.
        squares = {
            "short": off(100, 65, 0, BEFORE / 2, 1 / 2 + 1 / (2 * steps)) * ratio["a"] * (2 * steps) ** 2,
            "long": off(330, 195, 0, BEFORE / 2, 1 + 1 / (2 * steps)) * ratio["a"] * (2 * steps) ** 2,
            "first": off(50, 130, 0, 0, 1 + 1 / steps) * ratio["b"] * steps**2,
            "last": off(130, 260, work(7e4, 6e4) / 6e4 / 2, BEFORE / 2, 1 + 1 / (2 * steps))
            * ratio["b"]
            * (2 * steps) ** 2,
            "d": off(260, 260, 0, 0, 1 + 1 / steps) * ratio["d"] * steps**2,
        }
        total = sum(squares.values())
        assert found[f"{INSTRUCTIONS}_se"][group] == pytest.approx(sqrt(total), rel=1e-9)
        # One pair beside two observations of the guess, but for d, of which there is no pair.
        freedom = total**2 / sum(square**2 / (2 if name == "d" else 3) for name, square in squares.items())
        assert found[f"{INSTRUCTIONS}_freedom"][group] == pytest.approx(freedom, rel=1e-9)
    assert found[f"{INSTRUCTIONS}_se"][2] == 0 and found[f"{INSTRUCTIONS}_freedom"][2] == np.inf


def test_what_has_no_value_somewhere_says_nothing_of_others() -> None:
    """Of the first launch of b there is no count: 6 * 200 + 6 * 300 + 6 * 400 + 3 * 350 in 660 us, and one pair, of a."""
    by_kernel = np.array(["abdc".index(kernel) for kernel in KERNELS * 3])
    found = estimates().totals(by_kernel)
    assert found[DRAM].isna().tolist() == [False, True, False, False]
    assert found.loc[[0, 2, 3], DRAM].tolist() == [3000, 1050, 0]
    by_us = 6450 / 660

    def square(mean: float, us: float, unlike: float, before: float, chance: float) -> float:
        typical = by_us * us
        guess = (0.9 * unlike * mean) ** 2 + before**2 * ((0.9 * mean) ** 2 + (0.55 * typical) ** 2)
        return guess + ((0.009 * mean) ** 2 + (0.018 * typical) ** 2) * chance

    guessed = square(300, 30, work(3e4, 1e4) / 3e4, BEFORE, 1.5)
    of_run = (4 + 100**2 / guessed) / 5
    of_a = (2 * of_run + 100**2 / guessed) / 3
    short = 36 * square(200, 10, 0, BEFORE / 2, 1 / 2 + 1 / 6) * of_a
    long = 36 * square(300, 30, 0, BEFORE / 2, 1 + 1 / 6) * of_a
    assert found[f"{DRAM}_se"][0] == pytest.approx(sqrt(short + long), rel=1e-9)
    assert found[f"{DRAM}_se"][2] == pytest.approx(3 * sqrt(square(350, 40, 0, 0, 1 + 1 / 3) * of_run), rel=1e-9)
    assert found[f"{DRAM}_freedom"][[0, 2]].tolist() == pytest.approx(
        [(short + long) ** 2 / ((short**2 + long**2) / 3), 2]
    )


def test_sums_of_other_values_by_group() -> None:
    """Two launches alike say 1 and 6, in the mean 3.5; groups are the first step and the others."""
    values = pd.DataFrame({"one": [1.0, 6.0, 10.0, 100.0, 1000.0, 1e4], "two": 1.0})
    found = estimates().sums(values, np.repeat([1, 0, 0], 9))
    step = 2 * 3.5 + 2 * 10 + 100 + 2 * 1000 + 1e4
    assert found["one"].tolist() == [2 * step, step] and found["two"].tolist() == [16, 8]
    # Of three samples the middle one is not their mean.
    found = Estimates(Window(census("aaaa", 1e4)), np.array([0, 1, 3]), pd.DataFrame({INSTRUCTIONS: [1.0, 2.0, 9.0]}))
    assert found.totals(np.zeros(4, dtype=int))[INSTRUCTIONS].tolist() == [16]
    assert found.sums(pd.DataFrame({"one": [1.0, 2.0, 9.0]}), np.zeros(4, dtype=int))["one"].tolist() == [16]


@pytest.mark.parametrize("freedom", [2, 3, 5, 40])
def test_intervals_are_those_of_students_t(freedom: int) -> None:
    """By the polynomials of Abramowitz and Stegun, 26.7.5; near the quantile itself, and never by less than two degrees."""
    x = 1.6449
    terms = [
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    ]
    expected = sum(term / freedom**power for power, term in enumerate(terms))
    (found,) = interval_half_width(np.array([7.0]), np.array([float(freedom)]))
    assert found == pytest.approx(7 * expected, rel=1e-12)
    assert found == pytest.approx(7 * stats.t.ppf(0.95, freedom), rel=5e-3)
    one, two = interval_half_width(np.array([1.0, 1.0]), np.array([0.5, 2.0]))
    assert one == two
