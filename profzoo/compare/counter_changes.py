"""Compares the counters of two sides: what changed in bytes, operations, hit rates and occupancy, and where.

Both sides are estimated, as another run of each would count (kernels/group_estimates.py). A difference is `changed` if
it is larger than the margin, the 90 % intervals of both sides are apart, and chance explains it in few cases: of all
rows that are called changed, on average at most 5 % are not (Benjamini and Hochberg 1995). It is `same` if it is within
the margin, whether there is a difference or not (two one-sided tests of each row, Schuirmann 1987). Otherwise it is
`undecided`.
"""

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.compare import dictionary
from profzoo.compare.contributions import APPEARED, SIDES, VANISHED
from profzoo.compare.counter_quantities import COMPARED, EIGHT_BIT_METRICS, PERCENT
from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.kernels.group_estimates import COUNTED, ERROR, FREEDOM, GroupEstimates
from profzoo.tools.ncu.estimates import interval_half_width
from profzoo.tools.ncu.quantity import Kind
from profzoo.tools.ncu.strata import Window

CHANGED, SAME, UNDECIDED = "changed", "same", "undecided"
CELL_LEVEL, CLASS_LEVEL, LAYER_LEVEL, KERNEL_LEVEL, OWNED_LEVEL = LEVELS = (
    "cell", "class", "layer", "kernel", "layer kernel"
)  # fmt: skip
# Columns of launches by which each level groups them, with the columns of the table that hold their values.
GROUPS: Mapping[str, Mapping[str, str]] = {
    CELL_LEVEL: {"whole": "name"},
    CLASS_LEVEL: {"class": "name"},
    LAYER_LEVEL: {"direction": "range", "module": "name"},
    KERNEL_LEVEL: {"range": "range", "kernel": "name"},
    OWNED_LEVEL: {"direction": "range", "module": "name", "function": "kernel"},
}
IDENTITY = ["level", "range", "name", "kernel", "quantity"]
NUMBERS = [f"{side}{end}" for side in SIDES for end in ("_value", "_value_low", "_value_high")]
COLUMNS = {
    **dict.fromkeys(["model", "phase", *SIDES, *IDENTITY], column_types.TEXT),
    "unit": column_types.TEXT,
    **dict.fromkeys(NUMBERS, column_types.or_missing(column_types.AMOUNT)),
    **dict.fromkeys(["delta", "delta_share"], column_types.or_missing(column_types.NUMBER)),
    **dict.fromkeys([f"{side}_launches" for side in SIDES], column_types.AMOUNT),
    "p_different": column_types.or_missing(column_types.NUMBER),
    **dict.fromkeys(["outcome", "change"], column_types.TEXT),
}
COUNTERS_TABLE = Table(columns=COLUMNS, key=["model", "phase", *SIDES, *IDENTITY], about=dictionary.COUNTERS)
# Part of the names of NVIDIA's metrics.
METRIC, OF_TENSOR_CORES = "__", "sm__ops_path_tensor_"
NOT_ALL = "not all launches were counted"
# Share of the launches that has to be counted for a decision; rate of wrong rows among those called changed, and among
# differences of the margin's size those called same.
LEAST_COUNTED, FALSE_RATE = 0.999, 0.05


@dataclass(frozen=True)
class CountedCell:
    """A cell on one side.

    launches: all launches of ncu's window, in order, with `kernel`, `function`, `class` and `range`, and with `module`
    and `direction` if torch attributed them. sets: rows of the cell's ncu.{set}.csv. per: what sums are divided by:
    steps of the window, times data samples per step if the sides have different numbers of them.
    """

    launches: pd.DataFrame
    sets: Sequence[pd.DataFrame]
    per: float = 1.0

    @functools.cached_property
    def _estimates(self) -> list[GroupEstimates]:
        window = Window(self.launches.assign(whole=""))
        return [GroupEstimates(table, window, COMPARED) for table in self.sets]

    def estimate(self, level: str) -> pd.DataFrame:
        """Return launches and quantities of each group of a level, by the first set that has a quantity."""
        found = pd.DataFrame()
        for estimates in self._estimates:
            one = estimates.by(list(GROUPS[level]))
            found = one if found.empty else found.join(one[[name for name in one if name not in found]])
        return found

    def has(self, level: str) -> bool:
        """Return whether the launches have the columns of a level."""
        return {*GROUPS[level]} <= {*self.launches.columns, "whole"}


def compare_counters(baseline: CountedCell, candidate: CountedCell, margin: float) -> pd.DataFrame:
    """Return COLUMNS without names of cell and sides and without outcomes; no rows if a side has no counters.

    Sums are per step, or per sample. `delta_share` is the part of the whole cell's sum on the reference side; of rates
    it is empty. Differences of rates are in points, and margins of rates too: 2 points if `margin` is 2 %.
    """
    sides = dict(zip(SIDES, _with_common_metrics(baseline, _named_alike(baseline, candidate)), strict=True))
    frames = []
    for level in LEVELS:
        if all(side.has(level) for side in sides.values()):
            found = {name: side.estimate(level) for name, side in sides.items()}
            if not any(frame.empty for frame in found.values()):
                frames.append(_compare_level(level, found, {name: side.per for name, side in sides.items()}, margin))
    if not frames:
        return pd.DataFrame(columns=[*COLUMNS, "p_equivalent"])
    whole = pd.concat(frames, ignore_index=True)
    total = whole[whole["level"] == CELL_LEVEL].set_index("quantity")["baseline_value"]
    sums = whole["unit"] != PERCENT
    whole["delta_share"] = (whole["delta"] / whole["quantity"].map(total.where(total > 0))).where(sums)
    order = {name: place for place, name in enumerate(COMPARED)}
    places = whole.assign(_level=whole["level"].map(LEVELS.index), _quantity=whole["quantity"].map(order),
                          _size=-whole["delta"].abs())  # fmt: skip
    return places.sort_values(["_level", "_quantity", "_size", "range", "name", "kernel"], kind="stable")[
        [name for name in (*COLUMNS, "p_equivalent", "beyond", "apart") if name in whole]
    ].reset_index(drop=True)


def _named_alike(baseline: CountedCell, candidate: CountedCell) -> CountedCell:
    """Return the candidate with the reference side's names of kernels, which nsys and ncu print in two ways."""
    names = baseline.launches.drop_duplicates("mangled").set_index("mangled")["kernel"]
    own = candidate.launches
    return replace(candidate, launches=own.assign(kernel=own["mangled"].map(names).fillna(own["kernel"])))


def _with_common_metrics(*sides: CountedCell) -> list[CountedCell]:
    """Return the sides with the metrics that all of them have.

    Where only one has the metric by which a mean is weighted, the means would differ, though the launches do not. Sums
    that the sides have by other metrics, as of another GPU, stay. Products in 8 bits are counted in cells of their
    precision alone; other cells have none.
    """
    counted = EIGHT_BIT_METRICS & {name for side in sides for table in side.sets for name in table}
    sides = tuple(replace(side, sets=[_without_products(table, counted) for table in side.sets]) for side in sides)
    common = set.intersection(*({name for table in side.sets for name in table} for side in sides))
    sums = [one.sums for one in COMPARED.values() if one.kind is Kind.SUM]
    by_others = [parts for parts in sums if not any({*part.factors} <= common for part in parts)]
    kept = common | {name for parts in by_others for part in parts for name in part.factors}
    lacked = {name for side in sides for table in side.sets for name in table if METRIC in name} - kept
    return [replace(side, sets=[table.drop(columns=lacked & {*table}) for table in side.sets]) for side in sides]


def _without_products(table: pd.DataFrame, metrics: Set[str]) -> pd.DataFrame:
    """Return the table with zeros in these metrics of tensor cores where it counts others, but not these."""
    if not any(name.startswith(OF_TENSOR_CORES) for name in table):
        return table
    return table.assign(**dict.fromkeys(sorted(metrics - {*table}), 0.0))


def _compare_level(
    level: str, found: Mapping[str, pd.DataFrame], per: Mapping[str, float], margin: float
) -> pd.DataFrame:
    """Return the rows of one level, one per group and quantity that both sides have."""
    index = found["baseline"].index.union(found["candidate"].index, sort=False)
    both = {side: frame.reindex(index) for side, frame in found.items()}
    there = {side: frame["launches"].notna() for side, frame in both.items()}
    groups = index.to_frame(index=False).rename(columns=GROUPS[level])
    frames = []
    for name, quantity in COMPARED.items():
        if not all(name in frame for frame in found.values()):
            continue
        rate = quantity.unit == PERCENT
        sides = {side: _values(frame, name, 1.0 if rate else per[side], 0.0 if not rate else np.nan)
                 for side, frame in both.items()}  # fmt: skip
        rows = _differences(sides, margin * 100 if rate else None, margin)
        rows = pd.concat([groups, rows], axis=1).assign(level=level, quantity=name, unit=quantity.unit)
        for side in SIDES:
            rows[f"{side}_launches"] = (both[side]["launches"].fillna(0.0) / per[side]).to_numpy()
        lacking = [both[side][COUNTED] / both[side]["launches"] < LEAST_COUNTED for side in SIDES]
        rows["change"] = np.select(
            [~there["baseline"], ~there["candidate"], lacking[0] | lacking[1]], [APPEARED, VANISHED, NOT_ALL], ""
        )
        kept = rows[[f"{side}_value" for side in SIDES]].notna().all(axis=1)
        frames.append(rows[kept])
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))
    return whole.assign(**{name: "" for name in ("range", "name", "kernel") if name not in whole})


def _values(frame: pd.DataFrame, name: str, per: float, absent: float) -> pd.DataFrame:
    """Return value, error and degrees of freedom of a quantity; absent: value of groups that a side does not have."""
    found = pd.DataFrame({"value": frame[name] / per, "error": frame[f"{name}{ERROR}"] / per,
                          "freedom": frame[f"{name}{FREEDOM}"]})  # fmt: skip
    missing = frame["launches"].isna()
    found.loc[missing, ["value", "error", "freedom"]] = [absent, 0.0, np.inf]
    return found.reset_index(drop=True)


def _differences(sides: Mapping[str, pd.DataFrame], points: float | None, margin: float) -> pd.DataFrame:
    """Return values with the ends of their intervals, and what decides about a difference.

    Columns besides values: `delta`; `p_different`, `p_equivalent`, the probabilities of Welch's t-test and of the two
    one-sided tests; `beyond`, whether the difference is larger than the margin; `apart`, whether the intervals are.

    points: margin of rates in percentage points; None for sums, whose margin is relative.
    """
    from scipy import special  # type: ignore[import-untyped]

    one, other = (sides[side] for side in SIDES)
    rows = {}
    for side, given in sides.items():
        half = interval_half_width(given["error"].to_numpy(), given["freedom"].to_numpy())
        rows[f"{side}_value"] = given["value"]
        rows[f"{side}_value_low"] = (given["value"] - half).clip(lower=0)
        rows[f"{side}_value_high"] = given["value"] + half
    delta = other["value"] - one["value"]
    allowed = pd.Series(points, delta.index) if points is not None else margin * one["value"]
    variances = [given["error"] ** 2 for given in (one, other)]
    error = np.sqrt(variances[0] + variances[1])
    squares = sum(part**2 / given["freedom"].clip(lower=2) for part, given in zip(variances, (one, other), strict=True))
    freedom = (error**4 / squares.where(squares > 0)).clip(upper=1e6).fillna(1e6)
    certain = error <= 0
    # Without an error, as of what neither side does, values are equal or not.
    scaled = delta.abs() / error.where(~certain, 1.0)
    different = (2 * special.stdtr(freedom, -scaled)).where(~certain, (delta == 0).astype("float64"))
    nearest = (delta.abs() - allowed) / error.where(~certain, 1.0)
    equivalent = pd.Series(special.stdtr(freedom, nearest), delta.index)
    equivalent = equivalent.where(~certain, (delta.abs() > allowed).astype("float64"))
    low, high = ([rows[f"{side}_value_{end}"] for side in SIDES] for end in ("low", "high"))
    apart = (low[0] > high[1]) | (low[1] > high[0])
    return pd.DataFrame({**rows, "delta": delta, "p_different": different, "p_equivalent": equivalent,
                         "beyond": delta.abs() > allowed, "apart": apart})  # fmt: skip


def decide_changes(rows: pd.DataFrame) -> pd.Series:
    """Return the outcome of each row: CHANGED, SAME or UNDECIDED.

    rows: of all cells that are compared with each other, as compare_counters returns them.
    """
    if rows.empty:
        return pd.Series(dtype="str")
    from scipy import stats

    unlike = stats.false_discovery_control(rows["p_different"].clip(0, 1).to_numpy()) <= FALSE_RATE
    alike = rows["p_equivalent"] <= FALSE_RATE
    whole = rows["change"] != NOT_ALL
    changed = unlike & rows["beyond"] & rows["apart"] & whole
    found = np.select([changed, alike & whole], [CHANGED, SAME], UNDECIDED)
    return pd.Series(found, rows.index, dtype="str")
