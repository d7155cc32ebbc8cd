"""Whether two sides compute the same: planted errors in real networks are found, and rewritten ones raise no alarm."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from profzoo.compare import numeric_checks, numerics
from profzoo.compare.numeric_checks import NumericSide
from profzoo.harness.step import double_precision
from profzoo.statistics import rounding_errors
from tests import planted_numerics as planted
from tests import slow
from tests.benchmarks import numeric_alarms
from tests.numeric_runs import UNIT, of, sample_of, side, steps_of

PLANTED = (*planted.DEVELOPMENT, *planted.HELD_OUT, *planted.FRESH, *planted.LAST)
# Networks and phases of which every setting is tried.
TRIED = (("transformer", "train"), ("convolutional", "train"), ("recurrent", "inference"), ("generating", "inference"))


@pytest.mark.parametrize(
    ("network", "phase", "changed"), slow.only(PLANTED, ("transformer", "inference", "skipped_layers"))
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
    assert found.result == numerics.DIFFERENT and found.quantity.startswith(numeric_checks.BUFFERS)
    same = numerics.compare_numbers(side("transformer", "train"), side("transformer", "train", checkpoint=True))
    assert same.result == numerics.SAME


def test_where_rounding_hides_a_tenth_nothing_is_called_the_same() -> None:
    """A loss in fp8 that is off by 0.2, where roundings to bf16 are off by 0.02: 16 times as much is explained."""
    exact, run = steps_of([1.0]), steps_of([1.02])
    reference = of(steps_of([1.0 + UNIT]), exact, double={"roundings": {"bf16": [run] * 6, "fp32": []}})
    found = numerics.compare_numbers(reference, of(steps_of([1.2]), precision="fp8"))
    assert found.result == numerics.UNDECIDED and found.quantity == "loss of step 0" and found.tolerance > 1
    assert found.why == f"by rounding alone, loss of step 0 may differ by {found.tolerance:.2g}, which hides errors"
    # As near to the exact loss as the reference side is, or farther off than that.
    for loss, result in ((1.0 - UNIT, numerics.SAME), (1.0 + 2 * found.tolerance, numerics.DIFFERENT)):
        assert numerics.compare_numbers(reference, of(steps_of([loss]), precision="fp8")).result == result
    # In bf16, the same roundings explain a fifth at most.
    near = numerics.compare_numbers(
        of(steps_of([1.0]), exact, double={"roundings": {"bf16": [steps_of([1.002])] * 6}}),
        of(steps_of([1.004]), precision="bf16"),
    )
    assert near.result == numerics.WITHIN and near.tolerance < rounding_errors.LOOSE


def test_an_update_that_a_scaler_left_out_decides_nothing() -> None:
    exact = steps_of([1.0, 0.9], gradient_norms=[[1.0], [1.0]])
    reference = of(exact, exact, double={"roundings": {"bf16": [exact] * 6}})
    skipped = of(steps_of([1.0, 1.0], gradient_norms=[[None], [1.0]]), precision="fp16")
    found = numerics.compare_numbers(reference, skipped)
    assert found.result == numerics.UNDECIDED and "not finite" in found.why
    assert numerics.compare_numbers(reference, of(exact, precision="fp16")).result == numerics.SAME


def test_without_roundings_a_training_step_is_undecided() -> None:
    one, other = of(steps_of([1.0]), steps_of([1.0])), of(steps_of([1.0]))
    found = numerics.compare_numbers(one, other)
    assert (found.result, found.why) == (numerics.UNDECIDED, numeric_checks.NOT_ROUNDED)


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
    """Of 300 pairs at most 9: 0.9 in a hundred are 2.7 of 300, and more than 9 come once in 2,000 such tests."""
    shares = numeric_alarms.count_results(300, 1, numeric_alarms.DRAWS[draw], precision, growth)
    assert shares[numerics.DIFFERENT] <= 0.03


def test_errors_of_the_computation_are_found_in_simulations() -> None:
    shares = numeric_alarms.count_results(100, 1, numeric_alarms.DRAWS["normal"], "fp32", shift=1e-3)
    assert shares[numerics.DIFFERENT] == 1.0


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


def test_a_step_has_the_samples_of_all_batches_that_it_accumulates() -> None:
    ran: Any = [{"batch": 32}, {"batch": 8, "ran_with": {"accumulate": 4}}]
    sides = [numeric_checks.read_side(one, {}, [{"first_steps": steps_of([1.0]), **one}]) for one in ran]
    assert not numerics.find_obstacle(*sides) and [one.batch for one in sides] == [32, 32]


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
    unit = UNIT if precision == "fp32" else 2.0**-8
    assert check.tolerance == pytest.approx((8 if decided else 2**13) * unit)
    missing = "steps of the reference side were not repeated in double precision: no memory"
    assert why == ("" if decided else missing) and (check.difference > check.tolerance) == gross


@pytest.mark.parametrize(("words", "decided"), [([3, 5], True), ([3, 6], False)])
def test_words_without_double_precision(words: list[int], decided: bool) -> None:
    one, other = (of(steps_of([], outputs=[[sample_of(values, None)]])) for values in ([3, 5], words))
    ((check,), why) = numerics.check_sides(one, other)
    assert (check.quantity, check.difference, check.tolerance) == (
        numeric_checks.WORDS,
        float(not decided),
        0 if decided else np.inf,
    )
    assert (why == "") == decided
    assert numerics.check_sides(of(steps_of([])), of(steps_of([])))[1] != ""


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
