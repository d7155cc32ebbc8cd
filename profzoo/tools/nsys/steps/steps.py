"""Splits the window's time in an nsys export (SQLite): the GPU's work by kind, and its idle time by cause.

The GPU is idle because the CPU has launched nothing, or because launched work has not begun yet. Each moment of idle
time is assigned to the first of these causes that holds:

  input            the CPU is in the range `data` or `transfer`
  turn             another GPU of the process works, and this one has nothing launched
  synchronisation  the CPU waits in a CUDA call for the GPU, and nothing more was launched
  latency          work was launched and has not begun: the time from a launch to its start on the GPU
  launch           the CPU is in a CUDA call that launches or copies
  host             the CPU does something else: Python, torch, autograd

A wait also costs time after it: the CPU had been ahead, and now has to fill an empty queue. Without its waits, the CPU
would be ahead by the time that it waited for a busy GPU. As much of the idle time without queued work is therefore
moved to synchronisation, in equal parts from latency, launch and host. The rest of these three is idle time that would
remain if the CPU never waited.

Of several GPUs of a process, work and idle time are means: of two that work in turn, each is idle for half the time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.io.columns import COUNT, CPU, GPU, NUMBER, Column
from profzoo.io.csv_tables import Table
from profzoo.range_names import PARTS, STEP
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.trace import Source, open_trace, read_ranges, read_window_steps

CAUSES = ("input", "turn", "synchronisation", "latency", "launch", "host")
# Causes that depend on how fast the CPU launches; they vanish if the CPU is far enough ahead.
FEEDING = ("latency", "launch", "host")
COLUMNS = [
    "process", "steps", "wall_ns", "busy_ns", "kernel_ns", "copy_ns", "transfer_ns", "communication_ns", "overlap_ns",
    "idle_ns", *(f"idle_{cause}_ns" for cause in CAUSES), "host_ns",
    "launches", "launch_call_ns", "launch_latency_ns", "queue_depth",
    *(f"cpu_{part}_ns" for part in PARTS),
]  # fmt: skip
# Empty without any launch.
MISSING = ["launch_call_ns", "launch_latency_ns", "queue_depth"]


def _adds_up(table: pd.DataFrame) -> str | None:
    off = (table["busy_ns"] + table["idle_ns"] - table["wall_ns"]).abs() > 1 + 1e-6 * table["wall_ns"]
    return f"row {int(off.argmax()) + 1}: busy_ns and idle_ns are not wall_ns" if off.any() else None


TABLE = Table(
    columns={
        "process": Column(COUNT, "Process ID in the trace.", tool="nsys"),
        "steps": Column(
            COUNT, "Steps of the trace that the row is of; the first one is left out where there are more.",
            "count", "nsys"),
        "wall_ns": Column(
            NUMBER, "Wall time per step under nsys, from the moment host and device were done with the first step.",
            "ns", "nsys", CPU),
        "busy_ns": Column(
            NUMBER, "Time per step in which the GPU did anything; of several GPUs of a process, this and the next "
            "are means.", "ns", "nsys", GPU),
        "kernel_ns": Column(NUMBER, "Time per step in which a kernel ran.", "ns", "nsys", GPU),
        "copy_ns": Column(NUMBER, "Time per step with nothing but copies and memsets.", "ns", "nsys", GPU),
        "transfer_ns": Column(NUMBER, "Part of `copy_ns` with a copy between host and device.", "ns", "nsys", GPU),
        "communication_ns": Column(
            NUMBER, "Time per step in which a kernel ran that communicates with other GPUs.", "ns", "nsys", GPU),
        "overlap_ns": Column(NUMBER, "Part of `communication_ns` beside other kernels.", "ns", "nsys", GPU),
        "idle_ns": Column(
            NUMBER, "Time per step in which the GPU did nothing; `busy_ns` and `idle_ns` add up to `wall_ns`.",
            "ns", "nsys", GPU),
        "idle_input_ns": Column(
            NUMBER, "Idle time while the host made or copied the input (ranges `data` and `transfer`).",
            "ns", "nsys", GPU),
        "idle_synchronisation_ns": Column(
            NUMBER, "Idle time because the host had waited for the GPU and then had to fill an empty queue.",
            "ns", "nsys", GPU),
        "idle_latency_ns": Column(NUMBER, "Idle time between a launch and its start on the GPU.", "ns", "nsys", GPU),
        "idle_launch_ns": Column(
            NUMBER, "Idle time while the host was in a CUDA call that launches or copies.", "ns", "nsys", GPU),
        "idle_host_ns": Column(
            NUMBER, "Idle time while the host did something else: Python, torch, autograd.", "ns", "nsys", GPU),
        "host_ns": Column(
            NUMBER, "Host time per step without waiting for a busy GPU: a step takes that long however fast the "
            "kernels.", "ns", "nsys", CPU),
        "launches": Column(
            NUMBER, "Launches per step; a CUDA graph that was traced whole counts as one.", "count", "nsys"),
        "launch_call_ns": Column(NUMBER.or_missing, "Median duration of a call that launches.", "ns", "nsys", CPU),
        "launch_latency_ns": Column(
            NUMBER.or_missing, "Median time from the launching call to the start, of launches that met an idle GPU.",
            "ns", "nsys", GPU),
        "queue_depth": Column(
            NUMBER.or_missing, "Median number of launches that had not begun when one more was made.", "count", "nsys"),
        **{
            f"cpu_{part}_ns": Column(
                NUMBER, "Host time per step in the range (part of the step) that the name says.", "ns", "nsys", CPU)
            for part in PARTS
        },
    },
    optional={
        "idle_turn_ns": Column(
            NUMBER, "Idle time while another GPU of the process worked and nothing was launched on this one.",
            "ns", "nsys", GPU),
    },
    key=["process"],
    holds=_adds_up,
)  # fmt: skip
INPUT = ("data", "transfer")
# A launch or copy that takes longer than this waits for room in the queue or for the GPU; others take a tenth of it.
WAITS_NS = 100_000


def where_time_goes(source: Source, whole_run: bool = False) -> pd.DataFrame:
    """Return one row per process that ran steps; all times and counts are per step.

    If there are several steps, the window's first one is left out, because profilers start up in it. The time counted
    begins when CPU and GPU have finished the first step, and ends when they have finished the last.
    docs/reference/columns.md describes each column. `host_ns` is the CPU's time without its waits for a busy GPU; no
    faster kernel makes a step shorter than that. `launch_call_ns`, `launch_latency_ns` and `queue_depth` are medians
    over launches. A CUDA graph that was traced as a whole counts as one launch and as one kernel.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    found = read_processes(source, whole_run)
    rows = [_row(one.process, one.ranges, one.activity, one.calls) for one in found]
    return pd.DataFrame(rows, columns=COLUMNS)


@dataclass(frozen=True)
class ProcessEvents:
    """What a process that ran steps did; times in ns.

    process: number of the process in the export. ranges: steps and their parts on the CPU, with the columns of
    trace.read_ranges. activity: its operations by Trace.find_called. calls: Trace.calls.
    """

    process: int
    ranges: pd.DataFrame
    activity: pd.DataFrame
    calls: pd.DataFrame


def read_processes(source: Source, whole_run: bool = False) -> Iterator[ProcessEvents]:
    """Yield the events of each process that ran steps.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        steps = read_window_steps(trace, whole_run)
        ranges = pd.concat([steps, read_ranges(trace, PARTS)], ignore_index=True)
        for process, own in ranges[ranges["process"].isin(steps["process"])].groupby("process"):
            number = int(str(process))
            calls = trace.calls[trace.calls["process"] == number]
            yield ProcessEvents(number, own, trace.find_called(number), calls)


@dataclass(frozen=True)
class Counted:
    """The counted steps of a process; times in ns.

    steps: their number. on_cpu, span: shape (1, 2), begin of the first and end of the last of these steps; `on_cpu` on
    the CPU alone, `span` from when CPU and GPU had finished everything before to when both had finished the last step.
    activity: the GPU's operations that were launched in these steps. others: those of other GPUs of the process.
    """

    steps: int
    on_cpu: np.ndarray
    span: np.ndarray
    activity: pd.DataFrame
    others: pd.DataFrame | None = None

    @property
    def of_gpus(self) -> list["Counted"]:
        """The same steps for each GPU of the process."""
        gpus = split_gpus(self.activity)
        rest = [self.activity.drop(index=own.index) for own in gpus] if len(gpus) > 1 else [None]
        return [replace(self, activity=own, others=other) for own, other in zip(gpus, rest, strict=True)]

    def when(self, frame: pd.DataFrame, begin: str = "start", end: str = "end") -> np.ndarray:
        """Return the intervals, shape (n, 2), within the span that any row covers; begin, end: columns of ns."""
        return intervals.intersect(_union(frame, begin, end), self.span)


def _union(frame: pd.DataFrame, begin: str = "start", end: str = "end") -> np.ndarray:
    return intervals.union(frame[[begin, end]].to_numpy(dtype=np.int64))


def _row(process: int, ranges: pd.DataFrame, activity: pd.DataFrame, calls: pd.DataFrame) -> dict[str, float]:
    """Return one row of COLUMNS for the steps of one process.

    Args:
        ranges: steps and their parts on the CPU: name, start, end. activity: GPU operations from Trace.find_called.
        calls: those of Trace.calls.

    In a step of 100 ns, the CPU takes 10 ns for its input and launches two kernels in calls of 5 ns. The GPU begins
    each kernel 10 ns after its call. It works for 60 ns and is idle for 40 ns.

    >>> ranges = pd.DataFrame({"name": ["step", "data"], "start": [0, 0], "end": [100, 10]})
    >>> activity = pd.DataFrame({"start": [25, 70], "end": [55, 100], "start_call": [10, 55], "end_call": [15, 60]})
    >>> activity = activity.assign(correlation=[1, 2], kernel=True, talking=False, crossing=False)
    >>> calls = pd.DataFrame({"start": [10, 55], "end": [15, 60], "correlation": [1, 2]})
    >>> calls = calls.assign(launches=True, copies=False, waits=False)
    >>> row = _row(7 << 24, ranges, activity, calls)
    >>> row["process"], row["steps"], row["wall_ns"], row["busy_ns"], row["kernel_ns"], row["idle_ns"]
    (7, 1, 100.0, 60.0, 60.0, 40.0)
    >>> {cause: row[f"idle_{cause}_ns"] for cause in CAUSES}
    {'input': 10.0, 'turn': 0.0, 'synchronisation': 0.0, 'latency': 20.0, 'launch': 10.0, 'host': 0.0}
    """
    counted = counted_steps(ranges[ranges["name"] == STEP].sort_values("start"), activity)
    ranges = ranges[ranges["start"] >= counted.on_cpu[0, 0]]
    kernels = counted.activity[counted.activity["kernel"]]
    for_results, at_all = waited_ns(calls, activity, counted.on_cpu)
    idle = _mean([_idle(own, ranges, calls, for_results) for own in counted.of_gpus])
    totals = {
        "wall_ns": intervals.total(counted.span),
        **_mean([_working(own) for own in counted.of_gpus]),
        "idle_ns": sum(idle.values()),
        **{f"idle_{cause}_ns": ns for cause, ns in idle.items()},
        "launches": len(kernels),
        **{f"cpu_{part}_ns": intervals.total(counted.when(ranges[ranges["name"] == part])) for part in PARTS},
        "host_ns": intervals.total(counted.on_cpu) - at_all,
    }
    per_step = {name: value / counted.steps for name, value in totals.items()}
    return {"process": process >> 24 & 0xFFFFFF, "steps": counted.steps, **per_step, **_queue(kernels)}


def _mean(gpus: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(own[name] for own in gpus) / len(gpus) for name in gpus[0]}


def counted_steps(steps: pd.DataFrame, activity: pd.DataFrame) -> Counted:
    """Count all steps of a process but the first, or the only one; steps: `start` and `end` in ns, in order."""
    left_out = min(1, len(steps) - 1)
    begin, end = steps["start"].iloc[left_out], steps["end"].iloc[-1]
    launched = activity["start_call"].fillna(activity["start"])
    before, within = activity[launched < begin], activity[launched.between(begin, end)]
    done_before = max([begin, *before["end"]]) if left_out else begin
    return Counted(
        steps=len(steps) - left_out,
        on_cpu=np.array([[begin, end]], dtype=np.int64),
        span=np.array([[done_before, max([end, *within["end"]])]], dtype=np.int64),
        activity=within,
    )


def split_gpus(activity: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the operations of each GPU of a process; those of an unknown GPU belong to the first one.

    >>> rows = pd.DataFrame({"gpu": [0, 1, UNKNOWN, 0], "start": [1, 2, 3, 4]})
    >>> [own["start"].tolist() for own in split_gpus(rows)]
    [[1, 3, 4], [2]]
    """
    known = [gpu for gpu in sorted(activity["gpu"].unique().tolist()) if gpu != UNKNOWN] if "gpu" in activity else []
    if len(known) < 2:
        return [activity]
    numbers = activity["gpu"].where(activity["gpu"] != UNKNOWN, known[0])
    return [activity[numbers == gpu] for gpu in known]


def _working(counted: Counted) -> dict[str, int]:
    """Return the GPU's working time in the counted steps, in ns, by column of COLUMNS."""
    activity = counted.activity
    kernels = activity[activity["kernel"]]
    busy, running = counted.when(activity), counted.when(kernels)
    communication, others = counted.when(kernels[kernels["talking"]]), counted.when(kernels[~kernels["talking"]])
    crossing = counted.when(activity[activity["crossing"]])
    return {
        "busy_ns": intervals.total(busy),
        "kernel_ns": intervals.total(running),
        "copy_ns": intervals.total(busy) - intervals.total(running),
        "transfer_ns": intervals.total(intervals.subtract(crossing, running)),
        "communication_ns": intervals.total(communication),
        "overlap_ns": intervals.total(intervals.intersect(communication, others)),
    }


def _idle(counted: Counted, ranges: pd.DataFrame, calls: pd.DataFrame, waited: float) -> dict[str, float]:
    """Return the GPU's idle time in ns by cause; waited: ns that the CPU waited for the GPU's results."""
    idle = intervals.subtract(counted.span, counted.when(counted.activity))
    unqueued = unqueued_spans(idle, counted.activity)
    return _causes(idle, _covers(counted, ranges, calls, unqueued), unqueued, waited)


def spans(counted: Counted, ranges: pd.DataFrame, calls: pd.DataFrame) -> list[np.ndarray]:
    """Return idle intervals in ns, shape (n, 2), one array per cause in CAUSES; nothing is moved between causes."""
    idle = intervals.subtract(counted.span, counted.when(counted.activity))
    covers = _covers(counted, ranges, calls, unqueued_spans(idle, counted.activity))
    found = []
    for cause in CAUSES:
        found.append(intervals.intersect(idle, covers[cause]))
        idle = intervals.subtract(idle, covers[cause])
    return found


def _covers(counted: Counted, ranges: pd.DataFrame, calls: pd.DataFrame, unqueued: np.ndarray) -> dict[str, np.ndarray]:
    """Return the intervals in which each cause may hold; unqueued: idle intervals without queued work."""
    called = counted.activity.dropna(subset=["start_call"])
    return {
        "input": counted.when(ranges[ranges["name"].isin(INPUT)]),
        "turn": unqueued[:0] if counted.others is None else intervals.intersect(counted.when(counted.others), unqueued),
        # While the CPU waits, a gap before work that is already queued is not caused by the wait.
        "synchronisation": intervals.intersect(counted.when(calls[calls["waits"]]), unqueued),
        "latency": counted.when(called[called["end_call"] < called["start"]], "end_call", "start"),
        "launch": counted.when(calls[calls["launches"]]),
        "host": counted.span,
    }


def _causes(
    idle: np.ndarray, covers: Mapping[str, np.ndarray], unqueued: np.ndarray, waited: float
) -> dict[str, float]:
    """Return idle time in ns by cause.

    Args:
        covers: intervals in which each cause may hold; the first one that holds counts. unqueued: idle intervals
            without queued work. waited: ns that the CPU waited for a busy GPU.

    The GPU is idle for 100 ns. For 30 ns the CPU takes its input, and for the next 20 ns it is in a launching call. It
    had waited for 35 ns, which is half of the 70 ns of launch and host; so half of either counts as synchronisation.

    >>> span = np.array([[0, 100]])
    >>> covers = {cause: span[:0] for cause in CAUSES} | {"input": np.array([[0, 30]]), "host": span}
    >>> covers["launch"] = np.array([[20, 50]])
    >>> _causes(span, covers, span, 35)
    {'input': 30, 'turn': 0, 'synchronisation': 35.0, 'latency': 0.0, 'launch': 10.0, 'host': 25.0}
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


def unqueued_spans(idle: np.ndarray, activity: pd.DataFrame) -> np.ndarray:
    """Return the idle intervals at whose beginning no launched work was pending."""
    ordered = activity.sort_values("start")
    launched = ordered["start_call"].fillna(ordered["start"]).to_numpy(dtype=np.float64)
    # Earliest launch among each operation and all later ones; infinity after the last.
    earliest = np.append(np.minimum.accumulate(launched[::-1])[::-1], np.inf)
    following = np.searchsorted(ordered["start"].to_numpy(), idle[:, 1])
    return idle[earliest[following] >= idle[:, 0]]


def waited_ns(calls: pd.DataFrame, activity: pd.DataFrame, window: np.ndarray) -> tuple[int, int]:
    """Return the ns in which the CPU waited in calls for a busy GPU: for results alone, and for results or room."""
    # A copy from or to pageable memory may return only after it and all work queued before it are done.
    done = calls["correlation"].map(activity.groupby("correlation")["end"].max())
    for_results = calls["waits"] | (calls["copies"] & done.le(calls["end"]))
    for_room = calls["launches"] & (calls["end"] - calls["start"] > WAITS_NS)
    busy = intervals.intersect(_union(activity), window)

    def waiting(chosen: pd.Series) -> int:
        return intervals.total(intervals.intersect(_union(calls[chosen]), busy))

    return waiting(for_results), waiting(for_results | for_room)


def _queue(kernels: pd.DataFrame) -> dict[str, float]:
    """Return medians over launches: ns of the call, ns from call to start on an idle GPU, launches in the queue."""
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
