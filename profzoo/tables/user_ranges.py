"""Declares the table of ranges that a program opened itself, and adds up launches along their tree."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, CPU, GPU, TEXT, Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.launches import joined_step
from profzoo.launches.joined_step import KERNEL, OWNER, UNALIGNED, Joined
from profzoo.range_names import DOMAIN, PREFIX, REST
from profzoo.range_names import STEP as RANGE_NAMES_STEP
from profzoo.range_names import WHOLE_STEP as STEP
from profzoo.tables import layers, roofline
from profzoo.tables.layers import ALIGNED, COUNTED, ROUNDING, Others
from profzoo.tables.steps_per_export import NEEDS as OF_SIDECAR
from profzoo.tables.steps_per_export import count_profiled_steps
from profzoo.tools import user_ranges
from profzoo.tools.nsys import TOOL as TOOL
from profzoo.tools.nsys.events import launches
from profzoo.tools.nsys.events.launches import is_outside_steps, launch_times, read_step_launches
from profzoo.tools.nsys.events.trace import Source, Trace, open_trace, read_window_steps
from profzoo.tools.torch import owners
from profzoo.tools.torch import user_ranges as torch_ranges
from profzoo.tools.torch.user_ranges import COLUMN
from profzoo.tools.user_ranges import COLUMNS as USER_RANGES_COLUMNS
from profzoo.tools.user_ranges import NEVER, UserRanges

# Reads the NVTX ranges that a program opened itself from an nsys export (SQLite), and the launches made in them.

# Domains of libraries, which annotate every program that uses them.
LIBRARIES = ("NCCL", "CCCL", "cuBLAS", "cuBLASLt", "cuDNN", "cuSPARSE", "cuSOLVER", "cuFFT", "NVSHMEM", "Thrust", "CUB")
# What emit_nvtx of torch writes for each operator, and nsys' own option for PyTorch; what NCCL does in a domain that
# the export does not name; and the ranges of profzoo.
OTHERS = re.compile(rf"{PREFIX}.*|module:[^:]*:\w+|.*, (seq|op_id|sizes) = .*|nccl[A-Z]\w*")
# The joint name of range and domain, as options of nsys have it.
AT = "@"


@dataclass(frozen=True)
class TracedRanges:
    """User ranges in a trace, and the launches of its steps.

    launches: `process`, `correlation`, `range` (the path, empty outside of all) and `ns` on the GPU, a row per kernel
    launch or CUDA graph traced as a whole. by_step: launches of kernels as launches_by_step has them, with `range` as
    `user_range`. steps: how many a process ran.
    """

    found: UserRanges
    launches: pd.DataFrame
    by_step: pd.DataFrame
    steps: int


def read_user_ranges(source: Source, whole_run: bool = False) -> TracedRanges | None:
    """Return the program's own ranges and the launches of the window's steps; None without such ranges or steps.

    whole_run: whether more was traced than the window.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        ranges = _choose_ranges(trace)
        steps = read_window_steps(trace, whole_run) if len(ranges) else pd.DataFrame()
        if steps.empty:
            return None
        found = user_ranges.nest_ranges(ranges, steps)
        launches = trace.launches[~is_outside_steps(trace.launches, steps)].reset_index(drop=True)
        if found.ranges.empty:
            return None
        by_step = read_step_launches(trace, whole_run, with_calls=True)
    made = launch_times(launches)
    paths = found.find_paths(made, launches["process"].to_numpy(), launches["thread"].to_numpy())
    launches = launches[["process", "correlation", "ns"]].assign(range=paths)
    known = launches.drop_duplicates(["process", "correlation"])[["process", "correlation", "range"]]
    by_step = by_step.merge(known.rename(columns={"range": "user_range"}), on=["process", "correlation"], how="left")
    by_step = by_step.assign(user_range=by_step["user_range"].fillna("")).drop(columns="correlation")
    return TracedRanges(found, launches, by_step, int(steps.groupby("process").size().max()))


def _choose_ranges(trace: Trace) -> pd.DataFrame:
    """Return all ranges but those of profzoo and of libraries, with the columns of user_ranges."""
    table = trace.ranges
    ours = [number for number, name in trace.domains.items() if name in (DOMAIN, *LIBRARIES)]
    table = table[table["name"].notna() & ~table["domain"].isin(ours)]
    table = table[~table["name"].astype("str").str.fullmatch(OTHERS)].reset_index(drop=True)
    # With a type of its own, as pandas takes an empty list for numbers, which it cannot append to strings of pyarrow.
    ends = pd.Series(
        [f"{AT}{trace.domains[number]}" if number in trace.domains else "" for number in table["domain"]], dtype="str"
    )
    # What is open still when the trace ends has no end; exports of schema 2 have 0 then.
    open_until = table["end"].where(table["end"] >= table["start"], NEVER)
    return table.assign(name=table["name"].astype("str") + ends, end=open_until)[[*USER_RANGES_COLUMNS]]


# How a program opened its ranges.
NVTX, RECORD_FUNCTION = "nvtx", "record_function"
# What of a step is in none of them.
OUTSIDE = f"({REST})"
OWN = ["launches", "self_ns", "total_ns"]
LEADING = ["api", "range", "parent", "tool", "clock", "calls", "cpu_ns", *OWN, "share"]
_TEXTS = ("api", "range", "parent", "tool", "clock", "bound")
# Columns of the table across cells that are there only with such ranges, and what they are of a cell's own.
FORMER = {"calls_per_step": "calls", "cpu_ns_per_step": "cpu_ns", "self_ns_per_step": "self_ns"}
ADDED = ["api", "parent", *FORMER, "share", *COUNTED]


def _adds_up(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a tree in which a range takes other time than itself and the ranges in it."""
    known = table[table["total_ns"].notna()]
    for api, rows in known.groupby("api", sort=False):
        below = rows.groupby("parent")["total_ns"].sum().reindex(rows["range"]).fillna(0).to_numpy()
        wrong = (rows["self_ns"] + below - rows["total_ns"]).abs() > ROUNDING * rows["total_ns"].max()
        if wrong.any():
            name = rows["range"].to_numpy()[int(wrong.to_numpy().argmax())]
            return f"{name} of {api}: total_ns is not that of itself and the ranges in it: rows are missing"
    return None


_CLOCKED = "GPU time per step of the kernels launched in it (on a CPU: host time of operators)"
TABLE = Table(
    columns={
        "api": Column(TEXT, "What the program opened the range with: `nvtx`, or `record_function` of torch.profiler."),
        "range": Column(
            TEXT, "Range of the program's own behind the names of those around it, joined by ` > `; `(step)` for the "
            "whole step, `(other)` for what is in none."),
        "parent": Column(TEXT, "Range around this one; `(step)` around the outermost ones."),
        "tool": Column(TEXT, "Tool that timed the launches: `nsys` where it was used, else `torch`."),
        "clock": Column(TEXT, "Clock of `total_ns`: `gpu`, or `cpu` where the cell ran on one."),
        "calls": Column(AMOUNT.or_missing, "How often the range was opened per step.", "count"),
        "cpu_ns": Column(AMOUNT.or_missing, "Host time per step for which the range was open.", "ns", clock=CPU),
        "launches": Column(
            AMOUNT.or_missing, "Launches per step in the range and those within (on a CPU: calls of operators).",
            "count"),
        "self_ns": Column(AMOUNT.or_missing, f"{_CLOCKED}, without ranges within.", "ns", clock=GPU),
        "total_ns": Column(
            AMOUNT.or_missing, f"{_CLOCKED}, with ranges within; empty where no tool saw launches.", "ns", clock=GPU),
        "share": Column(AMOUNT.or_missing, "Part of the time of the whole step.", "fraction", clock=GPU),
        **COUNTED,
    },
    key=["api", "range"],
    holds=_adds_up,
)  # fmt: skip
COLUMNS = [*TABLE.columns]


def tree_parents(paths: pd.DataFrame) -> dict[str, str]:
    """Return the parent of each range of a tree whose root is STEP, children behind parents.

    paths: `range` and `parent`, a row per path, in the order in which they were first opened.
    """
    children: dict[str, list[str]] = {}
    for name, parent in zip(paths["range"], paths["parent"], strict=True):
        if name != STEP:
            children.setdefault(parent or STEP, []).append(name)
    found = {STEP: ""}
    waiting = [(STEP, name) for name in reversed(children.get(STEP, []))]
    while waiting:
        parent, name = waiting.pop()
        found[name] = parent
        waiting += [(name, inner) for inner in reversed(children.get(name, []))]
    return found | {OUTSIDE: STEP}


def list_chain(name: str, parents: Mapping[str, str]) -> list[str]:
    """Return all ranges that enclose one, from the root on, and itself.

    >>> list_chain("a > b", {"(step)": "", "a": "(step)", "a > b": "a"})
    ['(step)', 'a', 'a > b']
    """
    chain = [name]
    while parents[chain[-1]]:
        chain.append(parents[chain[-1]])
    return chain[::-1]


def add_up(paths: pd.DataFrame, steps: int, own: pd.DataFrame | None, counted: pd.DataFrame | None) -> pd.DataFrame:
    """Return one row per range, per step, with COLUMNS but `api`, `tool` and `clock`.

    Args:
        paths: NODES of tools.user_ranges, summed over so many steps; own: `launches` and `total_ns` per step by range,
            of launches made in the range itself, empty for those outside of all; None where nothing ran on a GPU.
            counted: COUNTED by `range`, of all launches in it.
    """
    parents = tree_parents(paths)
    if own is not None:
        own = own.rename(index={"": OUTSIDE})
    # What one tool has and another has not the like of, in times or in counters alone.
    named = [*([] if own is None else own.index), *([] if counted is None else counted["range"])]
    parents |= {UNALIGNED: STEP} if UNALIGNED in named else {}
    table = pd.DataFrame({"range": list(parents), "parent": list(parents.values())})
    known = paths.set_index("range")[["calls", "cpu_ns"]] / steps
    table = table.join(known, on="range")
    table = table.assign(**dict.fromkeys([*OWN, "share"], np.nan) if own is None else _sums(table, own))
    if counted is not None:
        table = table.merge(counted, on="range", how="left")
    table = table.reindex(columns=[name for name in COLUMNS if name not in ("api", "tool", "clock")])
    return table.assign(bound=table["bound"].astype("object").fillna(""))


def _sums(table: pd.DataFrame, own: pd.DataFrame) -> dict[str, list[float] | pd.Series]:
    """Return OWN and `share` of each row, whose children come behind it."""
    rows = own.reindex(table["range"]).fillna(0.0)
    place = {name: index for index, name in enumerate(table["range"])}
    launches, times = rows["launches"].tolist(), rows["total_ns"].tolist()
    for index in range(len(table) - 1, 0, -1):
        parent = place[table["parent"].iloc[index]]
        launches[parent] += launches[index]
        times[parent] += times[index]
    share = pd.Series(times, index=table.index) / max(times[0], 1)
    return {"launches": launches, "self_ns": rows["total_ns"].tolist(), "total_ns": times, "share": share}


def append_user_ranges(parts: pd.DataFrame, own: Iterable[tuple[Mapping[str, str], pd.DataFrame]]) -> pd.DataFrame:
    """Return the table of ranges across cells with the program's own behind parts of the step; the same without any.

    parts: of cell_tables.ranges; own: each cell with its rows of TABLE.
    """
    frames = [rows.assign(**cell) for cell, rows in own if len(rows)]
    if not frames:
        return parts
    table = pd.concat(frames, ignore_index=True)
    table = table.assign(**{name: table[former] for name, former in FORMER.items()})
    table = table.rename(columns={"total_ns": "ns_per_step", "launches": "launches_per_step"})
    columns = [*parts.columns, *ADDED]
    found = pd.concat([parts, table[columns]], ignore_index=True)[columns]
    texts = [name for name in ADDED if name in _TEXTS]
    return found.assign(**{name: found[name].astype("object").fillna("") for name in texts})


def select_parts(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of the step from the table of ranges across cells, without ranges of the program's own."""
    return ranges[ranges["api"] == ""].drop(columns=ADDED, errors="ignore") if "api" in ranges else ranges


def find_repeated(ranges: pd.DataFrame) -> str | None:
    """Say which row of the table of ranges across cells is there twice; None for none."""
    by = ["model", "phase", "tool", "range", *(["api"] if "api" in ranges else [])]
    twice = ranges.duplicated(by)
    return f"row {int(twice.argmax()) + 1} is there twice" if twice.any() else None


# Sums a cell's launches by the ranges that the program opened itself: NVTX by nsys, record_function by torch.
NODE = ["range"]
SUMS = ["launches", "total_ns"]


@dataclass(frozen=True)
class OfTorch:
    """Files of torch.profiler; empty where it was not chosen. sidecar: of its trace."""

    launches: str = ""
    ranges: str = ""
    sidecar: str = ""


def write_user_ranges(torch: OfTorch, others: Others, csv: str) -> None:
    """Read what each tool saw of the cell's own ranges; write one table, without rows where it has none."""
    peaks = roofline.read_peaks(others.peaks) if others.peaks else {}
    parts = []
    whole_run = bool(others.nsys) and read_facts(others.sidecar, OF_SIDECAR).get("capture") == "run"
    if others.nsys and (traced := read_user_ranges(others.nsys, whole_run)):
        parts.append(_of_nvtx(traced, others, peaks))
    if torch.ranges and len(paths := reading.read(torch.ranges, torch_ranges.TABLE)):
        nsys = launches.read_step_launches(others.nsys, whole_run) if others.nsys else None
        parts.append(_of_record_function(torch, paths, nsys if nsys is not None and len(nsys) else None, others, peaks))
    table = pd.concat(parts, ignore_index=True) if parts else TABLE.empty()
    write_csv(table[COLUMNS], csv)


def _of_nvtx(traced: TracedRanges, others: Others, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return the rows of NVTX ranges, with GPU times of all steps by nsys."""
    paths, own, counted = traced.found.tabulate_paths(), None, None
    if len(traced.launches):
        rows = pd.DataFrame({"range": traced.launches["range"], "launches": 1.0, "total_ns": traced.launches["ns"]})
        own = _by_range(rows) / traced.steps
        if others.census and len(traced.by_step):
            launches = traced.by_step.drop(columns="user_range")
            owned = _as_owners(launches.assign(kind=KERNEL), traced.by_step["user_range"])
            counted = _count_work(layers.join_tools(others, owned, launches), paths, peaks)
    clock = "cpu" if own is None else "gpu"
    return add_up(paths, traced.steps, own, counted).assign(api=NVTX, tool=TOOL, clock=clock)


def _of_record_function(
    torch: OfTorch, paths: pd.DataFrame, nsys: pd.DataFrame | None, others: Others, peaks: Mapping[str, float]
) -> pd.DataFrame:
    """Return the rows of ranges of record_function, with GPU times by nsys where it traced kernels of the cell.

    nsys: launches by step; None without any.
    """
    steps = count_profiled_steps(read_facts(torch.sidecar, OF_SIDECAR))
    sums, kept, kinds = [], [], set[str]()
    for part in reading.parts(torch.launches, owners.TABLE):
        rows = part[part["kind"].isin([KERNEL, "operator"]) & part[RANGE_NAMES_STEP].notna()]
        kinds |= {*rows["kind"].unique()}
        sums.append(_by_range(rows.assign(range=rows[COLUMN], launches=1.0, total_ns=rows["ns"])))
        if nsys is not None or others.census:
            kept.append(_as_owners(rows[ALIGNED], rows[COLUMN]))
    own, tool, counted = _by_range(pd.concat(sums).reset_index()) / steps, torch_ranges.TOOL, None
    on_gpu = KERNEL in kinds
    owned = pd.concat(kept, ignore_index=True) if kept else None
    if owned is not None and on_gpu and nsys is not None:
        differ = joined_step.traced_steps_differ(nsys)
        join = joined_step.join_differing_steps if differ else joined_step.join_nsys_launches
        joined, tool = join(nsys, owned), TOOL
        rows = joined.launches.assign(range=joined.launches["module"], launches=1.0, total_ns=joined.launches["ns"])
        own = _by_range(rows) / joined.steps
    if owned is not None and on_gpu and others.census:
        counted = _count_work(layers.join_tools(others, owned, nsys), paths, peaks)
    table = add_up(paths, steps, own, counted)
    return table.assign(api=RECORD_FUNCTION, tool=tool, clock="gpu" if on_gpu else "cpu")


def _by_range(launches: pd.DataFrame) -> pd.DataFrame:
    return launches.groupby(NODE, sort=False)[SUMS].sum()


def _as_owners(launches: pd.DataFrame, ranges: pd.Series) -> pd.DataFrame:
    """Return launches whose range stands in the place of the owning module, by which tools' launches are joined."""
    return launches.assign(**dict.fromkeys(OWNER, "")).assign(module=ranges)


def _count_work(joined: Joined, paths: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COUNTED of each range, of all launches made in it and in the ranges within."""
    parents = tree_parents(paths) | {UNALIGNED: STEP}
    chains = {name: list_chain(name or OUTSIDE, parents) for name in joined.launches["module"].unique()}
    found = []
    for depth in range(max(map(len, chains.values()), default=0)):
        at = joined.launches["module"].map(lambda name, depth=depth: chains[name][depth : depth + 1])
        own = joined.launches.assign(range=at.str[0])
        own = own[own["range"].notna()]
        found.append(layers.count_work(joined.of(own), NODE, peaks))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=[*NODE, *COUNTED])
