"""Declares columns of CSV files: the permitted texts of their fields, what they mean, and how they were measured."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# Clocks of times: the GPU's and the host's.
GPU, CPU = "gpu", "cpu"
# Confidences of the intervals in columns named `_low` and `_high`.
NINE_OF_TEN, NINETEEN_OF_TWENTY = "90 %", "95 %"
_ENDS = {"_low": "Lower", "_high": "Upper"}


@dataclass(frozen=True)
class Kind:
    """A kind of column.

    pattern: regular expression for its fields; None for text, which may be anything, also `null`, `NA` or empty. whole:
    integers, which must fit into 64 bits. mixed: the column becomes text if a field of it is not a number.
    """

    name: str
    pattern: str | None = None
    whole: bool = False
    mixed: bool = False

    @property
    def or_missing(self) -> "Kind":
        """The kind that also permits an empty field, read as a missing value."""
        return replace(self, name=f"{self.name} or nothing", pattern=f"({self.pattern})?")


TEXT = Kind("text")
# Numbers as this workflow writes them: no separators, no units, a point.
WHOLE = Kind("whole number", r"-?[0-9]+(\.0+)?", whole=True)
COUNT = Kind("whole number from 0 on", r"[0-9]+(\.0+)?", whole=True)
NUMBER = Kind("number", r"-?([0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|inf)")
AMOUNT = Kind("number from 0 on", r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|inf")
FLAG = Kind("True or False", "True|False")
# Values that another program counted or named.
MEASURED = replace(NUMBER.or_missing, mixed=True)


@dataclass(frozen=True)
class Column:
    """The declaration of a column.

    kind: permitted fields. means: its meaning, in one or two sentences. unit: unit of the values, `count`, `fraction`
    (from 0 to 1) or `ratio` without a physical one; empty for text, flags and identifiers. tool: the tool that measured
    them; empty if they come from the configuration or from several tools. clock: clock of a time, GPU or CPU. interval:
    confidence of the interval whose ends are the columns with this name and `_low` or `_high`.
    """

    kind: Kind
    means: str
    unit: str = ""
    tool: str = ""
    clock: str = ""
    interval: str = ""


def select(columns: Mapping[str, Column], *names: str, **changes: Any) -> dict[str, Column]:
    """Return these columns by name, each with changed fields, such as another kind.

    >>> select({"step": Column(COUNT, "Step."), "ns": Column(COUNT, "Time.", "ns")}, "ns", kind=AMOUNT)["ns"].kind.name
    'number from 0 on'
    """
    return {name: replace(columns[name], **changes) for name in names}


def interval_ends(columns: Mapping[str, Column], *names: str, **changes: Any) -> dict[str, Column]:
    """Return the ends of the intervals of these columns by name, with changed fields.

    >>> [end.means for end in interval_ends({"gain": Column(NUMBER, "Speedup.", "ratio", interval="95 %")}).values()]
    ['Lower end of the 95 % interval of `gain`.', 'Upper end of the 95 % interval of `gain`.']
    """
    found = {}
    for name in names or columns:
        confidence = f"{columns[name].interval} " if columns[name].interval else ""
        for ending, side in _ENDS.items():
            means = f"{side} end of the {confidence}interval of `{name}`."
            found[name + ending] = replace(columns[name], means=means, **changes)
    return found


def with_interval(name: str, column: Column) -> dict[str, Column]:
    """Return a column and the ends of its interval, by name.

    >>> list(with_interval("gain", Column(NUMBER, "Speedup.", "ratio", interval="95 %")))
    ['gain', 'gain_low', 'gain_high']
    """
    return {name: column, **interval_ends({name: column})}


def find_family(name: str, families: Mapping[str, Column]) -> Column | None:
    """Return the declaration of a column by its name, or else by the first pattern with `*` that matches; or None.

    >>> known = {"*_ns": Column(COUNT, "Time.", "ns"), "idle_ns": Column(AMOUNT, "Idle time.", "ns")}
    >>> find_family("idle_ns", known).means, find_family("busy_ns", known).means, find_family("launches", known)
    ('Idle time.', 'Time.', None)
    """
    if found := families.get(name):
        return found
    matching = (one for pattern, one in families.items() if "*" in pattern and fnmatch.fnmatchcase(name, pattern))
    return next(matching, None)


def with_article(kind: str) -> str:
    """Return the name of a kind of values as a message needs it after `is not`.

    >>> with_article("whole number"), with_article("True or False")
    ('a whole number', 'True or False')
    """
    return kind if kind.casefold().startswith("true ") else f"a {kind}"
