"""Checks what a candidate computes by what the reference computes for the same inputs, also in double precision."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profzoo.compare import numeric_checks
from profzoo.compare.numeric_checks import Check
from profzoo.errors import ConfigError
from profzoo.referee.exchange import REFERENCE, Asked, DifferentError, is_number
from profzoo.statistics import rounding_errors

# Errors of one check that are kept of the reference.
KEPT = 1 << 14
# Whole numbers in results of which rounding may exchange so many, beyond three times as many as in the reference.
EXCHANGED = 1e-3
# The largest error of a result may be so many times as large as the reference's.
LARGEST = 10.0


class ResultChecks:
    """Checks of results, and what they found; results: what those of a step are like, once it is known."""

    def __init__(self, precision: str, trains: bool) -> None:
        """precision: as declared. trains: whether results are losses and weights, in place of outputs."""
        self._precision, self._trains = precision, trains
        self.results: list[dict[str, Any]] = []
        self.checks: list[Check] = []
        self._errors: dict[int, list[np.ndarray]] = {}
        # How much of weights, relative to them, updates by gradients that are almost 0 may change.
        self._turning: dict[int, float] = {}

    def note_movement(
        self, asked: Sequence[Asked], before: Sequence[np.ndarray], after: Sequence[np.ndarray], steps: int
    ) -> None:
        """Note how far steps of the reference moved weights: few updates may turn with the last digit of a gradient."""
        for one, begin, end in zip(asked, before, after, strict=True):
            if scale := _size(end):
                self._turning[one.leaf] = numeric_checks.UPDATE_SHARE * steps * _size(end - begin) / scale

    def learn(self, asked: Sequence[Asked], mine: Sequence[np.ndarray], exact: Mapping[int, np.ndarray]) -> None:
        """Note errors of the reference."""
        for at, right in exact.items():
            if right.dtype == np.float64 and (scale := _size(right)):
                errors = np.abs(mine[at] - right).ravel() / scale
                self._errors.setdefault(asked[at].leaf, []).append(errors[:KEPT])

    def _known(self, leaf: int) -> np.ndarray:
        return np.concatenate(self._errors[leaf]) if leaf in self._errors else np.zeros(1)

    def compare(
        self, asked: Sequence[Asked], mine: Sequence[np.ndarray], its: Sequence[np.ndarray],
        exact: Mapping[int, np.ndarray] | None, probe: str = "",
    ) -> None:  # fmt: skip
        """Compare results of both sides with each other, and with those in double precision where these are known."""
        if exact and not probe:
            self.learn(asked, mine, exact)
        for at, one in enumerate(asked):
            what = self._describe(one.leaf, probe)
            if not np.isfinite(its[at]).all():
                if not np.isfinite(mine[at]).all():
                    raise ConfigError(f"the reference's {what} are not finite: judge it with other sizes")
                raise DifferentError(f"the candidate: its {what} are not finite")
            for check in self._check_values(one.leaf, what, mine[at], its[at], (exact or {}).get(at)):
                self._note(check)

    def _allow(self, leaf: int, own: np.ndarray | None, count: int) -> float:
        """Return the root mean square of errors that rounding explains; own: the reference's for the same inputs."""
        several = [self._known(leaf), *([] if own is None else [own])]
        allowed = [
            rounding_errors.error_tolerance(errors.tolist(), count, self._precision, self._precision)
            for errors in several
        ]
        return max([*allowed, self._turning.get(leaf, 0.0)])

    def _check_values(
        self, leaf: int, what: str, mine: np.ndarray, its: np.ndarray, right: np.ndarray | None
    ) -> Sequence[Check]:
        if mine.dtype == np.int64:
            share = float((mine != its).mean())
            known = 0.0 if right is None else float((mine != right).mean())
            tolerance = max(3 * known, EXCHANGED)
            return [Check(what, share, tolerance, tolerance)]
        errors = self._known(leaf)
        if rounding_errors.root_mean_square(errors.tolist()) > rounding_errors.LOOSE:
            return []
        scale = _size(mine if right is None else right)
        if not scale:
            return [Check(what, float((its != mine).mean()), 0.0, 0.0)]
        own = None if right is None else np.abs(mine - right).ravel() / scale
        allowed = self._allow(leaf, own, its.size)
        apart = _size(its - mine) / scale
        # How far rounding grows in a training depends on its inputs.
        between = allowed * (LARGEST if self._trains and right is None else 2**0.5)
        found = [Check(f"{what} of both sides", apart, between, between)]
        if right is not None and own is not None:
            found.append(Check(what, _size(its - right) / scale, allowed, allowed))
            if not self._trains and all(map(is_number, self.results)):
                most = LARGEST * max(float(errors.max()), float(own.max()), allowed)
                found.append(Check(f"the largest of {what}", float(np.abs(its - right).max()) / scale, most, most))
        return found

    def compare_double(self, asked: Sequence[Asked], given: Mapping[str, list[np.ndarray]], probe: str) -> None:
        """Compare both sides in double precision, where a part that is left out shows however small it is."""
        several = (given[name] for name in (REFERENCE, "exact", "double"))
        for one, mine, right, its in zip(asked, *several, strict=True):
            scale, what = _size(right), f"{self._describe(one.leaf, probe)} {numeric_checks.IN_DOUBLE}"
            if right.dtype == np.int64 or not np.isfinite(right).all() or not scale:
                continue
            known = rounding_errors.root_mean_square(self._known(one.leaf).tolist())
            own = max(known, _size(mine - right) / scale)
            errors = np.abs(its - right).ravel() / scale
            least = max(numeric_checks.LEAST_DOUBLE, own)
            if self._trains:
                # Updates by the sign of a gradient that is almost 0 turn with the last digit.
                if own < rounding_errors.LOOSE:
                    self._note(Check(what, rounding_errors.root_mean_square(errors.tolist()), least, least))
            else:
                least = min(least, numeric_checks.MOST_DOUBLE)
                self._note(Check(what, float(errors.max()), least, least))

    def _note(self, check: Check) -> None:
        if not check.difference <= check.tolerance:
            raise DifferentError(f"the candidate: {check.describe()}")
        self.checks.append(check)

    def _describe(self, leaf: int, probe: str = "") -> str:
        several = f" {leaf + 1} of {len(self.results)}" if len(self.results) > 1 and not self._trains else ""
        name = (f"weights {leaf}" if leaf else "losses") if self._trains else f"outputs{several}"
        return f"{name} for inputs of {probe}" if probe else name

    def explain_unchecked(self) -> str:
        """Say why results could not be compared, where the reference itself is too far off; empty if they could."""
        off = [rounding_errors.root_mean_square(self._known(leaf).tolist()) for leaf in self._errors]
        if not off or min(off) <= rounding_errors.LOOSE:
            return ""
        return f"the reference differs by {min(off):.2g} from itself in double precision"


def _size(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.dtype == np.float64 and values.size else 0.0
