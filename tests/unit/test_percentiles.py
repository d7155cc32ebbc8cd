"""Percentiles of step times: intervals that hold by simulation, also of steps that are alike, and steps that are needed."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from profzoo.figures import latency as figure
from profzoo.figures import plots
from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.report.latency_text import describe_latency
from profzoo.statistics import percentiles
from profzoo.tables import latency, latency_across

# Quantiles of the normal distribution, from tables.
NORMAL = {50: 0.0, 90: 1.2815515655, 95: 1.6448536270, 99: 2.3263478740}


def alike(dice: np.random.Generator, shape: tuple[int, int, int], near: float, apart: float) -> np.ndarray:
    """Times whose logarithm is normal with a standard deviation of sqrt(1 + apart^2) tenths, in ns around 1e6.

    shape: trials, processes and steps.

    near: correlation of neighbouring steps. apart: standard deviation of the processes.
    """
    noise = dice.standard_normal(shape)
    noise[..., 1:] *= math.sqrt(1 - near**2)
    for step in range(1, shape[2]):
        noise[..., step] += near * noise[..., step - 1]
    return 1e6 * np.exp(0.1 * (noise + apart * dice.standard_normal((*shape[:2], 1))))


def truth(percent: int, apart: float) -> float:
    return float(1e6 * math.exp(0.1 * NORMAL[percent] * math.sqrt(1 + apart**2)))


@pytest.mark.parametrize(
    ("processes", "steps", "near", "apart", "percents"),
    [
        # Independent steps; those of a process alike; processes that differ; one process whose steps are alike.
        (10, 200, 0.0, 0.0, (50, 90, 95, 99)),
        (8, 400, 0.8, 0.0, (50, 90, 95)),
        (20, 100, 0.8, 0.3, (50, 90, 95)),
        (1, 2000, 0.8, 0.0, (50, 90, 95)),
    ],
)
def test_intervals_hold_the_true_percentile(
    processes: int, steps: int, near: float, apart: float, percents: Sequence[int]
) -> None:
    """With the error of 150 trials, 95 % is at least 90 %. Where steps are alike, intervals for independent ones fail."""
    dice, trials = np.random.default_rng(2026), 150
    held, stated, naive = (dict.fromkeys(percents, 0) for _ in range(3))
    for times in alike(dice, (trials, processes, steps), near, apart):
        pooled = np.sort(np.concatenate(times))
        for percent in percents:
            found, true = percentiles.estimate_percentile([*times], percent), truth(percent, apart)
            ranks = percentiles.ranks_of_interval(len(pooled), percent / 100)
            assert ranks is not None
            naive[percent] += pooled[ranks[0] - 1] <= true <= pooled[ranks[1] - 1]
            stated[percent] += not math.isnan(found.ns)
            held[percent] += found.low_ns <= true <= found.high_ns
    for percent in percents:
        assert stated[percent] > 0.5 * trials, percent
        assert held[percent] >= 0.9 * stated[percent], percent
    if near or apart:
        assert naive[50] < 0.8 * trials
    else:
        assert all(0.9 * trials <= held for held in naive.values())


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


def test_too_few_steps_say_how_many_are_needed_and_no_number() -> None:
    dice = np.random.default_rng(5)
    few = percentiles.estimate_percentile([dice.normal(1e6, 1e4, 19)], 99)
    assert math.isnan(few.ns) and math.isnan(few.low_ns) and math.isnan(few.high_ns)
    # At least as many as of independent steps.
    assert few.needed_steps >= 368
    assert percentiles.estimate_percentile([dice.normal(1e6, 1e4, few.needed_steps)], 99).needed_steps == 0
    single = percentiles.estimate_percentile([np.array([1e6])], 50)
    assert math.isnan(single.ns) and (single.needed_steps, single.independent_steps) == (6, 0.0)


def test_a_process_that_differs_makes_steps_worth_less() -> None:
    dice = np.random.default_rng(6)
    same = [dice.normal(1e6, 1e3, 500) for _ in range(10)]
    apart = [times + 1e5 * (place == 0) for place, times in enumerate(same)]
    whole, part = (percentiles.estimate_percentile(times, 95) for times in (same, apart))
    assert whole.needed_steps == 0 and whole.independent_steps > 1000
    assert part.independent_steps < 20 and part.needed_steps > 5000


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The table of three cells: of many steps, of one process of 19, and of two steps."""
    dice = np.random.default_rng(1)
    rows = []
    for model, steps in (("unet", 3000), ("lstm", 20), ("gnmt", 2)):
        times = 1e7 * (1 + 0.01 * dice.standard_normal(steps) + (dice.random(steps) < 0.03) * dice.random(steps))
        frame = pd.DataFrame({"step": range(steps), "wall_ns": times.astype(int), "gpu_ns": np.nan, "items": 1})
        rows.append(({"model": model, "phase": "train"}, frame, {}))
    return latency_across.make_latency(rows)


def test_the_table_keeps_its_declaration(tmp_path: Path, table: pd.DataFrame) -> None:
    write_csv(table, tmp_path / "latency.csv")
    again = csv_tables.read(tmp_path / "latency.csv", latency.TABLE)
    pd.testing.assert_frame_equal(again, table, check_dtype=False)
    known = table[table["ns"].notna()]
    assert set(known["model"]) == {"unet", "lstm"}
    for _, rows in known.groupby("model"):
        assert rows["ns"].is_monotonic_increasing and (rows["low_ns"] <= rows["ns"]).all()
        assert (rows["ns"] <= rows["high_ns"]).all()
    assert latency.find_contradiction(table.assign(needed_steps=0)) is not None
    assert latency.find_contradiction(table.assign(low_ns=1.0)) is not None


def test_what_the_page_says(table: pd.DataFrame) -> None:
    said = {model: describe_latency(rows) for model, rows in table.groupby("model")}
    assert said["unet"].startswith("Of 2,999 steps of one process, half take at most 10 ms (")
    assert "99 % take at most" in said["unet"] and "needed" not in said["unet"]
    assert "half take at most" in said["lstm"] and "More steps are needed for 90 % (about" in said["lstm"]
    assert (
        said["gnmt"]
        == "More steps are needed for the median (about 6), 90 % (about 36), 95 % (about 72), 99 % (about 370)."
    )
    assert describe_latency(table.head(0)) == ""


def test_the_figure_shows_known_percentiles_alone(table: pd.DataFrame) -> None:
    drawn = figure.draw(table)
    (axis,) = drawn.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["unet · train", "lstm · train"]
    (note,) = (text.get_text() for text in axis.texts)
    assert note.startswith("99 % needs about ") and note.endswith(" steps")
    assert len(axis.collections) == 4 + 1
    plt.close(drawn)
    nothing = figure.draw(table[table["model"] == "gnmt"])
    assert "No cell has enough steps" in nothing.axes[0].texts[0].get_text()
    plt.close(nothing)
    assert figure.NEEDS == () and plots.PHASE_MARKERS
