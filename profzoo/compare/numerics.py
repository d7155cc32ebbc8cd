"""Says whether two sides of a comparison compute the same: by losses, gradients, outputs and work of their first steps.

1. In double precision both sides have to agree, as far as they draw equal random numbers: then they compute the same.
2. What each measured run computed is compared with double precision. The errors of the reference side, which counts as
   right, tell how far rounding goes. If a side rounds more coarsely than to fp32, several roundings of the reference
   side to bf16 tell it, by the ratio of the units of rounding.
3. Losses of later steps may be off as far as these errors have grown by then. They are compared as long as that is less
   than a tenth; where any other quantity may be off by more, the result is undecided.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profzoo.compare import numeric_checks
from profzoo.compare.numeric_checks import Check, NumericSide
from profzoo.io.columns import NUMBER, TEXT, Column
from profzoo.statistics import rounding_errors, speedup

SAME, WITHIN, DIFFERENT, UNDECIDED = "same", "within precision", "different", "undecided"


@dataclass(frozen=True)
class Numerics:
    """Whether two sides compute the same.

    result: SAME, WITHIN, DIFFERENT or UNDECIDED. quantity: what decided it, with its relative difference and the
    tolerance; NaN where no number decided. why: the reason in words where the result is DIFFERENT or UNDECIDED, or what
    limits another result. work: what differs in work, in words; empty if nothing is known to.
    """

    result: str
    quantity: str = ""
    difference: float = float("nan")
    tolerance: float = float("nan")
    why: str = ""
    work: str = ""


def compare_numbers(reference: NumericSide, candidate: NumericSide) -> Numerics:
    """Say whether a candidate computes what the reference side computes."""
    work = describe_work(reference, candidate)
    why = find_obstacle(reference, candidate)
    checks: list[Check] = []
    if not why:
        checks, why = check_sides(reference, candidate)
    failed = [check for check in checks if check.difference > check.tolerance]
    if failed:
        worst = max(failed, key=lambda check: check.excess)
        return _result(DIFFERENT, worst, worst.describe(), work)
    if fewer := _find_fewer_parameters(reference, candidate):
        return Numerics(DIFFERENT, quantity="parameters", why=fewer, work=work)
    if why or not checks:
        return Numerics(
            UNDECIDED,
            why=why or "no number of both sides can be compared, or whole numbers differ, which rounding may choose",
            work=work,
        )
    if loose := [check for check in checks if check.allowed > rounding_errors.LOOSE]:
        widest = max(loose, key=lambda check: check.allowed)
        told = f"by rounding alone, {widest.quantity} may differ by {widest.allowed:.2g}, which hides errors"
        return _result(UNDECIDED, widest, told, work)
    nearest = max(checks, key=lambda check: check.excess)
    same = all(check.difference <= check.same for check in checks)
    notes = "; ".join(dict.fromkeys(check.note for check in checks if check.note))
    return _result(SAME if same else WITHIN, nearest, notes, work)


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
        checks, why = numeric_checks.check_double(reference, candidate)
        if why or any(check.difference > check.tolerance for check in checks):
            return checks, why
    if drawn := numeric_checks.check_redrawn(reference, candidate):
        # Then nothing but the loss of the first step can be compared.
        return [*checks, drawn, *numeric_checks.check_repeats(reference, candidate)], numeric_checks.DRAWN
    if why := _find_skipped_update(reference, candidate):
        return checks, why
    measured, why = numeric_checks.check_rounding(reference, candidate)
    return [*checks, *measured], why


def _find_skipped_update(reference: NumericSide, candidate: NumericSide) -> str:
    """Say that a gradient of the candidate is not finite, so that a scaler of gradients left its update out."""
    assert reference.own and candidate.own
    seen = [None in itertools.chain(*side.own["gradient_norms"]) for side in (reference, candidate) if side.own]
    return "a gradient of the candidate is not finite, so that its update was left out" if seen == [False, True] else ""


def _check_alone(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check what was measured without double precision, and say why that decides nothing; empty if it does.

    How far rounding goes is not known then: equal numbers are the same, and grossly different ones are different.
    """
    assert reference.own and candidate.own
    checks = list(numeric_checks.check_repeats(reference, candidate))
    missing = (
        f"steps of the reference side were not repeated {numeric_checks.IN_DOUBLE}: {reference.double.get('why', '')}"
    )
    one, other = np.array(reference.first_losses), np.array(candidate.first_losses)
    if len(one) > 1 and np.ptp(one) > numeric_checks.LEAST_DOUBLE * abs(one[0]):
        return [
            *checks,
            *numeric_checks.check_means(one, other, "mean first losses"),
        ], f"{missing}; its first losses differ"
    unit, near = candidate.unit, rounding_errors.ALWAYS_ALLOWED * reference.unit
    decided = True
    for kind, errors in numeric_checks.relative_errors(candidate.own, reference.own, 1).items():
        size = max(errors) if kind == numeric_checks.WORDS else rounding_errors.root_mean_square(errors)
        likely, gross = (
            (max(rounding_errors.ALWAYS_ALLOWED * unit, near), GROSS * unit)
            if kind != numeric_checks.WORDS
            else (0, np.inf)
        )
        checks.append(Check(kind, size, near, likely if size <= likely else gross))
        decided &= size <= likely
    return checks, "" if decided and len(checks) else missing


def _result(result: str, check: Check, why: str, work: str) -> Numerics:
    return Numerics(result, check.quantity, check.difference, check.tolerance, why, work)


def _find_fewer_parameters(reference: NumericSide, candidate: NumericSide) -> str:
    """Say that the candidate has or uses another number of parameters; empty if it does not, or if that is unknown."""
    if reference.parameters and candidate.parameters and reference.parameters != candidate.parameters:
        return f"{reference.parameters:,} parameters became {candidate.parameters:,}"
    used = [side.own["used_parameters"] if side.own else None for side in (reference, candidate)]
    # In fp16 small gradients become 0.
    if None in used or used[0] == used[1] or "fp16" in (reference.precision, candidate.precision):
        return ""
    return f"{used[0]:,} parameters with a gradient became {used[1]:,}"


def describe_work(reference: NumericSide, candidate: NumericSide) -> str:
    """Describe in words how the work of a step differs, counted in double precision; empty if it does not."""
    return "; ".join(_differing_work(reference, candidate))


def _differing_work(reference: NumericSide, candidate: NumericSide) -> Iterator[str]:
    sides = (reference, candidate)
    if reference.parameters != candidate.parameters:
        yield f"parameters {reference.parameters:,} -> {candidate.parameters:,}"
    used: Sequence[int | None] = [side.exact["used_parameters"] if side.exact else None for side in sides]
    if None not in used and used[0] != used[1]:
        yield f"parameters with a gradient {used[0]:,} -> {used[1]:,}"
    # Per sample of the data, as batches may differ.
    for name, counts in (
        ("operations", [side.double.get("operations") for side in sides]),
        ("operator calls", [side.double.get("operators") for side in sides]),
    ):
        if None in counts or (name != "operations" and reference.batch != candidate.batch):
            continue
        one, other = ((count or 0) / max(side.batch, 1) for count, side in zip(counts, sides, strict=True))
        if abs(one - other) > 0.01 * max(one, other):
            yield f"{name} {'per sample ' if name == 'operations' else ''}{one:.4g} -> {other:.4g}"


# Declares and fills the columns that say whether two sides compute the same, and says what follows from them.

COLUMNS: Mapping[str, Column] = {
    "numerics": Column(
        TEXT, "Whether the candidate computes what the unchanged side computes: `same`, `within precision` (as far "
        "off as its number format explains), `different` or `undecided`."),
    "numerics_by": Column(TEXT, "Quantity that decided `numerics`: the one that is farthest off for its tolerance."),
    "numerics_difference": Column(
        NUMBER.or_missing, "Difference of this quantity, relative to the exact one.", "ratio", "time"),
    "numerics_tolerance": Column(NUMBER.or_missing, "Largest such difference that rounding explains.", "ratio", "time"),
    "numerics_why": Column(TEXT, "Why `numerics` is `different` or `undecided`, or what limits another result."),
    "seed_spread": Column(
        NUMBER.or_missing, "Standard deviation of the unchanged side's loss between seeds after as many steps, "
        "relative to the loss.", "ratio", "time"),
    "work": Column(TEXT, "What differs in the work of a step, as counted in double precision."),
}  # fmt: skip
# Values of what was not compared.
UNKNOWN: Mapping[str, Any] = {name: "" if column.kind is TEXT else np.nan for name, column in COLUMNS.items()}
# What a result of the check of numerics says, in words.
WORDS = {
    SAME: "computes the same",
    WITHIN: "computes the same within precision",
    DIFFERENT: "computes something else",
    UNDECIDED: "undecided whether it computes the same",
}


def compare_sides(reference: NumericSide, candidate: NumericSide) -> dict[str, Any]:
    """Return the columns of a candidate against a reference side."""
    found = compare_numbers(reference, candidate)
    return {
        "numerics": found.result,
        "numerics_by": found.quantity,
        "numerics_difference": found.difference,
        "numerics_tolerance": found.tolerance if np.isfinite(found.tolerance) else np.nan,
        "numerics_why": found.why,
        "seed_spread": measure_seed_spread(reference),
        "work": found.work,
    }


def measure_seed_spread(side: NumericSide) -> float:
    """Return the relative standard deviation of a side's loss between seeds, after the most steps that all ran."""
    seeds = [list(losses) for losses in side.double.get("seed_losses", []) if losses]
    own = side.own["losses"] if side.own else []
    step = min(map(len, [own, *seeds]), default=0) - 1
    if not seeds or step < 0 or not own[step]:
        return float("nan")
    losses = [float(run[step] or np.nan) for run in [own, *seeds]]
    return float(np.std(losses, ddof=1) / abs(losses[0]))


def temper_outcome(outcome: str, result: str) -> str:
    """Return the outcome of a comparison of times: what computes something else is not called faster.

    >>> temper_outcome("faster", "different"), temper_outcome("slower", "different"), temper_outcome("faster", "same")
    ('different', 'slower', 'faster')
    """
    return DIFFERENT if (outcome, result) == (speedup.FASTER, DIFFERENT) else outcome


def describe_numerics(row: Mapping[str, Any]) -> str:
    """Describe in a few words whether two sides compute the same; row: of a table of comparisons or trials."""
    if not row["numerics"]:
        return ""
    word = WORDS[row["numerics"]]
    reasons = "; ".join(filter(None, [row["numerics_why"], row["work"]]))
    return f"{word} ({reasons})" if reasons else word
