"""Reads files by the simplest means, one value at a time, for comparison with the real readers."""

import csv
import gzip
import io
import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

from profzoo.io.columns import FLAG, TEXT, Kind
from profzoo.io.csv_tables import Table
from profzoo.tools.ncu import raw_page
from profzoo.tools.ncu.raw_page import NOISE, SPEEDUP
from profzoo.tools.nsys.events.trace import KERNEL_TABLE
from profzoo.tools.torch.tables import DEVICE_KINDS

Rows = Counter[tuple]
Totals = dict[tuple, tuple[int, int]]
Launches = dict[int, tuple[str, list[int], dict[str, Any]]]
UNITS = {"us": 10**3, "usecond": 10**3, "ms": 10**6, "s": 10**9, "second": 10**9, "Kbyte": 10**3, "Mbyte": 10**6}


class OtherError(ValueError):
    """The content cannot be read here."""


def number(text: str) -> float | int:
    """Return a number written in plain characters; whole numbers are exact."""
    # Python accepts `.8` and `8.`, which no file here contains.
    beside = text.partition(".")[0][-1:] + text.partition(".")[2][:1] if "." in text else "00"
    if set(text) - set("0123456789+-.einfE") or text.startswith("+") or not (len(beside) == 2 and beside.isdigit()):
        raise OtherError(text)
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def of_table(content: bytes, table: Table) -> Rows:
    """Read a CSV: rows without order, columns by name, None for missing numbers."""
    heading, *body = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    columns = {}
    for at, name in enumerate(heading):
        kind, cells = table.kind(name), [row[at] for row in body]
        if kind is None or name in columns:
            raise OtherError(name)
        columns[name] = column_of(cells, kind)
    return together(columns)


def column_of(cells: list[str], kind: Kind) -> list[Any]:
    """The cells of a column of a kind; where any has a fraction, or is missing, all are of 64 bits with one."""
    if kind == TEXT:
        return cells
    if kind == FLAG:
        return [{"True": True, "False": False}[cell] for cell in cells]
    try:
        read = [number(cell) if cell else None for cell in cells]
    except ValueError:
        if kind.mixed:
            return cells
        raise
    whole = all(isinstance(one, int) and abs(one) < 2**63 for one in read)
    return read if whole else [None if one is None else float(one) for one in read]


def together(columns: Mapping[str, Sequence[Any]]) -> Rows:
    """Rows of those columns, counted, and their names."""
    ordered = {name: columns[name] for name in sorted(columns)}
    return Counter([tuple(ordered), *zip(*ordered.values(), strict=True)])


def of_details(content: bytes) -> Rows:
    """Read ncu's details page; rows about metrics may end early."""
    kept = "".join(f"{line}\n" for line in content.decode("utf-8-sig").split("\n")[:-1] if not NOISE.match(line))
    heading, *body = csv.reader(io.StringIO(kept, newline=""), strict=True)
    full = [row + [""] * (len(heading) - len(row)) for row in body]
    columns: dict[str, list[Any]] = {name: [row[at] for row in full] for at, name in enumerate(heading)}
    columns["ID"] = [number(one) for one in columns["ID"]]
    if SPEEDUP in columns:
        columns[SPEEDUP] = [printed_value([one], one, 1) for one in columns[SPEEDUP]]
    return together(columns)


def of_json(content: bytes) -> str:
    return json.dumps(json.loads(content.decode("utf-8-sig")), sort_keys=True)


def by_name(rows: Iterable[Sequence[Any]]) -> Totals:
    """How many launches there are of each, and their time; rows: what it is, and time."""
    found: Totals = {}
    for *key, ns in rows:
        count, before = found.get(tuple(key), (0, 0))
        found[tuple(key)] = count + 1, before + ns
    return found


def of_sqlite(content: bytes) -> Totals:
    """Read the kernels of a trace by name, grid and block."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(content)
        file.flush()
        with closing(sqlite3.connect(f"file:{file.name}?mode=ro&immutable=1", uri=True)) as database:
            names = dict(database.execute("SELECT id, value FROM StringIds"))
            if not database.execute(f"SELECT name FROM sqlite_master WHERE name = '{KERNEL_TABLE}'").fetchone():
                # nsys leaves out tables of what was not there; that of a GPU's run has launches is for the export to say.
                return {}
            query = f"SELECT demangledName, gridX, blockX, start, end FROM {KERNEL_TABLE}"
            rows = [
                (names[name], grid or 0, block or 0, end - start)
                for name, grid, block, start, end in database.execute(query)
            ]
    if not all(isinstance(value, int) for row in rows for value in row[1:]):
        raise OtherError("no numbers")
    return by_name(rows)


def of_trace(content: bytes) -> Totals:
    """Read the launches of a trace by kind and name."""
    # torch writes texts as they are, with control characters and invalid UTF-8. Lines may end as on another system.
    text = gzip.decompress(content).decode("utf-8-sig", errors="replace")
    events = json.loads(text.replace("\r\n", "\n").replace("\r", "\n"), strict=False)["traceEvents"]
    known = [event for event in events if event.get("cat") in DEVICE_KINDS]
    return by_name((DEVICE_KINDS[one["cat"]], one["name"], round(one["dur"] * 1000)) for one in known)


def of_page(content: bytes, measured: bool) -> Launches:
    """The launches of ncu's raw page: name, sizes and stream, and its metrics in base units if these are asked for."""
    kept = "".join(f"{line}\n" for line in content.decode("utf-8-sig").split("\n")[:-1] if not NOISE.match(line))
    heading, units, *rows = csv.reader(io.StringIO(kept[kept.index('"ID"') :], newline=""), strict=True)
    start = heading.index("CC") + 1 if measured else len(heading)
    found = {}
    for row in rows:
        one = dict(zip(heading, row, strict=True))
        sizes = [int(size) for name in ("Grid Size", "Block Size") for size in one[name].strip("()").split(", ")]
        held = {
            heading[at]: printed_value([other[at] for other in rows], row[at], UNITS.get(units[at], 1))
            for at in range(start, len(heading))
            if not raw_page.CONSTANT.match(heading[at]) and not raw_page.is_link(heading[at])
        }
        found[int(one["ID"])] = one["Kernel Name"], [*sizes, int(one["Stream"])], held
    return found


def printed_value(column: Sequence[str], value: str, factor: int) -> float | int | str | None:
    """Read a value of a page: a number in base units, no value, or a text in a text column."""
    known = [one for one in column if one.removeprefix("(!)").strip().lstrip("+-").lower() not in raw_page.NONE]
    if not all(raw_page.NUMBER.fullmatch(one) for one in known):
        return value or None
    if value not in known:
        return None
    numbers = [Decimal(one.replace(",", "")) * factor for one in known]
    exact = Decimal(value.replace(",", "")) * factor
    whole = all(one == one.to_integral_value() and abs(one) < 2**63 for one in numbers)
    return int(exact) if whole else float(exact)
