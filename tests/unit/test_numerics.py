"""Whether two sides compute the same: planted errors in real networks are found, and rewritten ones raise no alarm."""

from typing import Any, cast

import numpy as np
import pytest
import torch

from profzoo.cell.cell_types import CellSettings
from profzoo.compare import numeric_columns, numeric_dictionary, numeric_sides, numerics
from profzoo.compare.numeric_sides import NumericSide
from profzoo.harness import double_precision
from profzoo.statistics import rounding_errors
from tests import planted_numerics as planted
from tests import slow
from tests.benchmarks import numeric_alarms
from tests.numeric_runs import side

PLANTED = (*planted.DEVELOPMENT, *planted.HELD_OUT, *planted.FRESH, *planted.LAST)
# Networks and phases of which every setting is tried.
TRIED = (("transformer", "train"), ("convolutional", "train"), ("recurrent", "inference"), ("generating", "inference"))


@pytest.mark.parametrize(("network", "phase", "changed"), slow.first(PLANTED, 8))
def test_planted_errors_are_found(network: str, phase: str, changed: str) -> None:
    found = numerics.compare_numbers(side(network, phase), side(network, phase, changed))
    assert found.result == numerics.DIFFERENT and found.why and found.quantity
    assert not found.difference <= found.tolerance


@pytest.mark.parametrize(("network", "phase", "changed"), slow.first(planted.HARMLESS, 2))
def test_another_order_of_the_same_is_no_error(network: str, phase: str, changed: str) -> None:
    found = numerics.compare_numbers(side(network, phase), side(network, phase, changed))
    # Other random numbers leave it open.
    assert found.result == (numerics.UNDECIDED if changed == "own_dropout" else numerics.SAME), found
    assert bool(found.why) == (changed == "own_dropout")


@pytest.mark.parametrize(("network", "phase"), slow.first(TRIED))
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


def test_accumulated_gradients_are_those_of_the_whole_batch() -> None:
    halves = side("transformer", "train", module="tests.planted_accumulation", dropout=0.0)
    found = numerics.compare_numbers(side("transformer", "train", dropout=0.0), halves)
    assert found.result == numerics.SAME, found


def test_checkpoints_update_running_statistics_twice() -> None:
    """Which is so in torch: a forward pass that is recomputed updates them once more."""
    found = numerics.compare_numbers(side("convolutional", "train"), side("convolutional", "train", checkpoint=True))
    assert found.result == numerics.DIFFERENT and found.quantity == numeric_sides.BUFFERS
    same = numerics.compare_numbers(side("transformer", "train"), side("transformer", "train", checkpoint=True))
    assert same.result == numerics.SAME


def test_sides_with_other_data_or_weights_are_not_compared() -> None:
    plain = side("transformer", "train", dropout=0.0)
    larger = numerics.compare_numbers(plain, side("transformer", "train", batch=8, dropout=0.0))
    assert larger.result == numerics.UNDECIDED and larger.why == "batches of 4 and 8 samples hold other data"
    other = numerics.compare_numbers(plain, side("transformer", "train", seed=1, dropout=0.0))
    assert other.result == numerics.UNDECIDED and other.why == "the sides were given other data"
    assert not other.work
    # Which samples are in a batch depends on how many there are.
    longer = numerics.compare_numbers(plain, side("transformer", "train", window=5, dropout=0.0))
    assert longer.why == "the sides were given other data"


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


def test_a_cell_in_several_processes_or_of_long_steps_is_not_repeated() -> None:
    one = cast(CellSettings, {"gpus": 2, "nodes": 1})
    found = double_precision.repeat_steps(one, None, torch.device("cpu"), 3, 0.1)
    assert found == {"why": "the cell runs in several processes"}
    assert "longer than 1 s" in double_precision.repeat_steps(one, None, torch.device("cpu"), 3, 1.1)["why"]


def test_without_double_precision_equal_numbers_are_the_same() -> None:
    plain, wrong = side("transformer", "inference"), side("transformer", "inference", "skipped_layers")
    alone, other = (
        numeric_sides.NumericSide(**{**vars(one), "double": {"why": "no memory"}}) for one in (plain, wrong)
    )
    assert numerics.compare_numbers(alone, alone).result == numerics.SAME
    assert numerics.compare_numbers(alone, other).result == numerics.DIFFERENT
    low = side("transformer", "inference", precision="bf16")
    found = numerics.compare_numbers(alone, numeric_sides.NumericSide(**{**vars(low), "double": {"why": "no memory"}}))
    assert found.result == numerics.WITHIN
    nothing = numeric_sides.read_side(cast(Any, {"batch": 4}), cast(CellSettings, {}), [])
    assert nothing.parameters == 0
    assert numerics.compare_numbers(plain, nothing).why == "the candidate recorded no numbers of its steps"


@pytest.mark.parametrize(
    ("labelled", "changed", "result"),
    [
        (True, "two swapped", numerics.WITHIN),
        (True, "all", numerics.DIFFERENT),
        (False, "two swapped", numerics.DIFFERENT),
    ],
)
def test_rounding_may_exchange_boxes_that_a_detector_selects(labelled: bool, changed: str, result: str) -> None:
    """Boxes are sorted by scores, and two scores are equal up to rounding; labels beside them say that it selects."""
    random, plain = np.random.default_rng(0), side("convolutional", "inference")
    boxes = random.normal(size=60)

    def detecting(values: np.ndarray, error: float, precision: str) -> NumericSide:
        found: Any = [{"values": (values * (1 + error * random.normal(size=60))).tolist(), "rms": 1.0}]
        found += [{"values": [3.0, 1.0, 2.0], "rms": None}] if labelled else []
        own: Any = {**cast(dict, plain.own), "outputs": [found], "last_outputs": []}
        exact: Any = {**cast(dict, plain.exact), "outputs": [[{**found[0], "values": boxes.tolist()}, *found[1:]]]}
        double: Any = {**plain.double, "steps": exact}
        return NumericSide(**{**vars(plain), "own": own, "double": double, "precision": precision})

    swapped = boxes.copy()
    swapped[[4, 5]] = swapped[[5, 4]]
    candidate = detecting(swapped if changed == "two swapped" else 1.5 * boxes, 1e-4, "tf32")
    found = numerics.compare_numbers(detecting(boxes, 1e-7, "fp32"), candidate)
    assert found.result == result, found
    if result == numerics.WITHIN:
        assert found.why.startswith("2 of 61 numbers in outputs differ by more")


def test_first_losses_of_unseeded_programs_are_compared_by_their_spread() -> None:
    random = np.random.default_rng(0)
    plain = side("transformer", "train")

    def unseeded(middle: float) -> NumericSide:
        losses = random.normal(middle, 0.01, 5).tolist()
        own: Any = {**cast(dict, plain.own), "losses": losses}
        return NumericSide(**{**vars(plain), "own": own, "double": {"why": "a script"}, "first_losses": losses})

    assert numerics.compare_numbers(unseeded(2.0), unseeded(2.0)).result == numerics.UNDECIDED
    assert numerics.compare_numbers(unseeded(2.0), unseeded(1.5)).result == numerics.DIFFERENT


@pytest.mark.parametrize("draw", slow.first(numeric_alarms.DRAWS))
@pytest.mark.parametrize(("precision", "growth"), [("fp32", 1.0), ("fp32", 2.0), ("bf16", 1.0)])
def test_rounding_alone_is_hardly_ever_called_different(draw: str, precision: str, growth: float) -> None:
    """Of 300 pairs at most 3: 0.2 in a hundred are 0.6 of 300, and more than 3 come once in 300 such tests."""
    shares = numeric_alarms.count_results(300, 1, numeric_alarms.DRAWS[draw], precision, growth)
    assert shares[numerics.DIFFERENT] <= 0.01


def test_errors_of_the_computation_are_found_in_simulations() -> None:
    shares = numeric_alarms.count_results(100, 1, numeric_alarms.DRAWS["normal"], "fp32", shift=1e-3)
    assert shares[numerics.DIFFERENT] == 1.0


def test_tolerances_follow_from_units_of_rounding() -> None:
    known = [1e-7, -1e-7, 1e-7, -1e-7]
    fp32 = rounding_errors.error_tolerance(known, 4, "fp32", "fp32")
    assert rounding_errors.error_tolerance(known, 4, "bf16", "fp32") == pytest.approx(2**16 * fp32)
    # A wider format is not held to fewer errors, and exact results are not held to none.
    assert rounding_errors.error_tolerance([1e-5] * 4, 4, "fp32", "bf16") == pytest.approx(1e2 * fp32)
    assert rounding_errors.error_tolerance([0.0] * 4, 4, "fp32", "fp32") == 8 * 2**-24
    # No digit is right of what is off by as much as it is large.
    assert rounding_errors.error_tolerance([1e-3] * 4, 4, "bf16", "fp32") == 1.0
    # Of errors that double from step to step, one or two tell as much as all.
    doubling = (2.0 ** np.arange(12)).tolist()
    assert rounding_errors.grown_tolerance(doubling, "fp32", "fp32") > 100 * doubling[-1]


def test_what_is_different_is_not_faster_and_seeds_have_a_spread() -> None:
    plain, wrong = side("transformer", "train", dropout=0.0), side("transformer", "train", "loss_scale", dropout=0.0)
    row = numeric_columns.compare_sides(plain, wrong)
    assert row.keys() == numeric_dictionary.COLUMNS.keys() and row["numerics"] == "different"
    assert row["numerics_difference"] == pytest.approx(0.1, rel=0.01)
    assert numeric_columns.describe_numerics(row).startswith("computes something else (")
    assert [numeric_columns.temper_outcome(word, "different") for word in ("faster", "slower")] == [
        "different",
        "slower",
    ]
    seeds = {**plain.double, "seed_losses": [[2.0, 3.0], [2.0, 5.0]]}
    own: Any = {**cast(dict, plain.own), "losses": [2.0, 4.0, 9.0]}
    spread = numeric_columns.measure_seed_spread(NumericSide(**{**vars(plain), "own": own, "double": seeds}))
    # Of 4, 3 and 5.
    assert spread == pytest.approx(1 / 4)
