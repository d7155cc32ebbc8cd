"""Describes columns of CSV files: meaning, unit, the tool that measured them, and the clock of their times."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace

# Units without a physical dimension: a number of things, a share from 0 to 1, and a ratio of two numbers.
COUNT, FRACTION, RATIO = "count", "fraction", "ratio"
# Clocks of times: the GPU's and the host's.
GPU, CPU = "gpu", "cpu"
# Confidences of the intervals in columns named `_low` and `_high`.
NINE_OF_TEN, NINETEEN_OF_TWENTY = "90 %", "95 %"
_ENDS = {"_low": "Lower", "_high": "Upper"}


@dataclass(frozen=True)
class Column:
    """The meaning of a column, in one or two sentences.

    unit: unit of the values; empty for text, flags and identifiers. tool: the tool that measured them; empty if they
    come from the configuration or from several tools. clock: clock of a time, GPU or CPU. interval: confidence of the
    interval whose ends are the columns with this name and `_low` or `_high`.
    """

    means: str
    unit: str = ""
    tool: str = ""
    clock: str = ""
    interval: str = ""


def find(name: str, *dictionaries: Mapping[str, Column]) -> Column | None:
    """Return the description of a column from the first dictionary that has it; None if no dictionary has it.

    A dictionary has names of columns, and patterns with `*` for families of columns; names take precedence. Ends of
    intervals are described by the column to which they belong.

    >>> known = {"gain": Column("Speedup.", "ratio", interval="95 %"), "*_launches": Column("Launches.", "count")}
    >>> find("nsys_launches", known).unit, find("gain_low", known).means, find("other", known)
    ('count', 'Lower end of the 95 % interval of `gain`.', None)
    """
    for known in dictionaries:
        if found := _exact(name, known):
            return found
    for known in dictionaries:
        for pattern, column in known.items():
            if "*" in pattern and fnmatch.fnmatchcase(name, pattern):
                return column
    return None


def _exact(name: str, known: Mapping[str, Column]) -> Column | None:
    if name in known:
        return known[name]
    for ending, side in _ENDS.items():
        base = known.get(name.removesuffix(ending)) if name.endswith(ending) else None
        if base is not None:
            confidence = f"{base.interval} " if base.interval else ""
            return replace(base, means=f"{side} end of the {confidence}interval of `{name.removesuffix(ending)}`.")
    return None
