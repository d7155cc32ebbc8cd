"""counters: of the mean launch of configurations, ranges and groups, with answers worked out by hand."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pytest

from profzoo.kernels import counters
from profzoo.kernels.counters import GroupEstimates
from profzoo.tools.ncu import estimates
from profzoo.tools.ncu.estimates import GPU_TIME, Window
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
LOCAL = [f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum" for way in ("ld", "st")]
ISSUE = "sm__inst_executed.avg.pct_of_peak_sustained_elapsed"
L2_HITS, L2_SECTORS, L2_BYTES = "lts__t_sector_hit_rate.pct", "lts__t_sectors.sum", "lts__t_bytes.sum"
OCCUPANCY, ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active", "sm__cycles_active.avg"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
BARRIER = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
ISSUED = "smsp__inst_issued.sum"
WAVES = "launch__waves_per_multiprocessor"
# One configuration: four launches of 10 us forward, then two of 90 us backward.
SHORT, LONG = 4, 2


def census() -> pd.DataFrame:
    times = [10_000.0] * SHORT + [90_000.0] * LONG
    ranges = ["forward"] * SHORT + ["backward"] * LONG
    return pd.DataFrame({"mangled": "a", "range": ranges, GPU_TIME: times}).assign(**dict.fromkeys(KEYS[1:], 1))


def all_launches(values: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """What each launch counted, by what a short and a long one do; every launch was profiled."""
    table = census().assign(id=range(SHORT + LONG))
    return table.assign(**{name: [short] * SHORT + [long] * LONG for name, (short, long) in values.items()})


def two_launches(values: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """One launch of each kind, which stand for the others."""
    some = all_launches(values).iloc[[0, SHORT]].reset_index(drop=True)
    return some.assign(launch=[0, SHORT], multiplicity=[float(SHORT), float(LONG)])


PATHS = pytest.mark.parametrize("profiled", [all_launches, two_launches])


def of_configuration(table: pd.DataFrame) -> pd.Series:
    return counters.mean_counters(table, Window(census())).iloc[0]


def of_range(table: pd.DataFrame) -> pd.DataFrame:
    return counters.mean_counters_by_range(table, Window(census())).droplevel(KEYS)


def of_kernel(table: pd.DataFrame) -> pd.Series:
    return counters.mean_counters_by_group(table, census(), ["mangled"]).iloc[0]


WHOLE = pytest.mark.parametrize("found_by", [of_configuration, of_kernel])


@PATHS
@WHOLE
@pytest.mark.parametrize(
    ("metrics", "quantity", "expected"),
    [
        # What adds up is by launch: (4 * 100 + 2 * 900) / 6.
        ({SECTORS: (100, 900)}, "load_sectors", 2200 / 6),
        ({L2_BYTES: (100, 900)}, "l2_bytes", 2200 / 6),
        ({"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": (1, 4)}, "bank_conflicts", 12 / 6),
        # What is of elapsed time is by time: (4 * 10 * 50 + 2 * 90 * 80) / (4 * 10 + 2 * 90).
        ({ISSUE: (50, 80)}, "issue_pct", 16_400 / 220),
        # Of 4 * 1000 sectors a half is hit, of 2 * 500 eight in ten: (2000 + 800) / 5000.
        ({L2_HITS: (50, 80), L2_SECTORS: (1000, 500)}, "l2_hit_pct", 56),
        ({L2_HITS: (50, 80), L2_BYTES: (32_000, 16_000)}, "l2_hit_pct", 56),
        # Without what it is a share of, by time.
        ({L2_HITS: (50, 80)}, "l2_hit_pct", 16_400 / 220),
        # Of cycles with a warp: 4 * 5 at 50, 2 * 30 at 80.
        ({OCCUPANCY: (50, 80), ACTIVE: (5, 30)}, "occupancy_pct", (20 * 50 + 60 * 80) / 80),
        # By instruction: 4 * 300 of 10 cycles, 2 * 400 of 30.
        ({LATENCY: (10, 30), ISSUED: (300, 400)}, "warp_cycles", (1200 * 10 + 800 * 30) / 2000),
        ({BARRIER: (1, 3), ISSUED: (300, 400)}, "stall_barrier_cycles", (1200 * 1 + 800 * 3) / 2000),
        # Issued a quarter and half of the time: 4 * 10 * 0.25 and 2 * 90 * 0.5.
        ({LATENCY: (10, 30), "smsp__issue_active.avg.per_cycle_active": (0.25, 0.5)}, "warp_cycles", 28),
        # Of the cycles of a partition, of which one may be busy while others of its SM are not: 4 * 40 / 4 and 2 * 30 / 2.
        ({LATENCY: (10, 30), "smsp__issue_active.avg.per_cycle_active": (0.25, 0.5),
          "smsp__cycles_active.avg": (40, 30), ACTIVE: (10, 90)}, "warp_cycles", (40 * 10 + 30 * 30) / 70),
    ],
)  # fmt: skip
def test_a_mean_is_by_what_its_kind_says_on_every_path(
    profiled: Callable, found_by: Callable, metrics: Mapping, quantity: str, expected: float
) -> None:
    assert found_by(profiled(metrics))[quantity] == pytest.approx(expected)


@PATHS
def test_a_range_has_its_own_of_every_kind(profiled: Callable) -> None:
    """A kernel spills eight in a hundred bytes wherever it runs, and moves ten times as much backward."""
    spilled = {LOCAL[0]: (6, 60), LOCAL[1]: (2, 20), "l1tex__t_bytes.sum": (3200, 32_000), ISSUE: (50, 80)}
    found = of_range(profiled(spilled))
    assert found["local_sectors"].to_dict() == {"forward": 8, "backward": 80}
    assert (found["local_sectors"] * 32 / found["l1_bytes"]).tolist() == pytest.approx([0.08, 0.08])
    assert found["issue_pct"].to_dict() == {"forward": 50, "backward": 80}
    # What is of the launch itself is told of configurations alone: half a wave of one is not half a wave of another.
    table = profiled({WAVES: (1.5, 1.5)})
    assert of_configuration(table)["waves"] == 1.5 and of_range(table)["waves"].tolist() == [1.5, 1.5]
    assert "waves" not in of_kernel(table)


@PATHS
def test_launches_in_which_a_ratio_is_not_known_count_for_nothing(profiled: Callable) -> None:
    found = profiled({L2_HITS: (50, np.nan), L2_SECTORS: (1000, 500), ISSUE: (np.nan, 80)})
    assert of_configuration(found)["l2_hit_pct"] == 50 and of_configuration(found)["issue_pct"] == 80
    assert pd.isna(of_range(found).loc["backward", "l2_hit_pct"])
    # A ratio to nothing is not known.
    assert pd.isna(of_configuration(profiled({L2_HITS: (0, 0), L2_SECTORS: (0, 0)}))["l2_hit_pct"])


def test_percentages_are_weighed_by_the_launches_that_each_stands_for() -> None:
    """Ten launches of one length and one of another: of the two profiled, the first stands for ten."""
    every = pd.DataFrame({"mangled": "a", "range": "forward", GPU_TIME: [10_000.0] * 10 + [100_000.0]})
    every = every.assign(**dict.fromkeys(KEYS[1:], 1))
    some = every.iloc[[0, 10]].assign(launch=[0, 10], multiplicity=[10.0, 1.0], **{ISSUE: [20.0, 60.0]})
    # Both lengths take 100 us in all.
    assert counters.mean_counters(some, Window(every)).iloc[0]["issue_pct"] == pytest.approx(40)
    # Times of the set itself go first: with caches flushed its long launches took as long as four short ones, not nine.
    some = two_launches({ISSUE: (50, 80)}).assign(**{GPU_TIME: [10_000.0, 40_000.0]})
    expected = (4 * 10 * 50 + 2 * 40 * 80) / (4 * 10 + 2 * 40)
    assert of_configuration(some)["issue_pct"] == pytest.approx(expected)
    assert of_configuration(some.drop(columns=GPU_TIME))["issue_pct"] == pytest.approx(16_400 / 220)


def test_an_interval_is_of_the_fewest_degrees_of_freedom_of_what_it_holds() -> None:
    """Forward only short launches ran, which two were profiled of; DRAM bytes have a value in the short ones alone.

    A guess counts as two observations of a configuration, beside the pairs of its strata that were seen: the pair of
    short and long launches is one for L2 bytes, and none for DRAM bytes.
    """
    dram = {"dram__bytes_read.sum": (64, np.nan), "dram__bytes_write.sum": (0, 0)}
    found = of_range(two_launches({L2_BYTES: (100, 900)} | dram))
    assert found.loc["forward", "freedom"] == 2
    assert of_range(two_launches({L2_BYTES: (100, 900)})).loc["forward", "freedom"] == 3


def test_degrees_of_freedom_of_sums() -> None:
    """Of variances 3 and 1 by 2 and 4 degrees: 4 squared over 9 / 2 + 1 / 4; of one by itself, its own."""
    variances = pd.DataFrame({"x": [3.0, 1.0, 5.0], "y": [0.0, 1.0, 5.0]})
    found = counters.freedom_of_sums(variances, pd.Series([2.0, 4.0, 7.0]), [pd.Series(["p", "p", "q"])])
    assert found["p"] == pytest.approx(min(16 / 4.75, 1 / 0.25)) and found["q"] == pytest.approx(7)
    # Half an interval is 1.6449 standard errors with endless degrees of freedom, 2.92 with two (Student's t, 0.95).
    table = pd.DataFrame({"l2_bytes": [100.0, 100.0], "l2_bytes_high": [116.449, 129.2], "freedom": [np.inf, 2.0]})
    assert counters.standard_errors(table, "l2_bytes").tolist() == pytest.approx([10, 10], rel=5e-3)
    assert counters.standard_errors(table, "dram_bytes").isna().all()


def test_sums_of_groups_are_those_of_their_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four launches of 100 bytes and two of 900, each also known to vary by 1 % between runs; 50 and 80 % by time."""
    rows = all_launches({L2_BYTES: (100, 900), ISSUE: (50, 80), LOCAL[0]: (6, np.nan), LOCAL[1]: (1, 1)})
    made = GroupEstimates(rows.sample(frac=1, random_state=1), Window(census()), estimates.QUANTITIES)
    found = made.by(["range"])
    assert found.index.tolist() == [("forward",), ("backward",)]
    assert found["launches"].tolist() == found["counted"].tolist() == [SHORT, LONG]
    assert found["l2_bytes"].tolist() == [400, 1800] and found["issue_pct"].tolist() == pytest.approx([50, 80])
    # What some launches have no value of is not a quantity of a group.
    assert "local_sectors" not in found
    whole = made.by(["mangled"]).iloc[0]
    assert (whole["l2_bytes"], whole["launches"]) == (2200, 6) and whole["issue_pct"] == pytest.approx(16_400 / 220)
    monkeypatch.setattr(counters, "RUN_TO_RUN", {})
    without = made.by(["mangled"]).iloc[0]
    squares = SHORT * 100**2 + LONG * 900**2
    assert whole["l2_bytes_error"] ** 2 - without["l2_bytes_error"] ** 2 == pytest.approx(1e-4 * squares)
    assert without["l2_bytes_error"] > 0 and whole["l2_bytes_freedom"] == without["l2_bytes_freedom"] >= 2


def test_a_launch_stands_for_others_in_sums() -> None:
    made = GroupEstimates(two_launches({L2_BYTES: (100, 900)}), Window(census()), estimates.QUANTITIES)
    found = made.by(["range"])
    assert found["l2_bytes"].tolist() == pytest.approx([400, 1800])
    assert found["launches"].tolist() == [SHORT, LONG] and found["counted"].tolist() == pytest.approx([SHORT, LONG])
    assert not made.whole and made.places.tolist() == [0, SHORT]
    # Some launches without multiplicities tell nothing of the others.
    few = GroupEstimates(all_launches({L2_BYTES: (100, 900)})[:5], Window(census()), estimates.QUANTITIES)
    assert few.estimates is None and few.by(["range"]).empty


def test_rows_of_launches_that_were_counted() -> None:
    rows = all_launches({L2_BYTES: (100, 900)})
    ordered, places = counters._sampled(rows[::-1], census())
    assert ordered["id"].tolist() == places.tolist() == list(range(6))
    assert counters._sampled(rows[:5], census())[0].empty
    weighed = rows.assign(multiplicity=[2.0, np.nan, 1.0, 1.0, 1.0, 1.0], launch=[3, np.nan, 2, 1, 0, 5])
    chosen, places = counters._sampled(weighed, census())
    assert not counters.is_weighed(rows) and not counters.is_weighed(rows.assign(multiplicity=np.nan))
    assert counters.is_weighed(weighed) and counters.is_weighed(weighed.dropna())
    assert chosen["id"].tolist() == [0, 2, 3, 4, 5] and places.tolist() == [3, 2, 1, 0, 5]


@pytest.mark.parametrize(
    ("part", "weight", "rate", "error"),
    [
        # Errors of a tenth and a fifth: together the root of 0.05 of the rate.
        ((6.0, 0.6), (3.0, 0.6), 2.0, 2 * 0.05**0.5),
        ((6.0, 0.0), (3.0, 0.6), 2.0, 0.4),
        ((0.0, 0.6), (3.0, 0.6), 0.0, 0.0),
        ((6.0, 0.6), (0.0, 0.6), np.nan, 0.0),
    ],
)
def test_the_error_of_a_rate(part: tuple, weight: tuple, rate: float, error: float) -> None:
    given = {"dram part of x": part[0], "dram part of x_se": part[1], "dram part of x_freedom": 7.0,
             "dram weight of x": weight[0], "dram weight of x_se": weight[1], "dram weight of x_freedom": 5.0}  # fmt: skip
    found = counters._rates(pd.DataFrame([given]), "x").iloc[0]
    assert found.tolist() == pytest.approx([rate, error, 5.0], nan_ok=True)
