"""Exports metrics with several values per launch, of the most expensive kernels of a report."""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import csv_tables, text_files
from profzoo.io.columns import COUNT, GPU, NUMBER, TEXT, WHOLE, Column
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import export_schema, raw_page
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.raw_page import NOISE, ODD, ValueFormatError, base_unit
from profzoo.tools.ncu.report_pages import print_page

# Chooses the launches to look at closely: of each of the most expensive kernels, the longest one.

COLUMNS = ("place", "id", "kernel", "function", "mangled")


def read_expensive(path: str, kernels: int) -> pd.DataFrame:
    """Return one launch of each of the most expensive kernels of an exported section set, as choose_launches does.

    Raises:
        DataError: the table cannot be read, or is of ranges instead of launches.
    """
    heading = text_files.read_text(path, csv_tables.AGAIN).partition("\n")[0]
    if "mangled" not in heading.split(","):
        raise DataError(f"{path} is of a section set that measures ranges, which are not kernels: choose another set")
    return choose_launches(csv_tables.read(path, export_schema.TABLE), kernels, path)


def choose_launches(table: pd.DataFrame, kernels: int, where: str) -> pd.DataFrame:
    """Return one launch of each of the most expensive kernels, the most expensive kernel first.

    Args:
        table: an exported section set; launches of further runs are in other reports, and are only counted.
        kernels: the largest number of kernels.
        where: name of the table, for messages.

    Returns: COLUMNS, with `place` from 1 and `id` the number of the launch in the report.

    Raises:
        DataError: the set did not measure the time of launches.

    >>> three = pd.DataFrame({"id": [0, 1, 2], "mangled": ["a", "b", "b"], GPU_TIME: [5, 2, 4]})
    >>> three = three.assign(kernel="k", function="f")
    >>> choose_launches(three, 1, "x")[["place", "id", "mangled"]].values.tolist()
    [[1, 2, 'b']]
    """
    if GPU_TIME not in table or table[GPU_TIME].isna().all():
        raise DataError(
            f"{where} has no {GPU_TIME}, by which the most expensive kernels are chosen: add it to the set's metrics"
        )
    times = pd.to_numeric(table[GPU_TIME], errors="coerce")
    stands_for = pd.to_numeric(table["multiplicity"], errors="coerce").fillna(1.0) if "multiplicity" in table else 1.0
    costs = (times * stands_for).groupby(table["mangled"]).sum().sort_values(ascending=False, kind="stable")
    here = table[table["run"].eq(1)] if "run" in table else table
    longest = times[here.index].groupby(here["mangled"]).idxmax()
    chosen = [name for name in costs.index if name in longest.index][:kernels]
    found = table.loc[longest[chosen], list(COLUMNS[1:])].reset_index(drop=True)
    found.insert(0, "place", range(1, len(found) + 1))
    return found


# Declares the table of metrics with several values per launch.

OF_KERNEL = ("place", "id", "function", "mangled")
TABLE = Table(
    columns={
        "place": Column(COUNT, "Place of the kernel among those of the report by GPU time, the most expensive first."),
        "id": Column(COUNT, "Number of the launch in the report, of those of this kernel the longest one.", tool="ncu"),
        **shared("function", "mangled"),
        "metric": Column(
            TEXT, "Metric under NVIDIA's name; before a point or colon what samples it, such as `pmsampling:`."),
        "unit": Column(TEXT, "Unit of `value`; empty where ncu names none."),
        "kind": Column(
            TEXT, "What the values differ in: `time` (PM sampling), `opcode`, `occupancy` (warps of an SM by block, "
            "registers or shared memory), `link` (GPUs and links), or `other`."),
        "instance": Column(
            TEXT, "What this value is of, as ncu says it, such as an opcode; empty for samples over time."),
        "time_ns": Column(
            WHOLE.or_missing, "Time of the sample from the start of the kernel in the replay that took it; negative "
            "before the kernel.", "ns", "ncu", GPU),
        "value": Column(NUMBER.or_missing, "The value, where it is a number.", "see unit", "ncu"),
        "text": Column(TEXT, "The value, where it is not a number.", tool="ncu"),
    },
)  # fmt: skip


# Reads metrics with several values per launch (instances) from ncu's raw page: samples over time, opcodes, links.

# Values of the column `kind`.
TIME, OPCODE, OCCUPANCY, LINK, OTHER = "time", "opcode", "occupancy", "link", "other"
INSTANCES_COLUMNS = ("metric", "unit", "kind", "instance", "time_ns", "value", "text")
# A sample over time: its time by the GPU's clock, and from the first sample.
STAMP = re.compile(r"(\d{12,}) \(\+(\d+)\)")
# The label of an entry that ncu 2025.3 puts before the samples of a metric. It has no time and is not a sample.
NO_TIME = "0 (+0)"
# An instruction, whose values the table of source lines has.
ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\d{12,}")
# When the kernel began in each replay that took samples; the second is of versions before 2025, and a few microseconds
# earlier.
STARTS = (re.compile(r"profiler__timestamp_workload_start_\d+"), re.compile(r"profiler__pmsampler_ctxsw_\d+"))


@dataclass(frozen=True)
class Instances:
    """The values of a metric in one launch, by the label that ncu gives to each."""

    values: Mapping[str, str]

    @property
    def stamps(self) -> list[int]:
        """Return the times of samples by the GPU's clock, in ns; none where the labels are not times."""
        return [int(found[1]) for label in self.values if (found := STAMP.fullmatch(label))]


def parse_instances(printed: str) -> Instances | None:
    """Parse a metric's field of a page with `--print-metric-instances details`; None if it has a single value.

    >>> parse_instances("655 (STG: 98; LDG: 557)").values, parse_instances("12"), parse_instances("(256, 1, 1)")
    ({'STG': '98', 'LDG': '557'}, None, None)
    """
    start = printed.find("(", 4 if printed.startswith("(!)") else 0)
    if start < 0 or not printed.endswith(")"):
        return None
    found = {}
    for part in printed[start + 1 : -1].split("; "):
        label, between, value = part.rpartition(": ")
        if not between:
            return None
        found[label] = value
    return Instances(found)


def read_instances(printed: str, where: str) -> pd.DataFrame:
    """Return a row per metric and instance of one launch: COLUMNS.

    `time_ns` is counted from the start of the kernel in the replay that took the sample. Instances that are
    instructions are left out, and so are links that the GPU does not have, and metrics with a single instance, which
    is their value.

    Args:
        printed: the raw page of the launch in base units, with `--print-metric-instances details`.
        where: name of the report, for messages.

    Raises:
        DataError: the page is damaged.
    """
    lines = [line for line in printed.split("\n") if line.strip() and not NOISE.match(line)]
    page = list(csv.reader(lines))
    if len(page) != 3 or len({len(row) for row in page}) != 1 or "CC" not in page[0]:
        raise DataError(f"{where}: the raw page of one launch has not a heading, units and a row: {ODD}")
    names, units, fields = (row[page[0].index("CC") + 1 :] for row in page)
    found = {name: one for name, field in zip(names, fields, strict=True) if (one := parse_instances(field))}
    starts = _starts(found)
    absent = raw_page.list_absent(pd.DataFrame([[field.partition(" (")[0] for field in fields]], columns=names))
    rows: list[tuple[object, ...]] = []
    for name, unit in zip(names, units, strict=True):
        if name in found and not name.startswith(("profiler__", *absent)):
            own = _rows(name, unit, found[name], starts)
            rows += own if len(own) > 1 or _kind(name) != OTHER else []
    table = pd.DataFrame(rows, columns=list(INSTANCES_COLUMNS))
    return table.astype({"time_ns": "Int64", "value": "float64"})


def _starts(found: Mapping[str, Instances]) -> list[int]:
    """Return when the kernel began in each of the replays, in ns by the GPU's clock."""
    for names in STARTS:
        if times := [stamp for name, one in found.items() if names.fullmatch(name) for stamp in one.stamps]:
            return sorted(times)
    return []


def _rows(name: str, unit: str, one: Instances, starts: list[int]) -> list[tuple[object, ...]]:
    try:
        base, factor = base_unit(unit)
    except ValueFormatError:
        base, factor = unit, 1
    stamps = one.stamps
    within = [start for start in starts if stamps and min(stamps) <= start <= max(stamps)]
    zero = within[0] if within else min(stamps, default=0)
    rows: list[tuple[object, ...]] = []
    for label, printed in one.values.items():
        found = STAMP.fullmatch(label)
        if not found and (ADDRESS.fullmatch(label) or (stamps and label == NO_TIME)):
            continue
        value = _number(printed)
        scaled = None if value is None else value * factor
        time = int(found[1]) - zero if found else None
        kind = TIME if found else _kind(name)
        rows.append((name, base, kind, "" if found else label, time, scaled, "" if value is not None else printed))
    return rows


def _kind(name: str) -> str:
    if name.startswith("sass__"):
        return OPCODE
    if name.startswith("launch__occupancy_per_"):
        return OCCUPANCY
    return LINK if raw_page.is_link(name) else OTHER


def _number(printed: str) -> float | None:
    try:
        return float(printed.replace(",", ""))
    except ValueError:
        return None


# Exports metrics with several values per launch, of the most expensive kernels of a report.

PAGE = ["--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled"]
PAGE += ["--print-metric-instances", "details"]
NO_INSTANCES = (
    "holds no metric with several values per launch: collect the sections PmSampling or InstructionStats, as the set "
    "`instances` does"
)
NO_OPCODES = (
    "the report does not tell which instructions were executed, as ncu derives them from machine code: collect the "
    "section set with `sass: true`, as the set `instances` has it"
)


def tabulate_report(report: str, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of these launches of a report, with the columns of TABLE.

    Raises:
        DataError: the report holds no metric with instances, or ncu cannot print it.
    """
    frames = []
    for row in chosen.to_dict("records"):
        frame = read_instances(print_page(report, PAGE, int(row["id"])), report)
        for name in reversed(OF_KERNEL):
            frame.insert(0, name, row[name])
        frames.append(frame)
    table = pd.concat(frames, ignore_index=True)
    if table.empty:
        raise DataError(f"{report} {NO_INSTANCES}")
    return table[list(TABLE.columns)]


def export_instances(report: str, launches: str, kernels: int, csv: str, say: Callable[[str], object] = print) -> None:
    """Write the table of instances, and say if it has no instructions.

    Args:
        report: report of ncu.
        launches: the exported table of the same section set.
        kernels: number of kernels, the most expensive first.
        csv: the table to write.
        say: function that prints a note for the user.
    """
    table = tabulate_report(report, read_expensive(launches, kernels))
    if not table["kind"].eq(OPCODE).any():
        say(f"{csv}: {NO_OPCODES}")
    write_csv(table, csv)
