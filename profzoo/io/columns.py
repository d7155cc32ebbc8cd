"""What a column of a CSV means: its meaning, unit, the tool that measured it, and the clock that its times are of."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace

# Units that are not physical ones: a number of things, a part of a whole from 0 to 1, and one number over another.
COUNT, FRACTION, RATIO = "count", "fraction", "ratio"
# Clocks of times: of the GPU, and of the host.
GPU, CPU = "gpu", "cpu"
# Confidence of intervals, as columns named `_low` and `_high` have them.
NINE_OF_TEN, NINETEEN_OF_TWENTY = "90 %", "95 %"
_ENDS = {"_low": "Lower", "_high": "Upper"}


@dataclass(frozen=True)
class Column:
    """The meaning of a column, in one or two sentences.

    unit: empty for text, flags and identifiers. tool: that measured it; empty where the configuration says it, or where
    it follows from columns of several tools. clock: of a time, GPU or CPU. interval: the confidence of the interval
    whose ends are the columns of this name with `_low` and `_high`.
    """

    means: str
    unit: str = ""
    tool: str = ""
    clock: str = ""
    interval: str = ""


def find(name: str, *dictionaries: Mapping[str, Column]) -> Column | None:
    """Return what the first of several dictionaries says of a column; None where none knows it.

    A dictionary names columns, or families of them by a pattern with `*`; names come first. Ends of intervals follow
    from the column that they belong to.

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
