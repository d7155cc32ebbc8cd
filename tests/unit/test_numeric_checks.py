"""Checks of what two sides computed: by hand, and by roundings of networks that were run."""

from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from profzoo.cell.cell_types import CellSettings
from profzoo.compare import numeric_checks, numerics
from profzoo.compare.numeric_checks import LOSS, Check, NumericSide
from profzoo.harness.step import double_precision
from profzoo.statistics import rounding_errors
from tests.numeric_runs import UNIT, of, sample_of, side, steps_of

BF16 = 2.0**-8


def quantile(freedom: int, rate: float = rounding_errors.FALSE_ALARMS) -> float:
    """Student's t, that one of 1 / rate exceeds in size."""
    return float(stats.t.ppf(1 - rate / 2, freedom))


def rounded(own: Any, runs: list[Any], precision: str = "fp32", exact: Any = None) -> NumericSide:
    """A side with roundings to bf16."""
    return of(
        own, exact or steps_of([1.0] * len(own["losses"])), precision=precision, double={"roundings": {"bf16": runs}}
    )


def test_a_tolerance_goes_by_all_roundings_until_a_step() -> None:
    """Three roundings and the reference side itself, of which the errors are 3, 4, 0 and 0 thousandths, and then 0."""
    tables = [np.array([[1e-3 * first], [0.0], [0.0]]) for first in (3, 4, 0)]
    none, exact = np.zeros((3, 1)), steps_of([1.0] * 3)
    low = of(steps_of([1.0] * 3), exact, precision="bf16")
    same, tolerance = numeric_checks._limit_table("x", none, tables, (low, low))
    # The steps share the false alarms of one check, and errors do not shrink.
    assert tolerance[:, 0] == pytest.approx([2.5e-3 * quantile(4, 1e-4 / 3)] * 3) and same is tolerance
    # Two losses have to be compared, each with the false alarms of one check.
    _, tolerance = numeric_checks._limit_table(LOSS, none, tables, (low, low))
    assert tolerance[:, 0] == pytest.approx([2.5e-3 * quantile(4)] * 3)
    # In fp32, errors of the reference side are no rounding to bf16. In fp16 they are an eighth; after an update, its root.
    finer = of(exact, exact)
    for precision, first, later in (("bf16", 1.0, 1.0), ("fp16", 1 / 8, 8**-0.5), ("fp8", 16.0, 16.0)):
        candidate = of(exact, precision=precision)
        same, tolerance = numeric_checks._limit_table(LOSS, none, tables, (finer, candidate))
        right = 1e-3 * (25 / 3) ** 0.5 * quantile(3)
        # The second step has no errors, and the scale of the first one.
        assert tolerance[:, 0] == pytest.approx([max(first * right, candidate.unit)] * 3), precision
        assert numeric_checks._scale_errors(LOSS, 2, first).tolist() == [[first], [later]]
        assert numeric_checks._scale_errors(numeric_checks.GRADIENT, 2, first).tolist() == [[later], [later]]
        # As right as the reference side is what is within eight of its units.
        assert same[:, 0] == pytest.approx([8 * UNIT] * 3)
    # Errors of the reference side that are larger do not go by the unit of rounding.
    sides = finer, of(exact, precision="bf16")
    _, tolerance = numeric_checks._limit_table(LOSS, none + 0.5, tables, sides)
    assert tolerance[:, 0] == pytest.approx([0.5 * quantile(3)] * 3)


def test_how_far_updates_move_a_quantity() -> None:
    """A hundredth per update: of what losses are apart from the first one, and of gradients and movements themselves."""
    exact = steps_of([4.0, 3.0, 2.0, None, 0.0], buffer_norms=[1.0, -2.0])
    known = {
        LOSS: [0.0, 0.01 / 3, 0.02 * 1.0, 0.0, 0.0],
        numeric_checks.BUFFERS: [0.0, 0.01 * 1.5],
        numeric_checks.GRADIENT: [0.0, 0.01, 0.02],
        numeric_checks.MOVEMENT: [0.01, 0.02],
    }
    for name, moved in known.items():
        assert numeric_checks._moved_shares(name, exact, len(moved))[:, 0] == pytest.approx(moved), name
    still = steps_of([1.0, 1.1])
    _, tolerance = numeric_checks._limit_table(LOSS, np.zeros((2, 1)), [np.zeros((2, 1))] * 3, (of(still, still),) * 2)
    assert tolerance[:, 0] == pytest.approx([8 * UNIT, 0.01 * 0.1 / 1.1])


def test_numbers_are_compared_while_rounding_leaves_a_tenth() -> None:
    """Of the losses, the first two have to be compared, and later ones as long as the tolerance is a tenth."""
    runs = [steps_of([1.0 + 0.001 * sign, 1.0 + 0.05 * sign, 1.0 + 0.05 * sign]) for sign in (1, -1, 1, -1, 1, -1)]

    def found(losses: list[float | None], runs: list[Any] = runs) -> dict[str, tuple[float, float]]:
        reference = rounded(steps_of([1.0] * 3), runs)
        checks = numeric_checks._check_rounded_steps(reference, of(steps_of(losses), precision="bf16"))
        return {check.quantity: (check.difference, check.tolerance) for check in checks}

    both = found([1.002, 1.1, 9.0])
    assert both == {
        "loss of step 0": (pytest.approx(0.002), pytest.approx(0.001 * quantile(6))),
        "loss of step 1": (pytest.approx(0.1), pytest.approx(0.05 * quantile(6))),
    }
    small = [steps_of([1.0 + 0.001 * sign] * 4) for sign in (1, -1, 1)]
    # Of two later losses, that which is farther off.
    assert list(found([1.0, 1.0, 1.004], small)) == [f"loss of step {step}" for step in range(3)]
    assert found([1.0, 1.0, None], small).keys() == {"loss of step 0", "loss of step 1"}
    assert not found([1.0], []) and not found([None], small)


def test_parts_of_gradients_and_movements_of_weights_are_compared() -> None:
    """The second part of the gradient is almost 0, so that rounding may change all of it."""

    def steps(parts: list[float], moved: float) -> Any:
        return steps_of([1.0], gradient_norms=[[1.0]], gradient_parts=[parts], movements=[moved])

    exact = steps([1.0, 1e-9], 1.0)
    runs = [steps([1.0 + 0.001 * sign, 1e-3], 1.0 + 0.001 * sign) for sign in (1, -1, 1, -1, 1, -1)]
    candidate = of(steps([1.02, 1.0], 1.5), precision="bf16")
    checks = {
        check.quantity: check
        for check in numeric_checks._check_rounded_steps(rounded(exact, runs, exact=exact), candidate)
    }
    assert list(checks) == ["loss of step 0", "gradient norm of step 0", "movement of weights of step 0",
                            "gradient norm of part 1 of 2 of step 0"]  # fmt: skip
    part, moved = (checks[name] for name in list(checks)[-1:-3:-1])
    assert (part.difference, moved.difference) == (pytest.approx(0.02), 0.5)
    # Both parts share the false alarms of one check.
    assert part.tolerance == pytest.approx(0.001 * quantile(6, 1e-4 / 2)) and part.difference > part.tolerance
    assert moved.tolerance == pytest.approx(max(0.001 * quantile(6), 0.01))
    # Other numbers of parts are not compared.
    other = of(steps([1.0], 1.0), precision="bf16")
    names = [check.quantity for check in numeric_checks._check_rounded_steps(rounded(exact, runs, exact=exact), other)]
    assert names == list(checks)[:3]


def test_after_updates_that_a_scaler_may_have_left_out_nothing_is_compared() -> None:
    losses: list[float | None] = [1.0, 1.0, 1.0, 1.0]
    runs, known = [steps_of(losses)] * 3, {"gradient_norms": [[1.0], [1.0]]}
    for precision, last in (("fp16", 2), ("bf16", 3)):
        candidate = of(steps_of([1.0, 1.0, 1.001, 1.002], **known), precision=precision)
        reference = rounded(
            steps_of(losses, **known), [{**run, **known} for run in runs], exact=steps_of(losses, **known)
        )
        checks = [
            check
            for check in numeric_checks._check_rounded_steps(reference, candidate)
            if check.quantity.startswith(LOSS)
        ]
        assert checks[-1].quantity.endswith(f"step {last}"), precision


def test_steps_of_other_random_numbers_are_compared_with_the_reference_side() -> None:
    """Double precision drew other random numbers, as on a GPU; a loss of 2 is then compared with 2, not with 1."""
    own, exact = steps_of([2.0]), steps_of([1.0])
    double = {"random": True, "roundings": {"fp32": [steps_of([2.0 + 4 * UNIT]), steps_of([2.0 - 4 * UNIT])]}}
    checks, why = numeric_checks.check_rounding(of(own, exact, double=double), of(steps_of([2.0 + 8 * UNIT])))
    (check,) = checks
    assert not why and (check.quantity, check.difference) == ("loss of step 0", 4 * UNIT)
    # Two errors of two units, and no third one of the reference side against itself.
    assert check.tolerance == pytest.approx(8 * 2 * UNIT * quantile(2), rel=1e-6)
    fixed = numeric_checks.check_rounding(of(own, exact, double={**double, "random": False}), of(own))[0]
    assert fixed[0].difference == 1.0


def test_outputs_are_compared_by_roundings_and_those_of_the_last_step_by_both_sides() -> None:
    """Four outputs of 1 and their root mean square: five numbers, which are off by 0.01 in two roundings."""

    def steps(value: float) -> Any:
        outputs = [sample_of([value] * 4, value)]
        return steps_of([], outputs=[outputs], last_outputs=outputs, data_sums=[0.0])

    reference = rounded(steps(1.0), [steps(1.01), steps(0.99)], exact=steps(1.0))
    first, last = numeric_checks._check_outputs(reference, of(steps(1.25), precision="bf16"))
    # Three errors of each rounding count, and five of the candidate.
    right = 0.01 * float(stats.f.ppf(1 - 1e-4, 5, 6)) ** 0.5
    assert (first.quantity, first.difference, first.tolerance) == ("outputs", 0.25, pytest.approx(right))
    assert (last.quantity, last.difference) == ("outputs of the last step", 0.25)
    assert last.tolerance == pytest.approx(2**0.5 * right) and last.same == pytest.approx(2**0.5 * 8 * UNIT)
    # Without roundings, by the units of rounding.
    plain, _ = numeric_checks._check_outputs(of(steps(1.0), steps(1.0)), of(steps(1.25), precision="bf16"))
    assert plain.tolerance == 8 * BF16
    longer = of(steps(1.25), steps=5, precision="bf16")
    assert [check.quantity for check in numeric_checks._check_outputs(reference, longer)] == ["outputs"]
    assert not list(numeric_checks._check_outputs(reference, of(steps_of([]), steps=5)))


def test_later_losses_in_double_precision_may_be_as_far_off_as_parts_in_single_precision() -> None:
    exact = steps_of([1.0] * 5)
    own = steps_of([1.0, 1.0, 1.0 + 1e-3, 1.0, 1.5])
    found = list(numeric_checks._check_later_double(of(own, exact), of(exact=steps_of([1.0, 1.0, 1.0, 1.1, 1.0]))))
    # The fifth may be off by four.
    told = [(check.quantity, check.difference, check.tolerance) for check in found]
    assert told == [("loss of step 2 in double precision", 0.0, pytest.approx(8e-3)),
                    ("loss of step 3 in double precision", pytest.approx(0.1), pytest.approx(8e-3))]  # fmt: skip
    # In bf16, errors tell less of single precision.
    (third, *_) = numeric_checks._check_later_double(of(own, exact, precision="bf16"), of(exact=exact))
    assert third.tolerance == pytest.approx(8e-3 * 2.0**-16, rel=1e-6) or third.tolerance == 1e-7


@pytest.mark.parametrize("count", [1, 7, 40])
def test_the_factor_of_roundings_is_fishers(count: int) -> None:
    assert rounding_errors.repeated_factor(count, [1, 2, 64]) == pytest.approx(
        float(stats.f.ppf(1 - 1e-4, min(count, 7), 6)) ** 0.5
    )


def test_as_many_random_numbers_are_the_same_ones() -> None:
    """A loss that is near by chance is not one of the same random numbers, if fewer of these were drawn."""
    exact, double = steps_of([2.0]), {"random": True, "redrawn_losses": [1.0, 3.0]}
    reference = of(steps_of([2.0], draws=[5, 6]), exact, double=double)
    for draws, precision, told in (
        ([5, 6], "bf16", False),
        ([5, 7], "bf16", True),
        ([5, 7], "fp32", False),
        ([], "bf16", False),
    ):
        check = numeric_checks.check_redrawn(reference, of(steps_of([2.0], draws=draws), precision=precision))
        assert bool(check) == told, (draws, precision)


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


def test_a_difference_over_what_is_explained() -> None:
    checks = [Check("x", *numbers) for numbers in ((3.0, 1.0, 2.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0))]
    assert [check.excess for check in checks] == [1.5, 0.0, np.inf]
    assert checks[0].describe() == "x differ by 3, and 2 is explained by rounding"
    assert Check("x", 3.0, 1.0, 2.0, "because").describe() == "because"


def test_two_means_of_random_losses() -> None:
    """Both have a variance of 1: their difference of 1 has one of 1/3 + 1/4; of two degrees of freedom, by the mean of 2."""
    one, other = np.array([1.0, 2.0, 3.0]), np.array([3.0 - 1.5**0.5, 3.0, 3.0, 3.0 + 1.5**0.5])
    (check,) = numeric_checks.check_means(one, other, "means")
    assert (check.quantity, check.difference) == ("means", pytest.approx(0.5))
    # Student's t of two degrees of freedom has a closed form.
    tail = 2 * (0.5 - rounding_errors.FALSE_ALARMS / 2)
    student = tail * (2 / (1 - tail**2)) ** 0.5
    assert check.tolerance == check.same == pytest.approx(student * (1 / 3 + 1 / 4) ** 0.5 / 2)
    assert (
        numeric_checks.check_means(one[:2], other, "means") == numeric_checks.check_means(one, other[:2], "means") == []
    )
    (zero,) = numeric_checks.check_means(one - 2, other - 2, "means")
    assert zero.difference == pytest.approx(1.0)


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
    student = tail * (2 / (1 - tail**2)) ** 0.5
    right = student * (1 + 1 / 3) ** 0.5 / 2 if len(redrawn) == 2 else np.inf
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


@pytest.mark.parametrize(("network", "phase"), [("recurrent", "train"), ("transformer", "inference")])
def test_roundings_tell_how_far_a_precision_moves_the_numbers_of_a_network(network: str, phase: str) -> None:
    """The same steps in bf16 six times, each as far off as one in bf16 is, and in training in fp32 three times."""
    plain, low = side(network, phase), side(network, phase, precision="bf16")
    assert plain.exact and low.own
    found = {name: list(runs) for name, runs in plain.double["roundings"].items()}
    assert {name: len(runs) for name, runs in found.items()} == {"bf16": 6} | ({"fp32": 3} if phase == "train" else {})
    kind = numeric_checks.SCALARS if phase == "train" else numeric_checks.OUTPUTS
    errors = {
        name: [
            rounding_errors.root_mean_square(numeric_checks.relative_errors(run, plain.exact, 1)[kind]) for run in runs
        ]
        for name, runs in found.items()
    }
    # Each draw is another one.
    assert len(set(errors["bf16"])) == 6 and max(errors.get("fp32", [0.0])) < 1e-6
    measured = rounding_errors.root_mean_square(numeric_checks.relative_errors(low.own, plain.exact, 1)[kind])
    assert measured / 5 < rounding_errors.root_mean_square(errors["bf16"]) < 5 * measured
    # Random numbers and data are those of the measured steps.
    assert plain.own and all(run["data_sums"][:1] == plain.own["data_sums"][:1] for run in found["bf16"])


def test_a_network_that_refuses_bf16_is_rounded_in_fp32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = double_precision._Run.begin_rounded

    def refuse(run: Any, precision: str, number: int) -> None:
        begin(run, precision, number)
        if precision == "bf16" and number:
            raise RuntimeError("this network does not compute in bf16")

    monkeypatch.setattr(double_precision._Run, "begin_rounded", refuse)
    refusing = side.__wrapped__("recurrent", "train")
    assert {name: len(runs) for name, runs in refusing.double["roundings"].items()} == {"fp32": 3}
    rounded, low = side("recurrent", "train"), side("recurrent", "train", precision="bf16")
    assert refusing.double["roundings"]["fp32"] == rounded.double["roundings"]["fp32"]
    assert numerics.compare_numbers(refusing, rounded).result == numerics.SAME
    assert numerics.compare_numbers(refusing, low).why == numeric_checks.NOT_ROUNDED


def test_roundings_that_take_too_long_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first repetition in each precision; the steps in double precision stay."""
    monkeypatch.setattr(double_precision, "GIVEN_UP_S", 0.0)
    begun: list[tuple[str, int]] = []
    begin = double_precision._Run.begin_rounded
    monkeypatch.setattr(
        double_precision._Run, "begin_rounded", lambda run, *which: [begun.append(which), begin(run, *which)]
    )
    slow = side.__wrapped__("recurrent", "train")
    assert slow.double["roundings"] == {} and begun == [("bf16", 0), ("fp32", 0)]
    assert slow.exact and numerics.compare_numbers(slow, side("recurrent", "train")).result != numerics.DIFFERENT
