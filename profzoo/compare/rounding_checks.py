"""Checks of what the measured steps of two sides computed, each in its own format, against double precision."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from profzoo.compare import numeric_sides
from profzoo.compare.numeric_check import FEWEST_DRAWN, STEPS, Check, drawn_losses
from profzoo.compare.numeric_sides import BUFFERS, OUTPUTS, WORDS, NumericSide
from profzoo.statistics import rounding_errors
from profzoo.statistics.rounding_errors import FALSE_ALARMS

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
    known = numeric_sides.relative_errors(reference.own, reference.exact, 1)
    found = numeric_sides.relative_errors(candidate.own, reference.exact, 1)
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
    words = numeric_sides.relative_errors(candidate.own, reference.own, STEPS).get(WORDS)
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
    known = numeric_sides.paired_series(reference.own, reference.exact)
    for name, pairs in numeric_sides.paired_series(candidate.own, reference.exact).items():
        right = [exact for _, exact in known.get(name, [])]
        errors = numeric_sides.sizes_of_errors(known.get(name, []))
        found = numeric_sides.sizes_of_errors(pairs)
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
    errors, words = numeric_sides.output_errors(other, one)
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
