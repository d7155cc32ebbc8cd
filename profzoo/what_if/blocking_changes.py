"""Changes a program so that the host no longer waits at some of its calls."""

import numpy as np

from profzoo.what_if import blocking_calls
from profzoo.what_if.changes import find_belonging
from profzoo.what_if.program import CALL, Program, replace_tables


def remove_blocking_calls(program: Program, chosen: np.ndarray) -> Program:
    """Remove the waits of some calls, and the CPU time that it takes to make these calls.

    Of a copy to the host, the CPU time before its call goes too, up to the median of such times before launches,
    because reading a value of the GPU is an operator. The copy itself stays on the GPU. Of a copy to the GPU, all CPU
    time since the launch or wait before goes, and so does the copy: the host prepared what it copies, and a step whose
    values are kept on the GPU does neither.

    Args:
        chosen: one flag per host row, for example from graph_obstacles.find_step_waits.
    """
    host, gpu = program.host, program.gpu
    copies = _copies_before(program, chosen)
    follows, chosen = np.append(False, copies[:-1]), chosen | copies
    launches, gap = host["launches"].to_numpy(dtype=bool), host["gap"].to_numpy(dtype=float)
    operators = launches & ~chosen & (host["kind"] == CALL).to_numpy()
    usual = float(np.median(gap[operators])) if operators.any() else 0.0
    before = gap - np.minimum(host["input"], gap)
    sent = chosen & _sends(program)
    prepares = find_belonging(program, sent)
    spared = np.where(prepares | follows, before, np.where(chosen & launches, np.minimum(before, usual), 0.0))
    gone = sent[gpu["host"].to_numpy()]
    return replace_tables(
        program,
        host={
            "wait": np.where(chosen, blocking_calls.NOTHING, host["wait"]),
            "gap": gap - spared,
            "own": np.where(chosen | prepares, 0.0, host["own"]),
            "tail": np.where(chosen, 0.0, host["tail"]),
        },
        gpu={"gone": gpu["gone"].to_numpy() | gone, "ns": np.where(gone, 0.0, gpu["ns"])},
    )


def _copies_before(program: Program, chosen: np.ndarray) -> np.ndarray:
    """Return flags of copies between host and GPU whose wait is the chosen call right after them: a synchronisation.

    torch reads a value, and sends one from pageable memory, by a copy that returns at once and a wait for its stream.
    """
    crossing = np.bincount(program.gpu["host"], weights=program.gpu["crossing"], minlength=len(program.host)) > 0
    waits = chosen & ~program.host["launches"].to_numpy(dtype=bool)
    return crossing & np.append(waits[1:], False)


def _sends(program: Program) -> np.ndarray:
    """Return one flag per host row: all that the call gives the GPU are copies to it.

    Files of earlier versions do not say so of any copy.
    """
    gpu = program.gpu
    if "inward" not in gpu:
        return np.zeros(len(program.host), dtype=bool)
    every, sending = (
        np.bincount(gpu["host"], weights=flags, minlength=len(program.host))
        for flags in (np.ones(len(gpu)), gpu["inward"].to_numpy(dtype=float))
    )
    return (every > 0) & (every == sending)
