"""Says whether two sides of a comparison compute the same: by losses, gradients, outputs and work of their first steps.

1. In double precision both sides have to agree, as far as they draw equal random numbers: then they compute the same.
2. What each measured run computed is compared with double precision. The errors of the reference side, which counts as
   right, tell how far rounding goes. Those of the candidate may be larger by the ratio of the units of rounding.
3. Losses of later steps may be off as far as the reference side's errors have grown by then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from profzoo.compare import numeric_checks
from profzoo.compare.numeric_check import Check
from profzoo.compare.numeric_sides import NumericSide

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
    why = numeric_checks.find_obstacle(reference, candidate)
    checks: list[Check] = []
    if not why:
        checks, why = numeric_checks.check_sides(reference, candidate)
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
    nearest = max(checks, key=lambda check: check.excess)
    same = all(check.difference <= check.same for check in checks)
    notes = "; ".join(dict.fromkeys(check.note for check in checks if check.note))
    return _result(SAME if same else WITHIN, nearest, notes, work)


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
