"""Which launches ncu profiles, and which are chosen for an error: on windows of which all is worked out by hand."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest

from profzoo.config import configuration as config
from profzoo.errors import DataError
from profzoo.tools.ncu import launch_selection
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.launch_selection import LaunchSampling, Run, RunPrices, choose_launches
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS


def census_of_two() -> pd.DataFrame:
    """Kernel a with two grids, of which it has three launches and one, between launches of b."""
    table = pd.DataFrame({"mangled": list("abaab"), GPU_TIME: [10.0, 20.0, 30.0, 15.0, 25.0], "range": "forward"})
    table = table.assign(**dict.fromkeys(KEYS[1:], 1))
    table.loc[3, "grid_x"] = 2
    return table


EACH = ["--filter-mode", "per-launch-config", "--kernel-name-base", "mangled"]


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ([*EACH, "--kernel-id", ":::^(1)$"], [0, 1, 3]),
        ([*EACH, "--kernel-id", ":::^(2)$"], [2, 4]),
        ([*EACH, "--kernel-id", ":::^(1|2)$"], [0, 1, 2, 3, 4]),
        # By kernel and invocation, whatever the grid.
        (["--kernel-name-base", "mangled", "--kernel-id", "::regex:^(a)$:^(3)$"], [3]),
        (["--kernel-name-base", "mangled", "--kernel-id", "::regex:^(a|b)$:^(1|2)$"], [0, 1, 2, 4]),
        ([*EACH, "--launch-count", "1"], [0, 1, 3]),
        ([*EACH, "--launch-count", "1", "--kernel-name", "regex:a"], [0, 3]),
        (["--kernel-name-base", "mangled", "--kernel-name", "regex:b"], [1, 4]),
        (["--kernel-name-base", "mangled"], [0, 1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_what_ncu_profiles_by_its_words(words: list[str], places: list[int]) -> None:
    assert launch_selection.profiled_launches(census_of_two(), words).index.tolist() == places


def options(**given: object) -> dict:
    return config.normalise_config({"ncu": given})["ncu"]


def test_shares_are_of_the_time_of_all_launches() -> None:
    """Of 100 ns, kernel a takes 55; its two configurations have 40 and 15."""
    every, asked = census_of_two(), options(kernel_name="a")
    some = launch_selection.select_candidates(asked, "roofline", every)
    assert some.index.tolist() == [0, 2, 3]
    whole = launch_selection.select_configured(asked, "roofline", some, every)
    assert (whole.launches, whole.configurations, whole.share) == (2, 2, 0.55)
    sampled = launch_selection.select_sample(asked, "roofline", some, every, RunPrices(5.0, 0.2, 3), one_run=True)
    assert sampled.share == 0.55 and sampled.configurations == 2
    counted = launch_selection.select_all(asked, some, every)
    assert (counted.launches, counted.configurations, counted.share, counted.error) == (3, 2, 0.55, 0.0)
    assert counted.options == ["--kernel-name-base", "mangled", "--kernel-name", "regex:a"]
    first = launch_selection.select_configured(options(launches=2), "roofline", every, every)
    assert (first.launches, first.configurations, first.share) == (2, 2, 0.3)
    # b takes 45 of 100 ns, a with its first grid 40, with its second, at its third invocation, which b has not, 15.
    found = [launch_selection.select_within_budget(every, every, paid) for paid in (1, 2, 3)]
    assert [(one.share, one.launches) for one in found] == [(0.45, 1), (0.85, 2), (1.0, 3)]
    none = launch_selection.select_candidates(options(kernel_name="zzz"), "roofline", every)
    with pytest.raises(DataError, match=r"ncu\.kernel_name = 'zzz' matches none of the cell's kernels"):
        launch_selection.select_configured(options(kernel_name="zzz"), "roofline", none, every)
    # Configurations that were profiled more or less often.
    differing = launch_selection.differing_configurations(every.iloc[[0, 1, 1]], every.iloc[[0, 1, 3]])
    assert {(key[0], key[1]) for key in differing} == {("b", 1), ("a", 2)}


def test_what_follows_other_launches_is_profiled_apart() -> None:
    """The elementwise kernel e finds in L2 what the one before it left, which differs."""
    table = census("aebe" * 8, [3e4, 2e4, 3.1e4, 2e4] * 8)
    taken = choose_launches(table, 0.02, RunPrices(5.0, 0.2, 10_000)).taken
    places = np.flatnonzero(taken & (table["mangled"] == "e"))
    assert {table["mangled"][place - 1] for place in places} == {"a", "b"}


def census(
    kernels: str, times: list[float], ranges: list[str] | str = "", grids: list[int] | None = None
) -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"mangled": list(kernels), GPU_TIME: times, "range": ranges})
    table = table.assign(**dict.fromkeys(KEYS[1:], 1))
    return table if grids is None else table.assign(grid_x=grids)


# Three like steps: of a two launches of 10 us and two of 30 us, of b one of 20, 60 and 70 us, one of d and one of c.
STEPS = census(
    "aaaabbbdc" * 3, [1e4, 1e4, 3e4, 3e4, 2e4, 6e4, 7e4, 5e4, 1.5e4] * 3, (["f"] * 5 + ["b"] * 2 + ["f"] * 2) * 3
)
BEFORE = 0.17**2 + 0.05**2 + 0.05**2 + 0.15**2
# Work of 3 * 295 us, less 8 us for each launch; traffic of 3 * 235 us, as no launch counts for more than 40.
WORK, TRAFFIC = 669e3, 705e3


def samples(known: LaunchSampling) -> np.ndarray:
    """Twice the first short launch of a, once the first long one, both of b but the last, and d; nothing of c."""
    return known.samples(np.isin(np.arange(27), [0, 9, 2, 4, 5, 7]))


def test_variances_of_all_configurations() -> None:
    """By chance, 6 * 6 * (1/2 - 1/6) of the short launches of a, 6 * 6 * (1 - 1/6) of the long ones, and so on."""
    known = LaunchSampling(STEPS)
    apart = 2 * sqrt(1e4**2 - 2 * 350.0**2 - 2 * 100.0**2)
    work = 12 * 200.0**2 + 30 * 600.0**2 + 6 * 400.0**2 + 30 * 1200.0**2 + (3 * apart) ** 2 + 6 * 1000.0**2 + 45e3**2
    history = (3 * 1e4) ** 2 * BEFORE + (3 * 3e4) ** 2 * BEFORE + (3 * 4e4) ** 2 * BEFORE
    traffic = 12 * 300.0**2 + 30 * 900.0**2 + 6 * 600.0**2 + 30 * 1200.0**2 + 6 * 1200.0**2 + history + 45e3**2
    expected = [work / WORK**2, traffic / TRAFFIC**2]
    assert known.variance(samples(known)).tolist() == pytest.approx(expected, rel=1e-9)
    width = launch_selection.relative_half_width(known.variance(samples(known)))
    assert width == pytest.approx(1.6449 * sqrt(max(expected)), rel=1e-9)


def test_what_more_launches_take_from_variances() -> None:
    """One of c, of which two stay open, and the second short launch of a, which then stands for itself."""
    known = LaunchSampling(STEPS)
    of_c = (45e3**2 - 6 * 300.0**2) / WORK**2 + (45e3**2 - 6 * 450.0**2) / TRAFFIC**2
    of_a = (12 - 1.5 - 6) * (200.0**2 / WORK**2 + 300.0**2 / TRAFFIC**2) + (3 * 1e4) ** 2 * BEFORE / TRAFFIC**2
    assert known.gain(samples(known), np.array([8])) == pytest.approx(of_c, rel=1e-9)
    assert known.gain(samples(known), np.array([8, 1])) == pytest.approx(of_c + of_a, rel=1e-9)
    assert known.gain(samples(known), np.array([], dtype=int)) == 0
    # Of the first short launch there are three, two of which are counted: 6 * 6 * (1/3 - 1/6) is left for two more.
    more = (12 - 6) * (200.0**2 / WORK**2 + 300.0**2 / TRAFFIC**2)
    assert known.gain(samples(known), np.array([0, 18])) == pytest.approx(more, rel=1e-9)


def test_what_runs_take() -> None:
    """Of kernels by their invocations, whatever the grid; of configurations by their own numbers, empty keys or not."""
    table = census("abaaba", [1e4] * 6, grids=[1, 1, 2, 1, 1, 2])
    known = LaunchSampling(table.assign(smem_static_bytes=pd.array([pd.NA] * 6, dtype="Int64")))
    assert np.flatnonzero(known.takes(Run(frozenset({2})))).tolist() == [3, 4, 5]
    assert np.flatnonzero(known.takes(Run(frozenset({1, 2})))).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.flatnonzero(known.takes(Run(frozenset({2, 4}), frozenset("a")))).tolist() == [2, 5]
    assert np.flatnonzero(known.takes(Run(frozenset({2}), frozenset("ab")))).tolist() == [2, 4]


def search(table: pd.DataFrame, prices: RunPrices, wanted: float = 0.0) -> launch_selection._Search:
    return launch_selection._Search(LaunchSampling(table), wanted, prices, several=True, wider=True)


@pytest.mark.parametrize(
    ("launches", "runs", "fits"), [(8, 2, True), (9, 2, False), (7, 3, False), (9, 1, False), (6, 2, True)]
)
def test_what_fits_into_prices(launches: int, runs: int, fits: bool) -> None:
    """Two starts of 1.5 s and eight launches of 0.25 s are 5 s, and three starts with seven 6.25 s."""
    found = search(census("ab", [1e4, 2e4]), RunPrices(1.5, 0.25, 8, 5.0))
    assert found._fits(launches, runs) == fits
    # A fifth of the first run's launches is worth a start: of ten launches, two of 3 s for one of 6 s.
    ten = census("abcdefghij", [1e4] * 10)
    assert search(ten, RunPrices(6.0, 0.5, 100)).launch_s == pytest.approx(3.0)
    assert search(ten, RunPrices(6.0, 4.0, 100)).launch_s == 4.0


def test_three_launches_of_a_cell_are_tried() -> None:
    """Of two, the other; of seven of which the first is taken, the second, fourth and sixth of those left."""
    table = census("ab" * 2, [1e4, 2e4] * 2)
    found = search(table, RunPrices(5.0, 0.2, 100))
    assert sorted(found._seeds(found.sampling.samples(found.taken))) == [2, 3]
    many = search(census("a" * 7, [1e4] * 7), RunPrices(5.0, 0.2, 100))
    assert sorted(many._seeds(many.sampling.samples(many.taken))) == [2, 4, 6]
    many.taken = np.ones(7, dtype=bool)
    assert many._seeds(many.sampling.samples(many.taken)).tolist() == []
    # Beside the first of each, the second of b is five times as long as that of a; what gains most is tried first.
    found = search(census("aabbcc", [1e4, 2e4, 1e4, 1e5, 1e4, 1.02e4]), RunPrices(5.0, 0.2, 100))
    assert found._seeds(found.sampling.samples(found.taken)).tolist() == [3, 1, 5]
    # Eighty are tried at most.
    letters = "".join(chr(0x4E00 + number) for number in range(100))
    found = search(census(letters * 2, [1e4] * 200), RunPrices(5.0, 0.2, 1000))
    assert len(found._seeds(found.sampling.samples(found.taken))) == 80


def test_a_wider_first_run_counts_what_others_do_not_take() -> None:
    """The second of each configuration are four launches, of which another run takes that of b; the third is one."""
    table = census("abcd" * 2 + "a", [1e4, 2e4, 3e4, 4e4, 4e4, 9e4, 5e4, 7e4, 8e4])
    found = search(table, RunPrices(2.0, 0.5, 12))
    found.runs = [*found.runs, Run(frozenset({2}), frozenset("b"))]
    found.taken = np.arange(9) < 4
    found.taken[5] = True
    found.launches = 5
    before = found.sampling.samples(found.taken)
    # Of four first launches, less than one is worth a start.
    assert found.launch_s == pytest.approx(2.0 / (0.2 * 4))
    options = list(found._wider(before, np.array([4, 6, 8])))
    assert [runs for _, runs in options] == [
        [Run(frozenset({1, 2})), found.runs[1]],
        [Run(frozenset({1, 3})), found.runs[1]],
    ]
    rates = [
        found.sampling.gain(before, np.array([4, 6, 7])) / (4 * 2.5),
        found.sampling.gain(before, np.array([8])) / 2.5,
    ]
    assert [rate for rate, _ in options] == pytest.approx(rates, rel=1e-12)
    # Four launches more are nine, which eight do not pay for.
    found.prices = RunPrices(2.0, 0.5, 8)
    assert [runs[0].numbers for _, runs in found._wider(before, np.array([4, 6, 8]))] == [{1, 3}]


def product(gains: dict[str, list[float]]) -> pd.DataFrame:
    """Kernels that are launched in turns, with the times of each launch, in us."""
    rows = [(kernel, times[turn] * 1e3) for turn in range(4) for kernel, times in gains.items()]
    return census("".join(kernel for kernel, _ in rows), [time for _, time in rows])


def grown(found: launch_selection._Search) -> list[tuple[float, Run]]:
    """The products of one run more, with what each gains by second."""
    before = found.sampling.samples(found.taken)
    seeds = np.flatnonzero(~found.taken)
    return [(rate, runs[-1]) for rate, runs in found._further(before, seeds)]


def of(kernels: str, *numbers: int) -> Run:
    return Run(frozenset(numbers), frozenset(kernels))


def test_a_product_grows_by_what_gains_most_for_each_launch() -> None:
    """The third launch of a, then that of b; then the fourth of both, two launches that gain more each than that of c."""
    table = product({"a": [10, 10, 300, 80], "b": [10, 10, 280, 78], "c": [10, 10, 40, 10]})
    found = search(table, RunPrices(50.0, 1.0, 100))
    options = grown(found)
    assert [run for _, run in options[:3]] == [of("a", 3), of("ab", 3), of("ab", 3, 4)]
    before = found.sampling.samples(found.taken)
    each = max(1.0, 50.0 / (0.2 * 3))
    for (rate, run), launches in zip(options, [1, 2, 4], strict=False):
        gain = found.sampling.gain(before, np.flatnonzero(found.sampling.takes(run)))
        assert rate == pytest.approx(gain / (50.0 + launches * each), rel=1e-9)
    # With what the first run has taken, the error is as wanted.
    both = found.taken | found.sampling.takes(of("ab", 3))
    found.wanted = launch_selection.relative_half_width(found.sampling.variance(found.sampling.samples(both)))
    assert [run for _, run in grown(found)] == [of("a", 3), of("ab", 3)]
    # The fourth of a and b together gain more than the third of c, but not by launch.
    table = product({"a": [10, 10, 300, 80], "b": [10, 10, 280, 75], "c": [10, 10, 95, 10]})
    options = [run for _, run in grown(search(table, RunPrices(50.0, 1.0, 100)))]
    assert options[:3] == [of("a", 3), of("ab", 3), of("abc", 3)]
    # Of products that gain alike the first by name is taken.
    table = census("ba" * 4, [1e4, 1e4, 1e4, 1e4, 1e5, 1e5, 1e4, 1e4])
    assert grown(search(table, RunPrices(50.0, 1.0, 100)))[0][1] == of("a", 3)


def test_a_product_stops_where_it_pays_less() -> None:
    """At less than seven tenths of what paid best, which is still told.

    In squares of us of time apart, a gains 290 ** 2, b 145 ** 2, and each of the others 30 ** 2, which with a launch at
    half the price of a start comes to 56, 53, 42 and 36 thousand by start.
    """
    others = {kernel: [10, 10, 40, 10] for kernel in "cdefghij"}
    table = product({"a": [10, 10, 300, 10], "b": [10, 10, 155, 10], **others})
    rates = [rate for rate, _ in grown(search(table, RunPrices(2.0, 0.5, 100)))]
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 0.94, 0.76, 0.63], abs=0.02)


def test_a_product_stays_within_what_is_paid_for() -> None:
    """Three first launches and two more, in two runs; one s less does not pay for the second."""
    table = product({"a": [10, 10, 300, 80], "b": [10, 10, 280, 78], "c": [10, 10, 40, 10]})
    assert [run for _, run in grown(search(table, RunPrices(50.0, 1.0, 5)))] == [of("a", 3), of("ab", 3)]
    assert [run for _, run in grown(search(table, RunPrices(50.0, 1.0, 100, 105.0)))] == [of("a", 3), of("ab", 3)]
    assert [run for _, run in grown(search(table, RunPrices(50.0, 1.0, 100, 104.0)))] == [of("a", 3)]
    assert grown(search(table, RunPrices(50.0, 1.0, 3))) == []


def test_what_the_first_run_took_gains_nothing_more() -> None:
    """The second invocation of k is the first with another grid: a run that takes it pays for it again."""
    table = census("kmkmkmkm", [1e4, 1e4, 5e4, 2e5, 5e4, 1e4, 5e4, 1e4], grids=[1, 1, 2, 1, 2, 1, 2, 1])
    found = search(table, RunPrices(4.0, 1.0, 100))
    assert np.flatnonzero(found.taken).tolist() == [0, 1, 2]
    before = found.sampling.samples(found.taken)
    options = [(rate, runs[-1]) for rate, runs in found._further(before, np.array([3, 4]))]
    assert [run for _, run in options[:2]] == [of("m", 2), of("km", 2, 3)]
    each = 4.0 / (0.2 * 3)
    for rate, run in options:
        takes = found.sampling.takes(run)
        gain = found.sampling.gain(before, np.flatnonzero(takes & ~found.taken))
        assert rate == pytest.approx(gain / (4.0 + takes.sum() * each), rel=1e-9)


def test_there_are_six_runs_at_most() -> None:
    """Each of ten kernels has one long launch at a number of its own, and starting ncu costs next to nothing."""
    rows = [(chr(97 + kernel), 1e6 if turn == kernel + 1 else 1e4) for turn in range(12) for kernel in range(10)]
    table = census("".join(kernel for kernel, _ in rows), [time for _, time in rows])
    assert len(choose_launches(table, 1e-6, RunPrices(0.001, 1.0, 10_000), wider=False).runs) == 6


def test_nothing_is_added_at_the_error_that_is_wanted() -> None:
    """One of ten launches of 50 us leaves 1.6449 * sqrt(0.009) open; less than that takes more."""
    table = census("a" * 10, [5e4] * 10)
    left = choose_launches(table, 1.0, RunPrices(5.0, 0.2, 100)).error
    assert left == pytest.approx(1.6449 * sqrt(0.009), rel=1e-9)
    assert choose_launches(table, left, RunPrices(5.0, 0.2, 100)).launches == 1
    assert choose_launches(table, 0.99 * left, RunPrices(5.0, 0.2, 100)).launches == 2
    assert choose_launches(table, 0.99 * left, RunPrices(5.0, 0.2, 1)).launches == 1


def test_a_choice_may_be_wider_and_of_several_runs() -> None:
    """One long launch among many: a run of its own where starting is cheap, else the first run is wider."""
    table = census("abcdefghij" * 3, [1e4] * 25 + [9e5] + [1e4] * 4)
    assert choose_launches(table, 0.1, RunPrices(0.1, 1.0, 100)).runs == [Run(frozenset({1})), of("f", 3)]
    assert choose_launches(table, 0.1, RunPrices(0.1, 1.0, 100), several=False).runs == [Run(frozenset({1, 3}))]
    assert choose_launches(table, 0.1, RunPrices(50.0, 1.0, 100), wider=False).runs == [Run(frozenset({1})), of("f", 3)]
