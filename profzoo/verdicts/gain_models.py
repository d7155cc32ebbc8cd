"""Predict the gain of advice by a what-if simulation of the cell's traced steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.fusion.gains import fuse_chains
from profzoo.io.csv_tables import Row
from profzoo.verdicts import reduced_precision
from profzoo.what_if import (
    blocking_changes,
    changes,
    communication_overlap,
    gradient_sends,
    graph_obstacles,
    host_pauses,
    predicted_gains,
    process_waits,
    simulator,
)
from profzoo.what_if.kernel_matching import Operations
from profzoo.what_if.program import Program
from profzoo.what_if.trace_events import COPY, SET

GRAPH = "graph"
# Without the waits of the step itself, and without these and the calls that allocate and free memory.
WITHOUT_WAITS, WITHOUT_PAUSES = "step_waits_removed", "step_pauses_removed"
# Without pauses of the host between launches that neither launches nor the GPU cause.
WITHOUT_HOST_PAUSES = "host_pauses_removed"
# With gradients sent once per update, where they are accumulated.
SENT_ONCE = "gradients_sent_once"
# The least share of the launches' time that must be found in the trace for a prediction.
LEAST_FOUND_SHARE = 0.8


@dataclass(frozen=True)
class RequestedChange:
    """A change to simulate.

    Attributes:
        change: its name, a key of STEP_CHANGES or one of LAUNCH_CHANGES.
        rows: launches that it is about, a row per launch configuration.
        saved: share of each row's time that it saves, nan where unknown; for reduced precision, 1 for launches that
            disappear.
        added: launches that it adds per launch, by operators of their own and within the launch's own operator.
        fused: GPU time in ns per step of the fused kernels, by chain; then `rows` are kernels of chains.
    """

    change: str
    rows: pd.DataFrame | None = None
    saved: pd.Series | None = None
    added: tuple[pd.Series, pd.Series] | None = None
    fused: pd.Series | None = None


def _remove_copies(program: Program, crossing: bool) -> Program:
    gpu = program.gpu
    mine = gpu["crossing"].to_numpy(dtype=bool)
    chosen = mine if crossing else gpu["kind"].isin([COPY, SET]).to_numpy() & ~mine
    return changes.fuse(program, chosen)


def _remove_waiting(program: Program, step: Row) -> Program:
    """Shorten communication by the time in which it waits for other processes."""
    share = program.waiting
    if share is None:
        share = min(step["waiting_ns"] / max(step["communication_ns"], 1.0), 1.0)
    return process_waits.keep_waits(replace(program, waiting=share), 0.0)


def _remove_step_waits(program: Program) -> Program:
    return blocking_changes.remove_blocking_calls(program, graph_obstacles.find_step_waits(program))


# Changes of rules about the step, by name: functions of a program and the cell's row of the table of steps.
STEP_CHANGES: Mapping[str, Callable[[Program, Row], Program]] = {
    "input_ready": lambda program, _: changes.prefetch_input(program),
    "waits_removed": lambda program, _: changes.remove_waits(program),
    WITHOUT_WAITS: lambda program, _: _remove_step_waits(program),
    WITHOUT_PAUSES: lambda program, _: _remove_step_waits(changes.remove_allocations(program)),
    GRAPH: lambda program, _: changes.capture_as_graph(program),
    "half_the_operators": lambda program, _: predicted_gains.PANEL["half_the_operators"](program),
    "transfers_removed": lambda program, _: _remove_copies(program, crossing=True),
    "copies_removed": lambda program, _: _remove_copies(program, crossing=False),
    "communication_overlapped": lambda program, _: communication_overlap.overlap_communication(program),
    "waiting_removed": _remove_waiting,
    "allocations_removed": lambda program, _: changes.remove_allocations(program),
    "unrepeated_removed": lambda program, _: changes.fuse(program, changes.find_unrepeated(program)),
    "lock_waits_removed": lambda program, _: host_pauses.remove_lock_waits(program),
    "host_work_removed": lambda program, _: host_pauses.remove_host_work(program),
    "loading_removed": lambda program, _: host_pauses.remove_loading(program),
    "copies_pinned": lambda program, _: host_pauses.pin_copies(program),
    # Of steps whose only waits are those for logging.
    "logging_removed": lambda program, _: _remove_step_waits(program),
    SENT_ONCE: lambda program, _: gradient_sends.send_once(program),
    # No rule names it: what is left out of the idle time of launches.
    WITHOUT_HOST_PAUSES: lambda program, _: host_pauses.remove_pauses(program),
}
# Changes of rules about launches: make them faster, remove them with their calls, or reduce precision.
FASTER, FUSED = "faster", "fused"
# The change of rules about chains: their operators become fused kernels.
CHAINS = "fused_chains"
LAUNCH_CHANGES = (FASTER, FUSED, *reduced_precision.TARGET_PRECISIONS)


class CellSimulation:
    """What-if simulation of a cell's traced steps."""

    def __init__(self, program: Program, unrepeated: float = 0.0) -> None:
        """Simulate the unchanged steps.

        unrepeated: relative difference between processes to assume if the program has only one process.
        """
        self.program, self.operations = program, Operations(program)
        self.apart = program.apart or unrepeated
        self.before = simulator.step_times(program, simulator.simulate(program))
        self.differ = graph_obstacles.steps_differ(program)

    def gain(self, asked: RequestedChange, step: Row, error: float, graph: bool = False) -> predicted_gains.Gain | None:
        """Return the gain of a change; None if the trace lacks the launches that it is about.

        Args:
            asked: the change.
            step: the cell's row of the table of steps.
            error: relative error that nine of ten such predictions stayed below in trials.
            graph: whether to simulate the changed step as one CUDA graph.
        """
        return self.gain_together([asked, RequestedChange(GRAPH)] if graph else [asked], step, error)

    def gain_together(self, asked: Sequence[RequestedChange], step: Row, error: float) -> predicted_gains.Gain | None:
        """Return the gain of several changes to the same steps; None if the trace lacks launches that one is about.

        The changes are made one after the other, and the steps are simulated once. A graph is captured last, because
        it holds the launches as the other changes leave them.

        Args:
            asked, step, error: as for gain.
        """
        after = self.program
        for one in sorted(asked, key=lambda one: one.change == GRAPH):
            changed = self._changed(after, one, step)
            if changed is None:
                return None
            after = changed
        error = float(np.expm1(np.hypot(np.log1p(error), self.apart)))
        times = simulator.step_times(after, simulator.simulate(after))
        found = predicted_gains.gain_of_steps(self.before, times, error, differ=self.differ)
        # A single step has no spread.
        low, high = error_interval(found.gain, error) if np.isnan(found.low) else (found.low, found.high)
        return predicted_gains.Gain(found.step_ns, found.predicted_ns, found.gain, low, high)

    def _changed(self, program: Program, asked: RequestedChange, step: Row) -> Program | None:
        """Return a program with one more change; its operations are those of the trace, in the same order."""
        if asked.change in STEP_CHANGES:
            return STEP_CHANGES[asked.change](program, step)
        if asked.fused is not None and asked.rows is not None:
            # Chains are known of the traced steps alone, and not of changed ones.
            return fuse_chains(self.operations, asked.rows, asked.fused) if program is self.program else None
        assert asked.rows is not None and asked.saved is not None
        known = asked.rows["launches"].gt(0) & asked.rows["total_ns"].notna()
        rows, saved = asked.rows[known], asked.saved[known].to_numpy(dtype=float)
        if not len(rows) or np.isnan(saved).any() or not set(rows.columns) >= set(self.operations.keys.columns[1:]):
            return None
        places = self.operations.of(rows)
        chosen = places >= 0
        ns = self.program.gpu["ns"].to_numpy(dtype=float)
        if ns[chosen].sum() < LEAST_FOUND_SHARE * rows["total_ns"].sum() * self.program.steps:
            return None
        saved = np.where(chosen, saved[places], 0.0)
        if asked.change == FUSED:
            # A launch that is fused disappears; the unsaved rest of its time goes to the launch before it.
            return changes.fuse(program, chosen & (saved > 0), float(saved[chosen].max(initial=0.0)))
        after = changes.speed_up_kernels(program, chosen, 1 / np.maximum(1 - saved, 1e-9))
        if asked.added is None:
            return after
        for more, within in zip(asked.added, (False, True), strict=True):
            each = np.where(chosen, more[known].to_numpy(dtype=float)[places], 0.0)
            after = changes.add_launches(after, each, reduced_precision.ADDED_NS, within)
        return changes.fuse(after, chosen & (saved >= 1))


def error_interval(gain: float, error: float) -> tuple[float, float]:
    """Return the interval of a gain with a relative error.

    >>> tuple(round(end, 2) for end in error_interval(2.0, 0.25))
    (1.6, 2.5)
    """
    return gain / (1 + error), gain * (1 + error)
