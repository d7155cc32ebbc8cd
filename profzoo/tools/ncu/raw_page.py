"""Tidies the pages that ncu prints: plain numbers in base units, names and ranges in their columns, advice of rules."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import text_files
from profzoo.io.columns import COUNT
from profzoo.io.csv_tables import CellError, parse_column
from profzoo.range_names import DOMAIN, LAUNCHING, PREFIX, STEP, WINDOW
from profzoo.tools.ncu import command as ncu

# Parses the values that ncu prints: separators, scaled units, and marks for missing values.

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
        raise ValueFormatError(
            f"is in {unit!r}, which is not a unit: the page is damaged, or its row of units is missing"
        )
    base, factor = base_unit(unit)
    values = column.unique()
    known: dict[str, str] = {value: "" for value in values if _none(value)}
    known |= {value: _scaled(value, factor) for value in values if value not in known and NUMBER.fullmatch(value)}
    others = [value for value in values if value not in known]
    words = others if name in LISTS else [value for value in others if not MISPRINTED.fullmatch(value)]
    if words and unit:
        raise ValueFormatError(
            f"in {unit}, holds {words[0]!r}, which is not a number: this workflow does not know its meaning"
        )
    if words:
        return column, base
    if others:
        raise ValueFormatError(
            f"holds {others[0]!r}, which is not a number as ncu prints it in English: print the page under LC_ALL=C"
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


# Tells which links a GPU has (NVLink, NUMA, C2C), by the columns of ncu's raw page that describe them.

# Families of columns, each with the columns of which one is not 0 where the GPU has such a link. `nvlink__max_count`
# is none of them, because it counts links that are not connected, too. Every GPU has an entry of the family numa; it
# says something where GPUs differ in it, or where the GPU's memory is a node.
FAMILIES: Mapping[str, Sequence[str]] = {
    "c2clink__": ("c2clink__present", "c2clink__enabled_mask"),
    "nvlink__": ("nvlink__enabled_mask", "nvlink__count_logical", "nvlink__count_physical"),
    "numa__": ("device__attribute_numa_config",),
}
DEVICES = "numa__dev_display_name_all"
# How ncu prints that a GPU has none, and that it does not know.
NO_LINK = {"", "0", "n/a", "(!) n/a", "nan", "no data"}


def is_link(name: str) -> bool:
    """Return whether a column describes a link.

    >>> is_link("nvlink__bandwidth"), is_link("nvltx__bytes.sum")
    (True, False)
    """
    return name.startswith(tuple(FAMILIES))


def list_absent(raw: pd.DataFrame) -> tuple[str, ...]:
    """Return the families of columns about links that the GPU of a raw page does not have.

    raw: columns as text, as ncu prints them.

    >>> one = pd.DataFrame({"nvlink__enabled_mask": ["0"], "c2clink__present": ["1"], "numa__id_cpu": ["1"]})
    >>> list_absent(one), list_absent(one.assign(nvlink__enabled_mask="262143", numa__dev_display_name_all="2"))
    (('nvlink__', 'numa__'), ())
    """
    several = DEVICES in raw and any(value.isdecimal() and int(value) > 1 for value in raw[DEVICES].unique())
    present = {family for family, told in FAMILIES.items() if any(_holds(raw, name) for name in told)}
    present |= {"numa__"} if several else set()
    return tuple(family for family in FAMILIES if family not in present)


def _holds(raw: pd.DataFrame, name: str) -> bool:
    return name in raw and any(value.strip().lower() not in NO_LINK for value in raw[name].unique())


CONFIGURATION = [
    "mangled",
    "grid_x", "grid_y", "grid_z",
    "block_x", "block_y", "block_z",
    "smem_static_bytes", "smem_dynamic_bytes",
]  # fmt: skip
LEADING = ["id", "kernel", "mangled", "function", "range", "stream", *CONFIGURATION[1:], "launches"]
SHARED_MEMORY = dict(zip(("smem_static_bytes", "smem_dynamic_bytes"), ncu.SHARED_MEMORY, strict=True))
# If the launches of a configuration differ by more than this factor in time, they are assumed to do different work,
# such as matrix products with different inner dimensions. The time of a single launch varies by less.
UNEVEN = 1.5
NOISE = re.compile(r"==[A-Z]+== ")
AGAIN = "delete its folder, and the next run prints the report again"
# ncu would print an undamaged page in the same way again.
ODD = "ncu would print it so again: report it, with the version of ncu"
# Required columns with regular expressions for their values; then columns of launches, which ranges lack.
PAGE = {"ID": r"[0-9]+", "Kernel Name": r"(?s:.*)", "CC": r".*"}
LAUNCHES = PAGE | {"Stream": r"[0-9]+"} | dict.fromkeys(["Grid Size", "Block Size"], r"\([0-9]+, [0-9]+, [0-9]+\)")
# Properties of the GPU and of the collection that ncu repeats in every row; the sidecar and the report have them.
CONSTANT = re.compile(r"^(device__attribute_|profiler__|session__)")


def read_raw(path: str | Path, ranges: bool = False) -> tuple[pd.DataFrame, dict[str, str]]:
    """Read the raw page of a report as `ncu --import X --page raw --csv` prints it.

    ranges: the page is about ranges, which have no grid and no stream.

    Returns: one row per launch, all values as text; metrics are plain numbers in base units, or empty. And the base
    unit of each column that has one.

    Raises:
        DataError: there is no table, it has no launch, or a value cannot be read with certainty.
    """
    frame, units = _page(path, PAGE if ranges else LAUNCHES)
    # Lists of numbers look like numbers of other locales.
    measured = [name for name in frame.columns[frame.columns.get_loc("CC") + 1 :] if name not in LISTS]
    if odd := find_foreign_number(value for name in measured for value in frame[name].unique()):
        raise DataError(
            f"{path} holds {odd!r}, which is not a number as ncu prints it in English: print it under LC_ALL=C"
        )
    for name in _metrics(frame):
        try:
            printed = units.get(name, "")
            frame[name], unit = normalize_column(name, frame[name], printed)
            if name in ncu.SHARED_MEMORY and base_unit(printed)[1] != 1:
                # ncu rounds multiples of units, but launch configurations are compared by these values.
                raise ValueFormatError(
                    f"is in {printed}, to which it was rounded: have ncu print it by --print-units base"
                )
        except ValueFormatError as error:
            if is_link(name):
                # They describe the machine, and no number of a table is derived from them.
                continue
            joined = "," if str(error).startswith("in ") else ""
            raise DataError(f"{path}: column {name}{joined} {error}") from None
        if unit:
            units[name] = unit
    return frame, units


def _page(path: str | Path, required: Mapping[str, str]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the launches of a page by their number, with values as printed, and the printed unit of each column.

    required: required columns, each with a regular expression for its values.

    Raises:
        DataError: the page is damaged, or lacks a column.
    """
    # ncu mixes lines such as ==PROF== into the output of some commands.
    lines = [line for line in reading.lines(text_files.read_text(path, AGAIN)) if not NOISE.match(line)]
    start = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None or len(lines) - start < 3:
        raise DataError(f"{path} holds no launch: ncu printed no table; see the log of the profiling job")
    heading, units, *body = reading.rows_of_text("".join(lines[start:]), path, AGAIN)
    missing = [name for name in required if name not in heading]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}: {ODD}")
    if early := [name for name in heading[: heading.index("CC")] if "__" in name]:
        raise DataError(f"{path}: column {early[0]} is not where ncu prints metrics: {ODD}")
    if units[0]:
        raise DataError(f"{path} has no row of units below its heading: {ODD}")
    frame = pd.DataFrame(body, columns=heading, dtype="str")
    for name, form in required.items():
        other = frame.index[~frame[name].str.fullmatch(form)]
        if len(other):
            what, held = "launch" if name == "ID" else name, frame.loc[other[0], name]
            more = "the page is damaged, or holds more than one table"
            raise DataError(f"{path}: row {other[0] + 1} has {what} {held!r}: {more}")
    frame = frame.sort_values("ID", key=lambda numbers: numbers.astype("int64"), ignore_index=True)
    if frame["ID"].duplicated().any():
        raise DataError(f"{path}: launch {frame.loc[frame['ID'].duplicated(), 'ID'].iloc[0]} occurs twice: {AGAIN}")
    return frame, {name: unit for name, unit in zip(heading, units, strict=True) if unit}


def _metrics(raw: pd.DataFrame) -> list[str]:
    """Return the columns of a raw page that hold collected metrics, or describe links that the GPU has."""
    absent = list_absent(raw)
    after = raw.columns[raw.columns.get_loc("CC") + 1 :]
    return [name for name in after if not CONSTANT.match(name) and not (absent and name.startswith(absent))]


def tidy_launches(
    mangled: pd.DataFrame, units: Mapping[str, str], demangled: pd.DataFrame, counts: pd.Series | None
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Make the exported table of one section set.

    Args:
        mangled: raw page with mangled kernel names.
        units: units of this page.
        demangled: raw page of the same report with demangled names.
        counts: number of launches of each launch configuration in the window, indexed by CONFIGURATION; None if the
            rows are all launches of the window.

    Returns: one row per profiled launch, with LEADING columns and then every collected metric, as a plain number in
    base units or as text; and the unit of each metric.
    """
    frame = pd.DataFrame({"id": mangled["ID"].astype("int64"), "mangled": mangled["Kernel Name"]})
    frame["kernel"] = demangled.set_index("ID")["Kernel Name"].reindex(mangled["ID"]).to_numpy()
    frame["function"] = frame["kernel"].map(function_name)
    frame["range"] = read_ranges(mangled)
    frame["stream"] = mangled["Stream"].astype("int64")
    for what in ("grid", "block"):
        sizes = mangled[f"{what.title()} Size"].str.extract(r"\((\d+), (\d+), (\d+)\)").astype("int64")
        frame[[f"{what}_x", f"{what}_y", f"{what}_z"]] = sizes.to_numpy()
    for column, metric in SHARED_MEMORY.items():
        if metric in mangled:
            frame[column] = parse_numbers(mangled[metric]).round().astype("Int64")
        else:
            frame[column] = pd.array([pd.NA] * len(frame), dtype="Int64")
    frame["launches"] = _launches(frame, counts)
    metrics = pd.DataFrame({name: parse_numbers(mangled[name]) for name in _metrics(mangled)})
    kept = {name: unit for name, unit in units.items() if name in metrics}
    return pd.concat([frame[LEADING], metrics], axis=1), kept


def tidy_ranges(raw: pd.DataFrame, units: Mapping[str, str]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Make the exported table of a section set under range replay: one row per range and step of the window.

    Returns: columns `id`, `range`, `step` (in the window, from 0), then every metric as a number in base units; and the
    unit of each metric.
    """
    stacks = _opened(raw, (WINDOW, STEP, *LAUNCHING))
    inside = stacks.map(lambda stack: WINDOW in stack)
    # Without NVTX ranges, what is measured is the window itself, from profiler start to stop.
    kept = raw[inside] if inside.any() else raw
    frame = pd.DataFrame({"id": kept["ID"].astype("int64")})
    frame["range"] = stacks[kept.index].map(lambda stack: stack[-1] if stack else WINDOW)
    frame["step"] = frame.groupby("range").cumcount()
    # Launches are what range replay does not see, and it prints zeros for them.
    names = [name for name in _metrics(raw) if not name.startswith("launch__")]
    metrics = pd.DataFrame({name: parse_numbers(kept[name]) for name in names})
    return pd.concat([frame, metrics], axis=1), {name: unit for name, unit in units.items() if name in metrics}


def count_configurations(census: pd.DataFrame) -> pd.Series:
    """Count the launches per launch configuration, indexed by CONFIGURATION."""
    return census.groupby(CONFIGURATION, dropna=False).size()


def find_other_kernels(table: pd.DataFrame, census: pd.DataFrame) -> list[str]:
    """Return the functions of kernels in an exported table that the census, which is another run, lacks.

    There are such kernels only if a library, such as cuDNN, chose another algorithm than in the census.
    """
    new = table[~table["mangled"].isin(census["mangled"])]
    return list(dict.fromkeys(new["function"]))


def read_ranges(raw: pd.DataFrame) -> pd.Series:
    """Return the range (forward, backward, ...) of each launch; empty if it is in none.

    ncu prints the stack of open push/pop ranges, outermost first, each as "domain:name:..." in quotes.
    """
    return _opened(raw, LAUNCHING).map(lambda found: found[-1] if found else "")


def any_in_step(raw: pd.DataFrame) -> bool:
    """Return whether any launch is in a step of the window."""
    return bool(_opened(raw, (STEP,)).astype(bool).any())


def _opened(raw: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Return the open ranges with these names of each launch, outermost first; the program's own are left out."""
    column = next((name for name in raw.columns if "Push/Pop_Range" in name), None)
    stacks = pd.Series([""] * len(raw), index=raw.index) if column is None else raw[column]
    # Earlier reports have plain names. ncu always prints the domain, and only profzoo's ranges are in its domain.
    return stacks.str.findall(rf'(?<![^\s,])"{DOMAIN}:(?:{PREFIX})?({"|".join(names)}):')


def function_name(kernel: str) -> str:
    """Return the bare name of a kernel: no return type, namespace, template arguments or parameters.

    >>> function_name("void at::native::vectorized_elementwise_kernel<4, at::Add<float>>(int, T2)")
    'vectorized_elementwise_kernel'
    >>> function_name("void <unnamed>::softmax_warp_forward<float, (int)5>(T1 *)")
    'softmax_warp_forward'
    """
    name = kernel.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    depth, parentheses, last = 0, 0, ""
    for character in name:
        if depth and character in "()":
            parentheses += 1 if character == "(" else -1
        elif character in "<>" and not parentheses:
            depth += 1 if character == "<" else -1
        elif depth == 0:
            if character == "(" and last:
                break
            last += character
    return re.split(r"::|\s", last.strip())[-1] or kernel


def _launches(frame: pd.DataFrame, counts: pd.Series | None) -> pd.Series:
    known = count_configurations(frame) if counts is None else counts
    index = pd.MultiIndex.from_frame(frame[CONFIGURATION])
    return pd.Series(known.reindex(index).to_numpy(), index=frame.index).astype("Int64")


# Reads ncu's details page, which holds metrics and the advice of ncu's rules.

SPEEDUP = "Estimated Speedup"
LAUNCH = ["ID", "Kernel Name", "Section Name"]
ADVICE = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", SPEEDUP]
# The last column of rows about metrics, which end with one empty cell more.
METRIC = "Metric Value"


def read_details(path: str | Path) -> pd.DataFrame:
    """Return one row per metric or piece of advice; columns are text, except ID (integer) and SPEEDUP (percent).

    A page of a report without rules has no column of advice.

    Raises:
        DataError: it is damaged, or a speed-up is not a number.
    """
    frame = read_texts(path)
    advised = [name for name in ADVICE if name in frame]
    missing = [name for name in [*LAUNCH, METRIC, *(ADVICE if advised else [])] if name not in frame]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}: {ODD}")
    try:
        frame["ID"] = parse_column(list(frame["ID"]), COUNT)
        if advised:
            frame[SPEEDUP] = _percent(frame[SPEEDUP])
    except (CellError, ValueFormatError) as error:
        column = SPEEDUP if isinstance(error, ValueFormatError) else "ID,"
        raise DataError(f"{path}: column {column} {error}: {ODD}") from None
    return frame


def read_texts(path: str | Path) -> pd.DataFrame:
    """Return the rows of a details page as texts; cells that a row lacks at its end are empty.

    Raises:
        DataError: it is damaged.
    """
    content = text_files.read_text(path, reading.AGAIN)
    # ncu mixes lines such as ==WARNING== into its output.
    printed = "".join(line for line in reading.lines(content) if not NOISE.match(line))
    heading, *body = reading.rows_of_text(printed, path, widths=[_short(printed)])
    full = [row + [""] * (len(heading) - len(row)) for row in body]
    return pd.DataFrame({name: [row[at] for row in full] for at, name in enumerate(heading)}, dtype="str")


def _short(printed: str) -> int:
    """Return the number of fields in rows about metrics."""
    heading = printed.partition("\n")[0].replace('"', "").rstrip("\r").split(",")
    return heading.index(METRIC) + 2 if METRIC in heading else len(heading)


def _percent(column: pd.Series) -> pd.Series:
    """Convert estimated speedups to numbers; ncu prints values from 1,000 up with separators."""
    text, _ = normalize_column(SPEEDUP, column, "%")
    return parse_numbers(text).astype("float64")
