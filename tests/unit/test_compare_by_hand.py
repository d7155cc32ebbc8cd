"""Comparisons, each number worked out by hand: sizes of differences, chances, intervals, parts, what a terminal says."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import (
    cli,
    comparison_table,
    contribution_table,
    contributions,
    differences,
    energy,
    numeric_dictionary,
    sides,
)
from profzoo.compare.contributions import CHANGED, LAUNCHED, RETYPED, TracedCell
from profzoo.config import configuration
from profzoo.range_names import REST
from profzoo.statistics import rank_tests as ranks
from profzoo.statistics import speedup
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED, Ratio, Size
from profzoo.tables.ncu_coverage import KEYS


def of_size(given: Size) -> tuple[float, float, float]:
    return given.middle, given.error, given.freedom


def test_two_samples_by_their_size() -> None:
    """Variances of 2 in 2 and 4 in 3: 1 and 4/3, of 1 and 2 degrees: (7/3)**2 / (1/1 + (16/9)/2) is 49/17."""
    (found,) = speedup.compare_welch(np.array([0.0, 2]), np.array([5.0, 7, 9]))
    assert of_size(found) == pytest.approx((6, math.sqrt(7 / 3), 49 / 17))
    (alike,) = speedup.compare_welch(np.array([1.0, 1]), np.array([3.0, 3, 3]))
    assert of_size(alike) == (2, 0, 3)


def test_pairs_by_their_size() -> None:
    """Of 1 2 3 6 the squares are 4 + 1 + 0 + 9, of three degrees, in four pairs."""
    (found,) = speedup.compare_pairs(np.zeros(4), np.array([3.0, 1, 6, 2]))
    assert of_size(found) == pytest.approx((3, math.sqrt(14 / 3 / 4), 3))
    # Of 1 2 3 4 10 the variance is 50/4. Drawn in they are 2 2 3 4 4, of variance 1, and three are left.
    whole, left = speedup.compare_pairs(np.array([1.0, 1, 1, 1, 1]), np.array([4.0, 2, 11, 3, 5]))
    assert of_size(whole) == pytest.approx((4, math.sqrt(2.5), 4))
    assert of_size(left) == pytest.approx((3, math.sqrt(5) / 3, 2))


@pytest.mark.parametrize(
    ("places", "others", "error"),
    [
        # Neighbours differ by drift, side and chance: what is left is -a + 3 b - 3 b' + a' = -5, of squares 20.
        ((0, 3), (1, 2), 5 / math.sqrt(20)),
        # Twice as far apart in the middle: -a + 2 b - 2 b' + a' = -3, of squares 10.
        ((0, 4), (1, 3), 3 / math.sqrt(10)),
    ],
)
def test_neighbours_by_their_size(places: tuple[int, int], others: tuple[int, int], error: float) -> None:
    """Baseline 0 and 1 about candidates of 10 and 12: (10 + 12 - 0 - 1) / 2, of one degree in either case."""
    found = speedup.compare_neighbours(np.array([0.0, 1]), np.array([10.0, 12]), places, others)
    assert of_size(found) == pytest.approx((10.5, error, 1))


def test_neighbours_are_put_in_their_order() -> None:
    found = speedup.compare_neighbours(np.array([1.0, 0]), np.array([12.0, 10]), (7, 4), (6, 5))
    assert of_size(found) == pytest.approx((10.5, 5 / math.sqrt(20), 1))


def test_chances_and_intervals_of_one_degree_of_freedom() -> None:
    """Student's t of one degree is Cauchy's: one error from the middle are a quarter, and the middle half within it."""
    size = Size(5.0, 2.0, 1.0)
    assert [size.p(shift, sign) for shift, sign in ((3, 1), (3, -1), (7, 1), (5, 1))] == pytest.approx(
        [0.75, 0.25, 0.25, 0.5]
    )
    assert size.interval(0.5) == pytest.approx((3, 7))
    assert Size(5.0, 0.0, 1.0).interval(0.5) == (5 - 1e-9, 5 + 1e-9)


def ranked(p: float, ends: tuple[float, float] | None = None) -> ranks.Test:
    """All differences are between 1 and 3, with that chance of any shift."""
    return ranks.Test(2.0, 1.0, 3.0, ends, lambda shift, sign: p)


@pytest.mark.parametrize(
    ("p", "ends", "shift", "sign", "right"),
    [
        # The size says a quarter at one error from the middle. Ranks that say more give way where all agree.
        (0.4, (1.0, 3.0), 3.5, 1, 0.25),
        (0.1, (1.0, 3.0), 3.5, 1, 0.1),
        # One is as large as the shift: all do not agree.
        (0.4, (1.0, 3.0), 3.0, 1, 0.4),
        (0.4, (1.0, 3.0), 1.0, -1, 0.4),
        (0.4, (1.0, 3.0), 0.5, -1, 0.25),
        # Of too few for ranks to be rare both have to say so, but where all agree.
        (0.1, None, 3.5, 1, 0.25),
        (0.4, None, 3.5, 1, 0.25),
        (0.4, None, 3.0, 1, 0.4),
        (0.1, None, 3.0, 1, 0.25),
    ],
)
def test_whether_ranks_or_size_tell(
    p: float, ends: tuple[float, float] | None, shift: float, sign: int, right: float
) -> None:
    sizes = [Size(shift - sign * 2.0, 2.0, 1.0), Size(shift, 2.0, 1.0)]
    assert speedup._probability(sizes, ranked(p, ends), shift, sign) == pytest.approx(right)


def test_intervals_of_few_processes_hold_all_differences() -> None:
    """Middle halves of 3 to 7 and 1.5 to 2.5: from 3 to 2.5, and out to 1 and 3, where differences are."""
    sizes = [Size(5.0, 2.0, 1.0), Size(2.0, 0.5, 1.0)]
    assert speedup._confidence_interval(sizes, ranked(0.1), 0.5) == (1, 3)
    assert speedup._confidence_interval([Size(2.0, 4.0, 1.0)], ranked(0.1), 0.5) == pytest.approx((-2, 6))
    assert speedup._confidence_interval(sizes, ranked(0.1, (1.5, 2.25)), 0.5) == (1.5, 2.25)


def test_a_ratio_of_four_processes_of_each_side() -> None:
    """Candidates take e, e**2, e**3 and e**4 times as long as four that take one: the ends are those, the middle e**2.5.

    One of 70 orders is as extreme, which is a deviate beyond; by size 2.5 and an error of sqrt(5/3/4), of 3 degrees.
    """
    found = speedup.estimate_ratio([1.0] * 4, np.exp([1.0, 2, 3, 4]), None)
    assert (found.ratio, found.low, found.high) == pytest.approx((math.exp(2.5), math.e, math.exp(4)))
    # Of three degrees the chance beyond t is 1/2 - (t/sqrt(3) / (1 + t*t/3) + atan(t/sqrt(3))) / pi; t is 3.873.
    x = 2.5 / math.sqrt(5 / 12) / math.sqrt(3)
    one_sided = 0.5 - (x / (1 + x * x) + math.atan(x)) / math.pi
    assert found.p_different == pytest.approx(min(2 * one_sided, 2 / 70))
    # Far above the margin: no chance of being as close.
    assert found.p_equivalent > 0.98
    assert speedup.estimate_ratio([1.0, 1.0], [1.0, 1.0], None).p_different == 1


def test_verdicts_hold_up_to_the_rate_and_by_the_margin() -> None:
    """Of one comparison each probability is held against 5 % itself; of two the larger one is as it is."""

    def said(ratio: float, different: float, equivalent: float) -> list[str]:
        return speedup.decide_outcomes([Ratio(ratio, 0, 9, different, equivalent)])

    assert said(1.1, 0.05, 1.0) == [SLOWER] and said(0.9, 0.05, 1.0) == [FASTER]
    assert said(0.9, 0.051, 1.0) == [UNDECIDED] and said(0.99, 0.01, 0.05) == [EQUIVALENT]
    assert said(0.99, 1.0, 0.051) == [UNDECIDED] and speedup.decide_outcomes([]) == []
    # Of two chances of 3 and 60 % the smaller counts twice.
    pair = [Ratio(1.1, 0, 9, 0.03, 1.0), Ratio(1.1, 0, 9, 0.6, 1.0)]
    assert speedup.decide_outcomes(pair) == [UNDECIDED, UNDECIDED] and speedup.decide_outcomes(pair[:1]) == [SLOWER]


def test_ends_of_the_interval_of_pairs() -> None:
    """Of ten pairs ranks of at most 6 are rare (23 of 1,024). Beyond 2 the three below have ranks 1, 3 and 5."""
    assert ranks.paired_shift(np.arange(10.0), 0.95).ends == (2, 7)
    # Of five pairs all of one sign are one in 32, which is rare enough for 15 of 16, and the next one is not.
    assert ranks.paired_shift(np.array([1.0, 2, 4, 8, 16]), 1 - 2 / 32).ends == (1, 16)
    assert ranks.paired_shift(np.array([1.0, 2, 4, 8, 16]), 1 - 2 / 33).ends is None


def test_few_samples_levelled_keep_what_is_no_rare_thing() -> None:
    """Of 2 and 2, one order of six has no larger one, two at most one, four at most two: beyond a half none changes."""
    one, other = np.array([0.0, 1.0]), np.array([2.0, 3.0])
    assert ranks.two_sample_p(one, other, 2, levelled=True) == pytest.approx(4 / 6)
    # A sixth is a deviate of -0.96742, times the root of 2 in 3 -0.78990, which is 21.48 %.
    assert ranks.two_sample_p(one, other, 4, levelled=True) == pytest.approx(0.21480, abs=2e-5)


def test_no_candidate_makes_no_sides() -> None:
    config = configuration.normalise_config({"models": "lstm"})
    assert sides.sides_of(config) == []
    found = sides.sides_of({**config, "candidate": ["bf16", "tf32"]})
    assert [side.name for side in found] == ["plain", "bf16", "tf32"]
    assert sides.runs_in_turn(found) and not sides.runs_in_turn([])
    assert not sides.runs_in_turn([*found, sides.Side("old", Path("old"))])


def test_sides_take_turns_forth_and_back() -> None:
    order = sides.interleave(["a", "b", "c"], 3, "x")
    assert order[3:6] == order[:3][::-1] and order[6:] == order[:3] and sorted(order[:3]) == ["a", "b", "c"]


def test_commits_are_shortened_and_what_is_not_known_is_none() -> None:
    name = "0123456789" * 4
    assert differences.describe_sidecar_differences({"commit": name}, {"commit": f"{name}0"}) == [
        f"commit 0123456789 -> {name}0"
    ]
    assert differences.describe_sidecar_differences({"driver": None}, {"driver": 5}) == ["driver none -> 5"]
    assert differences.describe_sidecar_differences(
        {"cell": {"steps": 3, "batch": 1, "window": 2}}, {"cell": {"gpus": 2}}
    ) == ["gpus none -> 2"]


COUNTER, POWER = energy.ENERGY_METHODS


@pytest.mark.parametrize(
    ("baseline", "candidate", "right"),
    [
        # Medians of 2 and 4; by the counter where both sides have it.
        ({COUNTER: [1.0, 2, 9], POWER: [7.0]}, {COUNTER: [4.0], POWER: [7.0]}, (2, 4, 2)),
        ({COUNTER: [1.0, 2, 9], POWER: [8.0]}, {POWER: [2.0]}, (8, 2, 0.25)),
        ({COUNTER: [1.0]}, {POWER: [2.0]}, (np.nan, np.nan, np.nan)),
    ],
)
def test_energy_of_one_process_has_no_interval(
    baseline: dict, candidate: dict, right: tuple[float, float, float]
) -> None:
    found = energy.compare_energies(baseline, candidate)
    assert (found["baseline_item_j"], found["candidate_item_j"], found["energy_ratio"]) == pytest.approx(
        right, nan_ok=True
    )
    assert np.isnan([found["energy_low"], found["energy_high"]]).all()


def test_energy_of_two_processes_a_side_has_an_interval() -> None:
    """Quotients of 2, 4 and 4, 8: the middle of their logarithms is that of 4."""
    found = energy.compare_energies({POWER: [1.0, 2.0]}, {POWER: [4.0, 8.0]})
    assert (found["baseline_item_j"], found["candidate_item_j"]) == (1.5, 6)
    assert found["energy_ratio"] == pytest.approx(4) and found["energy_low"] < 2 and found["energy_high"] > 8


STEP = {"step_ns": 100.0, "busy_share": 0.8, "busy_ns": 160.0, "idle_ns": 40.0, "copy_ns": 40.0, "transfer_ns": 20.0,
        "communication_ns": 40.0, "overlap_ns": 0.0, "waiting_ns": 0.0, "idle_input_ns": 40.0,
        **dict.fromkeys(["idle_host_ns", "idle_synchronisation_ns", "idle_latency_ns", "idle_launch_ns"], 0.0)}  # fmt: skip


def launches(*rows: tuple[Any, str, Any, float, float, int]) -> pd.DataFrame:
    """Of range, kernel, class, launches, ns and the grid."""
    table = pd.DataFrame(rows, columns=["range", "kernel", "class", "launches", "total_ns", "grid_x"])
    return table.assign(**{key: 0 for key in KEYS if key not in table})


def test_the_parts_of_half_as_much_work_a_step() -> None:
    """A step of 100 ns that is busy for 80: of 160 traced, 80 by kernels, 40 by communication, 20 by either copy."""
    one = TracedCell(None, STEP)
    names = ("kernels", "communication", "copy", "transfer", "idle_input")
    assert [one.parts()[name] for name in names] == pytest.approx([40, 20, 10, 10, 20])
    assert [TracedCell(None, STEP, None, 4.0).parts()[name] for name in names] == pytest.approx([10, 5, 2.5, 2.5, 5])


def test_kernels_share_the_time_of_kernels_and_communication() -> None:
    """60 ns of each step: by 30 and 90 of 120 traced, 15 and 45; what was not timed has none."""
    one = TracedCell(launches(("forward", "a", "gemm", 1, 30, 1), ("forward", "b", "gemm", 1, 90, 1),
                          ("forward", "c", "gemm", 1, np.nan, 1)), STEP)  # fmt: skip
    assert one.timed()["ns"].tolist() == pytest.approx([15, 45])
    layers = pd.DataFrame({"range": "forward", "name": ["x", "y"], "type": "Conv", "launches": 1.0, "ns": [2.0, 4.0]})
    assert TracedCell(one.kernels, STEP, layers).by_layer()["ns"].tolist() == pytest.approx([20, 40])
    assert TracedCell(None, STEP, layers, 4.0).by_layer()["ns"].tolist() == pytest.approx([0.5, 1])
    assert TracedCell(one.kernels, STEP, layers.assign(ns=0.0)).by_layer()["ns"].tolist() == [0, 0]


def test_where_a_difference_lies() -> None:
    """Both take 60 ns in kernels. Of the baseline a takes 15 and b 45; of the candidate a 20 and b, twice as often, 40."""
    one = TracedCell(launches(("forward", "a", "gemm", 1, 30, 1), (None, "b", None, 1, 90, 1)), STEP)
    other = TracedCell(
        launches(("forward", "a", "gemm", 1, 60, 2), (None, "b", None, 2, 120, 2)), STEP | {"step_ns": 200.0}
    )
    found = contributions.contribution_rows(one, other).set_index(["level", "range", "name"])
    assert found.loc[("kernel", "forward", "a"), ["baseline_ns", "candidate_ns"]].tolist() == pytest.approx([15, 40])
    assert found.loc[("kernel", "", "b"), ["baseline_ns", "candidate_ns", "delta_ns", "delta_share"]].tolist() == (
        pytest.approx([45, 80, 35, 0.35])
    )
    # What has both another grid and another number is told by the former.
    assert found.loc[["kernel"], "change"].tolist() == [CHANGED, CHANGED]
    assert found.loc["range"].index.tolist() == [("", REST), ("forward", "forward")]
    assert found.loc["class"].index.tolist() == [("", ""), ("", "gemm")]
    # Largest change first, in the order of levels.
    order = list(dict.fromkeys(level for level, _, _ in found.index))
    assert order == ["part", "range", "class", "kernel"] and found.loc["part"].index[0] == ("", "kernels")
    assert found["delta_ns"].groupby("level").sum().tolist() == pytest.approx([60, 60, 100, 60])


@pytest.mark.parametrize(("more", "change"), [(0.4, ""), (0.5, LAUNCHED), (-0.5, LAUNCHED), (-0.4, "")])
def test_launches_differ_from_half_a_launch_on(more: float, change: str) -> None:
    one, other = (TracedCell(launches(("forward", "a", "gemm", 3 + off, 30, 1)), STEP) for off in (0, more))
    found = contributions.contribution_rows(one, other)
    assert found.loc[found["level"] == "kernel", "change"].tolist() == [change]


def test_layers_without_those_below_them() -> None:
    """A net launches 5, of which its two layers launch 2 and 3; one that takes no time and launches nothing is none."""
    tree = pd.DataFrame(
        [("", "net", "forward", "Net", 5.0, 0.5), ("net", "a", "forward", "Conv", 2.0, 7.0),
         ("net", "b", "forward", "ReLU", 3.0 - 1e-7, 0.0), ("", "net", "backward", "Net", 2e-6, 0.0),
         ("net", "none", "forward", "Identity", 5e-7, 0.0)],
        columns=["parent", "module", "direction", "type", "launches", "self_ns"],
    )  # fmt: skip
    found = contributions.layer_times(tree)
    assert found[["name", "range"]].to_numpy().tolist() == [
        ["net", "forward"], ["a", "forward"], ["b", "forward"], ["net", "backward"],
    ]  # fmt: skip
    assert found["launches"].tolist() == pytest.approx([0, 2, 3 - 1e-7, 2e-6], abs=1e-12)


def test_layers_are_told_by_their_type() -> None:
    layers = pd.DataFrame({"range": "forward", "name": ["x", "y"], "type": ["Conv", "Linear"], "launches": 1.0})
    one = TracedCell(None, STEP, layers.assign(ns=[10.0, 20.0]))
    other = TracedCell(None, STEP, layers.assign(ns=[10.0, 50.0], type=["Conv", "LoRA"]))
    found = contributions.contribution_rows(one, other)
    assert found[["name", "delta_ns", "change"]].to_numpy().tolist() == [["y", 30.0, RETYPED], ["x", 0.0, ""]]


def compared(*rows: dict[str, Any]) -> pd.DataFrame:
    """Rows of a comparison of 100 and 80 ms, faster."""
    known = {"model": "unet", "phase": "train", "baseline": "plain", "candidate": "bf16", "baseline_ns": 1e8,
             "candidate_ns": 8e7, "ratio": 0.8, "ratio_low": 0.79, "ratio_high": 0.81, "verdict": FASTER,
             "processes": 5, "steps": 100, "alternating": True, "per": "step", "baseline_items": 4.0,
             "candidate_items": 4.0, "unsteady": "", "differs": "", "margin": 0.02, **numeric_dictionary.UNKNOWN}  # fmt: skip
    return pd.DataFrame([known | row for row in rows]).reindex(columns=list(comparison_table.COLUMNS))


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({}, "100 ms ->     80 ms  faster, 1.25 times as fast [1.23, 1.27]"),
        ({"verdict": UNDECIDED}, "100 ms ->     80 ms  undecided, 1.25 times as fast [1.23, 1.27]"),
        ({"verdict": SLOWER, "ratio": 1.25, "ratio_low": 1.2, "ratio_high": 1.3, "candidate_ns": 1.25e8},
         "100 ms ->    125 ms  slower, 0.800 times as fast [0.769, 0.833]"),
        ({"per": "sample"}, "100 ms ->     80 ms per sample  faster, 1.25 times as fast [1.23, 1.27]"),
        ({"verdict": UNDECIDED, "ratio_low": np.nan, "ratio_high": np.nan},
         "100 ms ->     80 ms  undecided, 1.25 times as fast (one process, so no interval)"),
        ({"energy_ratio": 0.5, "energy_low": 0.4, "energy_high": 0.6, "unsteady": "candidate: it drifts"},
         "100 ms ->     80 ms  faster, 1.25 times as fast [1.23, 1.27], 0.500 times the energy per sample [0.400, 0.600]"
         "; unsteady: candidate: it drifts"),
        ({"energy_ratio": 0.5}, "100 ms ->     80 ms  faster, 1.25 times as fast [1.23, 1.27], 0.500 times the energy per sample"),
    ],
)  # fmt: skip
def test_a_cell_in_a_line(row: dict[str, Any], right: str) -> None:
    assert f"  unet train     {right}" in cli.format_comparison(compared(row))


def test_what_is_said_of_several_cells() -> None:
    names = ["a", "b", "c", "d", "e"]
    table = compared(
        *({"model": name, "differs": "batch 4 -> 8" if name != "e" else "", "verdict": FASTER if name != "e" else SLOWER,
           "per": "sample" if name != "e" else "step", "candidate_items": 8.0, "processes": 4 if name == "a" else 5}
          for name in names)
    )  # fmt: skip
    said = cli.format_comparison(table)
    assert said[0] == "bf16 against plain: 4 to 5 processes each, times per sample or per step, alternating"
    where = " (a train, b train, c train and 1 more)"
    assert said[1:4] == [
        f"  differs: batch 4 -> 8{where}",
        "  differs: no known setting (e train)",
        f"  times are per sample, because a step has 4 samples on the reference side and 8 in the candidate{where}",
    ]
    assert said[-1] == "  4 faster, 1 slower"
    apart = cli.describe_method(table.assign(alternating=[True, True, False, True, True], processes=5))
    assert apart.startswith("5 processes each, ") and apart.endswith(
        "measured at different times, so drift counts as a difference"
    )
    assert cli.describe_differences(table[:3]) == ["batch 4 -> 8"]
    two = compared({"model": "a"}, {"model": "b"}, {"model": "c"}, {"model": "d", "differs": "x"})
    assert cli.describe_differences(two)[0] == "no known setting (a train, b train, c train)"


def test_the_three_largest_parts_are_named_where_there_is_a_difference() -> None:
    keys = {"model": "unet", "phase": "train", "baseline": "plain", "candidate": "bf16", "range": "", "change": ""}
    moved = [("kernels", -3e6), ("copy", 2e6), ("idle_host", 0.0), ("transfer", 1.0)]
    rows = [keys | {"level": "part", "name": name, "delta_ns": ns} for name, ns in moved]
    rows += [keys | {"level": "part", "name": "waiting", "delta_ns": 9e9, "model": "other"}]
    rows += [rows[-1] | {"model": "unet", "candidate": "tf32"}]
    seen = pd.DataFrame(rows)
    said = cli.format_comparison(compared({}), seen)
    assert said[3] == "      kernels -3 ms, copy +2 ms, idle host +0 ns" and said[4] == "  1 faster"
    assert len(cli.format_comparison(compared({"verdict": EQUIVALENT}), seen)) == 4


def measured(medians: list[float], items: float = 1.0, **given: Any) -> comparison_table.MeasuredSide:
    """Processes of three steps each, in ms, that differ by nothing."""
    return comparison_table.MeasuredSide(
        [np.full(3, 1e6 * median) for median in medians], {"device": "H100"}, items=items, **given
    )


def test_a_row_of_four_processes_a_side() -> None:
    """Four of 1 ms and candidates of 2, 3, 4 and 6: the ends are 2 and 6, the middle one of logarithms sqrt(12).

    Of processes that each take the same for all steps all variance is between them.
    """
    both = {"plain": measured([1, 1, 1, 1]), "bf16": measured([3, 2, 6, 4])}
    (row,) = comparison_table.tabulate_comparison([({"model": "m", "phase": "train"}, both, False)], 0.02).to_dict(
        "records"
    )
    assert (row["ratio_low"], row["ratio_high"], row["ratio"]) == pytest.approx((2, 6, math.sqrt(12)))
    assert (row["baseline_ns"], row["candidate_ns"], row["steps"], row["processes"]) == (1e6, 3.5e6, 24, 4)
    assert (row["between_share"], row["per"], row["alternating"], row["verdict"]) == (1, "step", False, SLOWER)
    assert row["unsteady"] == "candidate: the slowest process takes 200% longer than the fastest"
    assert (row["device"], row["margin"], row["differs"]) == ("H100", 0.02, "")


def test_rows_of_one_process_and_of_other_batches() -> None:
    """4 samples in 8 ms and 16 in 16: 2 and 1 ms each, whichever candidate has as many."""
    both = {"plain": measured([8, 8], 4.0), "wide": measured([16], 16.0), "same": measured([4, 4], 4.0)}
    wide, same = comparison_table.tabulate_comparison([({"model": "m", "phase": "train"}, both, False)], 0.02).to_dict(
        "records"
    )
    assert (wide["per"], wide["baseline_ns"], wide["candidate_ns"], wide["ratio"]) == ("sample", 2e6, 1e6, 0.5)
    assert (wide["processes"], wide["verdict"]) == (1, UNDECIDED)
    assert np.isnan([wide[name] for name in ("ratio_low", "ratio_high", "p_different", "between_share")]).all()
    assert (same["per"], same["baseline_ns"], same["candidate_ns"], same["candidate"]) == ("step", 8e6, 4e6, "same")


def test_facts_of_both_sides_are_told_once_where_they_are_the_same() -> None:
    one, other = ({"device": name, "started": day} for name, day in (("A", "2026-01-02T10"), ("B", "2026-01-02T11")))
    both = {
        "plain": comparison_table.MeasuredSide([np.ones(3)], one),
        "bf16": comparison_table.MeasuredSide([np.ones(3)], other),
    }
    (row,) = comparison_table.tabulate_comparison([({"model": "m", "phase": "train"}, both, True)], 0.02).to_dict(
        "records"
    )
    assert (row["device"], row["date"], row["differs"]) == ("A -> B", "2026-01-02", "device A -> B")


def test_pairs_are_of_rounds_that_both_sides_worked_by_shifts() -> None:
    """Six candidates that each take 2 to 2.5 times what their pair takes, however unlike pairs are."""
    base, more = [1.0, 10, 100, 1000, 1e4, 1e5], [2.0, 2.1, 2.2, 2.3, 2.4, 2.5]
    rounds = [0, 1, 2, 3, 4, 5]
    of_pairs = [one * times for one, times in zip(base, more, strict=True)]
    for own, low in ((rounds, 2.0), ([], None), (rounds[1:], None)):
        both = {"plain": measured(base, rounds=rounds, places=[0, 3, 4, 7, 8, 11]),
                "bf16": measured(of_pairs, rounds=own, places=[1, 2, 5, 6, 9, 10])}  # fmt: skip
        (row,) = comparison_table.tabulate_comparison([({"model": "m", "phase": "train"}, both, True)], 0.02).to_dict(
            "records"
        )
        if low:
            assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((2, 2.5)) and row["verdict"] == SLOWER
        else:
            assert row["ratio_low"] < 1 and row["verdict"] == UNDECIDED


def test_candidates_are_told_in_the_order_of_the_table() -> None:
    said = cli.format_comparison(compared({"candidate": "tf32"}, {"candidate": "bf16"}))
    assert [line.split(":")[0] for line in said if " against " in line] == ["tf32 against plain", "bf16 against plain"]


def test_a_cell_that_no_tool_saw_has_its_time_alone() -> None:
    """4 samples of 25 ns are a step of 100."""
    found = contribution_table.read_side({}, 25.0, 4.0)
    assert found == TracedCell(None, {"step_ns": 100.0}, None, 4.0) and found.time_ns == 25
    assert contribution_table.read_side({}, 25.0) == TracedCell(None, {"step_ns": 25.0}, None, 1.0)
    for rows in (compared(), compared({}), compared({"per": "sample"})):
        table = contribution_table.tabulate_contributions(rows, {})
        assert table.empty and list(table.columns) == list(contributions.COLUMNS)


def test_each_process_that_is_equal_counts_as_half() -> None:
    """Of three and three alike three pairs are larger and three equal: four and a half, no fewer than five.

    Of the 20 orders 1, 1, 2, 3, 3 and 3 have from none to five larger ones.
    """
    three = np.arange(3.0)
    assert ranks.two_sample_p(three, three, 0) == pytest.approx(13 / 20)


def test_a_run_is_a_side_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/monday").mkdir(parents=True)
    config = configuration.normalise_config({"models": "lstm"})
    found = sides.sides_of({**config, "candidate": ["monday"]})
    assert found[1] == sides.Side("monday", Path("runs/monday")) and found[1].of("lstm") == "lstm"


def test_launches_are_told_where_a_candidate_computes_something_else() -> None:
    table = compared({"verdict": "different", "numerics": "different", "numerics_why": "outputs differ"})
    parts = pd.DataFrame([
        {"level": "class", "name": name, "baseline_launches": one, "candidate_launches": other, "range": "", "delta_ns": 0.0,
         "change": ""}
        for name, one, other in (("copy", 4.0, 4.0), ("product", 32.0, 8.0), ("softmax", 8.0, 2.0))
    ]).assign(model="unet", phase="train", baseline="plain", candidate="bf16")  # fmt: skip
    said = cli.format_comparison(table, parts)
    assert "different, 1.25 times as fast [1.23, 1.27]; computes something else (outputs differ)" in said[2]
    assert said[3] == "      launches 44 -> 14: product 32 -> 8, softmax 8 -> 2, copy 4 -> 4"
    assert cli.format_comparison(compared({"numerics": "same"}), parts)[2].endswith("; computes the same")
    failing = [cli.find_failing(table, one).tolist() for one in cli.FAILING]
    assert failing == [[False], [True], [True]]
    assert cli.find_failing(compared({"verdict": SLOWER}), cli.EITHER).tolist() == [True]
