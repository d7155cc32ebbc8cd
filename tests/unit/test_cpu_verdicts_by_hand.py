"""Steps on a CPU, each number worked out by hand: what a call costs, overhead, shares and their ends, what is said."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.verdicts import cpu_step, cpu_verdicts, rules, verdicts
from profzoo.verdicts.cpu_step import CpuStep, ShareInterval, StepPart
from profzoo.verdicts.rule_evaluation import UNDECIDED
from profzoo.verdicts.verdict import BY_PROFZOO
from tests.unit.test_cpu_verdicts import BIG, CELL, FLOOR, MS, RULES, VIEW, cells, judged, operators, ranges


def apart(own: pd.DataFrame, data_ns: float = 0.0, forward_ns: float = 10 * MS, **given: Any) -> CpuStep:
    times = {"data": data_ns, "forward": forward_ns}
    return CpuStep(cells(**given).iloc[0].to_dict(), times, own, FLOOR, RULES["floors"]["stretch"])


@pytest.mark.parametrize(
    ("rows", "median"),
    [
        # Of means 1, 2 and 4: half of 3 and 1 calls is at 1; of 1, 1 and 2 at 2.
        ([(3, 3.0), (1, 4.0)], 1.0),
        ([(1, 4.0), (1, 1.0), (2, 4.0)], 2.0),
        # As many below as above: the lower one.
        ([(2, 8.0), (2, 2.0)], 1.0),
        ([(1, 8.0), (4, 8.0), (1, 1.0)], 2.0),
        ([], np.nan),
    ],
)
def test_the_median_call(rows: list[tuple[float, float]], median: float) -> None:
    table = pd.DataFrame(rows, columns=["launches", "total_ns"], dtype="float64")
    assert cpu_step._median(table) == pytest.approx(median, nan_ok=True)


def test_a_step_taken_apart() -> None:
    """A view takes 1 us, so that below 6 a call is brief: 100 calls of 5 us, not 10 of 6.

    Of 12 ms, 1 by its input, operators take 0.004, 0.5 and 0.06; 10.436 ms between 114 calls is more than is brief.
    """
    own = operators(VIEW, ("aten::add", "a", "forward", 100, 5e5), ("aten::mul", "a", "forward", 10, 6e4),
                    ("aten::cat", "(data)", "data", 2, 1e5), ("aten::mm", "(outside)", "forward", 9, 9e9),
                    ("aten::no", "a", "forward", 0, 7e9))  # fmt: skip
    step = apart(own, MS, 11 * MS, step_ns=12 * MS)
    assert (step.ns, step.calls, step.floor_ns, step.brief_ns) == (12 * MS, 116, 1e3, 6e3)
    assert step.input == StepPart(MS, 2) and step.overhead == StepPart(5.04e5, 104)
    assert step.longest()["operator"].tolist() == ["aten::mul"]
    # In 1.22 ms there are 0.656 between 114 calls, 5.75 us each: as short as calls, and their overhead.
    assert apart(own, MS, 1.22 * MS, step_ns=2.22 * MS).overhead == StepPart(pytest.approx(5.04e5 + 6.56e5), 104)
    # Exactly 6 us each are not below.
    assert apart(own, MS, 0.564 * MS + 114 * 6e3, step_ns=2 * MS).overhead.ns == pytest.approx(5.04e5)
    # Operators that take longer than the step leave nothing between them.
    assert apart(own, MS, 0.4 * MS, step_ns=2 * MS).overhead == StepPart(5.04e5, 104)


def test_what_needs_are_known_of() -> None:
    """Of 4 ms a quarter is of calls whose needs are known; the longest operator first, and its longest place."""
    own = operators(VIEW, ("aten::mm", "a", "forward", 1, 4 * MS), ("aten::mm", "b", "backward", 2, 5 * MS),
                    ("aten::tanh", "a", "forward", 1, 9.5 * MS))  # fmt: skip
    own = own.assign(needed_flop=[np.nan, 8e6, np.nan, 1e6], needed_share=[np.nan, 0.25, 0.0, 1.0])
    step = apart(own, 0.0, 20 * MS)
    longest = step.longest()
    assert longest["operator"].tolist() == ["aten::tanh", "aten::mm"]
    assert longest["total_ns"].tolist() == [9.5 * MS, 9 * MS] and longest["launches"].tolist() == [1, 3]
    assert longest["needed_ns"].tolist() == [9.5 * MS, MS] and longest["needed_flop"].tolist() == [1e6, 8e6]
    assert step.places("aten::mm")["module"].tolist() == ["b", "a"]


@pytest.mark.parametrize(
    ("traced", "step_ns", "a_call", "longer"),
    [
        # 4 calls that take 1 us each make 10 ms longer by no more than that: 2 us by half a us, 20 us by one.
        (10.002, 10, 500, 1.0),
        (10.02, 10, 1e3, 10.016 / 10),
        (9.0, 10, 0, 0.9),
        (20.004, 10, 1e3, 2.0),
    ],
)
def test_what_the_profiler_takes_of_a_call(traced: float, step_ns: float, a_call: float, longer: float) -> None:
    step = apart(operators(VIEW), 0.0, traced * MS, step_ns=step_ns * MS)
    assert step.a_call_ns == pytest.approx(a_call) and step.longer == pytest.approx(longer)
    assert step.apart == pytest.approx(max(longer, 1 / longer))


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        # A quarter of 10 ms, of 10 traced ones.
        ({}, 0.25, 0.25),
        # Times from 8 to 10 ms, or to 12.5: 1.25 times as much of the part or of all else.
        ({"step_lower_quartile_ns": 8 * MS}, 2.5 / 11.875, 3.125 / 10.625),
        ({"step_upper_quartile_ns": 12.5 * MS}, 2.5 / 11.875, 3.125 / 10.625),
        ({"step_median_ns": 8 * MS}, 2.5 / 11.875, 3.125 / 10.625),
        # Others took 0.2: of 8 ms 0.5 or 2.5.
        ({"cpu_taken_share": 0.2}, 0.0625, 0.3125),
        ({"cpu_taken_share": 0.5}, 0.0, 0.5),
        ({"cpu_taken_share": 0.9}, 0.0, 1.0),
        ({"cpu_taken_share": 1.0}, 0.0, 1.0),
        # Four times as long without the profiler: what is beyond may be any part's.
        ({"step_ns": 40 * MS, "step_median_ns": 40 * MS, "step_lower_quartile_ns": 40 * MS,
          "step_upper_quartile_ns": 40 * MS}, 0.0625, 1 - 0.75 / 4),
        # Twice as long is as far as a slow machine explains.
        ({"step_ns": 20 * MS, "step_median_ns": 20 * MS, "step_lower_quartile_ns": 20 * MS,
          "step_upper_quartile_ns": 20 * MS}, 0.25, 0.25),
    ],
)  # fmt: skip
def test_the_ends_of_a_share(given: dict[str, float], least: float, most: float) -> None:
    # Without a call that does nothing, the profiler takes nothing of calls.
    step = apart(operators(("aten::add", "a", "forward", 1, 1e3)), **given)
    found = step.share(StepPart(2.5 * MS, 0.0))
    assert (found.value, found.least, found.most) == pytest.approx((0.25, least, most))


@pytest.mark.parametrize(("traced", "least", "most"), [(20.0, 0.25, 0.25), (40.0, 0.0, 1.0), (25.0, 0.0, 0.625)])
def test_what_steps_are_longer_by_under_the_profiler(traced: float, least: float, most: float) -> None:
    """A quarter of steps of 10 ms: twice as long is the machine, beyond it may be of the part alone or of all else."""
    step = apart(operators(("aten::add", "a", "forward", 1, 1e3)), 0.0, traced * MS)
    found = step.share(StepPart(traced * MS / 4, 0.0))
    assert (found.least, found.most) == pytest.approx((least, most))


def test_a_part_of_nothing_has_no_share() -> None:
    assert [cpu_step._part(ns, others) for ns, others in ((0.0, 0.0), (1.0, 3.0), (2.0, 0.0))] == [0, 0.25, 1]


def test_a_part_is_no_more_than_the_step() -> None:
    """Calls and time beyond the step's are all of it."""
    step = apart(operators(VIEW))
    found = step.share(StepPart(20 * MS, 9.0))
    assert found == ShareInterval(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        ({"launches": 1.0, "needed_ns": 0.0, "needed_flop": 0.0}, "op, 1 call per step"),
        ({"launches": 2.5, "needed_ns": 4.0, "needed_flop": 2.0}, "op, 2.5 calls per step, 0.5 Gflop/s"),
        ({"launches": 0.5, "needed_ns": 0.0, "needed_flop": np.nan}, "op, 0.5 calls per step"),
    ],
)
def test_an_operator_in_words(sums: dict[str, float], said: str) -> None:
    assert cpu_verdicts._describe_operator("op", sums) == said


@pytest.mark.parametrize(("share", "verdict"), [(0.25, "operator-bound"), (0.2499, verdicts.NOTHING)])
def test_an_operator_binds_from_its_threshold_on(share: float, verdict: str) -> None:
    own = operators(("aten::mm", "a", "forward", 1, share * 10 * MS))
    found = judged(cells(), ranges(), own)
    assert found["verdict"].iloc[0] == verdict and found["share"].iloc[0] == pytest.approx(share)


@pytest.mark.parametrize(("part", "layers"), [(0.1001, ["a", "b"]), (0.0999, ["a"])])
def test_layers_are_named_from_a_tenth_of_the_step_on(part: float, layers: list[str]) -> None:
    own = operators(("aten::mm", "a", "forward", 1, 4 * MS), ("aten::mm", "b", "forward", 1, part * 10 * MS))
    found = judged(cells(), ranges(), own)
    assert found.loc[found["level"] == "layer", "module"].tolist() == layers
    assert found["rank"].tolist() == [1, *range(1, len(layers) + 1)]
    # No layer of what the cell is not bound by.
    few = operators(("aten::mm", "a", "forward", 1, 2 * MS))
    assert judged(cells(), ranges(), few)["level"].tolist() == ["cell"]


def test_cells_and_layers_come_by_their_gain() -> None:
    """Operators have 0.3 and 0.4 of the step, input 0.2: half of the former gains 1 / 0.85 and 1 / 0.8, all of that 1.25."""
    own = operators(("aten::mm", "a", "forward", 1, 3 * MS), ("aten::conv", "a", "forward", 1, 4.1 * MS))
    found = judged(cells(), ranges(2 * MS, 8 * MS), own)
    of_cell = found[found["level"] == "cell"]
    assert of_cell["function"].fillna("").tolist() == ["aten::conv", "", "aten::mm"]
    assert of_cell["gain"].tolist() == pytest.approx([1 / (1 - 0.205), 1 / 0.8, 1 / 0.85])
    assert found.loc[found["level"] == "layer", "function"].tolist() == ["aten::conv", "aten::mm"]


def test_what_is_left_open_comes_last_and_once_a_rule() -> None:
    """Two operators that may have 0.25 of the step or less: the larger one is named, beside the input that is sure."""
    own = operators(("aten::mm", "a", "forward", 1, 2.5 * MS), ("aten::conv", "a", "forward", 1, 2.6 * MS))
    spread = cells(step_lower_quartile_ns=8 * MS)
    found = judged(spread, ranges(2 * MS, 8 * MS), own)
    assert found["verdict"].tolist() == ["input-bound", UNDECIDED] and "potential" not in found
    low, high = 2.6 / (2.6 + 7.4 * 1.25), 2.6 * 1.25 / (2.6 * 1.25 + 7.4)
    assert found[["share_low", "share_high"]].iloc[1].tolist() == pytest.approx([low, high])
    assert (
        found["next_step"]
        .iloc[1]
        .startswith("operator-bound: between 22% and 31% of the step, undecided because its steps vary: stop other")
    )
    # Where steps are not steady one line says so of all.
    unsteady = judged(cells(step_lower_quartile_ns=2 * MS, unsteady="it drifts"), ranges(2 * MS, 8 * MS), own)
    assert (
        unsteady["verdict"].tolist() == [UNDECIDED]
        and "undecided because it drifts: stop" in unsteady["next_step"].iloc[0]
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"unsteady": "it drifts"}, "it drifts"),
        ({"unsteady": np.nan}, ""),
        ({"step_median_ns": 10 * MS / 1.3}, ""),
        ({"step_median_ns": 10 * MS / 1.301}, "the mean step is 1.3 times the median"),
    ],
)
def test_why_steps_are_not_relied_on(given: dict[str, Any], said: str) -> None:
    cell = cells(**given).iloc[0].to_dict()
    step = CpuStep(cell, {"forward": 10 * MS}, BIG, FLOOR, 2.0)
    assert cpu_verdicts.CpuCellJudge(cell, step, {}, RULES)._unsteady() == said


@pytest.mark.parametrize(("traced", "doubted"), [(20.0, False), (20.1, True), (5.0, False), (4.9, True)])
def test_steps_that_the_profiler_changes_by_more_than_twice(traced: float, doubted: bool) -> None:
    cell = cells().iloc[0].to_dict()
    step = CpuStep(cell, {"forward": traced * MS}, operators(("aten::mm", "a", "forward", 1, MS)), FLOOR, 2.0)
    said = cpu_verdicts.CpuCellJudge(cell, step, {}, RULES)._unsteady()
    assert said == (
        "step times with and without the profiler differ by a factor of 2.0, more than its overhead explains"
        if doubted
        else ""
    )


def test_only_cells_that_torch_saw_on_a_cpu_are_judged() -> None:
    """Each once; one that was not timed, has no operators or took no time is left out."""
    parts = ranges()
    assert (
        cpu_verdicts.cpu_cells(pd.concat([parts, parts])) == [CELL]
        and cpu_verdicts.cpu_cells(ranges(clock="gpu")) == []
    )
    assert cpu_verdicts.cpu_cells(parts.assign(tool="nsys")) == []
    known = rules.load_rules()
    assert cpu_verdicts.tabulate_cpu_verdicts(cells().iloc[:0], parts, {CELL: BIG}, {}, known).empty
    assert cpu_verdicts.tabulate_cpu_verdicts(cells(), parts, {}, {}, known).empty
    assert cpu_verdicts.tabulate_cpu_verdicts(cells(), ranges(0.0, 0.0), {CELL: BIG}, {}, known).empty
    other = parts.assign(tool="nsys", ns_per_step=9e9)
    found = cpu_verdicts.tabulate_cpu_verdicts(cells(), pd.concat([parts, other]), {CELL: BIG}, {}, known)
    assert found["share"].iloc[0] == pytest.approx(0.85) and found["by"].eq(BY_PROFZOO).all()
