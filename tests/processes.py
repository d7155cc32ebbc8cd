"""Simulated processes of a comparison, of which the truth is known: steady ones, and those that machines make of them."""

import numpy as np

# Of processes, by their standard deviation; of a machine over all of them; of what processes share that work by shifts.
APART, DRIFT, MOMENTS = 0.005, 0.10, 0.03
# Of two modes; of a process that something disturbs, and of how many; of the first one, which starts from cold caches.
MODES, DISTURBED, OFTEN, COLD = 0.03, 0.30, 0.10, 0.04
KINDS = ("steady", "drifting", "bimodal", "heavy-tailed", "disturbed", "slow first")


def logarithms(kind: str, count: int, random: np.random.Generator) -> np.ndarray:
    """Of the median steps of so many processes that run one after the other and do the same."""
    if kind == "heavy-tailed":
        # Student's t of two degrees of freedom has no variance.
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
    """The same of processes of which two after another work by shifts, and have the moments of the machine in common."""
    moments = random.normal(0, MOMENTS, count // 2)
    if kind == "drifting":
        kind, moments = "steady", moments + np.linspace(0, np.log1p(DRIFT), count // 2)
    return logarithms(kind, count, random) + np.repeat(moments, 2)
