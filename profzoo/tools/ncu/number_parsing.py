"""Parses the values that ncu prints: separators, scaled units, and marks for missing values."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

import pandas as pd

# Units of time, in lower case and without a plural's s.
TIMES = {
    **dict.fromkeys(["ns", "nsec", "nsecond", "nanosecond"], 1),
    **dict.fromkeys(["us", "usec", "usecond", "microsecond", "\u00b5s", "\u03bcs"], 10**3),
    **dict.fromkeys(["ms", "msec", "msecond", "millisecond"], 10**6),
    **dict.fromkeys(["s", "sec", "second"], 10**9),
}
PREFIXES = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
# Units of which ncu may print thousands or millions, with other words for the same unit.
COUNTED = {"bit", "block", "byte", "cycle", "flop", "hz", "inst", "op", "packet", "register", "request", "sector",
           "thread", "warp", "wavefront"}  # fmt: skip
BYTES, PERCENT = "byte", "%"
OTHER_WORDS = {"pct": PERCENT, "percent": PERCENT, "instruction": "inst"}
BINARY = re.compile(r"([kmgtpe])i(b|bytes?)")
# Forms of a multiple whose unit is unknown, or may be bits or bytes.
DOUBTFUL_UNIT = re.compile(r"[KMGTPE][a-z]+|[kmgtpe]b|.*seconds?")
NUMBER = re.compile(r"[-+]?([1-9]\d{0,2}(,\d{3})+|\d+)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
# Digits with separators as in other locales, but not as ncu prints them: 12,34 or 1.234,5 or 1 234.
MISPRINTED = re.compile(r"[-+]?\d[\d.,'\s\u00a0\u202f]*([eE][-+]?\d+)?")
# Numbers that only another locale prints; ambiguous ones (1.234); numbers that only English prints.
FOREIGN = re.compile(r"[-+]?[1-9]\d{0,2}([. '\u00a0\u202f]\d{3}){2,}(,\d+)?", re.ASCII)
DOUBTFUL = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
ENGLISH = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?|[-+]?\d+\.(\d{1,2}|\d{4,})", re.ASCII)
# ncu marks some of them with (!).
NONE = {"", "n/a", "nan", "inf", "no data"}
# Lists of numbers, which are text.
LISTS = {"launch__tpc_enabled"}


class ValueFormatError(ValueError):
    """A column cannot be read with certainty; the message says why, without the names of file and column."""


def base_unit(unit: str) -> tuple[str, int]:
    """Return the unit without prefix, and the factor to it.

    Times are converted to ns, and rates to values per second. An unknown unit stays as it is, unless it looks like a
    multiple of a unit.

    >>> base_unit("Kbyte/block"), base_unit("us"), base_unit("cycle/nsecond")
    (('byte/block', 1000), ('ns', 1000), ('cycle/s', 1000000000))

    Raises:
        ValueFormatError: the unit is unknown and may be a multiple.
    """
    counted, by, per = unit.partition("/")
    name, factor = ("ns", nanoseconds) if (nanoseconds := _nanoseconds(counted)) else _multiple(counted, unit)
    if nanoseconds := _nanoseconds(per):
        return f"{name}/s", factor * (TIMES["s"] // nanoseconds)
    below, parts = _multiple(per, unit)
    if parts != 1:
        raise _unknown(unit)
    return name + by + below, factor


def _nanoseconds(word: str) -> int | None:
    """Return how many ns a unit of time is; None for other units."""
    small = word.lower()
    return TIMES.get(small.removesuffix("s") if small.endswith("seconds") else small)


def _multiple(word: str, unit: str) -> tuple[str, int]:
    """Return the base unit of a word, and the factor to it."""
    if known := _counted(word):
        return known, 1
    if binary := BINARY.fullmatch(word.lower()):
        return BYTES, 1024 ** PREFIXES[binary[1]]
    if word[:1].lower() in PREFIXES and (known := _counted(word[1:])):
        return known, 1000 ** PREFIXES[word[0].lower()]
    if DOUBTFUL_UNIT.fullmatch(word):
        raise _unknown(unit)
    return word, 1


def _counted(word: str) -> str | None:
    """Return the standard name of a unit in which ncu counts; None if ncu prints no multiples of it."""
    if word == "B":
        return BYTES
    small = word.lower()
    for name in (small, small.removesuffix("s")):
        if name in COUNTED or name in OTHER_WORDS:
            return OTHER_WORDS.get(name, name)
    return None


def _unknown(unit: str) -> ValueFormatError:
    return ValueFormatError(
        f"is in {unit!r}, which may be a multiple of a unit: have ncu print it by --print-units base"
    )


def find_foreign_number(printed: Iterable[str]) -> str | None:
    """Return a printed number that comes, or may come, from another locale; None if all numbers are in English format.

    1.234 alone is ambiguous. It counts as English if other numbers of the page are clearly English.

    >>> pages = (["7", "1.234"], ["1,980,000", "1.234"], ["1.980.000", "7"])
    >>> tuple(map(find_foreign_number, pages))
    ('1.234', None, '1.980.000')
    """
    values = set(printed)
    foreign, doubtful = ([value for value in values if one.fullmatch(value)] for one in (FOREIGN, DOUBTFUL))
    if doubtful and not any(ENGLISH.fullmatch(value) for value in values):
        foreign += doubtful
    return min(foreign, default=None)


def normalize_column(name: str, column: pd.Series, unit: str) -> tuple[pd.Series, str]:
    """Return a metric's column as text with plain numbers in base units, empty for missing ones; and the base unit.

    A column of words stays as it is.

    Raises:
        ValueFormatError: numbers are in the format of another locale; a unit is missing or unknown; or a word has one.
    """
    if NUMBER.fullmatch(unit) or (_none(unit) and unit):
        raise ValueFormatError(f"is in {unit!r}, which is no unit: the page is damaged, or its row of units is missing")
    base, factor = base_unit(unit)
    values = column.unique()
    known: dict[str, str] = {value: "" for value in values if _none(value)}
    known |= {value: _scaled(value, factor) for value in values if value not in known and NUMBER.fullmatch(value)}
    others = [value for value in values if value not in known]
    words = others if name in LISTS else [value for value in others if not MISPRINTED.fullmatch(value)]
    if words and unit:
        raise ValueFormatError(
            f"in {unit}, holds {words[0]!r}, which is no number: this workflow does not know its meaning"
        )
    if words:
        return column, base
    if others:
        raise ValueFormatError(
            f"holds {others[0]!r}, which is no number as ncu prints it in English: print the page under LC_ALL=C"
        )
    return column.map(known), base


def _none(value: str) -> bool:
    return value.strip().removeprefix("(!)").strip().lstrip("+-").lower() in NONE


def _scaled(value: str, factor: int) -> str:
    digits = value.replace(",", "")
    return digits if factor == 1 else format(Decimal(digits) * factor, "f")


def parse_numbers(column: pd.Series) -> pd.Series:
    """Parse a text column: integers exactly if all are integers; unchanged if any value is not a number."""
    given = column[column != ""]
    parsed: Mapping[str, int | float] | None = _parsed(list(given.unique()))
    if parsed is None:
        return column
    kind = "Int64" if len(given) and all(isinstance(value, int) for value in parsed.values()) else "float64"
    return pd.Series([parsed[value] for value in given], given.index, dtype=kind).reindex(column.index)


def _parsed(values: list[str]) -> dict[str, int | float] | None:
    if not all(NUMBER.fullmatch(value) for value in values):
        return None
    exact = {value: Decimal(value.replace(",", "")) for value in values}
    if all(number == number.to_integral_value() and abs(number) < 2**63 for number in exact.values()):
        return {value: int(number) for value, number in exact.items()}
    return {value: float(number) for value, number in exact.items()}
