"""Whether two sides compute the same: planted errors in real networks are found, and rewritten ones raise no alarm."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy import stats

from profzoo.cell.cell_types import CellSettings
from profzoo.compare import numeric_checks, numerics
from profzoo.compare.numeric_checks import NumericSide
from profzoo.harness.step import double_precision
from profzoo.statistics import rounding_errors
from tests import planted_numerics as planted
from tests import slow
from tests.benchmarks import numeric_alarms
from tests.numeric_runs import side

PLANTED = (*planted.DEVELOPMENT, *planted.HELD_OUT, *planted.FRESH, *planted.LAST)
# Networks and phases of which every setting is tried.
TRIED = (("transformer", "train"), ("convolutional", "train"), ("recurrent", "inference"), ("generating", "inference"))


@pytest.mark.parametrize(
    ("network", "phase", "changed"),
    slow.only(PLANTED, ("recurrent", "train", "no_dropout"), ("transformer", "inference", "skipped_layers")),
)
def test_planted_errors_are_found(network: str, phase: str, changed: str) -> None:
    found = numerics.compare_numbers(side(network, phase), side(network, phase, changed))
    assert found.result == numerics.DIFFERENT and found.why and found.quantity
    assert not found.difference <= found.tolerance


@pytest.mark.parametrize(
    ("network", "phase", "changed"), slow.only(planted.HARMLESS, ("transformer", "inference", "written_out"))
)
def test_another_order_of_the_same_is_no_error(network: str, phase: str, changed: str) -> None:
    found = numerics.compare_numbers(side(network, phase), side(network, phase, changed))
    # Other random numbers leave it open.
    assert found.result == (numerics.UNDECIDED if changed == "own_dropout" else numerics.SAME), found
    assert bool(found.why) == (changed == "own_dropout")


@pytest.mark.slow
@pytest.mark.parametrize(("network", "phase"), TRIED)
@pytest.mark.parametrize(
    ("result", "more"),
    [
        (numerics.SAME, {"channels_last": True}),
        (numerics.SAME, {"threads": 2}),
        (numerics.WITHIN, {"precision": "bf16"}),
        (numerics.SAME, {"optimizer": "foreach"}),
        (numerics.SAME, {"optimizer": "for_loop"}),
    ],
)
def test_settings_raise_no_alarm(network: str, phase: str, result: str, more: dict[str, Any]) -> None:
    found = numerics.compare_numbers(side(network, phase), side(network, phase, **more))
    assert found.result == result and not found.why and found.difference <= found.tolerance, found


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_the_whole_batch() -> None:
    halves = side("transformer", "train", module="tests.planted_accumulation", dropout=0.0)
    found = numerics.compare_numbers(side("transformer", "train", dropout=0.0), halves)
    assert found.result == numerics.SAME, found


@pytest.mark.slow
def test_checkpoints_update_running_statistics_twice() -> None:
    """Which is so in torch: a forward pass that is recomputed updates them once more."""
    found = numerics.compare_numbers(side("convolutional", "train"), side("convolutional", "train", checkpoint=True))
    assert found.result == numerics.DIFFERENT and found.quantity == numeric_checks.BUFFERS
    same = numerics.compare_numbers(side("transformer", "train"), side("transformer", "train", checkpoint=True))
    assert same.result == numerics.SAME


def test_what_differs_in_work_is_told() -> None:
    skipped = numerics.compare_numbers(
        side("transformer", "inference"), side("transformer", "inference", "skipped_layers")
    )
    # Two of eight blocks, and the head that both have: 24 words by 12 x 64 x 64 weights a block. Attention of a CPU is not
    # counted.
    block, head = 2 * 24 * 12 * 64 * 64, 2 * 24 * 64 * 200
    assert f"operations per sample {8 * block + head:.4g} -> {2 * block + head:.4g}" in skipped.work
    more = side("transformer", "inference", "written_out")
    assert "operator calls" in numerics.compare_numbers(side("transformer", "inference"), more).work


def test_without_double_precision_equal_numbers_are_the_same() -> None:
    plain, wrong, low = (
        side("transformer", "inference", changed, precision=precision)
        for changed, precision in (("none", "fp32"), ("skipped_layers", "fp32"), ("none", "bf16"))
    )
    assert numerics.compare_numbers(plain, low).result == numerics.WITHIN
    alone, other, rounded = (replace(one, double={"why": "no memory"}) for one in (plain, wrong, low))
    results = [numerics.compare_numbers(alone, one).result for one in (alone, other, rounded)]
    assert results == [numerics.SAME, numerics.DIFFERENT, numerics.WITHIN]


@pytest.mark.parametrize(
    ("labelled", "changed", "result"),
    [(True, "two swapped", numerics.WITHIN), (True, "all", numerics.DIFFERENT), (False, "two swapped", numerics.DIFFERENT)],
)  # fmt: skip
def test_rounding_may_exchange_boxes_that_a_detector_selects(labelled: bool, changed: str, result: str) -> None:
    """Boxes are sorted by scores, and two scores are equal up to rounding; labels beside them say that it selects."""
    random, labels = np.random.default_rng(0), [sample_of([3.0, 1.0, 2.0], None)] if labelled else []
    boxes = random.normal(size=60)

    def detecting(values: np.ndarray, error: float, precision: str) -> NumericSide:
        found = [sample_of((values * (1 + error * random.normal(size=60))).tolist(), 1.0), *labels]
        exact = [sample_of(boxes.tolist(), 1.0), *labels]
        given = {"used_parameters": 9, "gradient_norms": [], "data_sums": [0.0]}
        own, right = (steps_of([], outputs=[one], **given) for one in (found, exact))
        return of(own, right, precision=precision)

    swapped = boxes.copy()
    swapped[[4, 5]] = swapped[[5, 4]]
    candidate = detecting(swapped if changed == "two swapped" else 1.5 * boxes, 1e-4, "tf32")
    found = numerics.compare_numbers(detecting(boxes, 1e-7, "fp32"), candidate)
    assert found.result == result, found
    if result == numerics.WITHIN:
        assert found.why.startswith("2 of 61 numbers in outputs differ by more")


def test_first_losses_of_unseeded_programs_are_compared_by_their_spread() -> None:
    random = np.random.default_rng(0)

    def unseeded(middle: float) -> NumericSide:
        losses = random.normal(middle, 0.01, 5).tolist()
        return of(steps_of(losses, used_parameters=9), double={"why": "a script"}, first_losses=losses)

    assert numerics.compare_numbers(unseeded(2.0), unseeded(2.0)).result == numerics.UNDECIDED
    assert numerics.compare_numbers(unseeded(2.0), unseeded(1.5)).result == numerics.DIFFERENT


@pytest.mark.parametrize(
    ("draw", "precision", "growth"),
    slow.first(
        [(draw, *one) for draw in numeric_alarms.DRAWS for one in (("fp32", 1.0), ("fp32", 2.0), ("bf16", 1.0))]
    ),
)
def test_rounding_alone_is_hardly_ever_called_different(draw: str, precision: str, growth: float) -> None:
    """Of 300 pairs at most 3: 0.2 in a hundred are 0.6 of 300, and more than 3 come once in 300 such tests."""
    shares = numeric_alarms.count_results(300, 1, numeric_alarms.DRAWS[draw], precision, growth)
    assert shares[numerics.DIFFERENT] <= 0.01


def test_errors_of_the_computation_are_found_in_simulations() -> None:
    shares = numeric_alarms.count_results(100, 1, numeric_alarms.DRAWS["normal"], "fp32", shift=1e-3)
    assert shares[numerics.DIFFERENT] == 1.0


def test_of_errors_that_double_from_step_to_step_one_or_two_tell_as_much_as_all() -> None:
    doubling = (2.0 ** np.arange(12)).tolist()
    assert rounding_errors.grown_tolerance(doubling, "fp32", "fp32") > 100 * doubling[-1]


def test_what_is_different_is_not_faster() -> None:
    sides = side("recurrent", "train"), side("recurrent", "train", "no_dropout")
    row, found = numerics.compare_sides(*sides), numerics.compare_numbers(*sides)
    assert row.keys() == numerics.COLUMNS.keys() and row["numerics"] == "different"
    assert (row["numerics_difference"], row["numerics_why"]) == (found.difference, found.why)
    assert row["seed_spread"] == numerics.measure_seed_spread(sides[0])
    assert numerics.describe_numerics(row).startswith("computes something else (")
    assert [numerics.temper_outcome(word, "different") for word in ("faster", "slower")] == ["different", "slower"]


# Errors of a side that is right, and of one that is compared with it; of so many, and of many.
FEW, MANY = rounding_errors.MOST_INDEPENDENT - 4, rounding_errors.MOST_INDEPENDENT * 40


@pytest.mark.parametrize(
    ("known", "count", "freedom"),
    [
        (FEW, FEW, (3, 3)),
        (FEW, MANY, (7, 3)),
        (MANY, FEW, (3, 7)),
        (MANY, MANY, (7, 7)),
        (1, 1, (1, 1)),
        (7, 7, (7, 7)),
    ],
)
def test_a_tolerance_is_what_fishers_f_allows_of_independent_errors(
    known: int, count: int, freedom: tuple[int, int]
) -> None:
    """Errors of 1e-3, in bf16 as in bf16, of which more than seven count as seven.

    Of a reference in tf32, errors are 2**(11 - 8) times as large in bf16, and no narrower where it is in fp8.
    """
    right, errors = 1e-3 * float(stats.f.ppf(1 - 1e-4, *freedom)) ** 0.5, [1e-3 * (-1) ** at for at in range(known)]
    for precision, reference, wider, unit in (("bf16", "bf16", 1, 8), ("bf16", "tf32", 8, 8), ("tf32", "fp8", 1, 11)):
        found = rounding_errors.error_tolerance(errors, count, precision, reference)
        assert found == pytest.approx(min(max(wider * right, 8 * 2.0**-unit), 1.0))


def test_the_tolerance_of_a_step_goes_by_the_errors_that_count() -> None:
    """Four equal errors count as four, with one degree of freedom fewer; one large among small ones counts as one."""
    four = rounding_errors.grown_tolerance([0.1] * 4, "bf16", "bf16", 1e-3)
    assert four == pytest.approx(0.1 * float(stats.f.ppf(0.999, 1, 3)) ** 0.5)
    one = rounding_errors.grown_tolerance([1e-9, 1e-9, 0.1], "bf16", "bf16", 1e-3)
    assert one == pytest.approx(0.1 * float(stats.f.ppf(0.999, 1, 1)) ** 0.5)
    assert rounding_errors.grown_tolerance([0.0, 0.0], "bf16", "bf16", 1e-3) == 8 * 2.0**-8
    many = rounding_errors.grown_tolerance([0.1] * 40, "bf16", "bf16", 1e-3)
    assert many == pytest.approx(0.1 * float(stats.f.ppf(0.999, 1, 7)) ** 0.5)


def numbers(losses: list[float | None]) -> Any:
    return {"losses": losses, "gradient_norms": [], "buffer_norms": [], "data_sums": [0.0] * len(losses), "outputs": []}


def test_later_steps_share_the_false_alarms_of_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that is farthest beyond its tolerance is told; a tolerance is no less than 1 % of the way per step."""
    rates: list[float] = []

    def tolerance(known: list[float], precision: str, reference: str, rate: float) -> float:
        rates.append(rate)
        return {"bf16": 0.02, "fp32": 0.01}[precision]

    monkeypatch.setattr(rounding_errors, "grown_tolerance", tolerance)
    exact, own = numbers([4.0, 3.0, 2.0, 1.0]), numbers([4.0, 3.0, 2.0, 1.0])
    common: dict[str, Any] = {"batch": 1, "parameters": 1, "steps": 4, "first_losses": [4.0]}
    reference = NumericSide(own=own, double={"steps": exact}, precision="fp32", **common)
    candidate = NumericSide(own=numbers([4.0, 3.3, 2.12, 1.08]), double={}, precision="bf16", **common)
    (check,) = numeric_checks._check_later_steps(reference, candidate)
    # Three later steps, each with a tolerance for either precision.
    assert rates == [pytest.approx(1e-4 / 3)] * 6
    # Relative errors are 0.1, 0.06 and 0.08; the loss has moved by 1/3, 2/2 and 3/1 of itself.
    assert (check.quantity, check.difference) == ("loss of step 1", pytest.approx(0.1))
    assert (check.same, check.tolerance) == (pytest.approx(0.01), 0.02)
    late = NumericSide(own=numbers([4.0, 3.0, 2.0, 1.5]), double={}, precision="bf16", **common)
    (check,) = numeric_checks._check_later_steps(reference, late)
    assert (check.quantity, check.difference) == ("loss of step 3", 0.5)
    assert check.tolerance == check.same == pytest.approx(0.01 * 3 * 3)


def test_how_far_a_quantity_has_moved_from_its_first_value() -> None:
    known: dict[tuple, float] = {(4.0, 3.0, 2.0): 1.0, (4.0, 8.0, 2.0): 2.0, (4.0, None, -2.0): 3.0, (4.0, 4.0): 0.0}
    known |= {(4.0, 0.0): 0.0, (): 0.0}
    assert {series: numeric_checks._movement(series) for series in known} == known


def sample_of(values: list[float], rms: float | None) -> Any:
    return {"values": values, "rms": rms}


def test_errors_of_outputs_by_hand() -> None:
    known: list[tuple[list, list, list, list]] = [
        # Off by 1 and 0 of a root mean square of 4, which is itself off by 2 of 4.
        ([sample_of([3.0, 5.0], 6.0)], [sample_of([4.0, 5.0], 4.0)], [0.25, 0.0, 0.5], []),
        ([sample_of([3.0], None)], [sample_of([4.0], 4.0)], [0.25, 1.0], []),
        # Whole numbers are equal or not.
        ([sample_of([3, 5], None)], [sample_of([4, 5], None)], [], [1.0, 0.0]),
        # Zeros have no scale, and other shapes are wrong.
        ([sample_of([1.0], 1.0)], [sample_of([0.0], 0.0)], [], []),
        ([sample_of([1.0], 1.0)], [sample_of([1.0, 2.0], 1.0)], [1.0], []),
        ([], [sample_of([1.0], 1.0)], [1.0], []),
    ]
    for found, right, floats, words in known:
        assert numeric_checks.output_errors(found, right) == (floats, words), (found, right)


def test_relative_errors_of_losses_by_hand() -> None:
    pairs: Any = [(3.0, 4.0), (0.0, 0.0), (1.0, 0.0), (-5.0, -4.0), (None, 1.0), (1.0, None)]
    known = numeric_checks.sizes_of_errors(pairs)
    assert known[:4] == [0.25, 0.0, 1.0, 0.25] and np.isnan(known[4:]).all()
    assert numeric_checks.loss_errors(*zip(*pairs, strict=True)) == [0.25, 0.0, 1.0, 0.25]


def of(own: Any = None, exact: Any = None, **given: Any) -> NumericSide:
    """A side that computed `own` numbers, and `exact` ones in double precision."""
    common = {"precision": "fp32", "batch": 2, "parameters": 1000, "steps": 4, "first_losses": []}
    double = {**({"steps": exact} if exact else {}), **given.pop("double", {})}
    return NumericSide(**{"own": own, "double": double, **common, **given})


@pytest.mark.parametrize(
    ("one", "other", "work"),
    [
        # Per sample: 500 and 505 differ by less than a hundredth of the larger one, and 506 by more.
        ({"operations": 1000}, {"operations": 1010}, ""),
        ({"operations": 1000}, {"operations": 1012}, "operations per sample 500 -> 506"),
        ({"operations": 1000}, {"operations": 2000, "batch": 4}, ""),
        ({"operations": 1000}, {"operations": 4000, "batch": 4}, "operations per sample 500 -> 1000"),
        ({"operations": 100, "batch": 0}, {"operations": 300, "batch": 1}, "operations per sample 100 -> 300"),
        ({"operations": 0}, {"operations": 300}, "operations per sample 0 -> 150"),
        # What is not known of both sides, or calls of other batches, are not compared.
        ({"operations": 1000}, {}, ""),
        ({"operators": 10}, {"operators": 20}, "operator calls 5 -> 10"),
        ({"operators": 10}, {"operators": 20, "batch": 4}, ""),
        ({"parameters": 1000}, {"parameters": 2000}, "parameters 1,000 -> 2,000"),
        ({"used": 1000}, {"used": 1001}, "parameters with a gradient 1,000 -> 1,001"),
        ({"operations": 2, "operators": 2}, {"operations": 4, "operators": 6},
         "operations per sample 1 -> 2; operator calls 1 -> 3"),
    ],
)  # fmt: skip
def test_work_by_its_counts(one: dict[str, int], other: dict[str, int], work: str) -> None:
    sides = []
    for given in (one, other):
        known = {name: given[name] for name in ("operations", "operators") if name in given}
        exact = {"used_parameters": given["used"]} if "used" in given else None
        sides.append(of(exact=exact, double=known, batch=given.get("batch", 2), parameters=given.get("parameters", 7)))
    assert numerics.describe_work(*sides) == work


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"parameters": 1000}, {"parameters": 2000}, "1,000 parameters became 2,000"),
        # 0 stands for what is not known.
        ({"parameters": 0}, {"parameters": 2000}, ""),
        ({"parameters": 1000}, {"parameters": 0}, ""),
        ({"used": 1000}, {"used": 1001}, "1,000 parameters with a gradient became 1,001"),
        ({"used": 1000}, {}, ""),
        ({"used": 1000, "precision": "fp16"}, {"used": 1001}, ""),
        ({"used": 1000}, {"used": 1001, "precision": "bf16"}, "1,000 parameters with a gradient became 1,001"),
    ],
)
def test_another_number_of_parameters_is_another_computation(one: Any, other: Any, why: str) -> None:
    sides = [
        of({"used_parameters": given["used"]} if "used" in given else None, parameters=given.get("parameters", 7),
           precision=given.get("precision", "fp32"))
        for given in (one, other)
    ]  # fmt: skip
    assert numerics._find_fewer_parameters(*sides) == why


def test_a_difference_over_what_is_explained() -> None:
    checks = [numeric_checks.Check("x", *numbers) for numbers in ((3.0, 1.0, 2.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0))]
    assert [check.excess for check in checks] == [1.5, 0.0, np.inf]
    assert checks[0].describe() == "x differ by 3, and 2 is explained by rounding"
    assert numeric_checks.Check("x", 3.0, 1.0, 2.0, "because").describe() == "because"


def test_two_means_of_random_losses() -> None:
    """Both have a variance of 1: their difference of 1 has one of 1/3 + 1/4; of two degrees of freedom, by the mean of 2."""
    one, other = np.array([1.0, 2.0, 3.0]), np.array([3.0 - 1.5**0.5, 3.0, 3.0, 3.0 + 1.5**0.5])
    (check,) = numeric_checks.check_means(one, other, "means")
    assert (check.quantity, check.difference) == ("means", pytest.approx(0.5))
    # Student's t of two degrees of freedom has a closed form.
    tail = 2 * (0.5 - rounding_errors.FALSE_ALARMS / 2)
    quantile = tail * (2 / (1 - tail**2)) ** 0.5
    assert check.tolerance == check.same == pytest.approx(quantile * (1 / 3 + 1 / 4) ** 0.5 / 2)
    assert (
        numeric_checks.check_means(one[:2], other, "means") == numeric_checks.check_means(one, other[:2], "means") == []
    )
    (zero,) = numeric_checks.check_means(one - 2, other - 2, "means")
    assert zero.difference == pytest.approx(1.0)


def steps_of(losses: list[float | None], **given: Any) -> Any:
    return {**numbers(losses), "last_outputs": [], **given}


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (None, steps_of([1.0]), "the reference side recorded no numbers of its steps"),
        (steps_of([1.0]), None, "the candidate recorded no numbers of its steps"),
        # Sums may differ by a millionth of themselves, or of 1.
        (steps_of([1.0], data_sums=[100.0]), steps_of([1.0], data_sums=[100.00009]), ""),
        (steps_of([1.0], data_sums=[100.0]), steps_of([1.0], data_sums=[100.0002]), "the sides were given other data"),
        (steps_of([1.0], data_sums=[0.0]), steps_of([1.0], data_sums=[9e-7]), ""),
        (steps_of([1.0], data_sums=[0.0]), steps_of([1.0], data_sums=[1.1e-6]), "the sides were given other data"),
        (steps_of([1.0], data_sums=[None]), steps_of([1.0], data_sums=[5.0]), ""),
        (steps_of([1.0], data_sums=[5.0]), steps_of([1.0], data_sums=[None]), ""),
    ],
)
def test_what_keeps_numbers_from_being_compared(one: Any, other: Any, why: str) -> None:
    assert numerics.find_obstacle(of(one), of(other)) == why
    if not why:
        told = "batches of 2 and 3 samples hold other data"
        assert numerics.find_obstacle(of(one), of(other, batch=3)) == told


UNIT = 2.0**-24


@pytest.mark.parametrize(
    ("loss", "precision", "decided", "gross"),
    [
        # Eight units of rounding are near; 2^13 of them are beyond rounding; what is between decides nothing.
        (1.0, "fp32", True, False),
        (1 + 8 * UNIT, "fp32", True, False),
        (1 + 16 * UNIT, "fp32", False, False),
        (1 + 8191 * UNIT, "fp32", False, False),
        (1 + 8194 * UNIT, "fp32", False, True),
        (1 + 2.0**-5, "bf16", True, False),
        (1 + 2.0**-4, "bf16", False, False),
    ],
)
def test_losses_without_double_precision(loss: float, precision: str, decided: bool, gross: bool) -> None:
    checks, why = numerics.check_sides(
        of(steps_of([1.0]), double={"why": "no memory"}), of(steps_of([loss]), precision=precision)
    )
    (check,) = checks
    assert (check.quantity, check.difference) == (numeric_checks.SCALARS, pytest.approx(loss - 1))
    assert check.same == pytest.approx(8 * UNIT)
    assert check.tolerance == pytest.approx(2**13 * (UNIT if precision == "fp32" else 2.0**-8))
    missing = "steps of the reference side were not repeated in double precision: no memory"
    assert why == ("" if decided else missing) and (check.difference > check.tolerance) == gross


@pytest.mark.parametrize(("words", "decided"), [([3, 5], True), ([3, 6], False)])
def test_words_without_double_precision(words: list[int], decided: bool) -> None:
    one, other = (of(steps_of([], outputs=[[sample_of(values, None)]])) for values in ([3, 5], words))
    ((check,), why) = numerics.check_sides(one, other)
    assert (check.quantity, check.difference, check.tolerance) == (numeric_checks.WORDS, float(not decided), np.inf)
    assert (why == "") == decided
    assert numerics.check_sides(of(steps_of([])), of(steps_of([])))[1] != ""


def test_losses_that_stay_as_they_are() -> None:
    """Half of four differ, or fewer; the reference side's all do."""
    four, five = [4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0]
    known: list[tuple[list[float], list[float], int | None]] = [
        (four, [4.0, 4.0, 3.0, 3.0], 2),
        (four, [4.0, 4.0, 3.0, 2.0], None),
        ([4.0, 3.0, 2.0, 2.0], [4.0] * 4, None),
        ([4.0, 3.0, 2.0], [4.0] * 3, None),
        (five, [4.0] * 4, None),
        (five, [4.0, 4.0, 4.0, 3.0, 3.0], 2),
        (five, [4.0, 4.0, 4.0, 3.0, 2.0], None),
    ]
    for one, other, repeated in known:
        found = list(numeric_checks.check_repeats(of(steps_of(one)), of(steps_of(other))))
        why = f"of {len(other)} losses of the candidate only {repeated} differ"
        told = [(check.quantity, check.difference, check.tolerance, check.why) for check in found]
        assert told == ([] if repeated is None else [("repeated losses", 1.0, 0.0, why)]), (one, other)


def test_buffers_that_stay_as_they_are() -> None:
    """The last two steps count."""
    for one, other, fails in (
        ([1.0, 2.0], [3.0, 3.0], True),
        ([1.0, 2.0], [3.0, 4.0], False),
        ([1.0, 1.0], [3.0, 3.0], False),
        ([2.0], [3.0, 3.0], False),
        ([1.0, None], [3.0, 3.0], False),
        ([2.0, 1.0, 1.0], [3.0, 3.0, 3.0], False),
        ([1.0, 1.0, 2.0], [2.0, 3.0, 3.0], True),
    ):
        sides = [of(steps_of([], buffer_norms=norms)) for norms in (one, other)]
        found = [(check.quantity, check.difference, check.tolerance) for check in numeric_checks.check_repeats(*sides)]
        assert found == [(numeric_checks.BUFFERS, 1.0, 0.0)] * fails, (one, other)


def test_outputs_of_the_last_step_have_errors_of_both_sides() -> None:
    """Four outputs of 1 that are off by 0.25, and their root mean square by 0.25: five numbers."""
    one, other = ([sample_of([value] * 4, value)] for value in (1.0, 1.25))
    sides = [of(steps_of([], last_outputs=outputs), precision="bf16") for outputs in (one, other)]
    (check,) = numeric_checks._check_last_outputs(*sides, [0.01] * 3)
    assert (check.quantity, check.difference) == ("outputs of the last step", pytest.approx(0.25))
    quantile = float(stats.f.ppf(1 - 1e-4, 5, 3)) ** 0.5
    assert check.same == check.tolerance == pytest.approx(2**0.5 * max(0.01 * quantile, 8 * 2.0**-8))
    assert not list(numeric_checks._check_last_outputs(*sides, []))
    longer = of(steps_of([], last_outputs=other), steps=5)
    assert not list(numeric_checks._check_last_outputs(sides[0], longer, [0.01]))
    assert not list(numeric_checks._check_last_outputs(of(steps_of([])), sides[1], [0.01]))


def test_one_of_ten_selected_numbers_may_be_another() -> None:
    """Ten numbers: one of them may be exchanged, and two may not."""
    more = " numbers in outputs differ by more, as if rounding had selected or sorted others"
    two = ((8 * 0.02**2 + 16.0) / 9) ** 0.5
    for errors, difference, note in (
        ([0.01] * 10, 0.01, ""),
        ([0.01] * 9 + [9.0], 0.01, f"1 of 10{more}"),
        ([0.02] * 8 + [9.0, 4.0], two, f"2 of 10{more}"),
    ):
        check = numeric_checks._check_selected("x", errors, 0.05, 0.1)
        assert (check.difference, check.same, check.tolerance) == (pytest.approx(difference), 0.05, 0.1)
        assert check.note == note


@pytest.mark.parametrize(
    ("own", "redrawn", "difference"),
    [
        # What the reference side or double precision drew, up to eight units of rounding.
        (2.0, [1.0, 3.0], None),
        (2.0 + 15 * UNIT, [1.0, 3.0], None),
        (2.5, [1.0, 3.0], None),
        (None, [1.0, 3.0], None),
        # Two further draws beside the exact loss of 2: the mean of 1, 2 and 3, and a standard deviation of 1.
        (2.25, [1.0, 3.0], 0.125),
        (1.5, [1.0, 3.0], 0.25),
        # Too few draws tell nothing.
        (2.25, [3.0], 0.0),
    ],
)
def test_the_first_loss_of_other_random_numbers(own: Any, redrawn: list[float], difference: float | None) -> None:
    reference = of(steps_of([2.5]), steps_of([2.0]), double={"random": True, "redrawn_losses": redrawn})
    check = numeric_checks.check_redrawn(reference, of(steps_of([own])))
    if difference is None:
        assert check is None
        return
    assert check and check.difference == pytest.approx(difference) and check.note == numeric_checks.DRAWN
    tail = 1 - rounding_errors.FALSE_ALARMS
    quantile = tail * (2 / (1 - tail**2)) ** 0.5
    right = quantile * (1 + 1 / 3) ** 0.5 / 2 if len(redrawn) == 2 else np.inf
    assert check.tolerance == check.same == pytest.approx(right)
    settled = of(steps_of([2.5]), steps_of([2.0]), double={"redrawn_losses": redrawn})
    assert numeric_checks.check_redrawn(settled, of(steps_of([own]))) is None


def test_a_difference_that_is_the_same_in_all_steps_is_none_of_draws() -> None:
    """A quarter above in each of three steps, where draws are apart by halves."""
    exact, double = steps_of([2.0, 2.0, 2.0]), {"random": True, "redrawn_losses": [1.0, 3.0]}
    reference = of(steps_of([2.0, 2.0, 2.0]), exact, double=double)
    assert numeric_checks.check_redrawn(reference, of(steps_of([2.5, 2.5, 2.5]))) is None
    assert numeric_checks.check_redrawn(reference, of(steps_of([2.5, 1.0, 3.0]))) is not None
    assert numeric_checks._relative_offsets(reference, of(steps_of([2.5, None, 1.0]))) == [0.25, -0.5]
    many = of(steps_of([2.0] * 40), steps_of([2.0] * 40))
    assert len(numeric_checks._relative_offsets(many, many)) == 32


def test_numbers_of_a_side_come_from_its_processes() -> None:
    first = {"first_steps": steps_of([3.0, 2.0]), "steps": 7}
    second = {"first_steps": steps_of([4.0]), "double_precision": {"why": "w"}, "steps": 9}
    given: Any = {"batch": 8, "parameters": 5}, {"precision": "bf16"}, [{}, first, second]
    found = numeric_checks.read_side(*given)
    assert (found.own, found.double, found.steps) == (first["first_steps"], {"why": "w"}, 7)
    assert (found.precision, found.batch, found.parameters, found.first_losses) == ("bf16", 8, 5, [3.0, 4.0])
    observed = cast(Any, {"script": {"observed": {"precision": "fp16"}}})
    assert numeric_checks.read_side(observed, cast(CellSettings, {"precision": "bf16"}), []).precision == "fp16"
    nothing = numeric_checks.read_side(cast(Any, {}), cast(CellSettings, {}), [])
    assert (nothing.own, nothing.precision, nothing.batch, nothing.parameters, nothing.steps) == (None, "fp32", 0, 0, 0)


def test_pairs_of_equal_steps_by_quantity() -> None:
    one = steps_of([1.0, 2.0], gradient_norms=[[1.0, 2.0], [3.0]], buffer_norms=[0.0, 5.0, 6.0])
    other = steps_of([1.5], gradient_norms=[[4.0, 5.0], [6.0]], buffer_norms=[0.0, 7.0, 8.0])
    other["data_sums"] = [0.0, 0.0]
    assert numeric_checks.paired_series(one, other) == {
        "loss": [(1.0, 1.5)],
        "gradient norm": [(1.0, 4.0), (3.0, 6.0)],
        "gradient norm of update 2": [(2.0, 5.0)],
        # Of two steps, in the first of which there are none.
        numeric_checks.BUFFERS: [(5.0, 7.0)],
    }
    found = numeric_checks.relative_errors(one, other, 1)
    assert found[numeric_checks.SCALARS] == pytest.approx([0.5 / 1.5, 3 / 4, 3 / 5])
    assert found[numeric_checks.BUFFERS] == pytest.approx([2 / 7]) and numeric_checks.WORDS not in found
    assert len(numeric_checks.relative_errors(one, other, 2)[numeric_checks.SCALARS]) == 4


def test_how_far_seeds_are_apart() -> None:
    """After the last step that all ran: 2, 3 and 4 around 3, by the first."""
    for own, seeds, spread in (
        ([9.0, 2.0, 5.0], [[8.0, 3.0], [7.0, 4.0, 1.0]], 0.5),
        ([-2.0], [[-3.0], [-4.0]], 0.5),
        ([9.0, 2.0], [], np.nan),
        ([], [[1.0]], np.nan),
        ([0.0], [[1.0], [2.0]], np.nan),
        ([2.0], [[], [3.0], [4.0]], 0.5),
    ):
        found = numerics.measure_seed_spread(of(steps_of(own), double={"seed_losses": seeds}))
        assert found == pytest.approx(spread, nan_ok=True)


def test_a_cell_in_several_processes_or_of_long_steps_is_not_repeated() -> None:
    cells: Any = (
        ({"gpus": 2, "nodes": 1}, 0.1, "the cell runs in several processes"),
        ({"gpus": 1, "nodes": 1}, 1.1, "longer than 1 s"),
    )
    for cell, step_s, said in cells:
        assert said in double_precision.repeat_steps(cell, None, torch.device("cpu"), 3, step_s)["why"]
