"""Converts reports of Nsight Compute made elsewhere to what profzoo's own jobs leave: pages, details, sidecar."""

import csv
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import sidecars
from profzoo.foreign_reports.ncu_text import KERNEL, METRIC, PRINT_AGAIN, UNIT, VALUE, PrintedTable, find_tables
from profzoo.io import csv_tables
from profzoo.io.scripts import write_json
from profzoo.kernels.kernel_classes import demangle
from profzoo.tools.kernel_signature import function_path, template_arguments
from profzoo.tools.ncu import TOOL, raw_page
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu.command import SHARED_MEMORY as COMMAND_SHARED_MEMORY
from profzoo.tools.ncu.export import ENDING
from profzoo.tools.ncu.quantities import GPU_TIME
from profzoo.tools.ncu.raw_page import (
    LISTS,
    ValueFormatError,
    base_unit,
    find_foreign_number,
    function_name,
    normalize_column,
)
from profzoo.tools.ncu.report_pages import print_page
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.events import launches as nsys_launches
from profzoo.tools.nsys.events.trace import KERNEL_TABLE, open_trace

# Matches names of kernels of several tools: mangled, demangled by NVIDIA or by libstdc++, or the function alone.

# Casts that NVIDIA's demangler writes before numbers, and suffixes of libstdc++'s.
CASTS = re.compile(r"\((?:bool|(?:signed |unsigned )?(?:char|short|int|long))\)(?=-?\d)")
SUFFIXES = re.compile(r"(?<=\d)(?:ul|u|l)\b")


def match_names(printed: Iterable[str], traced: Mapping[str, str]) -> dict[str, str]:
    """Return, by name as printed, the name that a trace knows the kernel by; names without a match are left out.

    traced: by the trace's own identity of a kernel (its mangled name, where it has one), its demangled name.
    """
    exact = {shown: own for own, shown in traced.items()} | {own: own for own in traced}
    plain: dict[str, set[str]] = {}
    functions: dict[str, set[str]] = {}
    for own, shown in traced.items():
        plain.setdefault(plain_name(shown), set()).add(own)
        functions.setdefault(function_name(shown), set()).add(own)
    found = {}
    for name in dict.fromkeys(printed):
        alike = plain.get(plain_name(name)) or (functions.get(name) if function_name(name) == name else None) or set()
        if name in exact:
            found[name] = exact[name]
        elif len(alike) == 1:
            found[name] = next(iter(alike))
    return found


def plain_name(name: str) -> str:
    """Return the function and template arguments of a kernel, without what demanglers write differently.

    NVIDIA's writes types of numbers, ncu leaves out namespaces, and parameters stand as types or as `T1`.

    >>> plain_name("void at::native::<unnamed>::f<(int)4, (bool)0, c10::Half>(T1 *)")
    'f<4,0,Half>'
    >>> plain_name("void at::f<4, false, c10::Half>(c10::Half*)")
    'f<4,0,Half>'
    """
    text = SUFFIXES.sub("", CASTS.sub("", demangle(name)))
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    arguments = re.sub(r"(?:\w+|<unnamed>|\(anonymous namespace\))::", "", template_arguments(text))
    plain = "".join(arguments.split())
    return f"{function_path(text).rpartition('::')[2]}<{plain}>"


# Reads what a trace of nsys knows of the kernels whose counters ncu reports: their names and shared memory.

SHARED_MEMORY = ["smem_static_bytes", "smem_dynamic_bytes"]
GEOMETRY = [name for name in nsys_launches.CONFIGURATION if name not in (*SHARED_MEMORY, "registers")]


def read_names(traced: str) -> dict[str, str]:
    """Return the demangled names of kernels by their identity in a trace, or in a table of launches."""
    if traced.endswith(".csv"):
        table = csv_tables.read(traced, nsys_tables.TABLE)
        return dict(zip(table["mangled"], table["kernel"], strict=True))
    with open_trace(traced) as trace:
        return {own or shown: shown for own, shown, _ in trace.kernel_names.values()}


def read_shared_memory(traced: str) -> dict[tuple[str | int, ...], tuple[int, int]]:
    """Return static and dynamic shared memory by kernel, grid and block, where a trace has one of each alone.

    A table of launches, of which nsys writes no shared memory, gives none.
    """
    if traced.endswith(".csv"):
        return {}
    with open_trace(traced) as trace:
        if KERNEL_TABLE not in trace.tables:
            return {}
        names = trace.kernel_names
        launches = trace.launches
    launches = launches[launches["graph"] < 0]
    columns = nsys_launches.unpack_configurations(launches)
    numbers = next(values for name, values in columns.items() if name == "mangled")
    frame = pd.DataFrame({name: columns[name] for name in (*GEOMETRY, *SHARED_MEMORY)})
    frame.insert(0, "mangled", [names[number][0] or names[number][1] for number in np.asarray(numbers).tolist()])
    frame = frame.drop_duplicates()
    frame = frame[~frame.duplicated(["mangled", *GEOMETRY], keep=False)]
    keys = zip(*(frame[name].tolist() for name in ("mangled", *GEOMETRY)), strict=True)
    return dict(zip(keys, zip(*(frame[name].tolist() for name in SHARED_MEMORY), strict=True), strict=True))


# Reads metrics of launches from the tables that ncu printed: plain numbers in base units, under ncu's own names.

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
        first = join_metrics(first, other)
    return first


def join_metrics(one: Launches, other: Launches) -> Launches:
    """Return the launches of both: side by side where they are the same ones, else one after the other.

    Two processes may launch the same kernels: what has no further metric is of launches of its own.
    """
    same = ["Kernel Name", "Grid Size", "Block Size"]
    left, right = one.table, other.table
    units = {**other.units, **one.units}
    left_out = list(dict.fromkeys([*one.left_out, *other.left_out]))
    if len(left) == len(right) and left[same].reset_index(drop=True).equals(right[same].reset_index(drop=True)):
        new = [name for name in right if name not in left]
        if not new and not left["Process ID"].reset_index(drop=True).equals(right["Process ID"].reset_index(drop=True)):
            return _behind(left, right, units, left_out)
        return Launches(pd.concat([left, right[new]], axis=1), units, left_out)
    return _behind(left, right, units, left_out)


def _behind(left: pd.DataFrame, right: pd.DataFrame, units: Mapping[str, str], left_out: list[str]) -> Launches:
    """Return the launches one after the other, numbered from 0 on."""
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
        raise ValueFormatError(f"is in {unit!r}, which is not a unit of it" if unit else "is printed without its unit")


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


REPORT = ".ncu-rep"
PAGES = {"raw": ["--page", "raw", "--print-units", "base", "--print-kernel-base", "demangled"],
         "details": ["--page", "details"]}  # fmt: skip
# The number of a launch before some were left out.
FORMER = "former ID"
# What tells how long a launch took as well, and the clocks of GPUs in GHz, with room.
CYCLES, CLOCKS = ("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max"), (0.01, 10.0)
NAME, CAPABILITY = "device__attribute_display_name", "CC"
NO_TIME = (
    "no launch has a duration (gpu__time_duration.sum), so that nothing can be added up: collect it, or give a report "
    "of nsys as well"
)
DETAILS = ["ID", KERNEL, "Section Name", METRIC, UNIT, VALUE, *raw_page.ADVICE]


def main(
    paths: Sequence[str], model: str, traced: str | None, outputs: Mapping[str, str],
    say: Callable[[str], object] = print,
) -> None:  # fmt: skip
    """Read reports or printed pages; write the folder of `pages`, the page of `details` and `sidecar`.

    traced: export of nsys of the same program, or table of its launches, whose names of kernels are taken.

    Raises:
        DataError: a file cannot be used, or no launch has a duration and nothing else times them.
    """
    launches, details, files = None, list[tuple[PrintedTable, Mapping[str, str]]](), []
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(paths):
            tables, form = _tables(path, Path(folder) / str(number))
            read, numbers = _numbered(read_launches(path, tables))
            launches = read if launches is None else join_metrics(launches, read)
            details += [(table, numbers) for table in tables if "Rule Name" in table.heading] if not number else []
            files.append(sidecars.file_facts(path, form))
    assert launches is not None
    # Launches may be left out below, and are numbered anew then.
    launches = replace(launches, table=launches.table.assign(**{FORMER: launches.table["ID"]}))
    launches, impossible = _possible(launches, paths[0])
    launches, untimed = _timed(launches) if not traced else (launches, [])
    times = _times(launches)
    if not times.sum() and not traced:
        why = next((f"; {line}" for line in launches.left_out if "time_duration" in line), "")
        raise DataError(f"{paths[0]}: {NO_TIME}{why}")
    named = _named(launches, traced)
    launches, placed = _placed(launches, traced)
    coverage = [*launches.left_out, *impossible, *untimed, *named, *placed]
    pages = Path(outputs["pages"])
    pages.mkdir()
    for ending, column in ((ENDING, "mangled"), (".demangled.csv", KERNEL)):
        _write_page(launches, column, pages / f"imported{ending}")
    _write_details(_kept_numbers(details, launches), Path(outputs["details"]))
    write_json(_facts(model, launches, times, files, coverage), outputs["sidecar"])
    for line in (f"{len(launches.table):,} launches", *coverage):
        say(f"{', '.join(paths)}: {line}")


def _tables(path: str, folder: Path) -> tuple[list[PrintedTable], str]:
    """Return the tables of a file, which are printed of a report, and what the file is."""
    sidecars.refuse_other_tool(path, TOOL)
    if not path.removesuffix(".gz").endswith(REPORT):
        tables = find_tables(path)
        return tables, "details or metrics of ncu as CSV" if tables[0].long else "raw page of ncu as CSV"
    folder.mkdir()
    report = sidecars.unpack_report(path, folder)
    found = []
    for page, words in PAGES.items():
        printed = folder / f"{page}.csv"
        try:
            printed.write_text(print_page(report, words), encoding="utf-8")
        except DataError as error:
            # Not that of the unpacked copy.
            raise DataError(str(error).replace(report, path)) from error
        found += find_tables(printed)
    return found, "report of Nsight Compute"


def _numbered(launches: Launches) -> tuple[Launches, dict[str, str]]:
    """Return launches numbered from 0 on, and the new number of each."""
    numbers = {number: str(place) for place, number in enumerate(launches.table["ID"])}
    return replace(launches, table=launches.table.assign(ID=list(numbers.values()))), numbers


def _timed(launches: Launches) -> tuple[Launches, list[str]]:
    """Return the launches that have a duration, where any has, and what there is to say of the others."""
    known = _times(launches) > 0
    if known.all() or not known.any():
        return launches, []
    lost = int((~known).sum())
    return _keep(launches, known), [f"{lost} of {len(known)} launches have no duration and are left out"]


def _possible(launches: Launches, path: str) -> tuple[Launches, list[str]]:
    """Return the launches whose durations can be, and a line about others: below 0, or of no GPU's clock.

    Raises:
        DataError: they are more than a few.
    """
    ns, wrong = _times(launches), dict[int, str]()
    for at in np.flatnonzero(~np.isfinite(ns) | (ns < 0)).tolist():
        wrong[at] = f"lasts {ns.iloc[at]:,.0f} ns"
    for name in [name for name in CYCLES if name in launches.table]:
        cycles = pd.to_numeric(launches.table[name], errors="coerce").fillna(0.0)
        clock = cycles / ns.where(ns > 0)
        for at in np.flatnonzero((cycles > 0) & ((clock < CLOCKS[0]) | (clock > CLOCKS[1]))).tolist():
            wrong.setdefault(at, f"lasts {ns.iloc[at]:,.0f} ns and {cycles.iloc[at]:,.0f} cycles of a GPU ({name})")
    names = {at: (str(launches.table[KERNEL].iloc[at]), why) for at, why in sorted(wrong.items())}
    told = sidecars.tell_impossible(path, names, len(ns))
    return _keep(launches, ~ns.index.isin(ns.index[[*names]])) if names else launches, told


def _kept_numbers(
    details: Sequence[tuple[PrintedTable, Mapping[str, str]]], launches: Launches
) -> list[tuple[PrintedTable, Mapping[str, str]]]:
    """Return details pages with the numbers of those of their launches that are not left out."""
    kept = dict(zip(launches.table[FORMER], launches.table["ID"], strict=True))
    return [(table, {one: kept[new] for one, new in numbers.items() if new in kept}) for table, numbers in details]


def _keep(launches: Launches, chosen: Any) -> Launches:
    """Return these launches, numbered from 0 on."""
    table = launches.table[chosen].reset_index(drop=True)
    return replace(launches, table=table.assign(ID=[str(number) for number in range(len(table))]))


def _times(launches: Launches) -> pd.Series:
    """Return the duration of each launch in ns, 0 where there is none."""
    name = next((one for one in (GPU_TIME, "gpu__time_duration.avg") if one in launches.table), None)
    if name is None:
        return pd.Series(0.0, index=launches.table.index)
    return pd.to_numeric(launches.table[name], errors="coerce").fillna(0.0)


def _named(launches: Launches, traced: str | None) -> list[str]:
    """Name kernels as the trace does, in the column `mangled`; return what there is to say of it."""
    printed = launches.table[KERNEL]
    known: dict[str, str] = {}
    if traced:
        known = match_names(printed, read_names(traced))
    launches.table["mangled"] = printed.map(lambda name: known.get(name, name))
    unknown = len(set(printed) - set(known))
    if not traced or not unknown:
        return []
    return [f"{unknown} of {printed.nunique()} kernels are not in nsys' trace, or look like several there"]


def _placed(launches: Launches, traced: str | None) -> tuple[Launches, list[str]]:
    """Return the launches with shared memory from the trace where the report lacks it, and what to say of it."""
    known = read_shared_memory(traced) if traced else {}
    if not known:
        return launches, []
    table = launches.table.copy()
    for name in COMMAND_SHARED_MEMORY:
        table[name] = table.get(name, "")
    lacking = (table[list(COMMAND_SHARED_MEMORY)] == "").any(axis=1)
    sizes = [
        tuple(map(int, re.findall(r"\d+", f"{grid} {block}")))
        for grid, block in zip(table["Grid Size"], table["Block Size"], strict=True)
    ]
    keys = [(name, *of) for name, of in zip(table["mangled"], sizes, strict=True)]
    taken = lacking & np.array([key in known for key in keys], dtype=bool)
    if not taken.any():
        return launches, []
    for place, name in enumerate(COMMAND_SHARED_MEMORY):
        table.loc[taken, name] = [str(known[key][place]) for key, own in zip(keys, taken, strict=True) if own]
    units = dict(launches.units) | {name: launches.units.get(name) or "byte/block" for name in COMMAND_SHARED_MEMORY}
    return replace(launches, table=table, units=units), [
        f"{int(taken.sum()):,} of {len(table):,} launches have no shared memory in the report, and that of nsys' "
        "trace, in which their kernel, grid and block have one alone"
    ]


def _write_page(launches: Launches, names: str, path: Path) -> None:
    """Write a raw page as ncu prints it in base units."""
    table = launches.table.assign(**{KERNEL: launches.table[names]})
    ranges = [name for name in table if "Range:" in name]
    metrics = [name for name in table if name not in (*OF_LAUNCH, *ranges, "mangled", "Kernel Time", FORMER)]
    heading = [*OF_LAUNCH[:4], *ranges, *OF_LAUNCH[4:], *metrics]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(heading)
        writer.writerow([launches.units.get(name, "") for name in heading])
        writer.writerows(table[heading].to_numpy().tolist())


def _write_details(tables: Sequence[tuple[PrintedTable, Mapping[str, str]]], path: Path) -> None:
    """Write the details page of the first file, its launches by their new numbers; no row where it has none."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(DETAILS)
        for table, numbers in tables[:1]:
            places = [table.heading.index(name) if name in table.heading else -1 for name in DETAILS]
            rows = [[row[at] if at >= 0 else "" for at in places] for row in table.rows]
            writer.writerows([[numbers[row[0]], *row[1:]] for row in rows if row[0] in numbers])


def _facts(
    model: str, launches: Launches, times: pd.Series, files: Sequence[Mapping[str, Any]], coverage: Sequence[str]
) -> dict[str, Any]:
    """Return the sidecar: one step, of all launches one after the other."""
    total = np.array([max(int(times.sum()), 1)], dtype=np.int64)
    steps = sidecars.step_facts("all launches of the report, added up", total, total) | {"whole": True}
    names = launches.table[NAME].unique() if NAME in launches.table else []
    device = names[0] if len(names) == 1 and names[0] else sidecars.UNKNOWN_GPU
    facts = sidecars.report_facts(TOOL, model, (str(device), "cuda"), steps, files)
    facts["imported"]["coverage"] = list(coverage)
    return facts
