"""Finds loops in steps whose launches differ: what lies between the launches before and behind a loop, which match."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pandas as pd

from profzoo.fusion.joining import NUMBER, OF, PLACE, STAYS
from profzoo.launches.alignment import align
from profzoo.launches.myers_diff import NONE
from profzoo.tools.nsys.launches import PACKS
from profzoo.what_if.kernel_matching import Operations
from profzoo.what_if.trace_events import KERNEL


def find_loops_of_each_step(operations: Operations, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return for each operation a row of its loop, -1 for none, and whether it stays as the launch of a batched kernel.

    Each step is aligned with one that has as many launches as the step that the rows are of; without such a step
    nothing is found. Operations that several loops could have go to the first of them.

    Args:
        operations: of the traced steps.
        rows: launches of loops in one step, from joining.join_chains.
    """
    gpu = operations.program.gpu
    found, stays = np.full(len(gpu), -1, dtype=np.int64), np.zeros(len(gpu), dtype=bool)
    ns, is_kernel = gpu["ns"].to_numpy(dtype=float), (gpu["kind"] == KERNEL).to_numpy()
    kept = rows.groupby(NUMBER)[STAYS].sum()
    for kernels, partner in _align_steps(operations, int(rows[OF].iloc[0])):
        taken: dict[int, list[int]] = {}
        for number, row, first, last in _loops(rows, partner, len(kernels)):
            if first < last:
                # Copies and fills between the kernels of a loop are of the loop too.
                inside = [one for one in range(kernels[first], kernels[last - 1] + 1) if found[one] < 0]
                found[inside] = row
                taken.setdefault(number, []).extend(inside)
        for number, several in taken.items():
            longest = sorted(several, key=lambda one: (not is_kernel[one], -ns[one]))
            stays[longest[: int(kept[number])]] = True
    return found, stays


@lru_cache(maxsize=1)
def _align_steps(operations: Operations, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the kernels of each step, and the place among them of each launch of a step with so many launches."""
    program = operations.program
    kernels = np.flatnonzero((program.gpu["kind"] == KERNEL).to_numpy())
    codes = program.gpu.iloc[kernels].groupby(PACKS, sort=False).ngroup().to_numpy()
    steps = program.host["step"].to_numpy()[program.gpu["host"].to_numpy()[kernels]]
    own = [np.flatnonzero(steps == step) for step in range(program.steps)]
    like = next((one for one in own if len(one) == size), None)
    return [] if like is None else [(kernels[mine], align(codes[like], codes[mine]).partner) for mine in own]


def _loops(rows: pd.DataFrame, partner: np.ndarray, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number and a row of each loop, and where it begins and ends in another step.

    partner: place in the other step of each launch of the step that the rows are of, NONE without a match; size: number
    of launches of the other step.
    """
    matched = np.flatnonzero(partner != NONE)
    ordered = rows.assign(row=np.arange(len(rows))).sort_values(PLACE)
    breaks = (ordered[NUMBER].diff().ne(0) | ordered[PLACE].diff().ne(1)).cumsum()
    for _, run in ordered.groupby(breaks):
        before, behind = matched[matched < run[PLACE].min()], matched[matched > run[PLACE].max()]
        first = int(partner[before[-1]]) + 1 if len(before) else 0
        last = int(partner[behind[0]]) if len(behind) else size
        yield int(run[NUMBER].iloc[0]), int(run["row"].iloc[0]), first, last
