"""Compares the counters of two sides: what changed in bytes, operations, hit rates and occupancy, and where.

Both sides are estimated, as another run of each would count (kernels/counters.py). A difference is `changed` if
it is larger than the margin, the 90 % intervals of both sides are apart, and chance explains it in few cases: of all
rows that are called changed, on average at most 5 % are not (Benjamini and Hochberg 1995). It is `same` if it is within
the margin, whether there is a difference or not (two one-sided tests of each row, Schuirmann 1987). Otherwise it is
`undecided`.
"""

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.compare import comparison_table
from profzoo.compare.contributions import APPEARED, PARTS_TABLE, SIDES, VANISHED
from profzoo.compare.counter_quantities import COMPARED, EIGHT_BIT_METRICS, PERCENT, WORDS
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, NINE_OF_TEN, NUMBER, TEXT, Column, select, with_interval
from profzoo.io.common_columns import COMPARED_CELL
from profzoo.io.csv_tables import Row, Table
from profzoo.io.scripts import write_csv
from profzoo.kernels import kernel_classes, short_names
from profzoo.kernels.counters import COUNTED as COUNTERS_COUNTED
from profzoo.kernels.counters import ERROR, GROUP_FREEDOM, GroupEstimates
from profzoo.launches import joined_step
from profzoo.tables.cell_tables import cell_of
from profzoo.tables.schemas import CELL
from profzoo.tools.ncu import estimates, export_schema
from profzoo.tools.ncu.estimates import GPU_TIME, Window, interval_half_width
from profzoo.tools.ncu.quantities import Kind
from profzoo.tools.torch import owners

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
_VALUE = "See `unit`; sums are per step, or per sample where the sides have batches of different sizes."
COUNTERS_TABLE = Table(
    columns={
        **COMPARED_CELL,
        "level": Column(
            TEXT, "`cell` (all kernels), `class` (of kernels), `layer`, `kernel`, or `layer kernel` (one kernel in "
            "one layer)."),
        **select(PARTS_TABLE.columns, "range"),
        "name": Column(TEXT, "Name of the class, layer or kernel; empty for the cell."),
        "kernel": Column(TEXT, "Function of the kernel at level `layer kernel`; else empty."),
        "quantity": Column(TEXT, "What is compared, such as `dram_bytes`, `l2_hit_pct` or `occupancy_pct`."),
        "unit": Column(TEXT, "Unit of the values: `byte`, `flop` or `%`."),
        **with_interval("baseline_value", Column(
            AMOUNT.or_missing, f"Value on the reference side. {_VALUE}", "see unit", "ncu", interval=NINE_OF_TEN)),
        **with_interval("candidate_value", Column(
            AMOUNT.or_missing, f"The same of the candidate. {_VALUE}", "see unit", "ncu", interval=NINE_OF_TEN)),
        "delta": Column(
            NUMBER.or_missing, "`candidate_value` less `baseline_value`; of rates in percentage points.",
            "see unit", "ncu"),
        "delta_share": Column(
            NUMBER.or_missing, "`delta` over the whole cell's sum on the reference side; empty for rates.",
            "ratio", "ncu"),
        **select(PARTS_TABLE.columns, "baseline_launches", "candidate_launches", kind=AMOUNT, tool="ncu"),
        "p_different": Column(
            NUMBER.or_missing, "p-value of a difference as large as this, if there is none (Welch's t).", "fraction"),
        "outcome": Column(
            TEXT, "`changed` (beyond the margin, and more than chance explains), `same` (within the margin) or "
            "`undecided`."),
        "change": Column(
            TEXT, "`appeared` or `vanished` if one side alone has the layer or kernel; or why there is no decision."),
    },
    key=["model", "phase", *SIDES, *IDENTITY],
)  # fmt: skip
COLUMNS = [*COUNTERS_TABLE.columns]
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
        for groups in self._estimates:
            one = groups.by(list(GROUPS[level]))
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
        lacking = [both[side][COUNTERS_COUNTED] / both[side]["launches"] < LEAST_COUNTED for side in SIDES]
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
                          "freedom": frame[f"{name}{GROUP_FREEDOM}"]})  # fmt: skip
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


# Says in lines what counters changed between two sides, and how to collect them where there are none.

# How many layers, or kernels, are named per quantity at most.
SHOWN = 2
PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}
# The settings with which a comparison, or the run that made a folder of results, counts.
COLLECT = "tool=ncu,nsys,torch ncu='{set: survey}'"
NONE = (
    "counters: not on both sides, so bytes, operations, hit rates and occupancy are not compared; to collect them, "
    f"compare with {COLLECT}, and for a side that is a folder, measure with it"
)
PARTLY = (
    "not all launches were counted on both sides: sums are of those that were, and nothing is decided of the whole; "
    "a larger ncu.budget, or ncu.launches: all, counts more"
)


def format_counters(row: Row, table: pd.DataFrame) -> list[str]:
    """Return lines on the counters of a compared cell: the whole cell, then where the largest changes are.

    row: the cell's row of the table of comparisons. table: the table of counters.
    """
    keys = [*CELL, *SIDES]
    mine = table[(table[keys] == [row[key] for key in keys]).all(axis=1)]
    if mine.empty:
        return []
    whole = mine[mine["level"] == CELL_LEVEL].to_dict("records")
    said = ["      counters: " + ", ".join(_format_value(one) for one in whole)]
    if any(one["change"] == NOT_ALL for one in whole):
        said.append(f"      {PARTLY}")
    names = short_kernel_names(mine)
    for level in (LAYER_LEVEL, KERNEL_LEVEL):
        changed = mine[(mine["level"] == level) & (mine["outcome"] == CHANGED)]
        most = changed.groupby("quantity", sort=False).head(SHOWN)
        said += [f"      changed {level} {line}" for line in _format_changes(most, names)]
    return said


def short_kernel_names(rows: pd.DataFrame) -> dict[str, str]:
    """Return short names of the kernels in rows of the table of counters."""
    return short_names.shorten_names(rows.loc[rows["level"] == KERNEL_LEVEL, "name"].unique())


def format_amount(value: float, unit: str) -> str:
    """Format bytes, operations or a rate, with three digits.

    >>> format_amount(2.5e9, "byte"), format_amount(4.2e9, "flop"), format_amount(61.24, "%")
    ('2.5 GB', '4.2 Gflop', '61.2 %')
    """
    if unit == PERCENT:
        return f"{value:.1f} %"
    suffix = "B" if unit == "byte" else unit
    found = next(((prefix, size) for prefix, size in PREFIXES.items() if value >= size), None)
    return f"{value:.0f} {suffix}" if found is None else f"{value / found[1]:.3g} {found[0]}{suffix}"


def _format_value(row: Row) -> str:
    one, other = (format_amount(row[f"{side}_value"], row["unit"]) for side in SIDES)
    return f"{WORDS[row['quantity']]} {one} -> {other} ({row['outcome']})"


def _format_changes(rows: pd.DataFrame, names: Mapping[str, str]) -> list[str]:
    """Return a line per layer or kernel, with all of its changes; names: short names of kernels."""
    found: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        place = f"{row['range']} {names.get(row['name'], row['name'])}".strip()
        place += f" ({row['change']})" if row["change"] else ""
        found.setdefault(place, []).append(f"{WORDS[row['quantity']]} {format_delta(row)}")
    return [f"{place}: {', '.join(changes)}" for place, changes in found.items()]


def format_delta(row: Row) -> str:
    """Format a difference with its sign; of rates in points."""
    sign = "-" if row["delta"] < 0 else "+"
    amount = format_amount(abs(row["delta"]), row["unit"])
    return sign + (amount.replace(" %", " points") if row["unit"] == PERCENT else amount)


# Reads what ncu counted of a cell on one side of a comparison, from the files of its folder as they are.

# Of the sidecar of ncu's launches: the file with all launches of the window, and the number of its steps.
NEEDS: fact.Needs = {"cell": {"window?": fact.SEVERAL}, "census?": fact.TEXT}
# Names of a cell's files after the phase: launches of the default section set, and launches of torch with their owners.
COUNTED, OWNED = ".ncu.csv", ".torch.launches.csv"


def read_counted_cell(counted: str | Path, items: float = 1.0) -> CountedCell | None:
    """Return what ncu counted of a cell; None if its section set has none of the compared counters.

    Launches have layers if torch attributed them on this side.

    counted: path of the cell's launches under ncu; the census and torch's launches lie beside it. items: data samples
    per step, by which sums are divided if the sides have different numbers of them.
    """
    path = Path(counted)
    if "mangled" not in reading.rows(path)[0]:
        # The section set measures ranges, which are not launches.
        return None
    table, facts = reading.read(path, export_schema.TABLE), sidecars.read_sidecar(f"{path}.json", NEEDS)
    named = facts.get("census")
    census = path.with_name(named) if named else None
    if census is not None and not census.exists():
        raise DataError(f"{path} needs {census.name} beside it, in which all launches of the step are: copy that too")
    if estimates.derive_quantities(table, COMPARED).columns.empty or (census is None and GPU_TIME not in table):
        return None
    launches = export_schema.read_census(census) if census else table.sort_values("id", kind="stable")
    launches = launches.reset_index(drop=True)
    steps = facts["cell"].get("window", 1)
    owned = path.with_name(path.name.replace(COUNTED, OWNED))
    if owned.exists():
        launches = _with_owners(launches, [table], steps, owned)
    classes = kernel_classes.classify_all(launches["kernel"].unique())
    named = launches.assign(**{"class": launches["kernel"].map(classes), "range": launches["range"].fillna("")})
    return CountedCell(named, [table], steps * items)


def _with_owners(launches: pd.DataFrame, sets: list[pd.DataFrame], steps: int, owned: Path) -> pd.DataFrame:
    """Return the launches with `module` and `direction`, by the launches that torch attributed."""
    joined = joined_step.join_ncu_launches(launches, steps, sets, reading.read(owned, owners.TABLE), None).launches
    return launches.assign(module=joined["module"].to_numpy(), direction=joined["direction"].to_numpy())


# Makes the table of a comparison's counters, from files of both sides that exist already.

Cell = tuple[str, str]


def tabulate_counters(compared: pd.DataFrame, seen: Mapping[str, Mapping[Cell, str]]) -> pd.DataFrame:
    """Return the rows of all comparisons, columns counter_changes.COLUMNS; none of cells without counters on a side.

    compared: the table of comparisons. seen: for each side, the path of each cell's launches under ncu.
    """
    frames = []
    for row in compared.to_dict("records"):
        cell = (row["model"], row["phase"])
        paths = [seen.get(row[side], {}).get(cell) for side in SIDES]
        if None in paths:
            continue
        per_sample = row["per"] == comparison_table.SAMPLE
        sides = [
            read_counted_cell(str(path), row[f"{side}_items"] if per_sample else 1.0)
            for path, side in zip(paths, SIDES, strict=True)
        ]
        if sides[0] is None or sides[1] is None:
            continue
        found = compare_counters(sides[0], sides[1], row["margin"])
        frames.append(found.assign(**{name: row[name] for name in (*CELL, *SIDES)}))
    if not frames:
        return COUNTERS_TABLE.empty()
    whole = pd.concat(frames, ignore_index=True)
    return whole.assign(outcome=decide_changes(whole))[list(COLUMNS)]


def write_counter_table(compared: str, files: Mapping[str, Sequence[str]], csv: str) -> None:
    """Read the table of comparisons and ncu's launches of each side; write the table of counters.

    files: paths of the cells' launches under ncu, by side.
    """
    seen: dict[str, dict[Cell, str]] = {}
    for side, paths in files.items():
        for path in paths:
            model, phase = cell_of(path).values()
            seen.setdefault(side, {})[model.partition("@")[0], phase] = path
    table = reading.read(compared, comparison_table.COMPARISON_TABLE)
    write_csv(tabulate_counters(table, seen), csv)
