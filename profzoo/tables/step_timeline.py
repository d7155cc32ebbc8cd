"""Writes the timeline of one typical step of a cell, small enough for the page, and the table of its tracks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.kernels import kernel_classes
from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.trace import COPY_KINDS, UNNAMED, Trace, explain_no_steps
from profzoo.tools.nsys.over_time import gpu_metrics
from profzoo.tools.nsys.over_time.gpu_metrics import TRACE_CUDA
from profzoo.tools.nsys.pictures import median_step, tracks
from profzoo.tools.nsys.pictures.tracks import (
    COLUMNS,
    Supplied,
    Supplier,
    TypicalStep,
    supply_gpu_memory,
    supply_gpu_metrics,
    supply_os_calls,
    supply_samples,
    supply_thread_states,
)
from profzoo.tools.stream_overlap import COPY, KERNEL, MEMSET

# Supplies the tracks of a typical step that show what each stream of the GPU did: classes of kernels, and copies.

# A stream with more spans than this has those joined that follow each other with the same label.
MOST = 2000
GRAPH = "CUDA graph"
NO_WORK = f"the step has no work on a GPU{TRACE_CUDA}"


def supply_stream_tracks(trace: Trace, step: TypicalStep) -> Supplied:
    """Return the spans of one track per stream, or one line that says why there are none.

    The columns and times are those of make_stream_tracks.
    """
    trace.check_streams()
    spans = trace.operations[trace.operations["process"] == step.process]
    found = make_stream_tracks(spans, trace.texts, step.begin, step.end)
    return found if len(found) else NO_WORK


def make_stream_tracks(spans: pd.DataFrame, names: Mapping[int, str], begin: int, end: int) -> pd.DataFrame:
    """Return what the streams of a process did between two times, by stream and start.

    Args:
        spans: operations with the columns of Trace.operations.
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
    named = UNNAMED if stream == UNKNOWN else stream
    return f"GPU {gpu} stream {named}" if several else f"stream {named}"


def _label(spans: pd.DataFrame, names: Mapping[int, str]) -> list[str]:
    """Return the label of each operation."""
    classes = {number: kernel_classes.classify(names[number]) for number in spans["name"].unique() if number in names}
    return [
        classes.get(name, GRAPH)
        if kind == KERNEL
        else f"copy {COPY_KINDS.get(copied, UNNAMED)}"
        if kind == COPY
        else MEMSET
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


# Lists the suppliers of tracks below the typical step, in the order in which they are drawn.

# A further supplier is one line here.
SUPPLIERS: Sequence[Supplier] = (
    supply_stream_tracks,
    supply_gpu_metrics,
    supply_gpu_memory,
    supply_thread_states,
    supply_samples,
    supply_os_calls,
)


def main(sqlite: str, report_sidecar: str, output: str, csv: str) -> None:
    """Read the export and its report's sidecar; write the timeline and the table of tracks.

    For a trace without steps, the timeline is an empty object and the table has no rows.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run = facts["capture"] == "run"
    found = median_step.read_step_with_tracks(sqlite, whole_run, SUPPLIERS)
    if found is None:
        # Into the log: the export of the same trace says it to the user.
        print(f"{output} is empty, as {sqlite} {explain_no_steps(sqlite, whole_run)}")
    else:
        on_cpu, command = facts.get("device_type") == "cpu", facts.get("command", [])
        found[0]["not_collected"] = _explain(found[0]["not_collected"], on_cpu, command)
    Path(output).write_text(json.dumps(found[0] if found else {}, separators=(",", ":")) + "\n", encoding="utf-8")
    write_csv(found[1] if found else tracks.TABLE.empty(), csv)


def _explain(reasons: Sequence[str], on_cpu: bool, command: object) -> list[str]:
    """Return the reasons why tracks are missing, without advice that changes nothing for this cell.

    on_cpu: whether it ran on a CPU. command: command line of nsys, as in a sidecar.
    """
    kept = [why for why in reasons if not (on_cpu and why == NO_WORK)]
    return [gpu_metrics.explain_missing_events(why, command) for why in kept]
