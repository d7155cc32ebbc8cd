"""Reads ncu's source page: the counters of each machine instruction, and the source line that it belongs to."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from profzoo.errors import DataError
from profzoo.tools.ncu.raw_page import NOISE, ODD

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
