"""Estimates sums and mean rates of counters over groups of launches, with the errors by which two runs are compared.

Every value gets a standard error, also where ncu profiled all launches: the bytes of one launch vary from run to run
(tools/ncu/estimates.py). The error of a rate, such as a hit rate, follows from those of its numerator and denominator,
taken as independent (delta method; Cochran, Sampling Techniques, 1977, 6.3). Both vary together, so it is rather too
large than too small.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from profzoo.kernels.counters import Quantities, is_weighed
from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates
from profzoo.tools.ncu.quantity import Kind
from profzoo.tools.ncu.strata import Window

ERROR, FREEDOM, COUNTED = "_error", "_freedom", "counted"
# Standard deviation of one launch between runs of the same program on one machine, relative, beyond what estimates.py
# assumes of all counters. Measured on launches of MobileNetV2's training and U-Net's inference that two runs counted
# (tests/data/launches/twice.csv.gz); those of BERT, which were not looked at, vary by less.
RUN_TO_RUN: Mapping[str, float] = {"l2_bytes": 0.01}
# Numerators of rates vary between launches as DRAM bytes do, by which their names choose the guess (estimates.py).
_PART, _WEIGHT = "dram part of ", "dram weight of "


class GroupEstimates:
    """Estimates of a section set's quantities, for any groups of the window's launches."""

    def __init__(self, table: pd.DataFrame, window: Window, known: Quantities) -> None:
        """Derive the quantities of the profiled launches.

        Args:
            table: rows of an ncu.{set}.csv.
            window: all launches of the window.
            known: the quantities, by name.
        """
        self.window = window
        rows, places = _sampled(table, window.launches)
        self.places = places
        values = derived_metrics.derive_quantities(rows, known)
        # Metrics without a value in some launches would leave their whole group without one.
        values = values[[name for name in values if values[name].notna().all()]]
        times = rows[GPU_TIME] if GPU_TIME in rows else pd.Series(np.nan, rows.index)
        of_census = pd.Series(window.launches[GPU_TIME].to_numpy(dtype=float)[places], rows.index)
        parts, weights = derived_metrics.split_into_sums(rows, values, times.astype("float64").fillna(of_census), known)
        self.summed = values[[name for name in values if known[name].kind is Kind.SUM]].astype("float64")
        self.rates = list(parts)
        self.sums = self.summed.join(parts.add_prefix(_PART)).join(weights.add_prefix(_WEIGHT))
        # A set without multiplicities and without every launch estimates nothing.
        self.estimates = None if rows.empty or values.empty else Estimates(window, places, self.sums)
        self.whole = len(rows) == len(window.launches)

    def by(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return one row per group of launches, indexed by the columns of the census that define the groups.

        Columns: `launches`; COUNTED, those that profiled launches stand for; and for each quantity that was collected
        its sum, or its mean if it is a rate, with its standard error (`_error`) and degrees of freedom (`_freedom`).
        There are no rows if the set has neither multiplicities nor every launch.
        """
        if self.estimates is None:
            return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=list(columns)))
        keys = self.window.launches[list(columns)].astype("object").fillna("")
        groups = keys.groupby(list(columns), sort=False).ngroup().to_numpy()
        totals = self.estimates.totals(groups)
        if self.whole:
            # What each launch did is known then, so that launches do not stand for others like them.
            own = self.sums.groupby(groups[self.places]).sum()
            totals = totals.assign(**{name: own[name] for name in own}, launches=np.bincount(groups))
        found = pd.DataFrame({"launches": np.bincount(groups), COUNTED: totals["launches"]})
        squares = self.estimates.sums(self.summed**2, groups)
        for name in self.summed:
            between = RUN_TO_RUN.get(name, 0.0) * squares[name] ** 0.5
            found[name], found[f"{name}{ERROR}"] = totals[name], np.hypot(totals[f"{name}_se"], between)
            found[f"{name}{FREEDOM}"] = totals[f"{name}_freedom"]
        for name in self.rates:
            found = found.join(_rates(totals, name))
        found.index = pd.MultiIndex.from_frame(keys.drop_duplicates())
        return found


def _sampled(table: pd.DataFrame, launches: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the profiled rows and their positions in the census; no rows if those are unknown."""
    if is_weighed(table):
        rows = table[table["launch"].notna()]
        return rows, rows["launch"].to_numpy(dtype=int)
    if len(table) == len(launches):
        return table.sort_values("id", kind="stable"), np.arange(len(launches))
    return table.iloc[:0], np.arange(0)


def _rates(totals: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return mean, error and degrees of freedom of a rate, from the sums of its numerator and denominator."""
    part, weight = totals[f"{_PART}{name}"], totals[f"{_WEIGHT}{name}"]
    errors = [totals[f"{prefix}{name}_se"] for prefix in (_PART, _WEIGHT)]
    rate = part / weight.where(weight > 0)
    relative = np.hypot(errors[0] / part.where(part > 0), errors[1] / weight.where(weight > 0))
    freedom = totals[[f"{prefix}{name}_freedom" for prefix in (_PART, _WEIGHT)]].min(axis=1)
    return pd.DataFrame({name: rate, f"{name}{ERROR}": (rate * relative).fillna(0.0), f"{name}{FREEDOM}": freedom})
