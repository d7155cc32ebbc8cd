"""Simulated processes of a comparison with known differences: steady processes, and disturbed ones as on machines."""

import numpy as np

# Relative differences: standard deviation of processes, drift of the machine over all processes, and standard deviation
# of a moment, which processes that run in shifts share.
APART, DRIFT, MOMENTS = 0.005, 0.10, 0.03
# Relative differences: between two modes, of a disturbed process, its frequency, and of the first process (cold caches).
MODES, DISTURBED, OFTEN, COLD = 0.03, 0.30, 0.10, 0.04
KINDS = ("steady", "drifting", "bimodal", "heavy-tailed", "disturbed", "slow first")


def logarithms(kind: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Return logarithms of the median steps of `count` equal processes that run one after the other."""
    if kind == "heavy-tailed":
        # Student's t with two degrees of freedom has no finite variance.
        return APART * random.standard_t(2, count)
    own = random.normal(0, APART, count)
    match kind:
        case "drifting":
            own += np.linspace(0, np.log1p(DRIFT), count)
        case "bimodal":
            own += np.log1p(MODES) * (random.random(count) < 0.5)
        case "disturbed":
            own += np.log1p(DISTURBED) * (random.random(count) < OFTEN)
        case "slow first":
            own[0] += np.log1p(COLD)
    return own


def by_shifts(kind: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Return the same for pairs of processes that run in shifts and share the moments of the machine."""
    moments = random.normal(0, MOMENTS, count // 2)
    if kind == "drifting":
        kind, moments = "steady", moments + np.linspace(0, np.log1p(DRIFT), count // 2)
    return logarithms(kind, count, random) + np.repeat(moments, 2)
