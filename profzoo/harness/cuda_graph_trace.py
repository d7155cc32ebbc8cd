"""Adds the capture of a step to the trace of its CUDA graph replays, which do not show what launched a kernel.

The step is captured a second time after the window, under a separate profiler. The first capture cannot be profiled,
because timed steps follow it and no profiler may run during them.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from profzoo.errors import first_error_line
from profzoo.io import chrome_trace

Event = Mapping[str, Any]
# Keys that link events of a trace; each key has its own numbering.
LINKS = ("External id", "correlation")
# Category of the two flow events that link an operator to its backward operator; the two share one ID.
BACKWARD = "fwdbwd"
# GPU work during the second capture, such as seeding the graph's random numbers, does not belong to the window.
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# Gap between the capture and the window in the joined trace, in microseconds.
APART = 1000


def attach_capture(trace: Path, capture: Callable[[], None], shapes: bool) -> None:
    """Capture a step again, and add the events of this capture to a trace of its replays.

    trace: path of a Chrome trace, gzipped or not. If the second capture fails, for example for lack of memory, the
    trace stays unchanged and a warning is printed.
    """
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    try:
        with profile(activities=activities, record_shapes=shapes, acc_events=True) as profiler:
            capture()
    except RuntimeError as error:
        print(
            f"profzoo: launches of the CUDA graph cannot be assigned to layers: {first_error_line(error)}",
            file=sys.stderr,
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture.json"
        profiler.export_chrome_trace(str(path))
        captured = chrome_trace.read_events(path)
    chrome_trace.rewrite_events(trace, lambda events: join_capture(events, captured))


def join_capture(window: Sequence[Event], capture: Sequence[Event]) -> list[Event]:
    """Events of the window and the capture, with times and correlation ids of the capture made consistent."""
    host = [event for event in capture if event.get("cat") not in ON_GPU]
    done = [event for event in host if event.get("ph") == "X" or event.get("cat") == BACKWARD]
    if not done:
        return list(window)
    begins = min((event["ts"] for event in window if event.get("ph") == "X"), default=0)
    shift = begins - APART - max(event["ts"] + event.get("dur", 0) for event in done)
    beyond = {link: 1 + max((event.get("args", {}).get(link, 0) for event in window), default=0) for link in LINKS}
    pairs = 1 + max((event["id"] for event in window if event.get("cat") == BACKWARD), default=0)
    moved = []
    for event in done:
        links = {link: event["args"][link] + more for link, more in beyond.items() if link in event.get("args", {})}
        own: dict[str, Any] = {"args": {**event["args"], **links}} if links else {}
        if event.get("cat") == BACKWARD:
            own["id"] = event["id"] + pairs
        moved.append({**event, "ts": event["ts"] + shift, **own})
    return [*moved, *window]
