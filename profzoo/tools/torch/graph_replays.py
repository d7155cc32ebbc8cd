"""Finds the operators behind launches of a CUDA graph: the operators that were captured, in order."""

import numpy as np

from profzoo.tools.torch.host_calls import launching_calls
from profzoo.tools.torch.trace import Trace

REPLAYS = ("cudaGraphLaunch", "cuGraphLaunch")
BEGIN, END = "StreamBeginCapture", "StreamEndCapture"
# Calls that add a node to a graph during its capture.
LAUNCHING = ("LaunchKernel", "LaunchCooperativeKernel", "Memcpy", "Memset")


def find_replayed(trace: Trace) -> np.ndarray:
    """Return, per launch, whether a CUDA graph made it; all launches of a graph share one launching call."""
    made = np.array([text.startswith(REPLAYS) for text in trace.texts] + [False])
    return made[np.append(trace.calls["name"], -1)[launching_calls(trace)]]


def find_capturing_operators(trace: Trace) -> np.ndarray:
    """Return the ID of the operator behind each launch, for a replay the captured operator; -1 if unknown.

    The trace must contain the capture, or single launches of the same kernels in the same order.
    """
    launches, calls = trace.launches, launching_calls(trace)
    found = launches["external"].astype(np.int64)
    by_graph = np.flatnonzero(find_replayed(trace))
    if not len(by_graph):
        return found
    found[by_graph] = -1
    captured = find_captures(trace)
    eager = np.setdiff1d(np.arange(len(found)), by_graph)
    eager = eager[np.lexsort((launches["start"][eager], trace.calls["start"][calls[eager]]))]
    by_graph = by_graph[np.lexsort((launches["start"][by_graph], trace.calls["start"][calls[by_graph]]))]
    for group in np.split(by_graph, np.flatnonzero(np.diff(calls[by_graph])) + 1):
        called = trace.calls["start"][calls[group[0]]]
        fitting = [ids for began, _, ids in captured if began < called and len(ids) == len(group)]
        if fitting:
            # A graph that is captured several times is replayed from the last capture.
            found[group] = fitting[-1]
        elif (place := _place(launches["name"][eager], launches["name"][group])) >= 0:
            found[group] = launches["external"][eager[place : place + len(group)]]
    return found


def find_captures(trace: Trace) -> list[tuple[int, int, np.ndarray]]:
    """Return for each capture its begin and end in ns, and the IDs of the operators that made its nodes, in order."""
    calls, texts = trace.calls, [text.removeprefix("cuda").removeprefix("cu") for text in trace.texts]
    order = np.argsort(calls["start"], kind="stable")
    begun: int | None = None
    found = []
    # Calls are matched by ID, which a runtime call may share with the driver's call inside it.
    ids: dict[int, int] = {}
    for index in order[np.isin(calls["name"][order], _named(texts))]:
        name = texts[calls["name"][index]]
        if name.startswith(BEGIN):
            begun, ids = int(calls["start"][index]), {}
        elif name.startswith(END) and begun is not None:
            found.append((begun, int(calls["start"][index]), np.array([*ids.values()], dtype=np.int64)))
            begun = None
        elif begun is not None and name.startswith(LAUNCHING):
            ids.setdefault(int(calls["correlation"][index]), int(calls["external"][index]))
    return found


def _named(texts: list[str]) -> list[int]:
    return [code for code, text in enumerate(texts) if text.startswith((BEGIN, END, *LAUNCHING))]


def _place(names: np.ndarray, wanted: np.ndarray) -> int:
    """Return the index at which the wanted sequence begins in another; -1 if it does not occur."""
    last = len(names) - len(wanted)
    for place in np.flatnonzero(names[: last + 1] == wanted[0]) if last >= 0 else ():
        if np.array_equal(names[place : place + len(wanted)], wanted):
            return int(place)
    return -1
