"""Exports what ncu counted by source line and machine instruction, of the most expensive kernels of a report."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

import pandas as pd

from profzoo.errors import DataError
from profzoo.io.columns import COUNT, MEASURED, NUMBER, TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import instances
from profzoo.tools.ncu.instances import OF_KERNEL, read_expensive
from profzoo.tools.ncu.quantities import STATES
from profzoo.tools.ncu.raw_page import NOISE, ODD
from profzoo.tools.ncu.report_pages import print_page

# Names the columns of the table of source lines, and says what each of them means.

# Values of the column `level`.
OF_LINE, OF_INSTRUCTION = "line", "instruction"
SAMPLES, EXECUTED, LOADS, STORES = "samples", "inst_executed", "local_loads", "local_stores"
# Instructions that access local memory, in which the compiler keeps spilled registers.
LOCAL = {"LDL": LOADS, "STL": STORES}
# Names by the labels that ncu prints; of a name with several labels the first one counts that a page has.
NAMES: Mapping[str, str] = {
    "# Samples": SAMPLES,
    "Warp Stall Sampling (All Samples)": SAMPLES,
    "Warp Stall Sampling (All Cycles)": SAMPLES,
    "Warp Stall Sampling (Not-issued Samples)": "samples_not_issued",
    "Warp Stall Sampling (Not-issued Cycles)": "samples_not_issued",
    "Instructions Executed": EXECUTED,
    "Thread Instructions Executed": "thread_inst_executed",
    "Predicated-On Thread Instructions Executed": "thread_inst_executed_true",
    "L2 Theoretical Sectors Local": "l2_sectors_local",
    "L2 Theoretical Sectors Global": "l2_sectors_global",
    "L2 Theoretical Sectors Global Ideal": "l2_sectors_global_ideal",
    "L2 Theoretical Sectors Global Excessive": "l2_sectors_global_excessive",
}
# ncu's short names of stall reasons, with the names of their metrics.
REASONS = {
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instructions",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
}
STALL = re.compile(r"stall_(\w+)( \(Not[ -]Issued\))?", re.IGNORECASE)
# Means and widths, which do not add up over instructions.
NOT_ADDITIVE = re.compile(r"avg_|l1_conflicts_shared_n_way|access_size|.*registers|.*_pct$|.*policies$")


def name_column(label: str) -> str:
    """Return the name of the column for a label of ncu's source page.

    >>> name_column("# Samples"), name_column("stall_long_sb (Not Issued)"), name_column("L1 Tag Requests Global")
    ('samples', 'stall_long_scoreboard_not_issued', 'l1_tag_requests_global')
    """
    if found := STALL.fullmatch(label):
        reason = found[1].lower()
        return f"stall_{REASONS.get(reason, reason)}{'_not_issued' if found[2] else ''}"
    return NAMES.get(label) or re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


def adds_up(name: str) -> bool:
    """Return whether the values of a column add up over instructions.

    >>> adds_up("inst_executed"), adds_up("avg_threads_executed")
    (True, False)
    """
    return not NOT_ADDITIVE.match(name)


TABLE = Table(
    columns={
        **select(instances.TABLE.columns, *OF_KERNEL),
        "level": Column(TEXT, "`line` (sums over the instructions of a source line) or `instruction` (SASS)."),
        "file": Column(
            TEXT, "Source file; empty where the kernel has no table of lines, or ncu did not find its source."),
        "line": Column(COUNT.or_missing, "Number of the source line, from 1."),
        "source": Column(TEXT, "The source line."),
        "offset_bytes": Column(
            COUNT.or_missing, "Address of the instruction from the first one of the kernel.", "byte"),
        "sass": Column(TEXT, "The machine instruction (SASS)."),
        "opcode": Column(TEXT, "Name of the machine instruction without modifiers."),
    },
    # What a report lacks that was collected without the section SourceCounters, or by an older ncu.
    optional={
        "share": Column(NUMBER.or_missing, "Part of the kernel's warp samples.", "fraction", "ncu"),
        SAMPLES: Column(
            NUMBER.or_missing, "Samples of warps that were at this place (`smsp__pcsamp_sample_count`).",
            "count", "ncu"),
        "samples_not_issued": Column(
            NUMBER.or_missing, "The same in cycles in which the scheduler issued no instruction.", "count", "ncu"),
        EXECUTED: Column(
            NUMBER.or_missing, "Instructions that warps executed (`inst_executed`).", "instructions", "ncu"),
        "thread_inst_executed": Column(NUMBER.or_missing, "The same, counted by thread.", "instructions", "ncu"),
        "thread_inst_executed_true": Column(
            NUMBER.or_missing, "The same of threads that their guard lets through.", "instructions", "ncu"),
        LOADS: Column(
            NUMBER.or_missing, "Loads from local memory (LDL): spilled registers and indexed arrays.",
            "instructions", "ncu"),
        STORES: Column(
            NUMBER.or_missing, "Stores to local memory (STL): spilled registers and indexed arrays.",
            "instructions", "ncu"),
        "l2_sectors_local": Column(
            NUMBER.or_missing, "Sectors of 32 bytes that local memory would ask L2 for.", "sectors", "ncu"),
        "l2_sectors_global": Column(
            NUMBER.or_missing, "Sectors of 32 bytes that global memory would ask L2 for.", "sectors", "ncu"),
        "l2_sectors_global_ideal": Column(NUMBER.or_missing, "The same with accesses side by side.", "sectors", "ncu"),
        "l2_sectors_global_excessive": Column(NUMBER.or_missing, "Sectors beyond these.", "sectors", "ncu"),
    },
    families={
        "stall_*_not_issued": Column(
            MEASURED, "Samples of warps that waited so while the scheduler was idle.", "count", "ncu"),
        "stall_*": Column(
            MEASURED, "Samples of warps that waited for this reason (`smsp__pcsamp_warps_issue_stalled_*`); "
            "`selected` is not a wait.", "count", "ncu"),
        "*": Column(
            MEASURED, "Counter that this version of ncu prints besides, named as on its source page.",
            "see name", "ncu"),
    },
)  # fmt: skip
LEADING = tuple(TABLE.columns)


# Reads ncu's source page: the counters of each machine instruction, and the source line that it belongs to.

# What precedes the rows of a kernel: its name (of the page `sass`), or a file and its name (of the page `cuda,sass`).
KERNEL, FUNCTION, FILE = "Kernel Name", "Function Name", "File Path"
LINE, ADDRESS, SOURCE = "Line No", "Address", "Source"
# A row whose quotes are all doubled or at the ends of its fields; ncu leaves those in lines of source as they are.
PROPER = re.compile(r'"(?:[^"]|"")*"(?:,"(?:[^"]|"")*")*,?')
BETWEEN = '","'
# What ncu prints in place of lines of a file that is neither in the report nor on this machine.
UNOPENED = "<Unable to open source file>"
# A guard, such as `@!P0`, and the instruction with its modifiers.
OPCODE = re.compile(r"\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)")
HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")


@dataclass(frozen=True)
class Instruction:
    """A machine instruction (SASS): its address, its text, and ncu's values by the label of their column."""

    address: int
    text: str
    values: Mapping[str, str]

    @property
    def opcode(self) -> str:
        """Return the name of the instruction without modifiers, such as `LDG`."""
        found = OPCODE.match(self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class Line:
    """A source line, the addresses of its instructions, and the sums that ncu prints for it, by label."""

    file: str
    number: int
    text: str
    addresses: tuple[int, ...]
    values: Mapping[str, str]


Part = TypeVar("Part", Instruction, Line)


def read_instructions(printed: str, where: str) -> list[Instruction]:
    """Return the instructions of one launch, as `ncu --page source --csv --print-source sass` prints them.

    where: name of the report, for messages. A launch whose machine code is not in the report has no instruction. ncu
    2025.3 prints some launches twice with the same values, and then the first time counts.

    Raises:
        DataError: the page is damaged, or is of more than one launch.
    """
    found: list[Instruction] = []
    for heading, row in _rows(printed, where):
        if row is None:
            continue
        address = row[heading.index(ADDRESS)]
        if not HEX.fullmatch(address):
            raise DataError(f"{where}: the source page has an instruction at {address!r}: {ODD}")
        found.append(Instruction(int(address, 16), row[heading.index(SOURCE)].strip(), _values(heading, row)))
    found = _drop_repetition(found)
    if len({one.address for one in found}) < len(found):
        raise DataError(f"{where}: the source page is of several launches, where one was asked for: {ODD}")
    return found


def read_lines(printed: str, where: str) -> list[Line]:
    """Return the source lines of one launch, as `ncu --page source --csv --print-source cuda,sass` prints them.

    No line where the kernel was compiled without a table of lines, or where ncu does not find its source.

    Raises:
        DataError: the page is damaged.
    """
    found: list[Line] = []
    file, addresses = "", list[int]()
    for heading, row in _rows(printed, where):
        if row is None:
            file = heading[0]
            continue
        number = row[heading.index(LINE)] if LINE in heading else ""
        if number.isdecimal():
            addresses = []
            text = row[heading.index(SOURCE)].strip()
            found.append(Line(file, int(number), "" if text == UNOPENED else text, (), _values(heading, row)))
        elif found and HEX.fullmatch(row[heading.index(ADDRESS)]):
            addresses.append(int(row[heading.index(ADDRESS)], 16))
            last = found[-1]
            found[-1] = Line(last.file, last.number, last.text, tuple(addresses), last.values)
    return _drop_repetition([line for line in found if line.addresses])


def _drop_repetition(found: list[Part]) -> list[Part]:
    """Return the first half of what is there twice in the same order with the same values, and all of anything else."""
    half = len(found) // 2
    return found[:half] if found[:half] == found[half:] else found


def _rows(printed: str, where: str) -> Iterator[tuple[Sequence[str], Sequence[str] | None]]:
    """Yield the heading and fields of each row; before the rows of a kernel or file, its name alone and None."""
    heading: Sequence[str] = ()
    # Lines of source may end with a carriage return, or hold a form feed.
    for text in printed.split("\n"):
        if not text.strip() or NOISE.match(text):
            continue
        fields = split_row(text, len(heading), heading.index(SOURCE) if heading else 1)
        if fields[0] in (KERNEL, FILE, FUNCTION):
            heading = ()
            if fields[0] != FUNCTION:
                yield fields[1:2] or [""], None
        elif {ADDRESS, SOURCE} <= set(fields):
            heading = fields
        elif len(fields) != len(heading):
            raise DataError(f"{where}: the source page has a row of {len(fields)} fields below {len(heading)}: {ODD}")
        else:
            yield heading, fields


def split_row(text: str, width: int, at: int = 1) -> list[str]:
    """Split a row into its fields; ncu does not double quotes in a line of source.

    width: number of fields, 0 where it is not known. at: place of the field with the line of source, from 0.

    >>> split_row('"44","say("%s","x");","-","7"', 4)
    ['44', 'say("%s","x");', '-', '7']
    """
    if PROPER.fullmatch(text) and len(fields := next(csv.reader([text.removesuffix(",")]))) in (width, width or None):
        return fields
    fields = text.strip().removesuffix(",").removeprefix('"').removesuffix('"').split(BETWEEN)
    more = len(fields) - width
    if not width or more <= 0:
        return fields
    return [*fields[:at], BETWEEN.join(fields[at : at + 1 + more]), *fields[at + 1 + more :]]


def _values(heading: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """Return the values behind the columns of text; of two columns with one label, the first counts."""
    start = len(heading) - list(reversed(heading)).index(SOURCE)
    found: dict[str, str] = {}
    for name, value in zip(heading[start:], row[start:], strict=True):
        found.setdefault(name, value)
    return found


# Makes the table of source lines and machine instructions of a launch, from ncu's source pages of it.

# How ncu prints that an instruction has no value.
NONE = {"", "-", "n/a", "N/A"}


def tabulate_source(instructions: Sequence[Instruction], lines: Sequence[Line]) -> pd.DataFrame:
    """Return a row per source line, and then a row per instruction by address.

    Counters of a line are sums over its instructions. An instruction may belong to several lines, of a function and of
    the one that it was inlined into: it counts in each of them, and its own row names the first.
    """
    ordered = sorted(instructions, key=lambda one: one.address)
    if not ordered:
        return pd.DataFrame()
    counted = _counters(ordered)
    first = ordered[0].address
    index = pd.Index([one.address for one in ordered])
    counted.index = index
    opcodes = pd.Series([one.opcode for one in ordered], index=index)
    if EXECUTED in counted:
        for opcode, name in LOCAL.items():
            counted[name] = counted[EXECUTED].where(opcodes.eq(opcode), 0)
    places = _places(lines)
    own = pd.DataFrame(
        {
            "level": OF_INSTRUCTION,
            **{key: [places.get(address, EMPTY)[key] for address in index] for key in EMPTY},
            "offset_bytes": index - first,
            "sass": [one.text for one in ordered],
            "opcode": opcodes.to_numpy(),
        },
        index=index,
    ).join(counted)
    table = pd.concat([_lines(lines, counted), own], ignore_index=True)
    if SAMPLES in counted and counted[SAMPLES].sum() > 0:
        table["share"] = table[SAMPLES] / counted[SAMPLES].sum()
    return table.astype({"line": "Int64", "offset_bytes": "Int64"})


EMPTY: Mapping[str, str | int | None] = {"file": "", "line": None, "source": ""}


def _places(lines: Sequence[Line]) -> dict[int, Mapping[str, str | int | None]]:
    """Return the first line of each instruction, by address."""
    found: dict[int, Mapping[str, str | int | None]] = {}
    for line in lines:
        for address in line.addresses:
            found.setdefault(address, {"file": line.file, "line": line.number, "source": line.text})
    return found


def _counters(instructions: Sequence[Instruction]) -> pd.DataFrame:
    """Return ncu's values by the names of columns; numbers where all values of a column are numbers."""
    labels = list(dict.fromkeys(label for one in instructions for label in one.values))
    # Of labels with the same name, the one that comes first among NAMES.
    labels.sort(key=lambda label: list(NAMES).index(label) if label in NAMES else len(NAMES))
    found: dict[str, pd.Series] = {}
    for label in labels:
        texts = pd.Series([one.values.get(label, "").strip() for one in instructions], dtype="str")
        found.setdefault(name_column(label), _numbers(texts))
    order = dict.fromkeys([SAMPLES, *map(name_column, instructions[0].values), *found])
    return pd.DataFrame({name: found[name] for name in order if name in found})


def _numbers(texts: pd.Series) -> pd.Series:
    given = ~texts.isin(NONE)
    numbers = pd.to_numeric(texts[given].str.replace(",", ""), errors="coerce")
    if numbers.isna().any():
        return texts.where(given, "")
    return numbers.reindex(texts.index)


def _lines(lines: Sequence[Line], counted: pd.DataFrame) -> pd.DataFrame:
    """Return a row per source line with the sums over its instructions; of means and texts there is no sum."""
    additive = [name for name in counted if adds_up(name) and pd.api.types.is_numeric_dtype(counted[name])]
    rows = []
    for line in lines:
        known = [address for address in dict.fromkeys(line.addresses) if address in counted.index]
        sums = counted.loc[known, additive].sum(min_count=1)
        rows.append({"level": OF_LINE, "file": line.file, "line": line.number, "source": line.text, **sums})
    return pd.DataFrame(rows)


# Says in a sentence per kernel where its warps are found most often, what they wait for there, and what is spilled.

SUMMARY_STALL, IDLE = "stall_", "_not_issued"
# A warp in these states waits for nothing.
NO_WAIT = {"selected", "not_selected"}
MOST = 3


def describe_kernels(table: pd.DataFrame, kernels: int = MOST) -> list[str]:
    """Return a sentence about each of the most expensive kernels; table: the table of source lines."""
    found = []
    for _, own in table[table["place"].le(kernels)].groupby("place", sort=True):
        lines = own[own["level"].eq(OF_LINE)]
        rows = lines if len(lines) else own
        parts = [part for part in (_hottest(rows), _spilled(rows)) if part]
        if parts:
            found.append(f"{rows['function'].iloc[0]}: {'; '.join(parts)}")
    return found


def _hottest(rows: pd.DataFrame) -> str:
    if SAMPLES not in rows or not rows[SAMPLES].sum() > 0:
        return ""
    row = rows.loc[rows[SAMPLES].idxmax()]
    told = f"{row['share']:.0%} of its warp samples are {_place(row)}"
    waits = {
        name.removeprefix(SUMMARY_STALL).removesuffix(IDLE): row[name]
        for name in rows
        if name.startswith(SUMMARY_STALL) and name.endswith(IDLE) and pd.notna(row[name])
    }
    waits = {name: count for name, count in waits.items() if name not in NO_WAIT and count > 0}
    reason = max(waits, key=lambda name: waits[name], default="")
    if not reason:
        return told
    words = f"{STATES[reason]} ({reason})" if reason in STATES else reason.replace("_", " ")
    return f"{told}, where warps wait most for {words}"


def _spilled(rows: pd.DataFrame) -> str:
    if LOADS not in rows:
        return ""
    accesses = rows[LOADS].fillna(0) + rows[STORES].fillna(0)
    if not accesses.sum() > 0:
        return ""
    place = _place(rows.loc[accesses.idxmax()])
    return f"warps access local memory {accesses.sum():,.0f} times, most often {place}"


def _place(row: pd.Series) -> str:
    if row["level"] == OF_LINE:
        return f"at {PurePath(row['file']).name}:{row['line']:.0f}"
    return f"at the instruction {row['opcode']} (offset {int(row['offset_bytes']):#x})"


# Exports what ncu counted by source line and machine instruction, of the most expensive kernels of a report.

PAGE = ["--page", "source", "--print-source"]
NO_CODE = (
    "holds no machine code of the most expensive kernels, so that nothing can be told by line: collect the section set "
    "with `sass: true`, as the set `source` has it"
)
NO_COUNTERS = "holds no counters of source lines: collect the section SourceCounters, as the set `source` does"


def tabulate_report(report: str, chosen: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of these launches of a report, and notes on what the report does not tell.

    Raises:
        DataError: the report holds no machine code at all, no counters of lines, or ncu cannot print it.
    """
    frames, lacking, notes = [], [], []
    for row in chosen.to_dict("records"):
        launch = int(row["id"])
        instructions = read_instructions(print_page(report, [*PAGE, "sass"], launch), report)
        if not instructions:
            lacking.append(str(row["function"]))
            continue
        try:
            lines = read_lines(print_page(report, [*PAGE, "cuda,sass"], launch), report)
        except DataError as error:
            # Machine instructions say as much without their lines.
            lines = []
            notes.append(f"the lines of {row['function']} are left out: {error}")
        frame = tabulate_source(instructions, lines)
        for name in reversed(OF_KERNEL):
            frame.insert(0, name, row[name])
        frames.append(frame)
    if not frames:
        raise DataError(f"{report} {NO_CODE}")
    table = pd.concat(frames, ignore_index=True)
    if not {SAMPLES, EXECUTED} & set(table):
        raise DataError(f"{report} {NO_COUNTERS}")
    code = f"the report holds no machine code of {'; '.join(dict.fromkeys(lacking))}"
    return table, [*([code] if lacking else []), *notes]


def export_source(report: str, launches: str, kernels: int, csv: str, say: Callable[[str], object] = print) -> None:
    """Write the table of source lines, and say where the most expensive kernels spend their time.

    Args:
        report: report of ncu.
        launches: the exported table of the same section set.
        kernels: number of kernels, the most expensive first.
        csv: the table to write.
        say: function that prints a note for the user.
    """
    chosen = read_expensive(launches, kernels)
    table, notes = tabulate_report(report, chosen)
    for note in [*notes, *describe_kernels(table)]:
        say(f"{csv}: {note}")
    leading = [name for name in LEADING if name in table]
    write_csv(table[[*leading, *(name for name in table if name not in leading)]], csv)
