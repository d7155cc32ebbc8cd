"""Makes the table of source lines and machine instructions of a launch, from ncu's source pages of it."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.tools.ncu.source_columns import (
    EXECUTED,
    LOCAL,
    NAMES,
    OF_INSTRUCTION,
    OF_LINE,
    SAMPLES,
    adds_up,
    name_column,
)
from profzoo.tools.ncu.source_page import Instruction, Line

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
