"""Checks that two sides of a comparison compute the same, by what is known of their numbers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from profzoo.cell.process_count import count_samples
from profzoo.statistics import rounding_errors
from profzoo.statistics.rounding_errors import FALSE_ALARMS, LOOSE, ROUNDED

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import DoubleNumbers, OutputSample, ProcessFacts, Sidecar, StepNumbers


# Takes from sidecars what a side of a comparison computed in its first steps, in its own and in double precision.

# Outputs of whole numbers, such as words, are equal or not.
SCALARS, BUFFERS = "losses and gradient norms", "norms of buffers"
OUTPUTS, WORDS = "outputs", "whole-number outputs"
LOSS, GRADIENT = "loss", "gradient norm"


@dataclass(frozen=True)
class NumericSide:
    """What one side computed.

    own: the first process's first steps; None where nothing was recorded. double: the same in double precision, with
    `why` where it is missing. precision: format of its products. batch: samples of a step. first_losses:
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

    @property
    def unit(self) -> float:
        """Unit of rounding of its products."""
        return rounding_errors.unit_of_rounding(self.precision)


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
        batch=count_samples({"ran_with": cell, **facts}) if facts.get("batch") else 0,
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
    series: dict[str, Pairs] = {LOSS: list(zip(found["losses"], right["losses"], strict=False))}
    for mine, exact in zip(found["gradient_norms"], right["gradient_norms"], strict=False):
        for number, pair in enumerate(zip(mine, exact, strict=False)):
            series.setdefault(GRADIENT + (f" of update {number + 1}" if number else ""), []).append(pair)
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
    def allowed(self) -> float:
        """What the difference is within, if it is within anything."""
        return self.same if self.difference <= self.same else self.tolerance

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
NOT_ROUNDED = "steps of the reference side were not repeated with rounded weights, which tell how far updates may go"
# Where outputs are selected or sorted, as boxes of a detector are, rounding may exchange so many of them.
EXCHANGED_SHARE = 0.1


def check_rounding(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check the measured steps against double precision, where both sides drew the same random numbers.

    Returns:
        The checks, and why they do not decide alone; the reason is empty if they do.
    """
    reference = _settle_draws(reference)
    assert reference.own and candidate.own and reference.exact
    checks = [*_check_words(reference, candidate), *_check_outputs(reference, candidate)]
    checks += check_repeats(reference, candidate)
    stepped = list(_check_rounded_steps(reference, candidate))
    if any(check.quantity == _describe_place(LOSS, 0) for check in stepped):
        return [*checks, *stepped], ""
    # Before weights are updated: updates may multiply small errors, as Adam's do where gradients are almost 0.
    known, found = (relative_errors(side.own, reference.exact, 1) for side in (reference, candidate) if side.own)
    for kind in (SCALARS, BUFFERS):
        if kind in known and kind in found:
            limits = _scaled_limits(reference, candidate, known[kind], len(found[kind]))
            checks.append(_check_all(kind, found[kind], *limits))
    return checks, NOT_ROUNDED if reference.exact["losses"] else ""


def _settle_draws(reference: NumericSide) -> NumericSide:
    """Return the reference side with its own steps as the exact ones, if double precision drew other random numbers.

    A GPU draws other ones for other types.
    """
    assert reference.own and reference.exact
    off = loss_errors(reference.own["losses"][:1], reference.exact["losses"][:1])
    near = rounding_errors.ALWAYS_ALLOWED * reference.unit
    if not reference.double.get("random") or max(off, default=0.0) <= near:
        return reference
    return replace(reference, double={**reference.double, "steps": reference.own})


def _scaled_limits(
    reference: NumericSide, candidate: NumericSide, known: Sequence[float], count: int
) -> tuple[float, float]:
    """Return the tolerances for `count` errors in the precisions of both sides, by known ones of the reference side."""
    one, other = (
        rounding_errors.error_tolerance(known, count, side.precision, reference.precision)
        for side in (reference, candidate)
    )
    return one, other


def _check_outputs(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks of outputs of the first steps, and of the last step, where both sides have errors."""
    assert reference.own and candidate.own and reference.exact
    sides = reference.own, candidate.own, *_roundings(reference, candidate)
    own, found, *runs = (relative_errors(one, reference.exact, 1).get(OUTPUTS, []) for one in sides)
    if not own:
        return
    # Words beside numbers say that what lies there may have been selected.
    selected = any(one["rms"] is None for step in reference.exact["outputs"] for one in step)
    check = _check_selected if selected else _check_all
    runs = [_keep_nearest(run) if selected else run for run in runs if run]
    if found:
        yield check(OUTPUTS, found, *_output_limits(reference, candidate, own, runs, len(found)))
    if reference.own["last_outputs"] and reference.steps == candidate.steps:
        errors, _ = output_errors(candidate.own["last_outputs"], reference.own["last_outputs"])
        if errors:
            limits = _output_limits(reference, candidate, own, runs, len(errors))
            yield check("outputs of the last step", errors, *(limit * 2**0.5 for limit in limits))


def _output_limits(
    reference: NumericSide, candidate: NumericSide, own: Sequence[float], runs: Sequence[Sequence[float]], count: int
) -> tuple[float, float]:
    """Return tolerances for outputs; own, runs: errors of the reference side, and of each rounding of it."""
    same, tolerance = _scaled_limits(reference, candidate, own, count)
    if not runs:
        return same, tolerance
    squares = [rounding_errors.root_mean_square(run) ** 2 for run in runs]
    scale = max(np.sqrt(np.mean(squares)) * _coarseness(reference, candidate), rounding_errors.root_mean_square(own))
    tolerance = max(float(scale) * rounding_errors.repeated_factor(count, list(map(len, runs))), candidate.unit)
    return (tolerance if candidate.unit <= reference.unit else min(same, tolerance)), tolerance


def _check_all(quantity: str, errors: Sequence[float], same: float, tolerance: float) -> Check:
    return Check(quantity, rounding_errors.root_mean_square(errors), same, tolerance)


def _check_selected(quantity: str, errors: Sequence[float], same: float, tolerance: float) -> Check:
    """Check outputs beside which there are whole numbers, such as labels: what lies there may have been selected.

    If all numbers together are farther off than the tolerance, a small share that is farthest off does not count.
    """
    whole = _check_all(quantity, errors, same, tolerance)
    if whole.difference <= whole.tolerance:
        return whole
    kept = _keep_nearest(errors)
    beyond = sum(error > tolerance for error in errors)
    note = f"{beyond} of {len(errors)} numbers in outputs differ by more, as if rounding had selected or sorted others"
    return Check(quantity, rounding_errors.root_mean_square(kept), same, tolerance, note=note)


def _keep_nearest(errors: Sequence[float]) -> list[float]:
    """Return the errors without the share of the largest ones that may be exchanged."""
    return sorted(errors)[: len(errors) - int(EXCHANGED_SHARE * len(errors))]


def _check_words(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield a check of outputs that are whole numbers, if they are all equal; rounding may choose other ones."""
    assert reference.own and candidate.own
    words = relative_errors(candidate.own, reference.own, STEPS).get(WORDS)
    if words and not any(words):
        yield Check(WORDS, 0.0, 0.0, 0.0)


def check_redrawn(reference: NumericSide, candidate: NumericSide) -> Check | None:
    """Check the loss of step 0 against losses with other random numbers, if the candidate drew other ones.

    None if it drew those of double precision, or of the reference side: a GPU may draw other ones for other types.
    """
    assert reference.own and candidate.own and reference.exact
    if not reference.double.get("random") or not reference.exact["losses"] or not candidate.own["losses"]:
        return None
    exact, own = cast(float, reference.exact["losses"][0]), candidate.own["losses"][0]
    near = rounding_errors.ALWAYS_ALLOWED * candidate.unit * abs(exact)
    known = [one for one in (exact, reference.own["losses"][0]) if one is not None]
    alike = _draw_alike(reference.own.get("draws", []), candidate.own.get("draws", []))
    # Of coarse numbers, those of other draws may be near by chance.
    close = alike is None or _rounded_format(reference, candidate) == "fp32"
    if own is None or alike or (close and any(abs(own - one) <= near for one in known)):
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


def _draw_alike(one: Sequence[int], other: Sequence[int]) -> bool | None:
    """Return whether two sides drew as many random numbers from the same beginning; None if that is not known."""
    return all(mine == its for mine, its in zip(one, other, strict=False)) if one and other else None


def _relative_offsets(reference: NumericSide, candidate: NumericSide) -> list[float]:
    """Return by how much the candidate's losses exceed the exact ones in the first steps, relative to these."""
    assert reference.exact and candidate.own
    pairs = zip(candidate.own["losses"], reference.exact["losses"], strict=False)
    return [(own - exact) / abs(exact) for own, exact in pairs if own is not None and exact][:OFFSETS]


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


# Checks of losses, gradients and updates by several roundings of the same network.

PARTS, MOVEMENT = "gradient norm of part", "movement of weights"
# First steps of a quantity that have to be compared. The others share the false alarms of one check.
NEEDED = {LOSS: 2, GRADIENT: 1, BUFFERS: 1}
# Of how far a quantity moves, rounding may change so much in each step through the updates of weights: few of them turn
# with the sign of a gradient that is almost 0, so that few roundings may have none.
UPDATE_SHARE = 0.01


def _roundings(reference: NumericSide, candidate: NumericSide) -> "Sequence[StepNumbers]":
    """Return the reference side's roundings to a format like that of the coarser side."""
    return reference.double.get("roundings", {}).get(_rounded_format(reference, candidate), [])


def _rounded_format(*sides: NumericSide) -> str:
    return "fp32" if all(side.precision == "fp32" for side in sides) else ROUNDED


def _coarseness(*sides: NumericSide) -> float:
    """Return how much larger errors of the coarsest of these sides are than those of the roundings."""
    return max(side.unit for side in sides) / rounding_errors.unit_of_rounding(_rounded_format(*sides))


def _scale_errors(name: str, steps: int, coarseness: float) -> np.ndarray:
    """Return how much larger errors of a quantity are in each step, in a column, than those of the roundings.

    Before an update, a loss is a continuous function of what is rounded, and its errors are proportional to the unit of
    rounding. Gradients have jumps where an activation begins, as have updates by the signs of gradients. How many such
    places are passed is proportional to the unit, and their sum to its root, if each has a sign of its own.
    """
    jumping = np.arange(steps) >= (1 if name in (LOSS, BUFFERS) else 0)
    return np.where(jumping, max(coarseness, coarseness**0.5), coarseness)[:, None]


def _moved_shares(name: str, right: "StepNumbers", steps: int) -> np.ndarray:
    """Return how much the updates of weights may change a quantity in each step, in a column, relative to it.

    Gradients and updates have a direction, so that they move by their size; losses and buffers by what they are apart.
    """
    updates = np.arange(steps) + (1 if name == MOVEMENT else 0)
    series = {LOSS: right["losses"], BUFFERS: right["buffer_norms"]}.get(name)
    if series is None:
        return UPDATE_SHARE * updates[:, None]
    values = np.array([np.nan if value is None else value for value in series[:steps]])
    moved = np.fmax.accumulate(np.abs(values - values[0])) / np.where(values == 0, np.inf, np.abs(values))
    return (UPDATE_SHARE * updates * np.nan_to_num(moved))[:, None]


def _error_tables(found: "StepNumbers", right: "StepNumbers") -> dict[str, np.ndarray]:
    """Return relative errors by quantity, of steps in rows and parts of the network in columns."""
    series = paired_series(found, right)
    series[MOVEMENT] = list(zip(found.get("movements", []), right.get("movements", []), strict=False))
    tables = {name: np.array(sizes_of_errors(pairs))[:, None] for name, pairs in series.items()}
    parts = list(zip(found.get("gradient_parts", []), right.get("gradient_parts", []), strict=False))
    if len({len(one) for step in parts for one in step}) == 1:
        tables[PARTS] = np.array([sizes_of_errors(list(zip(*step, strict=True))) for step in parts])
    return {name: table for name, table in tables.items() if table.size}


def _check_rounded_steps(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks of losses, gradients, buffers and updates by errors that roundings had until the same step.

    Beyond what is needed, nothing is compared that rounding makes uncertain: later steps, and parts in which gradients
    are almost 0.
    """
    assert reference.own and candidate.own and reference.exact
    own = _error_tables(reference.own, reference.exact)
    runs = [_error_tables(one, reference.exact) for one in _roundings(reference, candidate)]
    # A scaler of gradients may have left out updates of which the gradients were not noted.
    scaled = "fp16" in (reference.precision, candidate.precision)
    last = len(candidate.own["gradient_norms"]) + 1 if scaled else None
    for name, found in _error_tables(candidate.own, reference.exact).items():
        known = [one[name] for one in [own, *runs] if name in one and one[name].shape[1:] == found.shape[1:]]
        if len(known) <= len(runs) or not runs:
            continue
        steps = min(map(len, [found[:last], *known]))
        known, needed = [one[:steps] for one in known], NEEDED.get(name, 0)
        same, tolerance = _limit_table(name, known[0], known[1:], (reference, candidate))
        checks = [
            Check(
                _describe_place(name, step, part, found.shape[1]),
                float(found[step, part]), float(same[step, part]), float(tolerance[step, part])
            )
            for step, part in np.argwhere(np.isfinite(found[:steps]) & np.isfinite(tolerance)).tolist()
        ]  # fmt: skip
        yield from checks[:needed]
        if close := [check for check in checks[needed:] if check.tolerance <= LOOSE]:
            yield max(close, key=lambda check: check.excess)


def _describe_place(name: str, step: int, part: int = 0, parts: int = 1) -> str:
    return f"{name}{f' {part + 1} of {parts}' if parts > 1 else ''} of step {step}"


def _limit_table(
    name: str, own: np.ndarray, runs: Sequence[np.ndarray], sides: tuple[NumericSide, NumericSide]
) -> tuple[np.ndarray, np.ndarray]:
    """Return tolerances of a quantity in the precisions of both sides, of steps in rows and parts in columns.

    Args:
        name: the quantity.
        own: errors of the reference side.
        runs: those of its roundings.
        sides: the reference side and the candidate.
    """
    reference, candidate = sides
    needed, steps = NEEDED.get(name, 0), len(own)
    # Of the same format, the reference side is one rounding more, unless the others are compared with it.
    alike = reference.precision == _rounded_format(*sides)
    table = np.array([*runs, own] if alike and reference.exact is not reference.own else runs)
    scale = np.sqrt(np.mean(table**2, axis=0)) * _scale_errors(name, steps, _coarseness(*sides))
    # Errors of a finer format that are as large say that they do not go by the unit of rounding.
    scale = np.maximum.accumulate(scale if alike else np.maximum(scale, own), axis=0)
    rates = FALSE_ALARMS, FALSE_ALARMS / max(own.size - needed, 1)
    margin = rounding_errors.ALWAYS_ALLOWED if _rounded_format(*sides) == "fp32" else 1
    factors = [margin * rounding_errors.repeated_factor(1, [1] * len(table), rate) for rate in rates]
    rows = np.array([factors[step >= needed] for step in range(steps)])[:, None]
    moved = _moved_shares(name, cast("StepNumbers", reference.exact), steps)
    tolerance = np.maximum(scale * rows, np.maximum(moved, margin * candidate.unit))
    if candidate.unit <= reference.unit:
        return tolerance, tolerance
    # Until each step, as far as the errors of the reference side are known.
    same = [_scaled_limits(reference, candidate, own[: step + 1][np.isfinite(own[: step + 1])].tolist() or [0.0], 1)[0]
            for step in range(steps)]  # fmt: skip
    return np.minimum(tolerance, np.maximum(np.array(same)[:, None], moved)), tolerance


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
    checks += _check_later_double(reference, candidate)
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


def _check_later_double(reference: NumericSide, candidate: NumericSide) -> Iterator[Check]:
    """Yield checks of later losses; where parts compute in single precision, they may be as far off as those steps."""
    right, found = cast("StepNumbers", reference.exact), cast("StepNumbers", candidate.exact)
    finer = rounding_errors.unit_of_rounding("fp32") / reference.unit
    known = loss_errors(cast("StepNumbers", reference.own)["losses"], right["losses"])
    grown = np.maximum.accumulate(known) * min(finer, 1.0) * rounding_errors.ALWAYS_ALLOWED
    for step, (error, limit) in enumerate(zip(loss_errors(found["losses"], right["losses"]), grown, strict=False)):
        tolerance = max(float(limit), LEAST_DOUBLE)
        if step >= STEPS and tolerance <= LOOSE:
            yield Check(f"loss of step {step} {IN_DOUBLE}", error, tolerance, tolerance)


def _double_tolerance(reference: NumericSide) -> float:
    """Return the largest difference in double precision that is not one of the computation."""
    right = cast("StepNumbers", reference.exact)
    errors = relative_errors(cast("StepNumbers", reference.own), right, STEPS)
    own = [rounding_errors.root_mean_square(some) for kind, some in errors.items() if kind != WORDS]
    return min(max([LEAST_DOUBLE, *own]), MOST_DOUBLE)


def _begin_differently(right: "StepNumbers", found: "StepNumbers") -> bool:
    one, other = right["weight_norm"], found["weight_norm"]
    return one is not None and other is not None and abs(one - other) > WEIGHTS_TOLERANCE * abs(one)
