"""Divides a foreign torch.profiler trace into steps and parts, and says which of its events are in a step."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import steps as trace_steps
from profzoo.foreign_reports import torch_categories as categories
from profzoo.foreign_reports.step_parts import find_parts
from profzoo.foreign_reports.step_times import gpu_step_ns
from profzoo.foreign_reports.torch_events import ForeignTrace
from profzoo.foreign_reports.torch_owners import LaunchOwners, find_owners

# What the host waits in, or launches by; a trace with such calls and without kernels is of a GPU.
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "hipLaunch", "hipExtLaunch",
             "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch", "hipHccModuleLaunch")  # fmt: skip


@dataclass(frozen=True)
class DividedTrace:
    """A trace of one process, in steps.

    operators, ranges, calls, launches: events, sorted; `kept` says of each whether it is in a step. owners: who made
    what. made: when each launch was launched. steps: the steps; wall_ns, gpu_ns: how long each took, the second None
    on a CPU. parts: as of `find_parts`. coverage: lines on what is missing.
    """

    process: str
    owners: LaunchOwners
    ranges: pd.DataFrame
    calls: pd.DataFrame
    launches: pd.DataFrame
    made: np.ndarray
    steps: trace_steps.Steps
    parts: pd.DataFrame
    wall_ns: np.ndarray
    gpu_ns: np.ndarray | None
    coverage: list[str] = field(default_factory=list)

    @property
    def operators(self) -> pd.DataFrame:
        """Operators, by thread and start."""
        return self.owners.operators

    @property
    def on_gpu(self) -> bool:
        """Whether the trace holds work of a GPU."""
        return bool(len(self.launches))


def divide_trace(found: ForeignTrace, path: str, asked: str | None = None) -> DividedTrace:
    """Divide a trace into steps.

    asked: name of the ranges that the user calls steps.

    Raises:
        DataError: kernels were launched and none is in the trace, or there are no ranges of the asked name.
    """
    process, coverage = _main_process(found)
    own = found.events[found.events["process"] == process]
    operators, ranges = (own[own["category"] == one] for one in (categories.OPERATOR, categories.RANGE))
    calls = own[own["category"].isin(categories.CALLS)].reset_index(drop=True)
    launches = found.of(*categories.ON_DEVICE).reset_index(drop=True)
    _refuse_without_kernels(path, calls, launches)
    owners = find_owners(operators, calls, launches)
    made = np.where(
        owners.call_of_launch >= 0,
        np.append(calls["start"].to_numpy(), 0)[owners.call_of_launch],
        launches["start"].to_numpy(),
    ).astype(np.int64)
    host = pd.concat([part for part in (operators, ranges, calls) if len(part)] or [launches])
    ends = [int((part["start"] + part["ns"]).max()) for part in (host, launches) if len(part)]
    span = int(min(host["start"].min(), made.min() if len(made) else host["start"].min())), max(ends)
    steps = _find_steps(path, ranges, owners, launches, made, span, asked)
    parts = find_parts(ranges, operators, steps.spans)
    before = _launched_before(owners, launches)
    made[before] = np.minimum(made[before], steps.spans[0, 0] - 1)
    gpu_ns = None
    if len(launches):
        gpu_ns = gpu_step_ns(steps.spans, made, (launches["start"] + launches["ns"]).to_numpy())
    wall_ns = steps.spans[:, 1] - steps.spans[:, 0]
    return DividedTrace(
        process, owners, ranges, calls, launches, made, steps, parts, wall_ns, gpu_ns, [*found.notes, *coverage]
    )


def _find_steps(
    path: str, ranges: pd.DataFrame, owners: LaunchOwners, launches: pd.DataFrame, made: np.ndarray,
    span: tuple[int, int], asked: str | None,
) -> trace_steps.Steps:  # fmt: skip
    known = owners.call_of_launch >= 0
    known = known if known.any() else ~known
    order = np.lexsort((launches["start"].to_numpy()[known], made[known]))
    sequence = launches[known].iloc[order][["name", "category"]].assign(made=made[known][order])
    try:
        work = made if len(made) else owners.operators["start"].to_numpy(dtype=np.int64)
        return trace_steps.find_steps(ranges, sequence, span, work, asked)
    except LookupError as error:
        raise DataError(f"{path} has no ranges called {asked!r}, which were to be its steps: {error}") from None


def _launched_before(owners: LaunchOwners, launches: pd.DataFrame) -> np.ndarray:
    """Return which launches were made before the trace began: they ran before any that has a call, on their stream."""
    called = owners.call_of_launch >= 0
    if not called.any() or called.all():
        return np.zeros(len(launches), dtype=bool)
    starts, queues = launches["start"], [launches["device"], launches["stream"]]
    first = starts[called].groupby([queue[called] for queue in queues]).min().rename("first")
    own = pd.DataFrame({"device": queues[0], "stream": queues[1]}).join(first, on=["device", "stream"])["first"]
    return np.asarray(~called & (starts < own.fillna(starts[called].min())).to_numpy())


def _main_process(found: ForeignTrace) -> tuple[str, list[str]]:
    """Return the host process that the trace is of, and what there is to say of others: the one with most calls."""
    host = found.events[~found.events["category"].isin((*categories.ON_DEVICE, categories.LINK))]
    if host.empty:
        return "", []
    calls = host[host["category"].isin(categories.CALLS)]
    sizes = (calls if len(calls) else host).groupby("process").size().sort_values(kind="stable")
    process = str(sizes.index[-1])
    others = int((host["process"] != process).sum())
    if not others:
        return process, []
    number = host["process"].nunique() - 1
    return process, [f"{others:,} host events of {number} other process(es) than {process} are left out"]


def _refuse_without_kernels(path: str, calls: pd.DataFrame, launches: pd.DataFrame) -> None:
    kernels = int((launches["category"] == categories.KERNEL).sum())
    made = int(calls["name"].str.startswith(LAUNCHING).sum()) if len(calls) else 0
    if made and not kernels:
        raise DataError(
            f"{path} holds {made:,} calls that launch kernels and no kernel: the profiler could not trace the GPU, or "
            "the trace was cut to the host's part; record it again with ProfilerActivity.CUDA"
        )
