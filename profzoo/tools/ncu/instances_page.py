"""Reads metrics with several values per launch (instances) from ncu's raw page: samples over time, opcodes, links."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.errors import DataError
from profzoo.tools.ncu import links
from profzoo.tools.ncu.number_parsing import ValueFormatError, base_unit
from profzoo.tools.ncu.raw_page import NOISE, ODD

# Values of the column `kind`.
TIME, OPCODE, OCCUPANCY, LINK, OTHER = "time", "opcode", "occupancy", "link", "other"
COLUMNS = ("metric", "unit", "kind", "instance", "time_ns", "value", "text")
# A sample over time: its time by the GPU's clock, and from the first sample.
STAMP = re.compile(r"(\d{12,}) \(\+(\d+)\)")
# The label of an entry that ncu 2025.3 puts before the samples of a metric. It has no time and is no sample.
NO_TIME = "0 (+0)"
# An instruction, whose values the table of source lines has.
ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\d{12,}")
# When the kernel began in each replay that took samples; the second is of versions before 2025, and a few microseconds
# earlier.
STARTS = (re.compile(r"profiler__timestamp_workload_start_\d+"), re.compile(r"profiler__pmsampler_ctxsw_\d+"))
CSV_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Instances:
    """The values of a metric in one launch, by the label that ncu gives to each."""

    values: Mapping[str, str]

    @property
    def stamps(self) -> list[int]:
        """Return the times of samples by the GPU's clock, in ns; none where the labels are no times."""
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
    csv.field_size_limit(CSV_LIMIT)
    lines = [line for line in printed.split("\n") if line.strip() and not NOISE.match(line)]
    page = list(csv.reader(lines))
    if len(page) != 3 or len({len(row) for row in page}) != 1 or "CC" not in page[0]:
        raise DataError(f"{where}: the raw page of one launch has not a heading, units and a row: {ODD}")
    names, units, fields = (row[page[0].index("CC") + 1 :] for row in page)
    found = {name: one for name, field in zip(names, fields, strict=True) if (one := parse_instances(field))}
    starts = _starts(found)
    absent = links.list_absent(pd.DataFrame([[field.partition(" (")[0] for field in fields]], columns=names))
    rows: list[tuple[object, ...]] = []
    for name, unit in zip(names, units, strict=True):
        if name in found and not name.startswith(("profiler__", *absent)):
            own = _rows(name, unit, found[name], starts)
            rows += own if len(own) > 1 or _kind(name) != OTHER else []
    table = pd.DataFrame(rows, columns=list(COLUMNS))
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
    return LINK if links.is_link(name) else OTHER


def _number(printed: str) -> float | None:
    try:
        return float(printed.replace(",", ""))
    except ValueError:
        return None
