"""Defines tracks, which show what happened during one typical step, and collects them from their suppliers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np
import pandas as pd

from profzoo.io.columns import CPU, NUMBER, TEXT, WHOLE, Column
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys.events import host_events
from profzoo.tools.nsys.events.host_events import (
    LOST,
    OFF,
    RUNNING,
    SAMPLE_CHAINS,
    SAMPLES,
    SWITCHES,
    SYSTEM_CALLS,
    THREAD,
    UNRESOLVED,
    HostEvents,
    explain_missing,
    launching_calls,
    read_stacks,
    read_threads,
)
from profzoo.tools.nsys.events.trace import PROCESS, Trace
from profzoo.tools.nsys.over_time import gpu_memory, gpu_metrics
from profzoo.tools.nsys.over_time.gpu_metrics import QUANTITIES

COLUMNS = ["track", "label", "start_ns", "end_ns", "value", "unit"]
TEXTS = ("track", "label", "unit")


@dataclass(frozen=True)
class TypicalStep:
    """The typical step as the trace has it.

    process: number of the process in the export (`globalPid`). begin, end: times in ns on the clock of the export.
    """

    process: int
    begin: int
    end: int


def _ordered(table: pd.DataFrame) -> str | None:
    wrong = table["end_ns"] < table["start_ns"]
    return f"row {int(wrong.argmax()) + 1}: a span ends before it starts" if wrong.any() else None


TABLE = Table(
    columns={
        "track": Column(
            TEXT, "Name of the track, which is one row below the picture of the typical step.", tool="nsys"),
        "label": Column(
            TEXT, "What the program or the GPU did during the span; empty where the value alone says it.", tool="nsys"),
        "unit": Column(TEXT, "Unit of the value, such as `%` or `bytes`.", tool="nsys"),
        "start_ns": Column(WHOLE, "Start of the span, from the start of the typical step on.", "ns", "nsys", CPU),
        "end_ns": Column(WHOLE, "End of the span, from the start of the typical step on.", "ns", "nsys", CPU),
        "value": Column(
            NUMBER.or_missing, "Mean value during the span, in the unit of the row; empty for a span without a "
            "number.", "see unit", "nsys"),
    },
    holds=_ordered,
)  # fmt: skip
# What a supplier returns: spans with COLUMNS, whose times count from the step's begin; or one line that says why there
# are none, and which setting collects them. Spans without a number have the value NaN.
Supplied: TypeAlias = pd.DataFrame | str
Supplier: TypeAlias = Callable[[Trace, TypicalStep], Supplied]


def collect_tracks(suppliers: Sequence[Supplier], trace: Trace, step: TypicalStep) -> tuple[pd.DataFrame, list[str]]:
    """Return the spans of all tracks that were collected, and one line about each that was not.

    suppliers: in the order of the tracks. Spans keep the order of their supplier's tracks, and are sorted by start
    within a track. They are cut at both ends of the step, and spans outside it are left out.

    >>> step = TypicalStep(process=1, begin=1000, end=1100)
    >>> span = make_spans("SMs active", [(-20, 40, 35.0), (40, 90, 70.0), (200, 300, 1.0)], unit="%")
    >>> spans, missing = collect_tracks([lambda *_: span, lambda *_: "no memory"], None, step)
    >>> spans[["start_ns", "end_ns", "value"]].to_numpy().tolist(), missing
    ([[0.0, 40.0, 35.0], [40.0, 90.0, 70.0]], ['no memory'])
    """
    found = [supplier(trace, step) for supplier in suppliers]
    frames = [cut_spans(frame, step.end - step.begin) for frame in found if isinstance(frame, pd.DataFrame)]
    held = [frame for frame in frames if len(frame)]
    spans = pd.concat(held, ignore_index=True) if held else TABLE.empty()
    return spans[COLUMNS], [line for line in found if isinstance(line, str)]


def make_spans(
    track: str, spans: Sequence[tuple[int, int, float]], unit: str = "", labels: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return spans of one track with COLUMNS; spans: start and end in ns, and value; labels: one a span."""
    frame = pd.DataFrame(spans, columns=["start_ns", "end_ns", "value"])
    types: Mapping[str, str] = {"start_ns": "int64", "end_ns": "int64", "value": "float64"}
    texts = {"track": track, "unit": unit, "label": list(labels) if labels is not None else ""}
    return frame.astype(types).assign(**texts).astype(dict.fromkeys(TEXTS, "str"))[COLUMNS]


def cut_spans(spans: pd.DataFrame, step_ns: int) -> pd.DataFrame:
    """Return the parts of spans within a step of `step_ns`, by track in order of appearance, then by start."""
    inside = spans[(spans["start_ns"] < step_ns) & (spans["end_ns"] > 0)]
    inside = inside.assign(start_ns=inside["start_ns"].clip(lower=0), end_ns=inside["end_ns"].clip(upper=step_ns))
    place = inside["track"].map({name: place for place, name in enumerate(inside["track"].unique())})
    ordered = inside.assign(_place=place).sort_values(["_place", "start_ns", "end_ns"], kind="stable")
    return ordered.drop(columns="_place").reset_index(drop=True)


# Condenses tracks for the page: neighbouring spans of a track that has more than can be seen are drawn as one.

# The most spans of a track in the page.
MOST = 500
# What is shown of merged spans with this unit is their largest value, and of others the mean over time.
PEAK_UNITS = ("bytes",)


class Track(TypedDict):
    """A row below the typical step.

    name, unit: as in the table of tracks. top: the value at the upper edge of the row. peak: the largest value of all
    spans. Both are None without values. labels: the distinct labels of spans. spans: start and length in ns, value
    (None without one), and the place of the label.
    """

    name: str
    unit: str
    top: float | None
    peak: float | None
    labels: Sequence[str]
    spans: Sequence[Sequence[float | None]]


def condense_tracks(spans: pd.DataFrame) -> list[Track]:
    """Return the tracks of a table of spans, in their order; spans: with the columns of tracks.COLUMNS.

    >>> frame = pd.DataFrame({"track": "SMs active", "label": "", "start_ns": [0, 50], "end_ns": [50, 60],
    ...                       "value": [20.0, 80.0], "unit": "%"})
    >>> (track,) = condense_tracks(frame)
    >>> track["name"], track["top"], track["peak"], track["labels"], track["spans"]
    ('SMs active', 100.0, 80.0, [''], [[0, 50, 20.0, 0], [50, 10, 80.0, 0]])
    """
    return [_track(str(name), mine) for name, mine in spans.groupby("track", sort=False)]


def _track(name: str, spans: pd.DataFrame) -> Track:
    unit = str(spans["unit"].iloc[0])
    largest = float(spans["value"].max()) if spans["value"].notna().any() else None
    rows = merge_values(spans, unit)
    codes, labels = pd.factorize(rows["label"])
    drawn = zip(rows["start_ns"], rows["end_ns"] - rows["start_ns"], rows["value"], codes, strict=True)
    return {
        "name": name,
        "unit": unit,
        "top": 100.0 if unit == "%" and largest is not None else largest,
        "peak": largest,
        "labels": [str(label) for label in labels],
        "spans": [
            [int(start), int(ns), None if np.isnan(value) else float(f"{value:.6g}"), int(code)]
            for start, ns, value, code in drawn
        ],
    }


def merge_values(spans: pd.DataFrame, unit: str, most: int = MOST) -> pd.DataFrame:
    """Return at most `most` spans: of more, one per slot, as long as its spans and with the label of the longest."""
    if len(spans) <= most:
        return spans
    begin, end = spans["start_ns"].min(), spans["end_ns"].max()
    slot = ((spans["start_ns"] - begin) * most // max(end - begin, 1)).rename("slot")
    length = spans["end_ns"] - spans["start_ns"]
    known = spans["value"].notna()
    moved = (spans["value"] * length).where(known)
    found = spans.groupby(slot).agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), value=("value", "max"))
    if unit not in PEAK_UNITS:
        found["value"] = moved.groupby(slot).sum(min_count=1) / length.where(known).groupby(slot).sum()
    # Gaps between the spans are not drawn as if they were part of one.
    found["end_ns"] = found["end_ns"].clip(upper=found["start_ns"] + length.groupby(slot).sum())
    longest = length.groupby(slot).idxmax()
    return found.assign(label=spans.loc[longest, "label"].to_numpy())


# Supplies the tracks of GPU metrics and of GPU memory below the typical step.

# Without any of these tables, the traced program did not use a GPU, and nothing can be collected of one.
OF_GPU = {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_MEMCPY"}
# Links that a machine may lack. Their metrics are then 0, and their tracks are left out.
LINKS = ("nvlink_rx", "nvlink_tx")
# Kinds of memory that never have more have no track: code of modules on the GPU, or a flag in pinned memory.
LEAST_BYTES = 1_000_000


def supply_gpu_metrics(trace: Trace, step: TypicalStep) -> Supplied:
    """Return a track for each sampled quantity with a title and GPU of the step's process, in % of what is possible."""
    found = gpu_metrics.read_samples(trace, step.begin, step.end)
    if isinstance(found, str):
        return found if OF_GPU & set(trace.tables) else TABLE.empty()
    samples = gpu_metrics.samples_of_process(found, trace, step.process)
    several = samples["gpu"].nunique() > 1
    frames = []
    for quantity in filter(lambda one: one.title, QUANTITIES):
        for gpu, mine in samples[samples["quantity"] == quantity.name].groupby("gpu"):
            if quantity.name in LINKS and not mine["value"].any():
                continue
            times = mine["start"] - step.begin, mine["end"] - step.begin, mine["value"]
            title = _name_gpu(quantity.title, gpu) if several else quantity.title
            frames.append(make_spans(title, list(zip(*times, strict=True)), quantity.unit))
    return pd.concat(frames, ignore_index=True) if frames else TABLE.empty()


def _name_gpu(title: str, gpu: int) -> str:
    """Return the title of a track with the number of its GPU.

    >>> _name_gpu("SMs active", 1), _name_gpu("NVLink to GPU", 1)
    ('SMs active of GPU 1', 'NVLink to GPU 1')
    """
    return f"{title} {gpu}" if title.endswith("GPU") else f"{title} of GPU {gpu}"


def supply_gpu_memory(trace: Trace, step: TypicalStep) -> Supplied:
    """Return a track for each kind of memory of which the step's process took LEAST_BYTES, in bytes in use."""
    found = gpu_memory.read_memory(trace)
    if isinstance(found, str):
        return found if OF_GPU & set(trace.tables) else TABLE.empty()
    frames = []
    mine = found[(found["process"] == step.process) & (found["start"] < step.end)]
    for (gpu, kind), events in mine.groupby(["gpu", "kind"], sort=False):
        if events["peak_bytes"].max() < LEAST_BYTES:
            continue
        starts = events["start"] - step.begin
        ends = starts.shift(-1, fill_value=step.end - step.begin)
        several = found.loc[(found["process"] == step.process) & (found["kind"] == kind), "gpu"].nunique() > 1
        title = f"memory: {kind}"
        title = _name_gpu(title, gpu) if several else title
        spans = zip(starts, ends, events["in_use_bytes"].astype("float64"), strict=True)
        frames.append(make_spans(title, list(spans), "bytes"))
    return pd.concat(frames, ignore_index=True) if frames else TABLE.empty()


# Supplies tracks for the picture of a step: when threads were on a CPU, and in which functions and calls they were.

# Threads besides the launching ones whose states are shown: those that ran most, at least for this share of the step.
MOST_TRACKS, LEAST_SHARE = 4, 0.01
# Shorter calls would not be seen, and do not wait: part of the step.
SHORTEST = 0.0005
# How long nsys waits for the next sample of a thread that runs, in ns; counts where a trace has one sample per thread.
SAMPLED_NS = 1_000_000
LABELS: Mapping[str, str] = {RUNNING: "running", OFF: "off the CPU", LOST: "unknown"}


def supply_thread_states(trace: Trace, step: TypicalStep) -> Supplied:
    """Return a track per thread with the spans in which it was on a CPU or off it, or a line that says why not.

    Threads are those that launch work within the step, the main thread, and others of the process that ran most.

    Returns: COLUMNS; times in ns from the step's begin. `label` is a value of LABELS, `value` NaN and `unit` empty.
    """
    if why := explain_missing(trace, SWITCHES):
        return why
    events = read_threads(trace, unread=(SYSTEM_CALLS, SAMPLES))
    states = host_events.find_states(events.switches)
    mine = host_events.cut_states(states[states["thread"] & PROCESS == step.process], step.begin, step.end)
    ran = mine[mine["doing"] == RUNNING].groupby("thread")["ns"].sum().sort_values(ascending=False, kind="stable")
    first = [thread for thread in _launching(events, step) if thread in set(mine["thread"])]
    others = [
        thread for thread, ns in ran.items() if thread not in first and ns >= LEAST_SHARE * (step.end - step.begin)
    ]
    frames = []
    for thread in [*first, *others[:MOST_TRACKS]]:
        own = mine[mine["thread"] == thread]
        frames.append(_spans(_title(events, int(str(thread)), step), own, own["doing"].map(LABELS), step))
    return pd.concat(frames, ignore_index=True) if frames else _spans("", mine[:0], mine["doing"][:0], step)


def supply_samples(trace: Trace, step: TypicalStep) -> Supplied:
    """Return a track per launching thread with the functions that it was sampled in, or a line that says why not.

    A sample stands for the time until the next one of its thread, and for no longer than that usually is.

    Returns: COLUMNS, as supply_thread_states does; `label` is the function, or the library of one without a name.
    """
    if why := explain_missing(trace, SAMPLES):
        return why
    events = read_threads(trace, unread=(SYSTEM_CALLS, SWITCHES))
    threads = _launching(events, step)
    mine = host_events.cut_states(_lasting(events.samples), step.begin, step.end)
    mine = mine[mine["thread"].isin(threads)]
    stacks = read_stacks(trace, SAMPLE_CHAINS, mine["sample"].tolist()).drop_duplicates("stack")
    unnamed = "in " + stacks["module"].where(stacks["module"] != "", "an unknown library")
    names = stacks.assign(name=stacks["function"].where(stacks["function"] != UNRESOLVED, unnamed))
    named = mine.merge(names[["stack", "name"]], left_on="sample", right_on="stack")
    tracks = [(f"functions: {_title(events, one, step)}", _join(named[named["thread"] == one])) for one in threads]
    return pd.concat([_spans(title, own, own["name"], step) for title, own in tracks], ignore_index=True)


def _lasting(samples: pd.DataFrame) -> pd.DataFrame:
    """Return samples with the `end` of the time for which each stands; samples: HostEvents.samples."""
    gaps = samples.groupby("thread")["start"].shift(-1) - samples["start"]
    usual = gaps.median() if gaps.notna().any() else SAMPLED_NS
    return samples.assign(end=samples["start"] + gaps.fillna(usual).clip(upper=usual).astype("int64"))


def _join(samples: pd.DataFrame) -> pd.DataFrame:
    """Return spans of one thread, by start; those of the same function that follow each other without a gap are one."""
    begins = (samples["name"] != samples["name"].shift()) | (samples["start"] != samples["end"].shift())
    return samples.groupby(begins.cumsum()).agg(start=("start", "min"), end=("end", "max"), name=("name", "first"))


def supply_os_calls(trace: Trace, step: TypicalStep) -> Supplied:
    """Return a track per launching thread with its calls of the operating system, or a line that says why not.

    Returns: COLUMNS, as supply_thread_states does; `label` is the name of the call. Calls shorter than SHORTEST are not
    among them.
    """
    if why := explain_missing(trace, SYSTEM_CALLS):
        return why
    events = read_threads(trace, unread=(SWITCHES, SAMPLES))
    mine = host_events.cut_states(events.os_calls, step.begin, step.end)
    mine = mine[mine["ns"] >= SHORTEST * (step.end - step.begin)]
    frames = []
    for thread in _launching(events, step):
        own = mine[mine["thread"] == thread]
        frames.append(_spans(f"calls: {_title(events, thread, step)}", own, own["name"], step))
    return pd.concat(frames, ignore_index=True)


def _launching(events: HostEvents, step: TypicalStep) -> list[int]:
    """Return the main thread and the threads that launch work within the step; the one with most launches first."""
    calls = launching_calls(events.cuda_calls, step.process, (step.begin, step.end))
    return list(dict.fromkeys([*calls["thread"].value_counts().index.tolist(), _main(step)]))


def _main(step: TypicalStep) -> int:
    """Return the main thread, which on Linux has the number of its process."""
    return step.process | step.process >> 24 & THREAD


def _title(events: HostEvents, thread: int, step: TypicalStep) -> str:
    """Return a short title of a thread: its name, with its number where other threads of the process have the same."""
    if thread == _main(step):
        return "main thread"
    name = events.names.get(thread, "")
    alike = [one for one, known in events.names.items() if known == name and one & PROCESS == step.process]
    return name if name and len(alike) == 1 else f"{name} {thread & THREAD}".lstrip()


def _spans(track: str, events: pd.DataFrame, labels: pd.Series, step: TypicalStep) -> pd.DataFrame:
    starts = np.maximum(events["start"].to_numpy(dtype=np.int64), step.begin) - step.begin
    ends = np.minimum(events["end"].to_numpy(dtype=np.int64), step.end) - step.begin
    columns = {"label": labels.to_numpy(), "start_ns": starts, "end_ns": ends, "value": np.nan}
    texts = dict.fromkeys(("track", "label", "unit"), "str")
    return pd.DataFrame(columns).assign(track=track, unit="").astype(texts)[COLUMNS]
