"""Computes which moments are in a step of a foreign trace, and how long the GPU took for each step."""

import numpy as np


def gpu_step_ns(steps: np.ndarray, launched: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the time of each step as CUDA events at its beginning and end would measure it, in ns.

    Such an event is reached when all work that was launched before it has ended, and no earlier than the host records
    it.

    Args:
        steps: start and end of each step on the host, shape (steps, 2). launched: when each work of the GPU was
            launched; ends: when it ended.

    Two steps of 10 ns on the host, whose work ends late:

    >>> gpu_step_ns(np.array([[0, 10], [10, 20]]), np.array([1, 11]), np.array([30, 70])).tolist()
    [30, 40]
    """
    order = np.argsort(launched, kind="stable")
    times, done = launched[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
    edges = []
    for moments in (steps[:, 0], steps[:, 1]):
        before = np.searchsorted(times, moments, side="left") - 1
        edges.append(np.maximum(moments, np.append(done, -(1 << 62))[before]))
    return edges[1] - edges[0]


def in_steps(moments: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Return, per moment, whether it is in a step; spans: start and end of each in order, shape (steps, 2).

    >>> in_steps(np.array([5, 10, 15, 25]), np.array([[0, 10], [20, 30]])).tolist()
    [True, False, False, True]
    """
    at = np.searchsorted(spans[:, 0], moments, side="right") - 1
    return np.asarray((at >= 0) & (moments < spans[np.maximum(at, 0), 1]))
