"""Checks of numbers of two sides of a comparison, each with its tolerance and what the tolerance follows from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from profzoo.compare import numeric_sides
from profzoo.compare.numeric_sides import BUFFERS, OUTPUTS, WORDS, NumericSide
from profzoo.statistics import rounding_errors
from profzoo.statistics.rounding_errors import FALSE_ALARMS

if TYPE_CHECKING:
    from profzoo.cell.number_types import StepNumbers

# Relative differences in double precision: smaller ones count as rounding, as parts of a network may compute in single
# precision even so; larger ones never do.
LEAST_DOUBLE, MOST_DOUBLE = 1e-7, 1e-5
# Relative differences of measured steps that rounding never explains, in units of rounding.
GROSS = 2**13
# Fewer losses do not tell how far random numbers move them.
FEWEST_DRAWN = 3
# First steps in which the offset of a loss tells whether random numbers move it.
OFFSETS = 32
DATA_TOLERANCE, WEIGHTS_TOLERANCE = 1e-6, 1e-9
LOSS, REPEATED = "loss of the first step", "repeated losses"
IN_DOUBLE = "in double precision"


@dataclass(frozen=True)
class Check:
    """A relative difference of one quantity.

    same: largest difference by which the candidate is as right as the reference side. tolerance: largest difference
    that is explained. why: what it is compared with.
    """

    quantity: str
    difference: float
    same: float
    tolerance: float
    why: str = ""

    @property
    def excess(self) -> float:
        """Difference over tolerance."""
        return self.difference / self.tolerance if self.tolerance else float(np.inf if self.difference else 0)

    def describe(self) -> str:
        """Say in words what differs."""
        if self.why:
            return self.why
        return f"{self.quantity} differ by {self.difference:.2g}, and {self.tolerance:.2g} is explained by rounding"


def find_obstacle(reference: NumericSide, candidate: NumericSide) -> str:
    """Say why the numbers of two sides cannot be compared; empty if they can."""
    for name, side in (("reference side", reference), ("candidate", candidate)):
        if side.own is None:
            return f"the {name} recorded no numbers of its steps"
    assert reference.own and candidate.own
    if reference.batch != candidate.batch:
        return f"batches of {reference.batch} and {candidate.batch} samples hold other data"
    for one, other in zip(reference.own["data_sums"], candidate.own["data_sums"], strict=False):
        if one is not None and other is not None and abs(one - other) > DATA_TOLERANCE * max(abs(one), 1):
            return "the sides were given other data"
    return ""


def check_sides(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Return checks of two sides, and why they do not decide alone; the reason is empty if they do."""
    if not reference.exact:
        return _check_alone(reference, candidate)
    checks: list[Check] = []
    if candidate.exact:
        checks, why = _check_double(reference, candidate)
        if why or any(check.difference > check.tolerance for check in checks):
            return checks, why
    return [*checks, *_check_rounding(reference, candidate)], ""


def _check_double(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check that both sides compute the same in double precision."""
    right, found = cast("StepNumbers", reference.exact), cast("StepNumbers", candidate.exact)
    if reference.double.get("random") != candidate.double.get("random"):
        more, less = (
            ("reference side", "candidate") if reference.double.get("random") else ("candidate", "reference side")
        )
        why = f"steps of the {more} draw random numbers, as dropout does, and those of the {less} do not"
        return [Check("random numbers", 1.0, 0.0, 0.0, why)], ""
    tolerance = _double_tolerance(reference)
    checks = [
        Check(f"{kind} {IN_DOUBLE}", max(errors), tolerance, tolerance)
        for kind, errors in numeric_sides.relative_errors(found, right).items()
    ]
    used = (right["used_parameters"], found["used_parameters"])
    if used[0] != used[1]:
        why = f"{used[0]:,} parameters with a gradient became {used[1]:,}"
        return [Check("parameters with a gradient", 1.0, 0.0, 0.0, why)], ""
    if all(check.difference <= check.tolerance for check in checks):
        return checks, ""
    if reference.parameters == candidate.parameters and _begin_differently(right, found):
        return [], "the sides begin with other weights"
    # With equal first losses, both drew the same random numbers.
    first = [one["losses"][:1] for one in (found, right)]
    if not reference.double.get("random") or max(numeric_sides.loss_errors(*first), default=1.0) <= tolerance:
        return checks, ""
    return _check_draws(reference, candidate, checks, tolerance)


def _check_draws(
    reference: NumericSide, candidate: NumericSide, checks: Sequence[Check], tolerance: float
) -> tuple[list[Check], str]:
    """Check sides that draw random numbers and differ in double precision; checks: those that differ."""
    one, other = _drawn_losses(reference), _drawn_losses(candidate)
    # Losses of the same draws rise and fall together, so that another reason than the draws makes them differ.
    if rounding_errors.vary_together(one, other):
        return list(checks), ""
    means = _check_means(np.array(one), np.array(other), "mean losses over random numbers")
    right, found = (side.double.get("undropped") for side in (reference, candidate))
    still = any(side.double.get("undropped_random", True) for side in (reference, candidate))
    if right is None or found is None or still:
        return means, "the sides draw other random numbers, so that only their mean losses can be compared"
    undropped = [
        Check(f"{kind} without dropout", max(errors), tolerance, tolerance)
        for kind, errors in numeric_sides.relative_errors(found, right).items()
    ]
    shares = [list(side.double.get("dropouts", [])) for side in (reference, candidate)]
    if len(shares[0]) == len(shares[1]) and shares[0] != shares[1]:
        why = "dropout has other shares: " + " -> ".join(
            ", ".join(f"{one:g}" for one in sorted({*side})) for side in shares
        )
        undropped.append(Check("dropout", 1.0, 0.0, 0.0, why))
    return [*undropped, *means], "" if shares[0] == shares[1] else "dropout is called at other places"


def _drawn_losses(side: NumericSide) -> list[float]:
    """Return losses of step 0 with several draws of random numbers, those of the measured run first."""
    losses = side.exact["losses"][:1] if side.exact else []
    return [float(loss) for loss in [*losses, *side.double.get("redrawn_losses", [])] if loss is not None]


def _double_tolerance(reference: NumericSide) -> float:
    """Return the largest difference in double precision that is not one of the computation."""
    errors = numeric_sides.relative_errors(cast("StepNumbers", reference.own), cast("StepNumbers", reference.exact))
    own = [rounding_errors.root_mean_square(some) for kind, some in errors.items() if kind != WORDS]
    return min(max([LEAST_DOUBLE, *own]), MOST_DOUBLE)


def _begin_differently(right: "StepNumbers", found: "StepNumbers") -> bool:
    one, other = right["weight_norm"], found["weight_norm"]
    return one is not None and other is not None and abs(one - other) > WEIGHTS_TOLERANCE * abs(one)


def _check_rounding(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks of the measured steps against double precision."""
    assert reference.own and candidate.own and reference.exact
    known = numeric_sides.relative_errors(reference.own, reference.exact)
    found = numeric_sides.relative_errors(candidate.own, reference.exact)
    drawn = _check_redrawn(reference, candidate)
    if drawn:
        yield drawn
    for kind, errors in found.items():
        # With other random numbers, nothing but the loss of the first step can be compared.
        if kind not in known or kind == WORDS or drawn:
            continue
        same, tolerance = (
            rounding_errors.error_tolerance(known[kind], len(errors), precision, reference.precision)
            for precision in (reference.precision, candidate.precision)
        )
        yield Check(kind, rounding_errors.root_mean_square(errors), same, tolerance)
    if not drawn:
        yield from _check_later_losses(reference, candidate)
    yield from _check_last_outputs(reference, candidate, known.get(OUTPUTS, []))
    yield from _check_repeats(reference, candidate)


def _check_redrawn(reference: NumericSide, candidate: NumericSide) -> Check | None:
    """Check the loss of step 0 against losses with other random numbers, if the candidate drew other ones.

    None if it drew those of double precision.
    """
    assert reference.own and candidate.own and reference.exact
    if not reference.double.get("random") or not reference.exact["losses"] or not candidate.own["losses"]:
        return None
    exact, own = cast(float, reference.exact["losses"][0]), candidate.own["losses"][0]
    unit = rounding_errors.unit_of_rounding(candidate.precision)
    if own is None or abs(own - exact) <= rounding_errors.ALWAYS_ALLOWED * unit * abs(exact):
        return None
    drawn, off = _drawn_losses(reference), _relative_offsets(reference, candidate)
    # A difference that is the same in all steps is not one of draws.
    if rounding_errors.vary_less(off, [loss / abs(exact) for loss in drawn]):
        return None
    if len(drawn) < FEWEST_DRAWN:
        return Check(LOSS, 0.0, np.inf, np.inf)
    tolerance = rounding_errors.spread_tolerance(drawn) / abs(exact)
    return Check(LOSS, abs(own - float(np.mean(drawn))) / abs(exact), tolerance, tolerance)


def _relative_offsets(reference: NumericSide, candidate: NumericSide) -> list[float]:
    """Return by how much the candidate's losses exceed the exact ones in the first steps, relative to these."""
    assert reference.exact and candidate.own
    pairs = zip(candidate.own["losses"], reference.exact["losses"], strict=False)
    return [(own - exact) / abs(exact) for own, exact in pairs if own is not None and exact][:OFFSETS]


def _check_later_losses(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield a check of the later losses by how far the reference side's errors have grown until each of them."""
    assert reference.own and candidate.own and reference.exact
    known = numeric_sides.loss_errors(reference.own["losses"], reference.exact["losses"])
    found = numeric_sides.loss_errors(candidate.own["losses"], reference.exact["losses"])
    steps = range(len(reference.own["data_sums"]), min(len(known), len(found)))
    checks = []
    for step in steps:
        same, tolerance = (
            rounding_errors.grown_tolerance(
                known[: step + 1], precision, reference.precision, FALSE_ALARMS / len(steps)
            )
            for precision in (reference.precision, candidate.precision)
        )
        checks.append(Check(f"loss of step {step}", found[step], same, tolerance))
    if checks:
        yield max(checks, key=lambda check: check.excess)


def _check_last_outputs(reference: NumericSide, candidate: NumericSide, known: Sequence[float]) -> Iterator[Check]:
    """Yield a check of the outputs of the last step, which both sides computed in their own precision."""
    assert reference.own and candidate.own
    one, other = reference.own["last_outputs"], candidate.own["last_outputs"]
    if not known or not one or reference.steps != candidate.steps:
        return
    errors, _ = numeric_sides.output_errors(other, one)
    if errors:
        # Both sides have errors.
        same, tolerance = (
            rounding_errors.error_tolerance(known, len(errors), precision, reference.precision) * 2**0.5
            for precision in (reference.precision, candidate.precision)
        )
        yield Check("outputs of the last step", rounding_errors.root_mean_square(errors), same, tolerance)


def _check_repeats(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks that fail if the candidate's losses or buffers stay as they are, and the reference side's do not."""
    assert reference.own and candidate.own
    one, other = reference.own["losses"], candidate.own["losses"]
    if len(one) >= 4 and len(one) == len(other) and len(set(one)) == len(one) and len(set(other)) <= len(other) // 2:
        why = f"of {len(other)} losses of the candidate only {len(set(other))} differ"
        yield Check(REPEATED, 1.0, 0.0, 0.0, why)
    ends = [side.own["buffer_norms"][-2:] for side in (reference, candidate) if side.own]
    if all(len(end) == 2 and None not in end for end in ends):
        changed = [end[0] != end[1] for end in ends]
        if changed == [True, False]:
            yield Check(BUFFERS, 1.0, 0.0, 0.0, "the candidate's buffers did not change, and the reference side's did")


def _check_alone(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check what was measured without double precision, and say why that decides nothing; empty if it does.

    How far rounding goes is not known then: equal numbers are the same, and grossly different ones are different.
    """
    assert reference.own and candidate.own
    checks = list(_check_repeats(reference, candidate))
    missing = f"steps of the reference side were not repeated {IN_DOUBLE}: {reference.double.get('why', '')}"
    one, other = np.array(reference.first_losses), np.array(candidate.first_losses)
    if len(one) > 1 and np.ptp(one) > LEAST_DOUBLE * abs(one[0]):
        return [*checks, *_check_means(one, other, "mean first losses")], f"{missing}; its first losses differ"
    unit = rounding_errors.unit_of_rounding(candidate.precision)
    near = rounding_errors.ALWAYS_ALLOWED * rounding_errors.unit_of_rounding(reference.precision)
    decided = True
    for kind, errors in numeric_sides.relative_errors(candidate.own, reference.own).items():
        size = max(errors) if kind == WORDS else rounding_errors.root_mean_square(errors)
        gross = GROSS * unit if kind != WORDS else np.inf
        checks.append(Check(kind, size, near, gross))
        decided &= size <= max(rounding_errors.ALWAYS_ALLOWED * unit, near) if kind != WORDS else not size
    return checks, "" if decided and len(checks) else missing


def _check_means(one: np.ndarray, other: np.ndarray, quantity: str) -> list[Check]:
    """Check the difference of two means of random losses (Welch 1947, with the fewest degrees of freedom)."""
    if min(len(one), len(other)) < FEWEST_DRAWN:
        return []
    spread = float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))
    scale = abs(float(one.mean())) or 1.0
    tolerance = rounding_errors.student_quantile(min(len(one), len(other)) - 1) * spread / scale
    return [Check(quantity, abs(float(other.mean() - one.mean())) / scale, tolerance, tolerance)]
