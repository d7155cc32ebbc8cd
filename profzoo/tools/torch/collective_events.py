"""Reads the collective operations of one process from its trace, with their bytes, steps and parts of the step.

NCCL's kernels carry what torch knows of the operation since torch 2.3 (`Collective name`, `In msg nelems`, `dtype` and
so on). gloo has no kernels; its threads open a range such as `gloo:all_reduce`, whose input gives the bytes.
"""

import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.io import chrome_trace
from profzoo.io.columns import AMOUNT, COUNT, CPU, TEXT, Column
from profzoo.io.csv_tables import Table
from profzoo.json_types import JsonObject
from profzoo.op_costs.collectives import PAIRWISE, bus_factor, collective_kind, element_bytes
from profzoo.range_names import LAUNCHING
from profzoo.tools.kernel_signature import communicates
from profzoo.tools.torch.trace import AGAIN, Trace, find_calls, find_ranges, find_steps

NAME, GROUP, SEQUENCE = "Collective name", "Process Group Ranks", "Seq"
NEEDED = (NAME, "In msg nelems", "Out msg nelems", "dtype", "Group size")
GLOO = "gloo:"
COLUMNS = ["collective", "dtype", "bytes", "group", "group_size", "sequence", "step", "range", "start_ns", "end_ns"]
RANGES = ("", *LAUNCHING)


@dataclass(frozen=True)
class Collectives:
    """The collective operations of a process.

    table: one row per operation in a step, by start, with COLUMNS; times in ns on the host's clock, and `sequence` -1
    where the trace numbers none. base_ns: what the times of the trace itself begin from. unknown: number of
    communication kernels of which the trace tells no operation or no size. pairwise: number of sends and receives in
    steps, which are not in the table, because only two processes of a group take part.
    """

    table: pd.DataFrame
    base_ns: int
    unknown: int
    pairwise: int


def read_collectives(path: Path, trace: Trace) -> Collectives:
    """Read the operations of a trace; trace: the same file, read.

    Raises:
        DataError: the file cannot be read a second time.
    """
    found, unknown = [], 0
    try:
        with chrome_trace.open_trace(path) as file:
            events = chrome_trace.Events(file)
            for event in events:
                row = _row(event)
                unknown += row is None and _is_communication(event)
                if row is not None:
                    found.append(row)
    except (OSError, EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read: {error}: {AGAIN}") from error
    base, world = _surroundings(events.others)
    rows = pd.DataFrame(found, columns=[*COLUMNS[:6], "correlation", "start_ns", "end_ns"])
    alone = rows["group_size"] == 0
    # gloo's ranges do not tell the group: it is that of all processes.
    rows.loc[alone, "group_size"] = world
    # What a process gives is a part of what is gathered.
    gathered = alone & rows["collective"].isin(["all_gather", "gather"])
    rows.loc[gathered, "bytes"] *= world
    placed = _placed(rows, trace, base)
    between_two = placed["collective"].isin(PAIRWISE)
    return Collectives(placed[~between_two].reset_index(drop=True), base, unknown, int(between_two.sum()))


def _surroundings(others: Mapping[str, Any]) -> tuple[int, int]:
    """Return the time in ns that a trace begins from, and the number of processes; 0 where it does not tell."""
    base, about = others.get("baseTimeNanoseconds"), others.get("distributedInfo")
    world = about.get("world_size") if isinstance(about, dict) else None
    return (base if isinstance(base, int) else 0), (world if isinstance(world, int) else 0)


def _placed(rows: pd.DataFrame, trace: Trace, base: int) -> pd.DataFrame:
    """Return the rows with step and part of the step, by the moment when the host started the operation."""
    correlations = rows["correlation"].to_numpy(dtype=np.int64)
    started = np.append(trace.calls["start"], -1)[find_calls(trace, correlations)]
    moments = np.where(correlations >= 0, started, rows["start_ns"].to_numpy(dtype=np.int64))
    rows = rows.assign(
        step=find_steps(moments, trace), range=np.array(RANGES, dtype=object)[find_ranges(moments, trace)]
    )
    rows[["start_ns", "end_ns"]] = rows[["start_ns", "end_ns"]].astype("int64") + base
    rows = rows[rows["step"] >= 0].sort_values("start_ns", kind="stable").reset_index(drop=True)
    return rows[COLUMNS].astype({"bytes": "int64", "group_size": "int64", "sequence": "int64", "step": "int64"})


def _row(event: Any) -> tuple[Any, ...] | None:
    """Return the fields of an event that is an operation with a known size; None for any other."""
    if not isinstance(event, dict) or not isinstance(arguments := event.get("args"), dict):
        return None
    start, ns = event.get("ts"), event.get("dur")
    if not isinstance(start, int | float) or not isinstance(ns, int | float):
        return None
    times = round(start * 1000), round(start * 1000) + round(ns * 1000)
    if event.get("cat") == "kernel" and all(key in arguments for key in NEEDED):
        return _of_nccl(arguments, times)
    if event.get("cat") == "user_annotation" and str(event.get("name")).startswith(GLOO):
        return _of_gloo(str(event["name"]), arguments, times)
    return None


def _of_nccl(arguments: JsonObject, times: tuple[int, int]) -> tuple[Any, ...] | None:
    name, given, taken, dtype, size = (arguments[key] for key in NEEDED)
    each = element_bytes(str(dtype))
    numbers = (given, taken, size)
    if each is None or not all(isinstance(number, int) for number in numbers):
        return None
    group = str(arguments.get(GROUP) or arguments.get("Process Group Name", ""))
    sequence = arguments.get(SEQUENCE, -1)
    correlation = arguments.get("correlation", -1)
    own = collective_kind(str(name)), str(dtype), max(given, taken) * each, group, size
    return *own, sequence if isinstance(sequence, int) else -1, correlation, *times


def _of_gloo(name: str, arguments: JsonObject, times: tuple[int, int]) -> tuple[Any, ...] | None:
    kind = collective_kind(name.removeprefix(GLOO))
    dtype = str(next(iter(_listed(arguments.get("Input type"))), ""))
    each = element_bytes(dtype)
    if each is None and kind != "barrier":
        return None
    elements = sum(math.prod(shape) for shape in _listed(arguments.get("Input Dims")) if _is_shape(shape))
    return kind, dtype, elements * (each or 0), "", 0, -1, -1, *times


def _listed(given: object) -> Sequence[Any]:
    return given if isinstance(given, list) else ()


def _is_shape(given: object) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(size, int) for size in given)


def _is_communication(event: Any) -> bool:
    """Return whether an event is a kernel that communicates, or one of gloo's operations that has ended."""
    if not isinstance(event, dict) or not isinstance(event.get("name"), str):
        return False
    # The profiler stopped before a thread of gloo had noted this one's end and input.
    if isinstance(event.get("args"), dict) and event["args"].get("finished") is False:
        return False
    if event.get("cat") == "user_annotation":
        return event["name"].startswith(GLOO)
    return event.get("cat") == "kernel" and communicates(event["name"])


# Tells how fast a link was for an operation of a given size, from a probe that measured some sizes.

TABLE = Table(
    columns={
        "collective": Column(TEXT, "Collective operation, such as `all_reduce`."),
        "bytes": Column(COUNT, "Size of the operation, as nccl-tests counts it: of the whole buffer.", "byte"),
        "group_size": Column(COUNT, "Processes that took part.", "count"),
        "calls": Column(COUNT, "Calls in a row that were timed together.", "count"),
        "time_ns": Column(
            AMOUNT, "Time of a call: the shortest mean of several series, on the slowest process.", "ns", clock=CPU),
        "algorithm_bytes_per_s": Column(
            AMOUNT.or_missing, "Algorithm bandwidth of nccl-tests: size over time.", "byte/s"),
        "bus_bytes_per_s": Column(
            AMOUNT.or_missing, "Bus bandwidth of nccl-tests: the same times 2(n-1)/n for an all-reduce of n "
            "processes, and (n-1)/n for all-gather, reduce-scatter and all-to-all.", "byte/s"),
        "link": Column(
            TEXT, "What joins the GPUs: `NV` and the number of NVLinks, PCIe's path, or `network`; empty if unknown."),
    },
    key=["collective", "bytes", "group_size"],
)  # fmt: skip
LINK_COLUMNS = [*TABLE.columns]


def expected_time(probe: pd.DataFrame, collective: str, size: int, processes: int) -> float:
    """Return the time in ns that the probe expects of an operation; nan where it has no such operation.

    Between measured sizes, time is interpolated linearly in the logarithms of both. Smaller operations take as long as
    the smallest, as they are bound by latency; larger ones have the bandwidth of the largest.
    """
    rows = probe[(probe["collective"] == collective) & (probe["group_size"] == processes)].sort_values("bytes")
    if rows.empty or size <= 0:
        return float("nan")
    sizes, times = rows["bytes"].to_numpy(dtype=float), rows["time_ns"].to_numpy(dtype=float)
    if size > sizes[-1]:
        return float(times[-1] * size / sizes[-1])
    return float(np.exp(np.interp(np.log(size), np.log(sizes), np.log(times))))


def reached_bus_rate(probe: pd.DataFrame, collective: str, size: int, processes: int) -> float:
    """Return the bus bandwidth in byte/s that the probe reached for an operation; nan where it has none."""
    return bus_factor(collective, processes) * size / expected_time(probe, collective, size, processes) * 1e9
