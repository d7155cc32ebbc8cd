"""Checks that two sides of a comparison compute the same, by what is known of their numbers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from profzoo.statistics import rounding_errors
from profzoo.statistics.rounding_errors import FALSE_ALARMS

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import DoubleNumbers, OutputSample, ProcessFacts, Sidecar, StepNumbers


# Takes from sidecars what a side of a comparison computed in its first steps, in its own and in double precision.

# Outputs of whole numbers, such as words, are equal or not.
SCALARS, BUFFERS = "losses and gradient norms", "norms of buffers"
OUTPUTS, WORDS = "outputs", "whole-number outputs"


@dataclass(frozen=True)
class NumericSide:
    """What one side computed.

    own: the first process's first steps; None where nothing was recorded. double: the same in double precision, with
    `why` where it is missing. precision: format of its products. batch, parameters: as in the sidecar. first_losses:
    loss of step 0 of each process.
    """

    own: "StepNumbers | None"
    double: "DoubleNumbers"
    precision: str
    batch: int
    parameters: int
    steps: int
    first_losses: Sequence[float]

    @property
    def exact(self) -> "StepNumbers | None":
        """The first steps in double precision, if they could be repeated."""
        return self.double.get("steps")


def read_side(facts: "Sidecar", cell: "CellSettings", processes: "Sequence[ProcessFacts]") -> NumericSide:
    """Take the numbers of a side; facts: of its first process or of the job, cell: its settings."""
    each = [process for process in processes if process.get("first_steps")]
    nothing: DoubleNumbers = {"why": "no process repeated its steps in double precision"}
    repeated = [process["double_precision"] for process in each if "double_precision" in process]
    losses = [process["first_steps"]["losses"] for process in each]
    observed = facts.get("script", {}).get("observed", {}).get("precision")
    return NumericSide(
        own=each[0]["first_steps"] if each else None,
        double=repeated[0] if repeated else nothing,
        precision=str(observed or cell.get("precision", "fp32")),
        batch=int(facts.get("batch", 0)),
        parameters=int(facts.get("parameters", 0)),
        steps=int(each[0].get("steps", 0)) if each else 0,
        first_losses=[one[0] for one in losses if one and one[0] is not None],
    )


def relative_errors(found: "StepNumbers", right: "StepNumbers", steps: int) -> dict[str, list[float]]:
    """Return relative errors of the first steps, by kind of quantity that has any; steps: at most so many.

    Outputs count of all steps that were looked into, as no update of weights lies between them.
    """
    scalars, buffers = [], []
    for name, pairs in paired_series(found, right).items():
        errors = [_relative(*pair) for pair in _known(pairs[:steps])]
        if name == BUFFERS:
            buffers += errors
        else:
            scalars += errors
    outputs, words = [], []
    for mine, exact in zip(found["outputs"], right["outputs"], strict=False):
        floats, whole = output_errors(mine, exact)
        outputs += floats
        words += whole
    kinds = {SCALARS: scalars, BUFFERS: buffers, OUTPUTS: outputs, WORDS: words}
    return {kind: errors for kind, errors in kinds.items() if errors}


Pairs = list[tuple[float | None, float | None]]


def paired_series(found: "StepNumbers", right: "StepNumbers") -> dict[str, Pairs]:
    """Return pairs of numbers of equal steps by quantity: losses, gradient norms of each update, norms of buffers."""
    count = min(len(found["data_sums"]), len(right["data_sums"]))
    series: dict[str, Pairs] = {"loss": list(zip(found["losses"], right["losses"], strict=False))}
    for mine, exact in zip(found["gradient_norms"], right["gradient_norms"], strict=False):
        for number, pair in enumerate(zip(mine, exact, strict=False)):
            series.setdefault("gradient norm" + (f" of update {number + 1}" if number else ""), []).append(pair)
    buffers: Pairs = list(zip(found["buffer_norms"][:count], right["buffer_norms"][:count], strict=False))
    # A norm of 0 stands for no buffers.
    series[BUFFERS] = [pair for pair in buffers if any(pair)]
    return series


def _known(pairs: Iterable[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def output_errors(found: "Sequence[OutputSample]", right: "Sequence[OutputSample]") -> tuple[list[float], list[float]]:
    """Return sizes of errors of outputs relative to their root mean square, and 0 or 1 for each whole number.

    Outputs of another number or size count as wrong.
    """
    floats: list[float] = []
    whole: list[float] = []
    if [len(one["values"]) for one in found] != [len(one["values"]) for one in right]:
        return [1.0], []
    for mine, exact in zip(found, right, strict=True):
        difference = np.array(mine["values"]) - np.array(exact["values"])
        if exact["rms"] is None:
            whole += (difference != 0).astype(float).tolist()
        elif exact["rms"] > 0:
            floats += (np.abs(difference) / exact["rms"]).tolist()
            floats.append(_relative(mine["rms"] or 0.0, exact["rms"]))
    return floats, whole


def loss_errors(losses: Sequence[float | None], exact: Sequence[float | None]) -> list[float]:
    """Return relative errors of the losses of steps that both have."""
    return [_relative(*pair) for pair in _known(zip(losses, exact, strict=False))]


def sizes_of_errors(pairs: "Pairs") -> list[float]:
    """Return the relative error of each pair of a number and the exact one; NaN where one is not known."""
    return [float("nan") if one is None or other is None else _relative(one, other) for one, other in pairs]


def _relative(found: float, right: float) -> float:
    scale = abs(right)
    return abs(found - right) / scale if scale else float(found != right)


# A check of one quantity of two sides of a comparison: its relative difference, and what is explained.

# How many steps are looked into.
STEPS = 2
# Fewer losses do not tell how far random numbers move them.
FEWEST_DRAWN = 3
IN_DOUBLE = "in double precision"


@dataclass(frozen=True)
class Check:
    """A relative difference of one quantity.

    same: largest difference by which the candidate is as right as the reference side. tolerance: largest difference
    that is explained. why: words for a difference beyond the tolerance, if numbers do not say it. note: what limits the
    check even where it is passed.
    """

    quantity: str
    difference: float
    same: float
    tolerance: float
    why: str = ""
    note: str = ""

    @property
    def excess(self) -> float:
        """Difference over tolerance."""
        return self.difference / self.tolerance if self.tolerance else float(np.inf if self.difference else 0)

    def describe(self) -> str:
        """Say in words what differs."""
        if self.why:
            return self.why
        return f"{self.quantity} differ by {self.difference:.2g}, and {self.tolerance:.2g} is explained by rounding"


def drawn_losses(side: NumericSide) -> list[float]:
    """Return losses of step 0 with several draws of random numbers, those of the measured run first."""
    losses = side.exact["losses"][:1] if side.exact else []
    return [float(loss) for loss in [*losses, *side.double.get("redrawn_losses", [])] if loss is not None]


def check_means(one: np.ndarray, other: np.ndarray, quantity: str) -> list[Check]:
    """Check the difference of two means of random losses (Welch 1947, with the fewest degrees of freedom)."""
    if min(len(one), len(other)) < FEWEST_DRAWN:
        return []
    spread = float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))
    scale = abs(float(one.mean())) or 1.0
    tolerance = rounding_errors.student_quantile(min(len(one), len(other)) - 1) * spread / scale
    return [Check(quantity, abs(float(other.mean() - one.mean())) / scale, tolerance, tolerance)]


# Checks of what the measured steps of two sides computed, each in its own format, against double precision.

# First steps in which the offset of a loss tells whether random numbers move it.
OFFSETS = 32
DRAWN = "measured losses were compared by the spread of random numbers alone, as the candidate draws other ones"
# Where outputs are selected or sorted, as boxes of a detector are, rounding may exchange so many of them.
EXCHANGED_SHARE = 0.1
# Of how far a quantity moves, rounding may change so much in each step through the updates of weights.
UPDATE_SHARE = 0.01


def check_rounding(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks of the measured steps against double precision."""
    assert reference.own and candidate.own and reference.exact
    # Before weights are updated: updates may multiply small errors, as Adam's do where gradients are almost 0.
    known = relative_errors(reference.own, reference.exact, 1)
    found = relative_errors(candidate.own, reference.exact, 1)
    drawn = _check_redrawn(reference, candidate)
    if drawn:
        yield drawn
    yield from _check_words(reference, candidate)
    for kind, errors in found.items():
        # With other random numbers, nothing but the loss of the first step can be compared.
        if kind not in known or kind == WORDS or drawn:
            continue
        same, tolerance = (
            rounding_errors.error_tolerance(known[kind], len(errors), precision, reference.precision)
            for precision in (reference.precision, candidate.precision)
        )
        selected = kind == OUTPUTS and WORDS in found
        yield _check_selected(kind, errors, same, tolerance) if selected else _check_all(kind, errors, same, tolerance)
    if not drawn:
        yield from _check_later_steps(reference, candidate)
    yield from _check_last_outputs(reference, candidate, known.get(OUTPUTS, []))
    yield from check_repeats(reference, candidate)


def _check_all(quantity: str, errors: Sequence[float], same: float, tolerance: float) -> Check:
    return Check(quantity, rounding_errors.root_mean_square(errors), same, tolerance)


def _check_selected(quantity: str, errors: Sequence[float], same: float, tolerance: float) -> Check:
    """Check outputs beside which there are whole numbers, such as labels: what lies there may have been selected.

    If all numbers together are farther off than the tolerance, a small share that is farthest off does not count.
    """
    whole = _check_all(quantity, errors, same, tolerance)
    if whole.difference <= whole.tolerance:
        return whole
    kept = np.sort(errors)[: len(errors) - int(EXCHANGED_SHARE * len(errors))]
    beyond = sum(error > tolerance for error in errors)
    note = f"{beyond} of {len(errors)} numbers in outputs differ by more, as if rounding had selected or sorted others"
    return Check(quantity, rounding_errors.root_mean_square(kept.tolist()), same, tolerance, note=note)


def _check_words(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield a check of outputs that are whole numbers, if they are all equal; rounding may choose other ones."""
    assert reference.own and candidate.own
    words = relative_errors(candidate.own, reference.own, STEPS).get(WORDS)
    if words and not any(words):
        yield Check(WORDS, 0.0, 0.0, 0.0)


def _check_redrawn(reference: NumericSide, candidate: NumericSide) -> Check | None:
    """Check the loss of step 0 against losses with other random numbers, if the candidate drew other ones.

    None if it drew those of double precision, or of the reference side: a GPU may draw other ones for other types.
    """
    assert reference.own and candidate.own and reference.exact
    if not reference.double.get("random") or not reference.exact["losses"] or not candidate.own["losses"]:
        return None
    exact, own = cast(float, reference.exact["losses"][0]), candidate.own["losses"][0]
    near = rounding_errors.ALWAYS_ALLOWED * rounding_errors.unit_of_rounding(candidate.precision) * abs(exact)
    known = [one for one in (exact, reference.own["losses"][0]) if one is not None]
    if own is None or any(abs(own - one) <= near for one in known):
        return None
    drawn, off = drawn_losses(reference), _relative_offsets(reference, candidate)
    # A difference that is the same in all steps is not one of draws.
    if rounding_errors.vary_less(off, [loss / abs(exact) for loss in drawn]):
        return None
    if len(drawn) < FEWEST_DRAWN:
        return Check("loss of the first step", 0.0, np.inf, np.inf, note=DRAWN)
    tolerance = rounding_errors.spread_tolerance(drawn) / abs(exact)
    difference = abs(own - float(np.mean(drawn))) / abs(exact)
    return Check("loss of the first step", difference, tolerance, tolerance, note=DRAWN)


def _relative_offsets(reference: NumericSide, candidate: NumericSide) -> list[float]:
    """Return by how much the candidate's losses exceed the exact ones in the first steps, relative to these."""
    assert reference.exact and candidate.own
    pairs = zip(candidate.own["losses"], reference.exact["losses"], strict=False)
    return [(own - exact) / abs(exact) for own, exact in pairs if own is not None and exact][:OFFSETS]


def _check_later_steps(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield a check of each quantity in the steps after the first update, at the step where it is farthest off.

    The tolerance is how far the reference side's errors have grown until then, or a share of how far the quantity has
    moved since the first step.
    """
    assert reference.own and candidate.own and reference.exact
    known = paired_series(reference.own, reference.exact)
    for name, pairs in paired_series(candidate.own, reference.exact).items():
        right = [exact for _, exact in known.get(name, [])]
        errors = sizes_of_errors(known.get(name, []))
        found = sizes_of_errors(pairs)
        steps = range(1, min(len(errors), len(found)))
        checks = []
        for step in (one for one in steps if np.isfinite(found[one]) and np.isfinite(errors[: one + 1]).all()):
            moved = UPDATE_SHARE * step * _movement(right[: step + 1])
            same, tolerance = (
                max(
                    rounding_errors.grown_tolerance(
                        errors[: step + 1], precision, reference.precision, FALSE_ALARMS / len(steps)
                    ),
                    moved,
                )
                for precision in (reference.precision, candidate.precision)
            )
            checks.append(Check(f"{name} of step {step}", found[step], same, tolerance))
        if checks:
            yield max(checks, key=lambda check: check.excess)


def _movement(series: Sequence[float | None]) -> float:
    """Return how far a quantity has been from its first value, relative to its last one."""
    values = np.array([np.nan if value is None else value for value in series])
    moved = float(np.nanmax(np.abs(values - values[0])) / abs(values[-1])) if len(values) and values[-1] else np.nan
    return 0.0 if np.isnan(moved) else moved


def _check_last_outputs(reference: NumericSide, candidate: NumericSide, known: Sequence[float]) -> Iterator[Check]:
    """Yield a check of the outputs of the last step, which both sides computed in their own precision."""
    assert reference.own and candidate.own
    one, other = reference.own["last_outputs"], candidate.own["last_outputs"]
    if not known or not one or reference.steps != candidate.steps:
        return
    errors, words = output_errors(other, one)
    if errors:
        # Both sides have errors.
        same, tolerance = (
            rounding_errors.error_tolerance(known, len(errors), precision, reference.precision) * 2**0.5
            for precision in (reference.precision, candidate.precision)
        )
        check = _check_selected if words else _check_all
        yield check("outputs of the last step", errors, same, tolerance)


def check_repeats(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks that fail if the candidate's losses or buffers stay as they are, and the reference side's do not."""
    assert reference.own and candidate.own
    one, other = reference.own["losses"], candidate.own["losses"]
    if len(one) >= 4 and len(one) == len(other) and len(set(one)) == len(one) and len(set(other)) <= len(other) // 2:
        why = f"of {len(other)} losses of the candidate only {len(set(other))} differ"
        yield Check("repeated losses", 1.0, 0.0, 0.0, why)
    ends = [side.own["buffer_norms"][-2:] for side in (reference, candidate) if side.own]
    if all(len(end) == 2 and None not in end for end in ends):
        changed = [end[0] != end[1] for end in ends]
        if changed == [True, False]:
            yield Check(BUFFERS, 1.0, 0.0, 0.0, "the candidate's buffers did not change, and the reference side's did")


# Checks that two sides compute the same in double precision, where rounding explains next to nothing.

# Relative differences in double precision: smaller ones count as rounding, as parts of a network may compute in single
# precision even so; larger ones never do.
LEAST_DOUBLE, MOST_DOUBLE = 1e-7, 1e-5
WEIGHTS_TOLERANCE = 1e-9


def check_double(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
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
        for kind, errors in relative_errors(found, right, STEPS).items()
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
    if not reference.double.get("random") or max(loss_errors(*first), default=1.0) <= tolerance:
        return checks, ""
    return _check_draws(reference, candidate, checks, tolerance)


def _check_draws(
    reference: NumericSide, candidate: NumericSide, checks: Sequence[Check], tolerance: float
) -> tuple[list[Check], str]:
    """Check sides that draw random numbers and differ in double precision; checks: those that differ."""
    one, other = drawn_losses(reference), drawn_losses(candidate)
    # Losses of the same draws rise and fall together, so that another reason than the draws makes them differ.
    if rounding_errors.vary_together(one, other):
        return list(checks), ""
    means = check_means(np.array(one), np.array(other), "mean losses over random numbers")
    right, found = (side.double.get("undropped") for side in (reference, candidate))
    still = any(side.double.get("undropped_random", True) for side in (reference, candidate))
    if right is None or found is None or still:
        return means, "the sides draw other random numbers, so that only their mean losses can be compared"
    undropped = [
        Check(f"{kind} without dropout", max(errors), tolerance, tolerance)
        for kind, errors in relative_errors(found, right, STEPS).items()
    ]
    shares = [list(side.double.get("dropouts", [])) for side in (reference, candidate)]
    if len(shares[0]) == len(shares[1]) and shares[0] != shares[1]:
        why = "dropout has other shares: " + " -> ".join(
            ", ".join(f"{one:g}" for one in sorted({*side})) for side in shares
        )
        undropped.append(Check("dropout", 1.0, 0.0, 0.0, why))
    return [*undropped, *means], "" if shares[0] == shares[1] else "dropout is called at other places"


def _double_tolerance(reference: NumericSide) -> float:
    """Return the largest difference in double precision that is not one of the computation."""
    right = cast("StepNumbers", reference.exact)
    errors = relative_errors(cast("StepNumbers", reference.own), right, STEPS)
    own = [rounding_errors.root_mean_square(some) for kind, some in errors.items() if kind != WORDS]
    return min(max([LEAST_DOUBLE, *own]), MOST_DOUBLE)


def _begin_differently(right: "StepNumbers", found: "StepNumbers") -> bool:
    one, other = right["weight_norm"], found["weight_norm"]
    return one is not None and other is not None and abs(one - other) > WEIGHTS_TOLERANCE * abs(one)


# Relative differences of measured steps that rounding never explains, in units of rounding.
GROSS = 2**13
DATA_TOLERANCE = 1e-6


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
        checks, why = check_double(reference, candidate)
        if why or any(check.difference > check.tolerance for check in checks):
            return checks, why
    return [*checks, *check_rounding(reference, candidate)], ""


def _check_alone(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check what was measured without double precision, and say why that decides nothing; empty if it does.

    How far rounding goes is not known then: equal numbers are the same, and grossly different ones are different.
    """
    assert reference.own and candidate.own
    checks = list(check_repeats(reference, candidate))
    missing = f"steps of the reference side were not repeated {IN_DOUBLE}: {reference.double.get('why', '')}"
    one, other = np.array(reference.first_losses), np.array(candidate.first_losses)
    if len(one) > 1 and np.ptp(one) > LEAST_DOUBLE * abs(one[0]):
        return [*checks, *check_means(one, other, "mean first losses")], f"{missing}; its first losses differ"
    unit = rounding_errors.unit_of_rounding(candidate.precision)
    near = rounding_errors.ALWAYS_ALLOWED * rounding_errors.unit_of_rounding(reference.precision)
    decided = True
    for kind, errors in relative_errors(candidate.own, reference.own, 1).items():
        size = max(errors) if kind == WORDS else rounding_errors.root_mean_square(errors)
        gross = GROSS * unit if kind != WORDS else np.inf
        checks.append(Check(kind, size, near, gross))
        decided &= size <= max(rounding_errors.ALWAYS_ALLOWED * unit, near) if kind != WORDS else not size
    return checks, "" if decided and len(checks) else missing
