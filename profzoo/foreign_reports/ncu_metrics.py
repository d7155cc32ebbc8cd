"""Reads metrics of launches from the tables that ncu printed: plain numbers in base units, under ncu's own names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports.ncu_text import KERNEL, METRIC, PRINT_AGAIN, UNIT, VALUE, PrintedTable
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu.number_parsing import (
    LISTS,
    ValueFormatError,
    base_unit,
    find_foreign_number,
    normalize_column,
)

SECTION = "Section Name"
# What tells launches; other columns of a long form are metrics, advice, or of the process.
OF_LAUNCH = ("ID", "Process ID", "Process Name", "Host Name", KERNEL, "Context", "Stream", "Block Size", "Grid Size",
             "Device", "CC")  # fmt: skip
# Also of versions before 2022, and of ranges.
NO_METRICS = (*OF_LAUNCH, "Kernel Time", SECTION, METRIC, UNIT, VALUE, "Rule Name", "Rule Type", "Rule Description",
              "Estimated Speedup Type", "Estimated Speedup")  # fmt: skip
# Metrics by their names on the details page, by section where one name means several things.
NAMED: Mapping[str, str] = {
    "Duration": "gpu__time_duration.sum",
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Threads": "launch__thread_count",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "# SMs": "launch__sm_count",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "SM [%]": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
}
# Numbers of these are percentages; the same name in another unit is something else.
PERCENTAGES = ("DRAM Throughput", "Compute (SM) Throughput", "L2 Hit Rate", "Achieved Occupancy")
# What ncu prints where a metric has no value, and often no unit.
NO_VALUES = ("", "n/a", "nan", "no data", "(!) n/a", "(!) nan")
UNKNOWN_SIZE = "(0, 0, 0)"
DIMENSIONS = {"Grid Size": "launch__grid_dim_{}", "Block Size": "launch__block_dim_{}"}


@dataclass(frozen=True)
class Launches:
    """Launches of one file in order: a row each, `OF_LAUNCH` and metrics as text; base units; what is left out, why."""

    table: pd.DataFrame
    units: Mapping[str, str]
    left_out: list[str] = field(default_factory=list)


def read_launches(path: str | Path, tables: Sequence[PrintedTable]) -> Launches:
    """Return the launches that the tables of one file hold.

    Raises:
        DataError: numbers are of another locale.
    """
    found = [_of_long(path, table) if table.long else _of_raw(path, table) for table in tables]
    first, *others = found
    for other in others:
        first = join(first, other)
    return first


def join(one: Launches, other: Launches) -> Launches:
    """Return the launches of both: side by side where they are the same ones, else one after the other."""
    same = ["Kernel Name", "Grid Size", "Block Size"]
    left, right = one.table, other.table
    units = {**other.units, **one.units}
    left_out = list(dict.fromkeys([*one.left_out, *other.left_out]))
    if len(left) == len(right) and left[same].reset_index(drop=True).equals(right[same].reset_index(drop=True)):
        new = [name for name in right if name not in left]
        return Launches(pd.concat([left, right[new]], axis=1), units, left_out)
    table = pd.concat([left, right], ignore_index=True).fillna("")
    table["ID"] = [str(number) for number in range(len(table))]
    return Launches(table, units, left_out)


def _of_raw(path: str | Path, table: PrintedTable) -> Launches:
    """Return the launches of a raw page, a row a launch."""
    frame = _frame(path, table.heading, table.rows)
    units = dict(zip(table.heading, table.units, strict=True)) if table.units else {}
    names = [name for name in frame if name not in NO_METRICS and "Range:" not in name]
    if foreign := find_foreign_number(value for name in names if name not in LISTS for value in frame[name].unique()):
        raise DataError(f"{path} holds {foreign!r}, a number of another locale: {PRINT_AGAIN} under LC_ALL=C")
    return _normalised(path, frame, {name: [(units.get(name, ""), frame.index)] for name in names})


def _of_long(path: str | Path, table: PrintedTable) -> Launches:
    """Return the launches of a table with a row per metric, such as a details page."""
    frame = _frame(path, table.heading, table.rows)
    missing = [name for name in (UNIT, VALUE) if name not in frame]
    if VALUE in missing:
        raise DataError(f"{path} has no column {VALUE}: {PRINT_AGAIN}")
    if foreign := find_foreign_number(frame.loc[frame[METRIC] != "", VALUE].unique()):
        raise DataError(f"{path} holds {foreign!r}, a number of another locale: {PRINT_AGAIN} under LC_ALL=C")
    frame = frame.assign(**dict.fromkeys(missing, ""))
    ids = [name for name in OF_LAUNCH if name in frame]
    launches = frame.drop_duplicates("ID")[ids].reset_index(drop=True)
    places = {number: place for place, number in enumerate(launches["ID"])}
    told_of = (frame[METRIC] != "") & ~frame[VALUE].str.lower().isin(NO_VALUES)
    rows = frame[told_of].assign(place=frame["ID"].map(places))
    rows = rows.assign(metric=[metric_name(*row) for row in zip(rows[METRIC], rows[UNIT], strict=True)])
    rows = rows[rows["metric"] != ""].drop_duplicates(["place", "metric"])
    told: dict[str, list[tuple[str, pd.Index]]] = {}
    columns = {}
    for name, own in rows.groupby("metric", sort=False):
        column = pd.Series("", index=launches.index)
        column.iloc[own["place"].to_numpy()] = own[VALUE].to_numpy()
        columns[str(name)] = column
        told[str(name)] = [(str(unit), pd.Index(part["place"])) for unit, part in own.groupby(UNIT, sort=False)]
    return _normalised(path, pd.concat([launches, pd.DataFrame(columns)], axis=1), told)


def metric_name(name: str, unit: str) -> str:
    """Return ncu's own name of a metric of a details page; empty for those that have none here.

    >>> metric_name("Duration", "us"), metric_name("DRAM Throughput", "Gbyte/s"), metric_name("dram__bytes.sum", "byte")
    ('gpu__time_duration.sum', '', 'dram__bytes.sum')
    """
    if "__" in name:
        return name
    if name in PERCENTAGES and unit not in ("%", "pct", "percent"):
        return ""
    return NAMED.get(name, "")


def _frame(path: str | Path, heading: Sequence[str], rows: Iterable[Sequence[str]]) -> pd.DataFrame:
    if len(set(heading)) < len(heading):
        name = next(name for place, name in enumerate(heading) if name in heading[:place])
        raise DataError(f"{path} has two columns {name!r}: {PRINT_AGAIN}")
    return pd.DataFrame([list(row) for row in rows], columns=list(heading), dtype="str")


def _normalised(
    path: str | Path, frame: pd.DataFrame, printed: Mapping[str, Sequence[tuple[str, pd.Index]]]
) -> Launches:
    """Return launches with plain numbers in base units.

    printed: by metric, the units that are printed, each with the rows that have it.
    """
    table, units, left_out = frame.copy(), dict[str, str](), list[str]()
    for name, groups in printed.items():
        column = table[name].copy()
        try:
            for unit, rows in groups:
                own, base = normalize_column(name, table.loc[rows, name], unit)
                _require_unit(name, unit, base)
                if units.setdefault(name, base) != base:
                    raise ValueFormatError(f"is in {units[name]} and in {base}")
                if name in ncu.SHARED_MEMORY and base_unit(unit)[1] != 1 and not _round(own):
                    raise ValueFormatError(f"is in {unit}, to which it was rounded")
                column.loc[rows] = own
        except ValueFormatError as error:
            units.pop(name, None)
            table = table.drop(columns=name)
            left_out.append(f"the metric {name} is left out: it {error}")
            continue
        table[name] = column
    table = _sized(table)
    if (table["Grid Size"] == UNKNOWN_SIZE).any():
        left_out.append("some launches lack sizes of grid and block, which are 0 in tables: names tell them apart")
    return Launches(table, {name: unit for name, unit in units.items() if unit}, left_out)


def _require_unit(name: str, unit: str, base: str) -> None:
    """Raise ValueFormatError for times and bytes in no unit of theirs, as what is printed may be a multiple."""
    if (name.startswith("gpu__time_duration") and "pct" not in name and base != "ns") or ("bytes" in name and not base):
        raise ValueFormatError(f"is in {unit!r}, which is no unit of it" if unit else "is printed without its unit")


def _round(values: pd.Series) -> bool:
    """Whether all are 0, which rounding does not change."""
    return all(not value or float(value) == 0 for value in values)


def _sized(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with sizes of grid and block as ncu prints them, of metrics where there are no columns."""
    for column, metric in DIMENSIONS.items():
        names = [metric.format(axis) for axis in "xyz"]
        if column in table:
            # Such as [128,1,1], or 128,1,1.
            parts = table[column].str.findall(r"\d+")
        elif set(names) <= set(table):
            parts = pd.Series(table[names].to_numpy().tolist(), index=table.index)
        else:
            parts = pd.Series([[]] * len(table), index=table.index)
        table[column] = [f"({', '.join(one)})" if len(one) == 3 and all(one) else UNKNOWN_SIZE for one in parts]
    table = table.assign(**{name: "" for name in OF_LAUNCH if name not in table})
    return table.assign(Stream=table["Stream"].where(table["Stream"].str.fullmatch(r"\d+"), "0"))
