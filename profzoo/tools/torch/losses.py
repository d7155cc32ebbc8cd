"""Finds GPU work that a trace lost although its launching call is recorded, and impossible times.

The profiler may lose records of the GPU, those of a session's first kernels most of all (torch 2.10 and later; pytorch
issue 192021: CUPTI gives them times from outside the session, and the profiler drops them). Their launch calls are in
the trace all the same. A step that lacks some is left out of everything; steps that launch different kernels are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json
from profzoo.range_names import STEP
from profzoo.tools.torch import graph_replays, trace
from profzoo.tools.torch.host_calls import find_steps, launching_calls, range_spans
from profzoo.tools.torch.trace import Columns, Trace

# Calls that have kernels run, by how their names begin.
LAUNCHING = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchCooperativeKernel",
             "hipLaunchKernel", "hipModuleLaunchKernel", *graph_replays.REPLAYS)  # fmt: skip
# Clocks of host and GPU differ by microseconds, and what runs at a trace's end may outlast the host's part.
SKEW_NS, BEHIND_NS = 1_000_000, 1_000_000_000
# Launches of a stream follow one another, but for such as begin early by themselves (programmatic dependent launch).
TOGETHER = 8


@dataclass(frozen=True)
class Losses:
    """What is lost of a trace: of so many steps those by number, counted from 0, each with what it lacks, in words.

    outside: likewise of a trace without steps.
    """

    steps: int
    lacking: Mapping[int, str]
    outside: str = ""

    def told(self) -> list[str]:
        """Return one line for each step that lacks records."""
        found = [f"step {step + 1} of {self.steps}: {why}" for step, why in sorted(self.lacking.items())]
        return [*found, *([self.outside] if self.outside else [])]


def find_losses(found: Trace) -> Losses:
    """Find, per step, launching calls without a kernel, except calls that were captured into a CUDA graph."""
    calls = found.calls
    made = _launch_calls(found)
    ran = np.isin(calls["correlation"][made], found.launches["correlation"])
    cut = np.isin(made, _cut_replays(found, made, ran))
    steps = find_steps(calls["start"][made], found)
    count = len(range_spans(found, (STEP,))[0])
    lacking = {}
    for step in np.unique(steps[~ran | cut]).tolist():
        own = steps == step
        lost, all_of = int((~ran & own).sum()), int(own.sum())
        words = [f"{lost} of {all_of} launch calls have no kernel"] if lost else []
        lacking[step] = " and ".join([*words, *["a graph's first replay lacks kernels"] * bool((cut & own).any())])
    # What is launched before the first step may be a capture that was made behind the window.
    outside = "" if count else lacking.get(-1, "")
    return Losses(count, {step: why for step, why in lacking.items() if step >= 0}, outside)


def _launch_calls(found: Trace) -> np.ndarray:
    """The calls that have kernels run, in their order; of a runtime call and the driver's within, the first."""
    calls, captured = found.calls, graph_replays.find_captures(found)
    names = np.array([text.startswith(LAUNCHING) for text in found.texts] + [False])
    made = np.flatnonzero(names[calls["name"]] & (calls["correlation"] >= 0))
    made = made[np.argsort(calls["start"][made], kind="stable")]
    _, first = np.unique(calls["correlation"][made], return_index=True)
    made = made[np.sort(first)]
    at = calls["start"][made]
    # A backward pass is captured from another thread than that which began to capture.
    within = [(at > begin) & (at < end) for begin, end, _ in captured]
    return made[~np.logical_or.reduce(within)] if within else made


def _cut_replays(found: Trace, made: np.ndarray, ran: np.ndarray) -> np.ndarray:
    """The call of the first replay of which anything is there, where it lacks kernels that a later one has.

    made, ran: launch calls, and whether anything of them is there. Only the trace's beginning is lost so: before that
    replay nothing is there, and nothing later is as short as it.
    """
    if not ran.any():
        return made[:0]
    first = made[int(ran.argmax())]
    calls = launching_calls(found)
    owned = np.flatnonzero(graph_replays.find_replayed(found))
    groups: dict[int, list[int]] = {}
    for call, name in zip(calls[owned].tolist(), found.launches["name"][owned].tolist(), strict=True):
        groups.setdefault(call, []).append(name)
    counts = {call: np.bincount(names, minlength=len(found.texts)) for call, names in groups.items()}
    own = counts.pop(int(first), None)
    if own is None or any(np.array_equal(own, other) for other in counts.values()):
        return made[:0]
    longer = any((own <= other).all() for other in counts.values())
    return np.array([first]) if longer else made[:0]


def drop_steps(found: Trace, steps: Sequence[int]) -> Trace:
    """Return the trace without these steps (indices from 0): neither their host events nor their launches."""
    starts, ends, _ = range_spans(found, (STEP,))
    places = [(starts[step], ends[step]) for step in steps]

    def kept(times: np.ndarray) -> np.ndarray:
        inside = [(times >= start) & (times < end) for start, end in places]
        return ~np.logical_or.reduce(inside) if inside else np.ones(len(times), dtype=bool)

    called = np.append(found.calls["start"], -1)[launching_calls(found)]
    launched = kept(np.where(called >= 0, called, found.launches["start"]))
    calls, ranges, operators = (
        _rows(part, kept(part["start"])) for part in (found.calls, found.ranges, found.operators)
    )
    return replace(found, launches=_rows(found.launches, launched), calls=calls, ranges=ranges, operators=operators)


def _rows(table: Columns, chosen: np.ndarray) -> Columns:
    return {name: column[chosen] for name, column in table.items()}


def find_impossible(found: Trace) -> str | None:
    """Describe the first impossible launch, or return None."""
    launches = found.launches
    start, ns = launches["start"], launches["ns"].astype(np.int64)
    host = [(part["start"], part["start"] + part["ns"]) for part in (found.calls, found.ranges, found.operators)]
    begins, ends = (np.concatenate([pair[side] for pair in host]) for side in (0, 1))
    if not len(start) or not len(begins):
        return None
    span = int(ends.max()) - int(begins.min())
    if (wrong := ns > span + BEHIND_NS).any():
        at = int(wrong.argmax())
        return f"{_named(found, at)} lasts {ns[at] / 1e9:,.3f} s, in a trace of {span / 1e9:,.3f} s"
    called = np.append(found.calls["start"], -1)[launching_calls(found)]
    if (wrong := (called >= 0) & (start < called - SKEW_NS)).any():
        at = int(wrong.argmax())
        return f"{_named(found, at)} begins {(called[at] - start[at]) / 1e6:,.3f} ms before it is launched"
    return _overlapping(found, start, start + ns)


def _overlapping(found: Trace, start: np.ndarray, end: np.ndarray) -> str | None:
    """That a launch runs on beside several that follow it in its stream; not of graphs, whose branches may."""
    queue = np.where(graph_replays.find_replayed(found), -1, found.launches["queue"])
    for one in np.unique(queue[queue >= 0]).tolist():
        mine = np.flatnonzero(queue == one)
        mine = mine[np.argsort(start[mine], kind="stable")]
        beside = np.searchsorted(start[mine], end[mine] - SKEW_NS // 1000) - np.arange(len(mine)) - 1
        if (beside > TOGETHER).any():
            at = int(beside.argmax())
            return f"{_named(found, int(mine[at]))} runs beside {beside[at]} that follow it in its stream"
    return None


def _named(found: Trace, launch: int) -> str:
    """A launch, for a message: what it is, and where it stands among all, counted from 1."""
    return f"launch {launch + 1} of {len(found.launches['name'])} ({found.texts[found.launches['name'][launch]][:60]})"


def explain_losses(made: Mapping[str, Path]) -> tuple[str, Mapping[str, Any]]:
    """Why a job is to be repeated, as the profiler lost a part of its trace, and what the sidecar is to say of that.

    made: the job's files, by the names of its outputs. Nothing of what ran on a CPU; and nothing of a trace that cannot
    be read, of which the export says what is wrong.
    """
    if read_json(made["sidecar"], {"device_type": fact.TEXT})["device_type"] != "cuda":
        return "", {}
    try:
        found = trace.read_trace(made["trace"], lambda line: None)
    except trace.TimesError as error:
        return str(error), {}
    except DataError:
        return "", {}
    if why := find_impossible(found):
        return why, {}
    losses = find_losses(found)
    told = losses.told()
    facts = {"traced_steps": losses.steps - len(losses.lacking), "left_out": told} if losses.lacking else {}
    return "; ".join(told), facts
