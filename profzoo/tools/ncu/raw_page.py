"""Tidies ncu's raw page: no units row, plain numbers in base units, names and ranges in their own columns."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import text_files
from profzoo.range_names import DOMAIN, LAUNCHING, PREFIX, STEP, WINDOW
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import links
from profzoo.tools.ncu.number_parsing import (
    LISTS,
    ValueFormatError,
    base_unit,
    find_foreign_number,
    normalize_column,
    parse_numbers,
)

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
            f"{path} holds {odd!r}, which is no number as ncu prints it in English: print it under LC_ALL=C"
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
            if links.is_link(name):
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
    absent = links.list_absent(raw)
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
