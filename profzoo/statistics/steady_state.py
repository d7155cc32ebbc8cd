"""Selects the steps of a window that count: the steps in steady state."""

import numpy as np

# Fewest steps from which their variance can be estimated.
LEAST = 5


def drop_warmup(times: np.ndarray) -> np.ndarray:
    """Return the steps in steady state: without the first step, and without further steps of a warm-up.

    The marginal standard error rule (MSER; White 1997) decides how many steps to drop, at most half of them. Without a
    trend it drops few. At least LEAST steps stay, because fewer may be alike by chance.

    times: step times in ns, shape (steps,), in order.

    >>> drop_warmup(np.array([900.0, 300.0, 150.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0]))
    array([100., 101.,  99., 100., 100., 101.])
    """
    rest = times[1:] if len(times) > 1 else times
    cuts = range(max(min(len(rest) // 2, len(rest) - LEAST), 0) + 1)
    errors = [float(rest[cut:].var()) / (len(rest) - cut) for cut in cuts]
    return rest[int(np.argmin(errors)) :]
