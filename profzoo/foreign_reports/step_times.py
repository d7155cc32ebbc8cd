"""Computes how long each step of a foreign trace took, by the host's clock and by the GPU's."""

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
