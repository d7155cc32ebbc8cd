"""Finds GPU work that a trace lost although its launching call is recorded, and impossible times.

The profiler may lose records of the GPU, above all of a session's first kernels. In torch 2.10 and later, CUPTI gives
them times outside the session, and the profiler drops them (pytorch issue 192021). The trace still has their launching
calls. A step that lacks kernels is left out of all results. A step that launches other kernels than the rest stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.range_names import STEP
from profzoo.tools import stream_overlap
from profzoo.tools.torch import owners, trace
from profzoo.tools.torch.trace import Columns, Trace, find_steps, launching_calls, range_spans

# Beginnings of the names of calls that launch kernels.
LAUNCHING = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchCooperativeKernel",
             "hipLaunchKernel", "hipLaunchCooperativeKernel", "hipModuleLaunchKernel", "hipExtLaunchKernel",
             "hipExtModuleLaunchKernel", *owners.REPLAYS)  # fmt: skip


@dataclass(frozen=True)
class Losses:
    """The losses of a trace.

    steps: number of steps in the trace. lacking: description of what is lost, by number of the step, from 0. outside:
    description of what is lost in a trace without steps. calls: how many launching calls in steps have no kernel.
    """

    steps: int
    lacking: Mapping[int, str]
    outside: str = ""
    calls: int = 0

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
    # Launches before the first step may belong to a capture that was made after the window.
    outside = "" if count else lacking.get(-1, "")
    told = {step: why for step, why in lacking.items() if step >= 0}
    return Losses(count, told, outside, int((~ran & (steps >= 0)).sum()))


def _launch_calls(found: Trace) -> np.ndarray:
    """Return indices of the calls that launch kernels, in order; of a runtime call and its driver call, the first."""
    calls, captured = found.calls, owners.find_captures(found)
    names = np.array([text.startswith(LAUNCHING) for text in found.texts] + [False])
    made = np.flatnonzero(names[calls["name"]] & (calls["correlation"] >= 0))
    made = made[np.argsort(calls["start"][made], kind="stable")]
    _, first = np.unique(calls["correlation"][made], return_index=True)
    made = made[np.sort(first)]
    at = calls["start"][made]
    # The backward pass is captured from another thread than the one that began the capture.
    within = [(at > begin) & (at < end) for begin, end, _ in captured]
    return made[~np.logical_or.reduce(within)] if within else made


def _cut_replays(found: Trace, made: np.ndarray, ran: np.ndarray) -> np.ndarray:
    """Return the call of the first recorded replay of a CUDA graph if it lacks kernels that later replays have.

    Only the beginning of a trace is lost in this way: nothing before that replay is recorded, and no later replay has
    just the same kernels. made: launching calls; ran: whether any kernel of each is recorded.
    """
    if not ran.any():
        return made[:0]
    first = made[int(ran.argmax())]
    calls = launching_calls(found)
    owned = np.flatnonzero(owners.find_replayed(found))
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
    """Describe the first impossible launch, or return None.

    Launches of CUDA graphs are not held against others of their stream, because branches of a graph may overlap.
    """
    launches = found.launches
    host = [(part["start"], part["start"] + part["ns"]) for part in (found.calls, found.ranges, found.operators)]
    begins, ends = (np.concatenate([pair[side] for pair in host]) for side in (0, 1))
    span = int(ends.max()) - int(begins.min()) if len(begins) else None
    called = np.append(found.calls["start"], -1)[launching_calls(found)]
    queue = np.where(owners.find_replayed(found), -1, launches["queue"])
    wrong = stream_overlap.find_impossible(launches["start"], launches["ns"].astype(np.int64), called, queue, span)
    for at, why in wrong.items():
        name = found.texts[launches["name"][at]]
        return f"launch {at + 1} of {len(launches['name'])} ({name[:60]}) {why}"
    return None


def explain_losses(made: Mapping[str, Path]) -> tuple[str, Mapping[str, Any]]:
    """Return why a job has to be repeated because its trace lost records, empty if not; and facts for its sidecar.

    Both are empty for a CPU run, and for a trace that cannot be read; the export describes that.

    made: paths of the job's files, by the names of the rule's outputs.
    """
    if fact.read_sidecar(made["sidecar"], {"device_type": fact.TEXT})["device_type"] != "cuda":
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
