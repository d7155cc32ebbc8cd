"""Changes a program so that the host no longer waits at some of its calls."""

import numpy as np

from profzoo.what_if import blocking_calls
from profzoo.what_if.program import CALL, Program, replace_tables


def remove_blocking_calls(program: Program, chosen: np.ndarray) -> Program:
    """Remove the waits of some calls, and the CPU time that it takes to make these calls.

    Of a copy, the CPU time before its call goes too, up to the median of such times before launches: reading a value of
    the GPU is an operator. The copy itself stays on the GPU.

    Args:
        chosen: one flag per host row, for example from graph_obstacles.find_step_waits.
    """
    host = program.host
    launches, gap = host["launches"].to_numpy(dtype=bool), host["gap"].to_numpy(dtype=float)
    operators = launches & ~chosen & (host["kind"] == CALL).to_numpy()
    usual = float(np.median(gap[operators])) if operators.any() else 0.0
    spared = np.where(chosen & launches, np.minimum(gap - np.minimum(host["input"], gap), usual), 0.0)
    return replace_tables(
        program,
        host={
            "wait": np.where(chosen, blocking_calls.NOTHING, host["wait"]),
            "gap": gap - spared,
            "own": np.where(chosen, 0.0, host["own"]),
            "tail": np.where(chosen, 0.0, host["tail"]),
        },
    )
