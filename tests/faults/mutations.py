"""Damages files in many ways, and states the result that a reader must have.

A mutation returns the changed content and what has to come of it: SAME, all that was read before; DAMAGED, a DataError;
AS_IT_SAYS, either, or exactly what the changed file says, which another parser reads beside it.
"""

import csv
import gzip
import io
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

SAME, DAMAGED, AS_IT_SAYS = "same", "damaged", "as it says"
Mutated = tuple[bytes, str]
# Possible names of kernels, operators, hosts or devices.
NAMES = (
    "null", "NA", "N/A", "nan", "NaN", "None", "", "-", "--", "inf", "-inf", "TRUE", "True", "1e5", "007", "1,234", "12;3",
    'a"b', '"', "a,b", "a\nb", "a\r\nb", " a ", "\t", "<script>alert(1)</script>", "&amp;", "a & b", "'", "\\", "\\N", "#N/A",
    "Übung", "内核", "🙂", "\u2028", "\x0b", "{{ 7 * 7 }}", "${x}", "$x_1$", "%s", "=1+1", "x" * 5000, "==PROF== x",
)  # fmt: skip
# Texts that are not numbers, numbers of other locales, and numbers with a unit.
NO_NUMBERS = (
    "n/a", "NA", "null", "None", "nan", "12,34", "1.234,5", "1 234", "1'234", "1,234", "5 us", "5us", "0x1f", "1_000", "٣",
    "½", "--5", "5-", "1e", ".", "+", "=5", "five", "True",
)  # fmt: skip


def table(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def printed(rows: Sequence[Sequence[str]], **how: object) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, **{"lineterminator": "\n", **how}).writerows(rows)  # type: ignore[arg-type]
    return text.getvalue().encode()


def truncated(content: bytes, draw: random.Random) -> Mutated:
    return content[: draw.randrange(len(content))], AS_IT_SAYS


def flipped(content: bytes, draw: random.Random) -> Mutated:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed), AS_IT_SAYS


def overwritten(content: bytes, draw: random.Random) -> Mutated:
    """Overwrite a part with zeros, as a file system may, or with another part of the file."""
    at, size = draw.randrange(len(content)), draw.randrange(1, 400)
    other = draw.randrange(len(content))
    filling = b"\0" * size if draw.random() < 0.5 else content[other : other + size]
    return content[:at] + filling + content[at + len(filling) :], AS_IT_SAYS


def spliced(content: bytes, draw: random.Random) -> Mutated:
    """Remove or repeat some bytes."""
    first, last = sorted(draw.randrange(len(content)) for _ in range(2))
    if draw.random() < 0.5:
        return content[:first] + content[last:], AS_IT_SAYS
    return content[:last] + content[first:], AS_IT_SAYS


def typed(content: bytes, draw: random.Random) -> Mutated:
    """Replace a character by one with a special meaning in some format."""
    at = draw.randrange(len(content))
    return content[:at] + draw.choice(b'",;\n\r\t.-+eE0 \0{}[]:').to_bytes() + content[at + 1 :], AS_IT_SAYS


BYTES = (truncated, flipped, overwritten, spliced, typed)


def columns_reordered(content: bytes, draw: random.Random) -> Mutated:
    rows = table(content)
    order = draw.sample(range(len(rows[0])), len(rows[0]))
    return printed([[row[at] for at in order] for row in rows]), SAME


def rows_reordered(content: bytes, draw: random.Random) -> Mutated:
    heading, *rows = table(content)
    return printed([heading, *draw.sample(rows, len(rows))]), SAME


def of_windows(content: bytes, draw: random.Random) -> Mutated:
    """Change the file as an editor may, without a change of meaning: line ends, a byte order mark, quotes."""
    rows = table(content)
    quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    mark = b"\xef\xbb\xbf" if draw.random() < 0.5 else b""
    return mark + printed(rows, lineterminator=draw.choice(["\n", "\r\n"]), quoting=quoting), SAME


def column_twice(content: bytes, draw: random.Random) -> Mutated:
    rows = table(content)
    at = draw.randrange(len(rows[0]))
    return printed([[*row, row[at]] for row in rows]), DAMAGED


def column_lost(content: bytes, draw: random.Random) -> Mutated:
    rows = table(content)
    at = draw.randrange(len(rows[0]))
    return printed([row[:at] + row[at + 1 :] for row in rows]), AS_IT_SAYS


def row_twice(content: bytes, draw: random.Random) -> Mutated:
    rows = table(content)
    at = draw.randrange(1, len(rows))
    return printed([*rows[:at], rows[at], *rows[at:]]), AS_IT_SAYS


def row_lost(content: bytes, draw: random.Random) -> Mutated:
    rows = table(content)
    at = draw.randrange(1, len(rows))
    return printed(rows[:at] + rows[at + 1 :]), AS_IT_SAYS


def cells_lost(content: bytes, draw: random.Random) -> Mutated:
    """Make a row shorter or longer."""
    rows = table(content)
    at = draw.randrange(1, len(rows))
    row = rows[at][: draw.randrange(1, len(rows[at]))] if draw.random() < 0.5 else [*rows[at], "5"]
    return printed([*rows[:at], row, *rows[at + 1 :]]), DAMAGED


def separated(content: bytes, draw: random.Random) -> Mutated:
    return printed(table(content), delimiter=draw.choice(";\t|")), DAMAGED


def cell(content: bytes, draw: random.Random, held: Sequence[str]) -> Mutated:
    rows = table(content)
    row = draw.choice(rows[1:])
    row[draw.randrange(len(row))] = draw.choice(held)
    return printed(rows), AS_IT_SAYS


def named(content: bytes, draw: random.Random) -> Mutated:
    return cell(content, draw, NAMES)


def no_number(content: bytes, draw: random.Random) -> Mutated:
    return cell(content, draw, NO_NUMBERS)


TABLES: tuple[Callable[[bytes, random.Random], Mutated], ...] = (
    columns_reordered, rows_reordered, of_windows, column_twice, column_lost, row_twice, row_lost, cells_lost, separated,
    named, no_number,
)  # fmt: skip


def key_lost(content: bytes, draw: random.Random) -> Mutated:
    facts = json.loads(content)
    facts.pop(draw.choice([*facts]))
    return json.dumps(facts).encode(), AS_IT_SAYS


def value_other(content: bytes, draw: random.Random) -> Mutated:
    facts = json.loads(content)
    values = [None, "", "x", 0, -1, 1.5, True, [], {}, [1], float("nan"), float("inf"), 10**30, 10**400, "5"]
    facts[draw.choice([*facts])] = draw.choice(values)
    return json.dumps(facts).encode(), AS_IT_SAYS


def keys_reordered(content: bytes, draw: random.Random) -> Mutated:
    facts = json.loads(content)
    return json.dumps({key: facts[key] for key in draw.sample([*facts], len(facts))}, indent=3).encode(), SAME


def key_twice(content: bytes, draw: random.Random) -> Mutated:
    key = draw.choice([*json.loads(content)])
    return content.rstrip()[:-1] + f', "{key}": 7}}'.encode(), DAMAGED


def nested(content: bytes, draw: random.Random) -> Mutated:
    return draw.choice([b"[", b'{"a":']) * draw.choice([10, 100_000]), DAMAGED


JSON = (key_lost, value_other, keys_reordered, key_twice, nested)


def quoted(rows: Sequence[Sequence[str]]) -> bytes:
    """Return rows in the form that ncu prints."""
    return printed(rows, quoting=csv.QUOTE_ALL)


def launches_reordered(content: bytes, draw: random.Random) -> Mutated:
    heading, units, *rows = table(content)
    return quoted([heading, units, *draw.sample(rows, len(rows))]), SAME


def launch_lost_or_twice(content: bytes, draw: random.Random) -> Mutated:
    """Remove or repeat a launch or the row of units."""
    rows = table(content)
    at = draw.randrange(1, len(rows))
    return quoted(rows[:at] + rows[at : at + 1] * draw.choice([0, 2]) + rows[at + 1 :]), DAMAGED


def page_column_lost_or_twice(content: bytes, draw: random.Random) -> Mutated:
    rows = table(content)
    at, times = draw.randrange(len(rows[0])), draw.choice([0, 2])
    return quoted(
        [row[:at] + row[at : at + 1] * times + row[at + 1 :] for row in rows]
    ), DAMAGED if times else AS_IT_SAYS


def other_unit(content: bytes, draw: random.Random) -> Mutated:
    """Replace a unit by a multiple, another unit, or none."""
    heading, units, *rows = table(content)
    at = draw.choice([at for at, unit in enumerate(units) if unit])
    units[at] = draw.choice(
        ["us", "usecond", "ms", "second", "s", "Kbyte", "Mbyte", "%", "", "Kfoo", "12", "n/a", "ksecond"]
    )
    return quoted([heading, units, *rows]), AS_IT_SAYS


def other_locale(content: bytes, draw: random.Random) -> Mutated:
    """Print the page in a German, French or Swiss locale."""
    thousands, point = draw.choice([(".", ","), ("\u202f", ","), ("'", "."), ("\u00a0", ","), (" ", ",")])
    swap = str.maketrans({",": thousands, ".": point})
    rows = table(content)
    for row in rows[2:]:
        for at, value in enumerate(row):
            if value.replace(",", "").replace(".", "").isdecimal() and rows[0][at] != "CC":
                row[at] = value.translate(swap)
    return quoted(rows), DAMAGED


def page_cell(content: bytes, draw: random.Random) -> Mutated:
    """Replace a value by an invalid one, a name, or a number of another locale."""
    rows = table(content)
    at = draw.randrange(len(rows[0]))
    rows[draw.randrange(2, len(rows))][at] = draw.choice([*NAMES, *NO_NUMBERS])
    return quoted(rows), AS_IT_SAYS


PAGES: tuple[Callable[[bytes, random.Random], Mutated], ...] = (
    launches_reordered, launch_lost_or_twice, page_column_lost_or_twice, other_unit, other_locale, page_cell,
)  # fmt: skip


def packed(content: bytes, draw: random.Random) -> Mutated:
    """Damage the compressed content so that no checksum shows it."""
    changed, what = draw.choice(BYTES)(gzip.decompress(content), draw)
    return gzip.compress(changed, 1, mtime=0), what


def event_other(content: bytes, draw: random.Random) -> Mutated:
    trace = json.loads(gzip.decompress(content))
    event = draw.choice(trace["traceEvents"])
    key = draw.choice([*event])
    event[key] = draw.choice([None, "", "5", -1, 1.5, float("nan"), [], {}, 10**400, 1e300, *NAMES])
    if draw.random() < 0.3:
        del event[key]
    return gzip.compress(json.dumps(trace).encode(), 1, mtime=0), AS_IT_SAYS


def value_of_row(content: bytes, draw: random.Random) -> Mutated:
    """Put a value of another type into a table of the trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            table = draw.choice(tables)
            columns = [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            column = draw.choice(columns)
            value = draw.choice([None, "x", "", 1.5, b"\xff", -1, 2**62, 2**40, 0, 7, *NAMES])
            try:
                database.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET ?)",
                    (value, draw.randrange(8)),
                )
                if draw.random() < 0.1:
                    database.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
                elif draw.random() < 0.1:
                    database.execute(f"DROP TABLE {table}")
            except sqlite3.IntegrityError:
                database.rollback()
            database.commit()
        return path.read_bytes(), AS_IT_SAYS
