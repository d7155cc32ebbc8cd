"""Reads an nsys export (SQLite) into where the window's time goes: what the GPU does, and why it does nothing.

The GPU idles because the CPU has not launched anything, or because what it launched has not begun yet. Each moment of
idleness is put down to the first of these that holds:

  input            the CPU is in the range `data` or `transfer`
  synchronisation  the CPU waits in a CUDA call for the GPU, which has nothing to do
  latency          something was launched and has not begun: the GPU's own way from launch to start
  launch           the CPU is in a CUDA call that launches or copies
  host             the CPU does something else: Python, torch, autograd
"""

import itertools
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd

from models.harness.windows import PARTS, STEP
from workflow.scripts.lib import intervals
from workflow.scripts.lib.nsys_tables import PROCESS, opened, ranges_of

CAUSES = ("input", "synchronisation", "latency", "launch", "host")
COLUMNS = [
    "process", "steps", "wall_ns", "busy_ns", "kernel_ns", "copy_ns", "communication_ns", "overlap_ns", "idle_ns",
    *(f"idle_{cause}_ns" for cause in CAUSES), "host_ns",
    "launches", "launch_call_ns", "launch_latency_ns", "queue_depth",
    *(f"cpu_{part}_ns" for part in PARTS),
]  # fmt: skip
INPUT = ("data", "transfer")
# CUDA runtime and driver calls, by how their names begin; versions follow (cudaLaunchKernel_v7000).
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch",
             "cudaMemcpy", "cuMemcpy", "cudaMemset", "cuMemset")  # fmt: skip
WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
           "cuCtxSynchronize", "cuEventSynchronize")  # fmt: skip
COMMUNICATION = "nccl"
# A launch or copy that takes longer waits for room in the queue, or for the GPU to get to it; others take a tenth.
WAITS_NS = 100_000
ACTIVITIES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def where_time_goes(path: str | Path) -> pd.DataFrame:
    """A row a process that ran steps, all times and counts per step.

    The window's first step is left out where there are more, because profilers start up in it. Time counts from when
    CPU and GPU were done with it, to when they were done with the last. `kernel_ns` is time in which a kernel ran,
    `copy_ns` in which there was nothing but copies, `overlap_ns` in which communication and other kernels ran side by
    side. `host_ns` is what the CPU took, less its waiting for a busy GPU: a step takes that long however fast the
    kernels. `launch_call_ns` and `launch_latency_ns` (from call to start, of launches that met an idle GPU) are
    medians, as is `queue_depth`, the launches that had not begun when one more was made. `cpu_` times are those of the
    ranges on the CPU.

    Raises:
        DataError: the file is no export of nsys.
    """
    with opened(path) as (database, tables):
        ranges = ranges_of(database, tables, (STEP, *PARTS))
        activity = _activity(database, tables)
        calls = _calls(database, tables)
    rows = []
    for process, own in ranges.groupby("process"):
        mine = activity[activity["process"] == process].merge(
            calls.loc[calls["process"] == process, ["correlation", "start", "end"]].drop_duplicates("correlation"),
            on="correlation", how="left", suffixes=("", "_call"),
        )  # fmt: skip
        rows.append(_row(process, own, mine, calls[calls["process"] == process]))
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(process: int, ranges: pd.DataFrame, activity: pd.DataFrame, calls: pd.DataFrame) -> dict[str, float]:
    steps = ranges[ranges["name"] == STEP].sort_values("start")
    left_out = min(1, len(steps) - 1)
    first, last = steps.iloc[left_out], steps.iloc[-1]
    count = len(steps) - left_out
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
    covers = {
        "input": spans(in_window[in_window["name"].isin(INPUT)]),
        "synchronisation": spans(calls[calls["waits"]]),
        "latency": spans(known[known["end_call"] < known["start"]], "end_call", "start"),
        "launch": spans(calls[calls["launches"]]),
        "host": window,
    }
    causes = {}
    for cause in CAUSES:
        causes[cause] = intervals.total(intervals.intersect(idle, covers[cause]))
        idle = intervals.subtract(idle, covers[cause])
    totals = {
        "wall_ns": intervals.total(window),
        "busy_ns": intervals.total(busy),
        "kernel_ns": intervals.total(running),
        "copy_ns": intervals.total(busy) - intervals.total(running),
        "communication_ns": intervals.total(communication),
        "overlap_ns": intervals.total(intervals.intersect(communication, computing)),
        "idle_ns": sum(causes.values()),
        **{f"idle_{cause}_ns": ns for cause, ns in causes.items()},
        "launches": len(kernels),
        **{f"cpu_{part}_ns": intervals.total(spans(in_window[in_window["name"] == part])) for part in PARTS},
    }
    totals["host_ns"] = _host(first["start"], last["end"], activity, calls)
    per_step = {name: value / count for name, value in totals.items()}
    return {"process": process >> 24 & 0xFFFFFF, "steps": count, **per_step, **_queue(kernels)}


def _host(start: int, end: int, activity: pd.DataFrame, calls: pd.DataFrame) -> int:
    """Time from start to end in which the CPU did not wait for a GPU that had something to do."""
    waits = calls["waits"] | (calls["launches"] & (calls["end"] - calls["start"] > WAITS_NS))
    waiting, busy = (
        intervals.union(frame[["start", "end"]].to_numpy(dtype=np.int64)) for frame in (calls[waits], activity)
    )
    waited = intervals.intersect(intervals.intersect(waiting, busy), np.array([[start, end]], dtype=np.int64))
    return int(end - start) - intervals.total(waited)


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
    """What the GPU did: start and end in ns, correlation ID, process, whether a kernel, and one that communicates."""
    talking = _named(database, (COMMUNICATION,))
    frames = []
    for table in ACTIVITIES:
        kernel = table == ACTIVITIES[0]
        frame = _numbers(database, tables, table, "globalPid", "shortName" if kernel else "0")
        kernels = np.full(len(frame), kernel)
        frames.append(frame.assign(kernel=kernels, talking=frame.pop("name").isin(talking)))
    return pd.concat(frames, ignore_index=True)


def _calls(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame:
    """CUDA calls of the CPU: start and end in ns, correlation ID, process, and whether they launch or wait."""
    frame = _numbers(database, tables, "CUPTI_ACTIVITY_KIND_RUNTIME", f"globalTid & {PROCESS}", "nameId")
    names = frame.pop("name")
    return frame.assign(launches=names.isin(_named(database, LAUNCHING)), waits=names.isin(_named(database, WAITING)))


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
