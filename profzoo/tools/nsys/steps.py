"""Reads an nsys export (SQLite) into where the window's time goes: what the GPU does, and why it does nothing.

The GPU idles because the CPU has not launched anything, or because what it launched has not begun yet. Each moment of
idleness is put down to the first of these that holds:

  input            the CPU is in the range `data` or `transfer`
  synchronisation  the CPU waits in a CUDA call for the GPU, which was given nothing more to do
  latency          something was launched and has not begun: the GPU's own way from launch to start
  launch           the CPU is in a CUDA call that launches or copies
  host             the CPU does something else: Python, torch, autograd

A wait also costs what comes after it: the CPU, which had been ahead, has to fill an empty queue again. Without its
waits the CPU would be ahead by as long again as it waited for a busy GPU, so that much of the idleness in which nothing
was queued is put down to synchronisation as well, in equal parts from latency, launch and host. What is left is what a
CPU that never waits would still be too slow for.
"""

import itertools
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS, STEP
from profzoo.tools.nsys import intervals
from profzoo.tools.nsys.tables import CALL_TABLE, PROCESS, graphs, opened, ranges_of, window_steps

CAUSES = ("input", "synchronisation", "latency", "launch", "host")
# Those that lie in how fast the CPU launches, and so go where it is ahead.
FEEDING = ("latency", "launch", "host")
COLUMNS = [
    "process", "steps", "wall_ns", "busy_ns", "kernel_ns", "copy_ns", "transfer_ns", "communication_ns", "overlap_ns",
    "idle_ns", *(f"idle_{cause}_ns" for cause in CAUSES), "host_ns",
    "launches", "launch_call_ns", "launch_latency_ns", "queue_depth",
    *(f"cpu_{part}_ns" for part in PARTS),
]  # fmt: skip
INPUT = ("data", "transfer")
# CUDA runtime and driver calls, by how their names begin; versions follow (cudaLaunchKernel_v7000).
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch",
             "cudaMemcpy", "cuMemcpy", "cudaMemset", "cuMemset")  # fmt: skip
WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
           "cuCtxSynchronize", "cuEventSynchronize")  # fmt: skip
COPYING = ("cudaMemcpy", "cuMemcpy")
COMMUNICATION = "nccl"
# CUPTI's kinds of copies that cross between host and device: to and from device memory, and arrays.
CROSSING = (1, 2, 3, 4)
# A launch or copy that takes longer waits for room in the queue, or for the GPU to get to it; others take a tenth.
WAITS_NS = 100_000
ACTIVITIES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def where_time_goes(path: str | Path, whole_run: bool = False) -> pd.DataFrame:
    """A row a process that ran steps, all times and counts per step.

    The window's first step is left out where there are more, because profilers start up in it. Time counts from when
    CPU and GPU were done with it, to when they were done with the last. `kernel_ns` is time in which a kernel ran,
    `copy_ns` in which there was nothing but copies, of which `transfer_ns` with one between host and device,
    `overlap_ns` in which communication and other kernels ran side by side. `host_ns` is what the CPU took, less its
    waiting for a busy GPU: a step takes that long however fast the kernels. `launch_call_ns` and `launch_latency_ns`
    (from call to start, of launches that met an idle GPU) are medians, as is `queue_depth`, the launches that had not
    begun when one more was made. `cpu_` times are those of the ranges on the CPU. A CUDA graph that was traced whole
    counts as one launch, and as a kernel for as long as it took.

    whole_run: whether more was traced than the window, of which only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    with opened(path) as (database, tables):
        steps = window_steps(database, tables, whole_run)
        ranges = pd.concat([steps, ranges_of(database, tables, PARTS)], ignore_index=True)
        ranges = ranges[ranges["process"].isin(steps["process"])]
        activity = _activity(database, tables)
        calls = _calls(database, tables)
    rows = []
    for process, own in ranges.groupby("process"):
        mine = activity[activity["process"] == process].merge(
            _outermost(calls[calls["process"] == process]),
            on="correlation", how="left", suffixes=("", "_call"),
        )  # fmt: skip
        rows.append(_row(process, own, mine, calls[calls["process"] == process]))
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(process: int, ranges: pd.DataFrame, activity: pd.DataFrame, calls: pd.DataFrame) -> dict[str, float]:
    steps = ranges[ranges["name"] == STEP].sort_values("start")
    left_out = min(1, len(steps) - 1)
    first, last = steps.iloc[left_out], steps.iloc[-1]
    count, took = len(steps) - left_out, np.array([[first["start"], last["end"]]], dtype=np.int64)
    launched = activity["start_call"].fillna(activity["start"])
    before, within = activity[launched < first["start"]], activity[launched.between(first["start"], last["end"])]
    start = max([first["start"], *before["end"]]) if left_out else first["start"]
    window = np.array([[start, max([last["end"], *within["end"]])]], dtype=np.int64)

    def spans(frame: pd.DataFrame, begin: str = "start", end: str = "end") -> np.ndarray:
        return intervals.intersect(intervals.union(frame[[begin, end]].to_numpy(dtype=np.int64)), window)

    kernels = within[within["kernel"]]
    talking = kernels["talking"]
    running, communication, computing = spans(kernels), spans(kernels[talking]), spans(kernels[~talking])
    busy = spans(within)
    idle = intervals.subtract(window, busy)
    in_window = ranges[ranges["start"] >= first["start"]]
    known = within.dropna(subset=["start_call"])
    unqueued = _unqueued(idle, within)
    covers = {
        "input": spans(in_window[in_window["name"].isin(INPUT)]),
        # While the CPU waits, a gap before what is queued already is the GPU's own.
        "synchronisation": intervals.intersect(spans(calls[calls["waits"]]), unqueued),
        "latency": spans(known[known["end_call"] < known["start"]], "end_call", "start"),
        "launch": spans(calls[calls["launches"]]),
        "host": window,
    }
    for_results, at_all = _waited(calls, activity, took)
    causes = _causes(idle, covers, unqueued, for_results)
    totals = {
        "wall_ns": intervals.total(window),
        "busy_ns": intervals.total(busy),
        "kernel_ns": intervals.total(running),
        "copy_ns": intervals.total(busy) - intervals.total(running),
        "transfer_ns": intervals.total(intervals.subtract(spans(within[within["crossing"]]), running)),
        "communication_ns": intervals.total(communication),
        "overlap_ns": intervals.total(intervals.intersect(communication, computing)),
        "idle_ns": sum(causes.values()),
        **{f"idle_{cause}_ns": ns for cause, ns in causes.items()},
        "launches": len(kernels),
        **{f"cpu_{part}_ns": intervals.total(spans(in_window[in_window["name"] == part])) for part in PARTS},
    }
    totals["host_ns"] = intervals.total(took) - at_all
    per_step = {name: value / count for name, value in totals.items()}
    return {"process": process >> 24 & 0xFFFFFF, "steps": count, **per_step, **_queue(kernels)}


def _causes(
    idle: np.ndarray, covers: Mapping[str, np.ndarray], unqueued: np.ndarray, waited: float
) -> dict[str, float]:
    """Idle time by cause.

    Args:
        covers: when each cause may hold, of which the first counts; unqueued: idleness in which nothing was queued;
        waited: ns that the CPU waited for a busy GPU.
    """
    causes: dict[str, float] = {}
    after_wait: dict[str, float] = {}
    for cause in CAUSES:
        held = intervals.intersect(idle, covers[cause])
        causes[cause] = intervals.total(held)
        if cause in FEEDING:
            after_wait[cause] = intervals.total(intervals.intersect(held, unqueued))
        idle = intervals.subtract(idle, covers[cause])
    most = sum(after_wait.values())
    part = min(waited / most, 1.0) if most else 0.0
    for cause, ns in after_wait.items():
        causes[cause] -= part * ns
    causes["synchronisation"] += part * most
    return causes


def _unqueued(idle: np.ndarray, activity: pd.DataFrame) -> np.ndarray:
    """The idle spans at whose beginning the CPU had launched nothing of what was still to come."""
    ordered = activity.sort_values("start")
    launched = ordered["start_call"].fillna(ordered["start"]).to_numpy(dtype=np.float64)
    # Of each activity and all after it, when the first was launched; nothing comes after the last.
    earliest = np.append(np.minimum.accumulate(launched[::-1])[::-1], np.inf)
    following = np.searchsorted(ordered["start"].to_numpy(), idle[:, 1])
    return idle[earliest[following] >= idle[:, 0]]


def _waited(calls: pd.DataFrame, activity: pd.DataFrame, window: np.ndarray) -> tuple[int, int]:
    """Ns of the window in which the CPU waited in a CUDA call for a busy GPU: for its results, and for room as well."""
    # A copy from or to pageable memory may return only when it is done, and all that was queued before it.
    done = calls["correlation"].map(activity.groupby("correlation")["end"].max())
    for_results = calls["waits"] | (calls["copies"] & done.le(calls["end"]))
    for_room = calls["launches"] & (calls["end"] - calls["start"] > WAITS_NS)
    busy = intervals.intersect(intervals.union(activity[["start", "end"]].to_numpy(dtype=np.int64)), window)

    def waiting(chosen: pd.Series) -> int:
        return intervals.total(
            intervals.intersect(intervals.union(calls.loc[chosen, ["start", "end"]].to_numpy(dtype=np.int64)), busy)
        )

    return waiting(for_results), waiting(for_results | for_room)


def _queue(kernels: pd.DataFrame) -> dict[str, float]:
    """Medians over the launches: time of the call, time from call to start where the queue was empty, queue depth."""
    known = kernels.dropna(subset=["start_call"])
    if known.empty:
        return dict.fromkeys(("launch_call_ns", "launch_latency_ns", "queue_depth"), np.nan)
    calls, starts = known["start_call"].to_numpy(), np.sort(known["start"].to_numpy())
    made = np.searchsorted(np.sort(calls), calls)
    depth = made - np.searchsorted(starts, calls)
    busy_until = np.maximum.accumulate(known.sort_values("start")["end"].to_numpy())
    before = np.searchsorted(starts, calls) - 1
    met_idle = (depth <= 0) & ((before < 0) | (busy_until[np.maximum(before, 0)] <= calls))
    waits = (known["start"].to_numpy() - calls)[met_idle]
    return {
        "launch_call_ns": float((known["end_call"] - known["start_call"]).median()),
        "launch_latency_ns": float(np.median(waits)) if len(waits) else np.nan,
        "queue_depth": float(np.median(depth)),
    }


def _activity(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """What the GPU did: start and end in ns, correlation ID, process, and whether it is a kernel, a kernel that
    communicates, or a copy between host and device."""  # fmt: skip
    kinds = {"kernel": "shortName", "copy": "copyKind", "set": "0"}
    frames = []
    talking = _named(database, (COMMUNICATION,))
    for (kind, column), table in zip(kinds.items(), ACTIVITIES, strict=True):
        frame = _numbers(database, tables, table, "globalPid", column)
        number = frame.pop("name")
        frames.append(
            frame.assign(
                kernel=kind == "kernel",
                talking=(kind == "kernel") & number.isin(talking),
                crossing=(kind == "copy") & number.isin(CROSSING),
            )
        )
    whole = graphs(database, tables).drop(columns="graph")
    # What communicates or crosses in a graph that was traced whole is not known.
    none = np.full(len(whole), False)
    frames.append(whole.assign(kernel=~none, talking=none, crossing=none))
    return pd.concat(frames, ignore_index=True)


def _outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Correlation ID, start and end of one process's calls; of those that share an ID, of the one around the others.

    A runtime call may share its ID with the driver's that it makes.
    """
    if calls["correlation"].duplicated().any():
        calls = calls.sort_values(["start", "end"], ascending=[True, False])
    return calls.drop_duplicates("correlation")[["correlation", "start", "end"]]


def _calls(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """CUDA calls of the CPU: start and end in ns, correlation ID, process, and whether they launch, copy or wait."""
    frame = _numbers(database, tables, CALL_TABLE, f"globalTid & {PROCESS}", "nameId")
    names = frame.pop("name")
    kinds = {"launches": LAUNCHING, "copies": COPYING, "waits": WAITING}
    return frame.assign(**{kind: names.isin(_named(database, beginnings)) for kind, beginnings in kinds.items()})


def _named(database: sqlite3.Connection, beginnings: tuple[str, ...]) -> list[int]:
    """Of strings that begin so, the numbers by which rows refer to them."""
    rows = database.execute("SELECT id, value FROM StringIds").fetchall()
    return [number for number, value in rows if value.startswith(beginnings)]


def _numbers(database: sqlite3.Connection, tables: set[str], table: str, process: str, name: str) -> pd.DataFrame:
    """Start, end, correlation ID, process and number of the name of each row of a table; none where it is not there.

    Without a Python object for each of a million rows at a time.
    """
    query = f"SELECT start, end, correlationId, {process}, {name} FROM {table}"
    rows = database.execute(query) if table in tables else ()
    flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64)
    return pd.DataFrame(flat.reshape(-1, 5), columns=["start", "end", "correlation", "process", "name"])
