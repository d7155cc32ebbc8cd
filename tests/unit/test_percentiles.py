"""Percentiles of step times: intervals that hold by simulation, also of steps that are alike, and steps that are needed."""

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from profzoo.figures import latency as figure
from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.report.cell_section import describe_latency
from profzoo.statistics import percentiles
from profzoo.tables import across_cells, latency
from tests import slow


def test_ranks_are_those_of_the_binomial_distribution() -> None:
    """By sums of binomial probabilities, and against printed tables: of ten values, 2nd and 9th enclose the median."""
    assert percentiles.ranks_of_interval(10, 0.5) == (2, 9)
    for steps, share in ((25, 0.5), (100, 0.9), (400, 0.99), (400, 0.01)):
        ranks = percentiles.ranks_of_interval(steps, share)
        assert ranks is not None
        chances = [math.comb(steps, k) * share**k * (1 - share) ** (steps - k) for k in range(steps + 1)]
        low, high = ranks
        # Fewer than `low` steps, or at least `high`, are below the quantile.
        assert sum(chances[:low]) <= 0.025 < sum(chances[: low + 1])
        assert sum(chances[high:]) <= 0.025 < sum(chances[high - 1 :])


@pytest.mark.parametrize("percent", [50, 90, 95, 99, 99.9, 10, 1])
def test_as_many_steps_as_an_interval_needs_have_one(percent: float) -> None:
    least = percentiles.least_steps(percent)
    assert percentiles.ranks_of_interval(least - 1, percent / 100) is None
    assert percentiles.ranks_of_interval(least, percent / 100) is not None


def spread(steps: int, blocks: int) -> np.ndarray:
    """Times of 1 to `steps` ns, of which each of so many blocks in a row has every so manyth."""
    return np.arange(1.0, steps + 1).reshape(-1, blocks).T.ravel()


def part_of_variance(groups: int) -> float:
    """What a variance of so many groups is below once in five: a quantile of chi squared over its mean."""
    return float(stats.chi2.ppf(0.2, groups - 1)) / (groups - 1)


@pytest.mark.parametrize(("percent", "steps", "blocks"), [(50, 1000, 10), (90, 1000, 10), (10, 1000, 10), (50, 700, 7),
                                                          (50, 3000, 10), (50, 200, 5)])  # fmt: skip
def test_an_interval_of_one_process_by_hand(percent: int, steps: int, blocks: int) -> None:
    """As all blocks are alike, nothing but the number of blocks makes steps worth less.

    The ranks are those of as many independent steps, of which step k of n stands for step k (N + 1) / (n + 1) of N.
    """
    found = percentiles.estimate_percentile([spread(steps, blocks)], percent)
    assert found.independent_steps == pytest.approx(steps * part_of_variance(blocks))
    worth, share = math.floor(found.independent_steps), percent / 100
    low, high = int(stats.binom.ppf(0.025, worth, share)), int(stats.binom.ppf(0.975, worth, share)) + 1
    scale = (steps + 1) / (worth + 1)
    # Times are their own ranks.
    assert (found.low_ns, found.high_ns) == (math.floor(low * scale), math.ceil(high * scale))
    assert found.ns == pytest.approx(1 + share * (steps - 1))
    assert (found.needed_steps, found.confidence, found.percent) == (0, 0.95, percent)


@pytest.mark.parametrize(
    ("below", "sizes", "share", "worth"),
    [
        # Of 20 steps 10 are below: 4 and 6 of ten each differ by 1 from 5: a variance of 2 * 2 / 400 is that of 25, of
        # which there are no more than 20; 2 and 8 have 2 * 18 / 400, 0.25 of which is 2.8.
        ([4, 6], [10, 10], 0.5, 20.0),
        ([2, 8], [10, 10], 0.5, 0.25 / 0.09),
        ([5, 5], [10, 10], 0.5, 20.0),
        # Groups of 5 and 15: 2.5 and 7.5 are expected of them.
        ([0, 10], [5, 15], 0.5, 0.25 / (2 * 12.5 / 400)),
        ([1, 3, 8], [8, 8, 8], 0.5, 0.25 / (1.5 * 26 / 576)),
        # What is as long as the quantile is below it: 8 and 3, of which 5.5 are expected of either.
        ([8, 3], [8, 8], 0.5, 0.25 / (2 * 12.5 / 256)),
    ],
)
def test_how_much_differing_groups_are_worth(below: list[int], sizes: list[int], share: float, worth: float) -> None:
    """Steps of 1 and 2 ns, so many of either in each group."""
    groups = [np.array([1.0] * few + [2.0] * (size - few)) for few, size in zip(below, sizes, strict=True)]
    found = percentiles.count_independent(groups, np.concatenate(groups), share - 1e-9)
    assert found == pytest.approx(worth * part_of_variance(len(groups)), rel=1e-6)
    assert percentiles.count_independent(groups[:1], groups[0], share) == 0.0


def test_a_rare_quantile_is_worth_no_more_than_one_that_is_twice_as_often_exceeded() -> None:
    """In each of two blocks of 100 steps 5 are beyond the 95th percentile, but 5 and 15 beyond the 90th."""
    groups = [np.arange(100.0), np.arange(100.0)]
    groups[0][95:] += 1000
    groups[1][85:] += 1000
    groups[1][85:95] -= 500
    worth = percentiles.count_independent(groups, np.concatenate(groups), 0.95)
    # 95 and 85 are below: twice 2 * 25 of 200 squared.
    assert worth == pytest.approx(0.09 / (2 * 50 / 200**2) * part_of_variance(2))


@pytest.mark.parametrize(
    ("steps", "blocks"), [(1, 1), (3, 3), (5, 5), (50, 5), (599, 5), (600, 6), (999, 9), (1000, 10), (5000, 10)]
)
def test_blocks_of_a_window(steps: int, blocks: int) -> None:
    found = percentiles._blocks(np.arange(steps))
    assert len(found) == blocks and np.concatenate(found).tolist() == list(range(steps))


def test_needed_steps_are_as_alike_as_those_that_there_are() -> None:
    """Of 20 steps in five blocks the last has none at most at the 99th percentile and that twice as rare."""
    found = percentiles.estimate_percentile([spread(20, 5)], 99)
    # 4, 4, 4, 4 and 3 are below: 0.8 * 5 / 4 of 20 squared.
    worth = 0.99 * 0.01 / 0.0025 * part_of_variance(5)
    assert found.independent_steps == pytest.approx(worth)
    assert found.needed_steps == math.ceil(368 * 20 / worth)
    assert math.isnan(found.low_ns) and math.isnan(found.high_ns) and math.isnan(found.confidence)
    # One step more than there are, and as many as of independent ones, at the least.
    assert percentiles.estimate_percentile([np.arange(2.0)], 50).needed_steps == 6
    single = percentiles.estimate_percentile([np.array([1e6])], 50)
    assert math.isnan(single.ns) and (single.needed_steps, single.independent_steps) == (6, 0.0)


@pytest.mark.parametrize(
    ("processes", "ends", "confidence"),
    [(3, (0, 2), 0.75), (6, (0, 5), 0.96875), (9, (1, 7), 1 - 20 / 512), (10, (1, 8), 1 - 22 / 1024)],
)
def test_the_interval_of_processes_is_between_two_of_them(
    processes: int, ends: tuple[int, int], confidence: float
) -> None:
    """Processes of 10, 20, 30 ns and so on, in any order; fewer steps than an interval of one needs tell nothing."""
    dice = np.random.default_rng(1)
    made = [np.full(6, 10.0 * (place + 1)) for place in dice.permutation(processes)]
    found = percentiles.estimate_percentile(made, 50)
    assert (found.low_ns, found.high_ns) == tuple(10.0 * (end + 1) for end in ends)
    assert found.ns == 5.0 * (processes + 1) and found.confidence == pytest.approx(confidence)
    assert (found.independent_steps, found.needed_steps) == (processes, 0)
    few = percentiles.estimate_percentile([*made[:-1], made[-1][:5]], 50)
    assert math.isnan(few.ns) and few.needed_steps == processes * 6


@pytest.mark.parametrize(("count", "steps", "needed"), [(2, 6, 18), (2, 100, 300), (3, 5, 18), (4, 5, 24)])
def test_needed_steps_of_processes(count: int, steps: int, needed: int) -> None:
    found = percentiles.estimate_percentile([np.arange(float(steps))] * count, 50)
    assert math.isnan(found.ns) and math.isnan(found.confidence)
    assert (found.needed_steps, found.independent_steps) == (needed, count)


def test_times_of_tokens_are_those_of_the_steps_in_steady_state() -> None:
    """The first of a step's tokens apart from the others; a step may have fewer. A process's first step is warm-up."""
    steps = pd.DataFrame({"process": [0] * 4 + [1] * 4, "wall_ns": [900, 100, 100, 100] * 2, "gpu_ns": float("nan"),
                          "token_0_ns": [99, 9, 8, 7, 99, 6, 5, 4], "token_1_ns": [99, 1, 2, 3, 99, 4, 5, 6],
                          "token_2_ns": [99, np.nan, 1, 1, 99, 1, 1, np.nan]}).assign(step=range(8))  # fmt: skip
    found = across_cells._list_times(steps)
    assert [list(times) for times in found[latency.STEP]] == [[100] * 3] * 2
    assert [list(times) for times in found[latency.FIRST_TOKEN]] == [[9, 8, 7], [6, 5, 4]]
    assert [list(times) for times in found[latency.TOKEN]] == [[1, 2, 1, 3, 1], [4, 1, 5, 1, 6]]
    one = across_cells._list_times(steps[:4].drop(columns="process"))
    assert [list(times) for times in one[latency.FIRST_TOKEN]] == [[9, 8, 7]]
    # Where a process generated none, tokens have no percentiles.
    none = across_cells._list_times(steps.assign(token_0_ns=[9, 9, 8, 7] + [np.nan] * 4))
    assert list(none) == [latency.STEP, latency.TOKEN] and across_cells._list_times(steps[:0]) == {}
    table = latency.list_percentiles(found[latency.TOKEN], latency.TOKEN)
    assert table["percentile"].tolist() == [1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9]
    assert set(table["steps"]) == {10} and set(table["processes"]) == {2} and set(table["of"]) == {latency.TOKEN}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The table of cells: of many steps, of some, of two steps, and of two and of six processes."""
    dice = np.random.default_rng(1)
    rows = []
    for model, steps in (("unet", 3000), ("lstm", 80), ("gnmt", 2)):
        times = 1e7 * (1 + 0.01 * dice.standard_normal(steps) + (dice.random(steps) < 0.03) * dice.random(steps))
        frame = pd.DataFrame({"step": range(steps), "wall_ns": times.astype(int), "gpu_ns": np.nan, "items": 1})
        rows.append(({"model": model, "phase": "train"}, frame, {}))
    for model, processes in (("bert", 2), ("vgg", 6)):
        times = 1e7 * (1 + 0.01 * dice.standard_normal(processes * 50))
        frame = pd.DataFrame({"step": range(len(times)), "wall_ns": times.astype(int), "gpu_ns": np.nan, "items": 1})
        frame = frame.assign(process=frame["step"] // 50)
        rows.append(({"model": model, "phase": "train"}, frame, {}))
    return across_cells.make_latency(rows)


def test_the_table_keeps_its_declaration(tmp_path: Path, table: pd.DataFrame) -> None:
    write_csv(table, tmp_path / "latency.csv")
    again = csv_tables.read(tmp_path / "latency.csv", latency.TABLE)
    pd.testing.assert_frame_equal(again, table, check_dtype=False)
    known = table[table["ns"].notna()]
    assert set(known["model"]) == {"unet", "lstm", "vgg"}
    for _, rows in known.groupby("model"):
        assert rows["ns"].is_monotonic_increasing and (rows["low_ns"] <= rows["ns"]).all()
        assert (rows["ns"] <= rows["high_ns"]).all()
    assert latency.find_contradiction(table.assign(needed_steps=0)) is not None
    assert latency.find_contradiction(table.assign(low_ns=1.0)) is not None
    assert latency.find_contradiction(table.assign(confidence=0.95)) is not None


def test_what_the_page_says(table: pd.DataFrame) -> None:
    """What an interval is of, and how sure it is, stands beside the numbers."""
    said = {model: describe_latency(rows) for model, rows in table.groupby("model")}
    assert said["unet"].startswith("Of 2,999 steps of one process, half take at most 10 ms (")
    assert said["unet"].endswith("), of this process alone (95 %).") and "needed" not in said["unet"]
    assert "half take at most" in said["lstm"] and "More steps are needed for 90 % (about" in said["lstm"]
    assert said["gnmt"].startswith("More steps are needed for the median (about 6), 90 % (about 36), 95 %")
    assert said["bert"] == "2 processes tell nothing of others: 3 or more are needed, 6 for 95 %."
    assert said["vgg"].startswith("Of 278 steps of 6 processes, in the median process half take at most 9.98 ms (")
    assert said["vgg"].count(", with 97 %)") == 2 and "needed for 95 % (about 430), 99 %" in said["vgg"]
    assert describe_latency(table.head(0)) == ""


def test_the_figure_shows_what_was_measured_and_known_percentiles(table: pd.DataFrame) -> None:
    """A cell of ten steps has no percentile, but the middle half of its steps, whose ends are known by hand."""
    cells = pd.DataFrame({"model": ["gnmt", "lstm", "unet"], "phase": "train", "steps": [10, 300, 2999]})
    cells = cells.assign(step_median_ns=1e7, step_lower_quartile_ns=0.9e7, step_upper_quartile_ns=1.2e7)
    drawn = figure.draw(table, cells)
    (axis,) = drawn.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["unet · train", "gnmt · train", "lstm · train"]
    assert [text.get_text() for text in axis.texts] == ["2,999", "10", "300"]
    halves = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axis.patches]
    assert len(halves) == 3 and halves[1] == pytest.approx((0.9, 1.2))
    known = table[(table["of"] == latency.STEP) & table["percentile"].isin(figure.MARKS) & table["ns"].notna()]
    known = known[known["model"].isin(cells["model"])]
    assert len(axis.collections) == len(known) == 3
    medians = table[table["percentile"] == 50].set_index("model")["ns"]
    marks = sorted(points.get_offsets()[0][0] for points in axis.collections)
    assert marks == pytest.approx(sorted(row.ns / medians[row.model] for row in known.itertuples()))
    plt.close(drawn)
    for none in (cells.assign(step_median_ns=float("nan")), cells.assign(phase="imported")):
        nothing = figure.draw(table, none)
        assert "timed without a profiler" in nothing.axes[0].texts[0].get_text()
        plt.close(nothing)


def alike(dice: np.random.Generator, shape: tuple[int, int, int], near: float, apart: float) -> np.ndarray:
    """Times whose logarithm is normal with a standard deviation of sqrt(1 + apart^2) tenths, in ns around 1e6.

    shape: trials, processes and steps. near: correlation of neighbouring steps. apart: deviation of the processes.
    """
    noise = dice.standard_normal(shape)
    noise[..., 1:] *= math.sqrt(1 - near**2)
    for step in range(1, shape[2]):
        noise[..., step] += near * noise[..., step - 1]
    return 1e6 * np.exp(0.1 * (noise + apart * dice.standard_normal((*shape[:2], 1))))


@pytest.mark.parametrize(("near", "apart"), slow.first([(0.9, 1.0), (0.9, 0.0), (0.0, 0.0)]))
@pytest.mark.parametrize(
    ("processes", "steps", "percent", "confidence"),
    # 1 - 2^(1 - n), and of ten 1 - 2 (1 + 10) / 2^10: ranks 2 and 9.
    slow.first([(10, 40, 50, 1 - 22 / 1024), (3, 300, 90, 0.75), (5, 600, 99, 0.9375), (6, 100, 95, 0.96875)]),
)
def test_intervals_of_processes_hold_as_often_as_they_say(
    near: float, apart: float, processes: int, steps: int, percent: int, confidence: float
) -> None:
    """Neither less nor more often, however processes differ and steps are alike; the truth is of 3000 windows."""
    dice, trials = np.random.default_rng(2026), 400
    windows = np.concatenate([alike(dice, (1, 300, steps), near, apart)[0] for _ in range(10)])
    true, held = float(np.median(np.quantile(windows, percent / 100, axis=1))), 0
    for times in alike(dice, (trials, processes, steps), near, apart):
        found = percentiles.estimate_percentile([*times], percent)
        held += found.low_ns <= true <= found.high_ns
    # Four times the error of so many trials, and that of the truth's rank among the windows.
    error = 4 * math.sqrt(confidence * (1 - confidence) / trials) + 2 / math.sqrt(3000) * (1 - confidence)
    assert abs(held / trials - confidence) < error


@pytest.mark.parametrize(("steps", "near"), slow.first([(1000, 0.0), (2000, 0.8)]))
def test_intervals_of_one_process_hold_its_median(steps: int, near: float) -> None:
    """At least as often as they say, with the error of 150 trials, and not twice as wide as they would have to be."""
    made = alike(np.random.default_rng(2026), (150, 1, steps), near, 0.0)
    stated = [one for times in made if (one := percentiles.estimate_percentile([*times], 50)).needed_steps == 0]
    assert len(stated) > 75 and sum(one.low_ns <= 1e6 <= one.high_ns for one in stated) >= 0.92 * len(stated)
    needed = np.subtract(*np.quantile(np.quantile(made[:, 0], 0.5, axis=1), [0.975, 0.025]))
    assert np.median([one.high_ns - one.low_ns for one in stated]) < 2 * needed
