"""Simulates a traced step with chains fused: one launch stays with the fused time, the others go with their calls."""

import numpy as np
import pandas as pd

from profzoo.fusion.joining import KEYS, NUMBER, OF, PLACE, STAYS, TOGETHER, WAITS
from profzoo.fusion.loops_by_step import find_loops_of_each_step
from profzoo.what_if import blocking_calls, changes
from profzoo.what_if.blocking_changes import remove_blocking_calls
from profzoo.what_if.kernel_matching import Operations, spread_evenly
from profzoo.what_if.program import Program, replace_tables
from profzoo.what_if.trace_events import KERNEL

# The least share of the chains' time that must be found in the trace for a prediction.
LEAST_FOUND_SHARE = 0.8
# Operations of a chain with no more than so many others between, such as copies to the host, follow one another.
APART = 3
# The least share of the steps that have as many launches as the step that the chains were found in.
ALIKE = 0.5


def fuse_chains(operations: Operations, kernels: pd.DataFrame, fused_ns: pd.Series) -> Program | None:
    """Return the program with chains fused; None if it lacks the launches that they consist of.

    Launches are found by their place in the step. In programs whose steps differ, loops are found by the launches
    before and behind them, and other chains by range and launch configuration.

    Args:
        operations: of the program.
        kernels: rows of the chains' kernels, from joining.join_chains.
        fused_ns: GPU time per step of the fused kernels, by number of the chain.
    """
    program = operations.program
    if kernels.empty or not len(program.gpu):
        return None
    rows = _with_ratios(kernels, fused_ns)
    waiting, (places, stays) = WAITS in rows and bool(rows[WAITS].any()), _by_place(program, rows)
    found = _are_found(program, places >= 0, rows["ns"].sum())
    if not found and waiting:
        places, stays = find_loops_of_each_step(operations, rows)
        # Other steps may have more to do in a loop than the one that the rows are of.
        found = bool((places >= 0).any())
    if not found:
        rows = _by_configuration(rows)
        places = operations.of(rows)
        stays = (places >= 0) & spread_evenly(places, rows[STAYS].to_numpy(dtype=float) * program.steps)
        if not _are_found(program, places >= 0, (rows["ns"] * rows["launches"]).sum()):
            return None
    ratio = rows["ratio"].to_numpy(dtype=float)[places]
    longer = changes.speed_up_kernels(program, stays, 1 / np.where(stays, np.maximum(ratio, 1e-9), 1.0))
    fused = changes.fuse(longer, (places >= 0) & ~stays, 1.0)
    together = _in_one_call(fused, stays, places, rows) if TOGETHER in rows else fused
    return _without_waits(together, places, rows) if waiting else together


def _in_one_call(program: Program, stays: np.ndarray, places: np.ndarray, rows: pd.DataFrame) -> Program:
    """Return the program in which one call per step makes the launches that stay of a chain which a library computes.

    The host then runs one operator before the first of them, and none before the others, whose launches alone remain.
    What takes longer than an operator is other work and stays.
    """
    chosen = np.flatnonzero(stays & (rows[TOGETHER].to_numpy()[places] > 0))
    calls = program.gpu["host"].to_numpy()[chosen]
    steps, numbers = program.host["step"].to_numpy()[calls], rows[NUMBER].to_numpy()[places[chosen]]
    later = np.zeros(len(program.host), dtype=bool)
    later[calls[pd.DataFrame({"step": steps, "number": numbers}).duplicated().to_numpy()]] = True
    before = changes.find_belonging(program, later)
    gap, own = (program.host[name].to_numpy(dtype=float) for name in ("gap", "own"))
    left = np.maximum(gap - changes.OPERATOR_NS, np.minimum(program.host["input"], gap))
    return replace_tables(
        program, host={"gap": np.where(before, left, gap), "own": np.where(before & ~later, 0.0, own)}
    )


def _without_waits(program: Program, places: np.ndarray, rows: pd.DataFrame) -> Program:
    """Return the program without the host's waits, and the reading of values, between launches of such a chain."""
    chosen = np.flatnonzero((places >= 0) & (rows[WAITS].to_numpy()[places] > 0))
    calls, numbers = program.gpu["host"].to_numpy()[chosen], rows[NUMBER].to_numpy()[places[chosen]]
    near = (np.diff(chosen) <= APART) & (np.diff(numbers) == 0)
    edges = np.zeros(len(program.host) + 1, dtype=np.int64)
    np.add.at(edges, calls[:-1][near], 1)
    np.add.at(edges, calls[1:][near], -1)
    inside = np.cumsum(edges)[:-1] > 0
    return remove_blocking_calls(program, inside & (program.host["wait"] != blocking_calls.NOTHING).to_numpy())


def _are_found(program: Program, chosen: np.ndarray, ns: float) -> bool:
    """Return whether operations take about as long as the chains do; ns: of the chains per step."""
    found = program.gpu["ns"].to_numpy(dtype=float)[chosen].sum() / program.steps
    return bool(LEAST_FOUND_SHARE * ns <= found <= ns / LEAST_FOUND_SHARE)


def _with_ratios(kernels: pd.DataFrame, fused_ns: pd.Series) -> pd.DataFrame:
    """Return the rows with the fused time over the present one of the launches that stay, by chain."""
    staying = (kernels["ns"] * kernels[STAYS]).groupby(kernels[NUMBER]).sum()
    ratios = kernels[NUMBER].map(fused_ns / staying.where(staying > 0))
    return kernels.assign(ratio=ratios.fillna(1.0))


def _by_place(program: Program, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return for each operation its row by its place in its step, -1 for none, and whether it stays."""
    kernels = np.flatnonzero((program.gpu["kind"] == KERNEL).to_numpy())
    steps = pd.Series(program.host["step"].to_numpy()[program.gpu["host"].to_numpy()[kernels]])
    place = steps.groupby(steps).cumcount().to_numpy()
    alike = steps.groupby(steps).transform("size").to_numpy() == rows[OF].iloc[0]
    found = np.full(len(program.gpu), -1, dtype=np.int64)
    if steps[alike].nunique() >= ALIKE * program.steps:
        row_of = np.full(int(rows[OF].iloc[0]), -1, dtype=np.int64)
        row_of[rows[PLACE].to_numpy(dtype=np.int64)] = np.arange(len(rows))
        found[kernels[alike]] = row_of[place[alike]]
    return found, (found >= 0) & (rows[STAYS].to_numpy()[found] > 0)


def _by_configuration(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row per range and configuration: launches per step, ns of one, how many stay, and their mean ratio."""
    table = rows.assign(launches=1.0, weighed=rows["ratio"] * rows[STAYS])
    grouped = table.groupby(KEYS, sort=False, dropna=False)
    sums = grouped[["launches", STAYS, "weighed"]].sum().join(grouped["ns"].mean()).reset_index()
    return sums.assign(ratio=(sums["weighed"] / sums[STAYS].where(sums[STAYS] > 0)).fillna(1.0))
