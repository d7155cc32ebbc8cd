"""The search for the slower state: its error over all questions, obstacles, contradictions, and the names of changes."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import contributions
from profzoo.referee import bisect, gate
from profzoo.statistics.speedup import Ratio
from tests.benchmarks import bisect_power
from tests.unit.compared import CELLS, traced

BUDGET = 500


def exact(culprit: int, size: float = 0.05, *, broken: tuple[int, ...] = (), last: int = 16) -> bisect.Measure:
    """Rounds of states of which each from one on takes longer, and which spread by a little."""
    random = np.random.default_rng(1)

    def measure(reference: int, candidate: int) -> float:
        for place in (reference, candidate):
            if place in broken:
                raise bisect.SkippedError(place, "it does not build")
        steps = (candidate >= culprit) - (reference >= culprit)
        return steps * math.log1p(size) + float(random.normal(0, 0.002))

    return measure


def test_shares_of_all_questions_are_the_whole_error() -> None:
    """Later questions have LATER_SHARE / (k (k + 1)), whose sum up to n is LATER_SHARE n / (n + 1)."""
    found = sum(bisect.share_error(question, 65) for question in range(1, 1007))
    assert found == pytest.approx(bisect.PROBE_SHARE + bisect.LATER_SHARE * 1000 / 1001)
    assert pytest.approx(1) == bisect.SIZE_SHARE + bisect.PROBE_SHARE + bisect.LATER_SHARE
    assert bisect.share_error(1, 2) == bisect.PROBE_SHARE


@pytest.mark.parametrize("culprit", [1, 2, 9, 15, 16])
@pytest.mark.parametrize("size", [0.05, -0.05])
def test_the_state_is_found_wherever_it_is_slower_or_faster(culprit: int, size: float) -> None:
    told: list[bisect.Probe] = []
    found = bisect.search(17, exact(culprit, size), BUDGET, tell=told.append)
    assert told == found.probes
    assert (found.outcome, found.low, found.high) == (bisect.FOUND, culprit - 1, culprit)
    assert found.step and found.size and found.step.low < 1 + size < found.step.high
    assert found.rounds == bisect.search(17, exact(culprit, size), BUDGET).rounds < 60
    assert {(one.place, one.answer) for one in found.probes} <= {
        (place, bisect.GOOD if place < culprit else bisect.BAD) for place in range(17)
    }


def test_states_that_do_not_run_are_passed_over_and_leave_a_range_beside_the_change() -> None:
    found = bisect.search(17, exact(9, broken=(8, 4)), BUDGET)
    assert (found.outcome, found.low, found.high, [*found.suspects]) == (bisect.RANGE, 7, 9, [8, 9])
    assert found.skipped[8] == "it does not build" and "do not run" in found.why
    other = bisect.search(17, exact(3, broken=(8,)), BUDGET)
    assert (other.outcome, other.high, other.skipped) == (bisect.FOUND, 3, {8: "it does not build"})
    with pytest.raises(bisect.SkippedError) as raised:
        bisect.search(17, exact(9, broken=(16,)), BUDGET)
    assert raised.value.place == 16


def test_a_spent_budget_leaves_the_range_so_far() -> None:
    whole = bisect.search(17, exact(9), BUDGET)
    some = bisect.search(17, exact(9), whole.rounds - 8)
    assert some.outcome == bisect.RANGE and some.why == f"the budget was spent after {whole.rounds - 8} rounds"
    assert some.low < 9 <= some.high and 1 < len(some.suspects) < 16
    assert len(bisect.search(17, exact(9), 2).suspects) == 16


def test_ends_that_are_alike_are_told() -> None:
    found = bisect.search(17, exact(9, 0.0), BUDGET)
    assert (found.outcome, found.probes) == (bisect.SAME, []) and "as fast as the first within 2%" in found.why


def test_a_wrong_answer_is_contradicted_and_asked_again() -> None:
    """The eighth state looks slow as long as it is probed for the first time, and the change is at the twelfth."""
    truth, rounds = exact(12), iter(range(10_000))
    asked: list[int] = []

    def measure(reference: int, candidate: int) -> float:
        asked.append(next(rounds))
        found = truth(reference, candidate)
        # Until the search has come to its neighbours, the eighth is measured as if it were like the last.
        wrong = 8 in (reference, candidate) and not {7, 9} & seen
        seen.update((reference, candidate))
        return found + (math.log1p(0.05) * ((candidate == 8) - (reference == 8)) if wrong else 0.0)

    seen: set[int] = set()
    found = bisect.search(17, measure, BUDGET)
    assert (found.outcome, found.high) == (bisect.FOUND, 12) and found.contradictions >= 1


def test_a_slowdown_in_two_steps_names_one_with_its_part() -> None:
    def measure(reference: int, candidate: int) -> float:
        return 0.03 * ((candidate >= 5) - (reference >= 5)) + 0.05 * ((candidate >= 12) - (reference >= 12)) + noise()

    random = np.random.default_rng(2)
    noise: Callable[[], float] = lambda: float(random.normal(0, 0.001))  # noqa: E731
    found = bisect.search(17, measure, BUDGET)
    assert (found.outcome, found.high) == (bisect.FOUND, 12)
    assert isinstance(found.step, Ratio) and math.log(found.step.ratio) == pytest.approx(0.05, abs=0.003)


@pytest.mark.parametrize(("kind", "broken"), [("0.5 % apart", 0.1), ("disturbed", 0.0)])
def test_planted_slowdowns_are_found(kind: str, broken: float) -> None:
    found = bisect_power.rate(kind, broken, 4, seed=3)
    assert (found.right, found.wrong) == (4, 0)
    if kind == "disturbed":
        assert bisect_power.rate(kind, broken, 4, repeats=3, seed=3).wrong > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", bisect_power.KINDS)
def test_of_twenty_planted_slowdowns_nineteen_are_found(kind: str) -> None:
    for broken in bisect_power.BROKEN:
        found = bisect_power.rate(kind, broken, 20)
        assert found.right >= 19 and found.wrong <= 1


def part(level: str, name: str, old: float, new: float, change: str = "", where: str = "forward") -> tuple[object, ...]:
    return (level, where, name, old, new, change)


def name(*rows: tuple[object, ...]) -> list[str]:
    columns = ["level", "range", "name", "baseline_ns", "candidate_ns", "change"]
    return [str(one) for one in bisect.name_changes(pd.DataFrame(rows, columns=columns))]


def test_a_kernel_that_took_the_place_of_another_is_named_with_both_names() -> None:
    kernel, layer = contributions.KERNEL_LEVEL, contributions.LAYER_LEVEL
    found = name(
        part(kernel, "winograd", 2e6, 0.0, contributions.VANISHED),
        part(kernel, "implicit_gemm", 0.0, 5e6, contributions.APPEARED),
        part(kernel, "copy", 1e6, 2e6, contributions.LAUNCHED),
        part(kernel, "relu", 3e6, 2.9e6, contributions.CHANGED),
        part(layer, "conv1", 5e6, 9e6, contributions.RETYPED),
        part(contributions.PART_LEVEL, "idle", 1e6, 3e6, where=""),
        part(contributions.PART_LEVEL, "kernels", 6e6, 8e6, where=""),
    )
    assert found == [
        "kernel winograd -> implicit_gemm: 2 ms -> 5 ms, 77% of the difference, another algorithm",
        "kernel copy: 1 ms -> 2 ms, 26% of the difference, number of launches",
        "part idle: 1 ms -> 3 ms, 50% of the difference",
    ]


def test_layers_are_named_where_there_are_no_kernels_and_operators_by_calls() -> None:
    layer = contributions.LAYER_LEVEL
    assert name(part(layer, "norm", 1e6, 3e6, contributions.RETYPED)) == [
        "layer norm: 1 ms -> 3 ms, 100% of the difference, type of layer"]  # fmt: skip
    table = bisect.tabulate_operators(({"mm": (2, 2e6), "relu": (1, 1e6)}, {"mm": (4, 4e6), "sort": (1, 1e6)}))
    assert [str(one) for one in bisect.name_changes(table)] == [
        "operator mm: 2 ms -> 4 ms, 100% of the difference, 2 -> 4 calls"]  # fmt: skip
    assert bisect.name_changes(table.iloc[:0]) == []


@pytest.mark.parametrize("cell", CELLS[8::20], ids=" ".join)
def test_what_changed_between_recorded_cells_is_named(cell: tuple[str, str]) -> None:
    """A recorded cell against itself with the launches of one kernel twice as long, which a step is longer by."""
    one = traced(*cell)
    assert one.kernels is not None
    slow = one.kernels["total_ns"].idxmax()
    kernels, more = one.kernels.copy(), float(one.kernels.loc[slow, "total_ns"])
    kernels.loc[slow, "total_ns"] += more
    share = more / one.kernels["total_ns"].sum()
    other = replace(one, kernels=kernels, step={**one.step, "step_ns": one.step["step_ns"] * (1 + share)})
    rows = contributions.contribution_rows(one, other)
    first, *_ = bisect.name_changes(rows)
    assert (first.level, first.old, first.new) == (contributions.KERNEL_LEVEL, *[one.kernels.loc[slow, "kernel"]] * 2)
    (told, *_) = gate.list_parts(rows.assign(model=cell[0], phase=cell[1]).to_dict("records"), " ".join(cell))
    assert str(one.kernels.loc[slow, "kernel"]) in told
