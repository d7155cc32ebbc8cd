"""Changes a program so that gradients are sent once per update of the weights, and not after each backward pass.

A step that accumulates gradients has several backward passes before its optimizer. DistributedDataParallel sends the
gradients in each of them, unless it runs under `no_sync`: only what the last one sends is needed.
"""

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.nsys.launches import unpack_configurations
from profzoo.what_if import changes, process_waits
from profzoo.what_if.program import CALL, Program
from profzoo.what_if.trace_events import COPY, KERNEL

# A kernel that multiplies all elements by one number.
SCALING = r"[AB]UnaryFunctor.*MulFunctor"
# Copying a gradient and multiplying it into a bucket read and write the same bytes. Their durations differ at most by
# this factor.
ALIKE = 2.5
# Numbers of these parts in the column `part`, and of launches outside of all parts.
NONE, BACKWARD, OPTIMIZER = 0, PARTS.index("backward") + 1, PARTS.index("optimizer") + 1


def find_early_sends(program: Program) -> np.ndarray:
    """Return one flag per operation: it sends gradients in a backward pass behind which another one sends them again.

    Backward passes are told apart by launches of another part of the step between them. An optimizer between them uses
    the gradients: then the earlier ones are needed.
    """
    talks, passes = _find_sending(program)
    last = _find_last(program, passes)
    return talks & (passes >= 0) & ~np.isin(passes, last)


def count_sending_passes(program: Program) -> float:
    """Return the median number of backward passes per step that send gradients."""
    _, passes = _find_sending(program)
    steps = program.host["step"].to_numpy()[program.gpu["host"]]
    counts = [len(np.unique(passes[(steps == step) & (passes >= 0)])) for step in range(program.steps)]
    return float(np.median(counts)) if counts else 0.0


def send_once(program: Program) -> Program:
    """Leave out what backward passes send, except for the last one before an optimizer, with the calls for it.

    Other processes are as late as before. So the process waits as long for them, in the next send that stays.
    """
    early = find_early_sends(program)
    if not early.any():
        return program
    stays = np.where(_find_communication(program) & ~early, np.arange(len(early)), len(early))
    following = np.minimum.accumulate(stays[::-1])[::-1]
    to = np.where(following < len(early), following, -1)
    packing = find_packing(program, early)
    return changes.fuse(process_waits.move_waits(program, early, to), early | packing)


def find_packing(program: Program, early: np.ndarray) -> np.ndarray:
    """Return one flag per operation: it packs gradients for one of these sends, or copies their mean back.

    DistributedDataParallel multiplies each gradient by one over the number of processes into a bucket. At the end of
    the backward pass it copies the buckets into the gradients again, unless these are views of them (torch's
    `Reducer::mark_variable_ready_dense` and `Reducer::finalize_bucket_dense`). A copy on the GPU behind the last send
    of the pass is taken for such a copy back. The multiplication that goes with it is the one of the pass whose
    duration is nearest to that of the copy. It must not differ by more than the factor ALIKE.

    early: one flag per operation, of find_early_sends.
    """
    gpu = program.gpu
    passes = _number_passes(program)[gpu["host"].to_numpy()]
    ns = gpu["ns"].to_numpy(dtype=float)
    copies = (gpu["kind"] == COPY).to_numpy() & ~gpu["crossing"].to_numpy(dtype=bool)
    names = pd.Series(unpack_configurations(gpu)["mangled"]).map(program.kernels).fillna("")
    scales = (gpu["kind"] == KERNEL).to_numpy() & names.str.contains(SCALING).to_numpy()
    found = np.zeros(len(gpu), dtype=bool)
    for number in np.unique(passes[early & (passes >= 0)]):
        mine = np.flatnonzero(passes == number)
        back = mine[copies[mine] & (mine > mine[early[mine]].max())]
        into = mine[scales[mine]]
        for one in back[np.argsort(-ns[back], kind="stable")]:
            found[one] = True
            apart = np.abs(np.log(np.maximum(ns[into], 1) / max(ns[one], 1)))
            if len(into) and apart.min() <= np.log(ALIKE):
                found[into[apart.argmin()]] = True
                into = np.delete(into, apart.argmin())
    return found


def _find_sending(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Return per operation whether it communicates, and the number of its backward pass; -1 for others."""
    numbers = _number_passes(program)[program.gpu["host"].to_numpy()]
    talks = _find_communication(program)
    return talks, np.where(talks, numbers, -1)


def _find_communication(program: Program) -> np.ndarray:
    """Return one flag per operation: it communicates, and no change has removed it."""
    return program.gpu["talking"].to_numpy(dtype=bool) & ~program.gpu["gone"].to_numpy(dtype=bool)


def _number_passes(program: Program) -> np.ndarray:
    """Return per host row the number of the backward pass that it belongs to, -1 for none; each step has its own."""
    host = program.host
    part = np.where((host["kind"] == CALL).to_numpy(), host["part"].to_numpy(), NONE)
    step = host["step"].to_numpy()
    known = np.flatnonzero(part != NONE)
    begins = np.ones(len(known), dtype=bool)
    begins[1:] = (part[known][1:] != part[known][:-1]) | (step[known][1:] != step[known][:-1])
    numbers = np.full(len(host), -1)
    numbers[known] = np.where(part[known] == BACKWARD, np.cumsum(begins), -1)
    return numbers


def _find_last(program: Program, passes: np.ndarray) -> np.ndarray:
    """Return the numbers of the backward passes that are the last to send in their step, or before an optimizer."""
    host = program.host
    calls = program.gpu["host"].to_numpy()
    part, step = host["part"].to_numpy(), host["step"].to_numpy()
    # How many times an optimizer has begun by each row: passes with equal counts are of one update.
    optimizes = (part == OPTIMIZER) & (host["kind"] == CALL).to_numpy()
    updates = np.cumsum(optimizes & ~np.append(False, optimizes[:-1]))
    mine = np.flatnonzero(passes >= 0)
    keys = step[calls[mine]] * (int(updates.max(initial=0)) + 1) + updates[calls[mine]]
    return np.array([passes[mine][keys == key].max() for key in np.unique(keys)], dtype=np.int64)
