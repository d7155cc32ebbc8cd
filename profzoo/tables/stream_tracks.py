"""Supplies the tracks of a typical step that show what each stream of the GPU did: classes of kernels, and copies."""

import sqlite3
from collections.abc import Mapping

import numpy as np
import pandas as pd

from profzoo.kernels import kernel_classes
from profzoo.tools.nsys import gpu_spans
from profzoo.tools.nsys.export_columns import UNKNOWN
from profzoo.tools.nsys.requested_events import TRACE_CUDA
from profzoo.tools.nsys.trace import KERNEL_TABLE
from profzoo.tools.nsys.tracks import COLUMNS, Supplied, TypicalStep

# A stream with more spans than this has those joined that follow each other with the same label.
MOST = 2000
GRAPH = "CUDA graph"
NO_WORK = f"the step has no work on a GPU{TRACE_CUDA}"


def supply_stream_tracks(database: sqlite3.Connection, tables: set[str], step: TypicalStep) -> Supplied:
    """Return the spans of one track per stream, or one line that says why there are none.

    The columns and times are those of make_stream_tracks.
    """
    spans = gpu_spans.read_spans(database, tables)
    names: dict[int, str] = {}
    if KERNEL_TABLE in tables:
        used = f"SELECT demangledName FROM {KERNEL_TABLE}"
        names = dict(database.execute(f"SELECT id, value FROM StringIds WHERE id IN ({used})").fetchall())
    found = make_stream_tracks(spans[spans["process"] == step.process], names, step.begin, step.end)
    return found if len(found) else NO_WORK


def make_stream_tracks(spans: pd.DataFrame, names: Mapping[int, str], begin: int, end: int) -> pd.DataFrame:
    """Return what the streams of a process did between two times, by stream and start.

    Args:
        spans: operations with the columns of gpu_spans.read_spans.
        names: names of kernels by their numbers.
        begin, end: times in ns on the clock of the spans.

    Columns: `track`, the name of the stream; `label`, the class of a kernel, the direction of a copy, or `memset`;
    `start_ns` and `end_ns` from `begin` on, cut at both ends; and `value` and `unit`, which are NaN and empty. Streams
    with most busy time come first. On a stream with more than MOST operations, those that follow each other with the
    same label and gaps below a thousandth of the time are one span.

    >>> spans = pd.DataFrame({"start": [5, 30], "end": [20, 60], "gpu": 0, "stream": [7, 13]})
    >>> spans = spans.assign(kind=["kernel", "copy"], name=[1, -1], copy_kind=[-1, 1])
    >>> make_stream_tracks(spans, {1: "ampere_sgemm_128x64_nn"}, 10, 50)[COLUMNS[:4]].to_numpy().tolist()
    [['stream 13', 'copy host to device', 20, 40], ['stream 7', 'gemm', 0, 10]]
    """
    inside = spans[(spans["start"] < end) & (spans["end"] > begin)]
    several = inside["gpu"].nunique() > 1
    frame = pd.DataFrame(
        {
            "track": [_name_track(*place, several) for place in zip(inside["gpu"], inside["stream"], strict=True)],
            "label": _label(inside, names),
            "start_ns": (inside["start"].clip(lower=begin) - begin).to_numpy(dtype=np.int64),
            "end_ns": (inside["end"].clip(upper=end) - begin).to_numpy(dtype=np.int64),
        }
    ).astype({"track": "str", "label": "str"})
    busy = (
        (frame["end_ns"] - frame["start_ns"]).groupby(frame["track"]).sum().sort_values(ascending=False, kind="stable")
    )
    tracks = [frame[frame["track"] == track].sort_values(["start_ns", "end_ns"], kind="stable") for track in busy.index]
    joined = [_join(track, (end - begin) // 1000) if len(track) > MOST else track for track in tracks]
    table = pd.concat(joined, ignore_index=True) if joined else frame
    return table.assign(value=np.nan, unit=pd.array([""] * len(table), dtype="str"))[COLUMNS]


def _name_track(gpu: int, stream: int, several: bool) -> str:
    named = gpu_spans.UNNAMED if stream == UNKNOWN else stream
    return f"GPU {gpu} stream {named}" if several else f"stream {named}"


def _label(spans: pd.DataFrame, names: Mapping[int, str]) -> list[str]:
    """Return the label of each operation."""
    classes = {number: kernel_classes.classify(names[number]) for number in spans["name"].unique() if number in names}
    return [
        classes.get(name, GRAPH)
        if kind == gpu_spans.KERNEL
        else f"copy {gpu_spans.COPY_KINDS.get(copied, gpu_spans.UNNAMED)}"
        if kind == gpu_spans.COPY
        else gpu_spans.MEMSET
        for kind, name, copied in zip(spans["kind"], spans["name"], spans["copy_kind"], strict=True)
    ]


def _join(track: pd.DataFrame, gap: int) -> pd.DataFrame:
    """Join the spans of a track that follow each other with the same label, at most `gap` ns apart."""
    reached = track["end_ns"].cummax().shift(fill_value=0)
    begins = (track["label"] != track["label"].shift()) | (track["start_ns"] - reached > gap)
    together = track.groupby(begins.cumsum(), sort=False)
    return together.agg(
        track=("track", "first"), label=("label", "first"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )
