"""Which steps of a window count: those once it has settled."""

import numpy as np

# So many steps say how much they vary.
LEAST = 5


def drop_warmup(times: np.ndarray) -> np.ndarray:
    """The steps once they have settled: without the first, and without as many more as make the rest the steadiest.

    The marginal standard error rule (MSER; White 1997) picks the cut, up to the middle. Without a trend it cuts little.
    As many as LEAST stay, as fewer may be alike by chance.

    >>> drop_warmup(np.array([900.0, 300.0, 150.0, 100.0, 101.0, 99.0, 100.0, 100.0, 101.0]))
    array([100., 101.,  99., 100., 100., 101.])
    """
    rest = times[1:] if len(times) > 1 else times
    cuts = range(max(min(len(rest) // 2, len(rest) - LEAST), 0) + 1)
    errors = [float(rest[cut:].var()) / (len(rest) - cut) for cut in cuts]
    return rest[int(np.argmin(errors)) :]
