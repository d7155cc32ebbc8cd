"""Divides a foreign torch.profiler trace into steps and parts, and says which of its events are in a step."""

import re
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import steps as trace_steps
from profzoo.foreign_reports import torch_events as categories
from profzoo.foreign_reports.sidecars import tell_impossible
from profzoo.foreign_reports.steps import find_parts, gpu_step_ns
from profzoo.foreign_reports.torch_events import ForeignTrace, enclosing_events, find_parents, sort_events
from profzoo.tools.stream_overlap import find_impossible
from profzoo.tools.torch.owners import REPLAYS

# Finds the operator that made each launch of a foreign torch.profiler trace.

# The clocks of host and GPU differ by as much.
SKEW_NS = 1_000_000
# Of calls that launch one kernel more than these have several only where processes are mixed up.
CROWDED = 0.1
# Of launches whose operator the numbers of the trace name, and times tell, so many have to agree for numbers to count.
AGREEING = 0.95


@dataclass(frozen=True)
class LaunchOwners:
    """Who made what: positions in `operators`, -1 for none.

    operators: operators and their parents, sorted; of_calls: of each call, the innermost operator around it;
    call_of_launch: position of each launch's call; of_launches: the operator of each launch. by_number: launches whose
    operator is known by the trace's numbers alone.
    """

    operators: pd.DataFrame
    parents: np.ndarray
    of_calls: np.ndarray
    call_of_launch: np.ndarray
    of_launches: np.ndarray
    by_number: int


def find_owners(operators: pd.DataFrame, calls: pd.DataFrame, launches: pd.DataFrame) -> LaunchOwners:
    """Find the operator of each launch: the innermost one around its launching call, on the call's thread.

    Where the trace has no thread in common for calls and operators, or no calls, its `External id` counts, but only if
    it is not the correlation, and agrees with times wherever both are known.
    """
    ordered = sort_events(operators)
    parents = find_parents(ordered)
    of_calls = enclosing_events(ordered, parents, calls)
    call = call_positions(calls, launches)
    known = np.append(of_calls, -1)[call]
    named = _by_number(ordered, calls, launches, call)
    both = (known >= 0) & (named >= 0)
    agree = not both.any() or (named[both] == known[both]).mean() >= AGREEING
    use = (known < 0) & (named >= 0) & agree
    return LaunchOwners(ordered, parents, of_calls, call, np.where(use, named, known), int(use.sum()))


def call_positions(calls: pd.DataFrame, launches: pd.DataFrame) -> np.ndarray:
    """Return, per launch, the position of its launching call; -1 where the trace has none.

    Of calls with one correlation whose numbers begin again, that is the last one before the launch began.
    """
    known = outer_calls(calls)
    known = known[(known["place"] == known["outer"]) & (known["correlation"] >= 0)].sort_values("start", kind="stable")
    found = np.full(len(launches), -1, dtype=np.int64)
    linked = launches[["correlation", "start"]].assign(place=np.arange(len(launches)))
    linked = linked[linked["correlation"] >= 0].sort_values("start", kind="stable")
    if known.empty or linked.empty:
        return found
    first = known.drop_duplicates("correlation")
    positions = pd.Series(first["place"].to_numpy(), index=first["correlation"].to_numpy())
    found[linked["place"]] = linked["correlation"].map(positions).fillna(-1).astype("int64").to_numpy()
    if len(first) < len(known):
        before = linked.assign(start=linked["start"] + SKEW_NS).sort_values("start", kind="stable")
        last = pd.merge_asof(before, known[["start", "correlation", "outer"]], on="start", by="correlation")
        last = last.dropna(subset=["outer"])
        found[last["place"]] = last["outer"].astype("int64").to_numpy()
    return found


def outer_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """Return correlation, start and place of each call, and `outer`, the place of the call that it is a part of.

    A runtime call may share its correlation with the driver's call inside it.
    """
    table = calls[["correlation", "thread", "start", "ns"]].assign(place=np.arange(len(calls)))
    table = table.sort_values(["correlation", "thread", "start", "ns"], ascending=[True, True, True, False])
    alike = table.groupby(["correlation", "thread"], sort=False)
    reached = (table["start"] + table["ns"]).groupby([table["correlation"], table["thread"]], sort=False).cummax()
    before = reached.groupby([table["correlation"], table["thread"]], sort=False).shift()
    begins = (alike.cumcount() == 0) | (table["start"] > before)
    outer = table["place"].where(begins).ffill().astype("int64")
    return table.assign(outer=outer.where(table["correlation"] >= 0, table["place"]))


def find_mixed(calls: pd.DataFrame, launches: pd.DataFrame, call_of_launch: np.ndarray) -> int | None:
    """Return a correlation under which calls of several processes are mixed up; None where there is none.

    Such a trace is joined from files whose processes are called alike and ran at the same time: of calls with one
    correlation, one has the launches of another, or many calls that launch one kernel have several.
    """
    counts = pd.Series(np.bincount(call_of_launch[call_of_launch >= 0], minlength=len(calls)), dtype="int64")
    known = outer_calls(calls)
    known = known[(known["place"] == known["outer"]) & (known["correlation"] >= 0)]
    single = calls["name"].str.contains("LaunchKernel|LaunchCooperativeKernel|Memcpy|Memset").to_numpy(dtype=bool)
    known = known[single[known["place"]]].assign(count=lambda table: counts[table["place"]].to_numpy())
    again = known[known["correlation"].duplicated(keep=False)].groupby("correlation")["count"].agg(["min", "max"])
    mixed = again.index[(again["max"] > 1) & (again["min"] == 0)]
    crowded = known.loc[known["count"] > 1, "correlation"]
    found = [*mixed, *(crowded if len(crowded) > CROWDED * (known["count"] > 0).sum() else [])]
    return int(found[0]) if found else None


def _by_number(operators: pd.DataFrame, calls: pd.DataFrame, launches: pd.DataFrame, call: np.ndarray) -> np.ndarray:
    """Return, per launch, the position of the operator that bears its number; -1 for none, or where numbers lie."""
    numbered = operators[operators["external"] >= 0].drop_duplicates("external", keep=False)
    positions = pd.Series(numbered.index.to_numpy(), index=numbered["external"].to_numpy())
    numbers = launches["external"].to_numpy()
    if not len(numbers) or (numbers == launches["correlation"].to_numpy()).mean() > 1 - AGREEING:
        return np.full(len(launches), -1, dtype=np.int64)
    found = launches["external"].map(positions).fillna(-1).astype("int64").to_numpy()
    # Whoever made it was open when it was made; without a call, it had begun before the launch ran.
    began, end = operators["start"].to_numpy(), (operators["start"] + operators["ns"]).to_numpy()
    made = np.append(calls["start"].to_numpy(), 0)[call]
    if not len(operators):
        return np.full(len(launches), -1, dtype=np.int64)
    fits = np.where(
        call >= 0, (began[found] <= made) & (made <= end[found]), began[found] <= launches["start"].to_numpy()
    )
    return np.where((found >= 0) & fits, found, -1)


# What the host waits in, or launches by; a trace with such calls and without kernels is of a GPU.
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "hipLaunch", "hipExtLaunch",
             "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch", "hipHccModuleLaunch")  # fmt: skip
# The name of a process without its number, behind or before the rest.
TAGS = (re.compile(r"(.*[^\W\d_].*?)[\s_:/-]*\d+"), re.compile(r"\d+[\s_:/-]+(.*[^\W\d_].*)"))
ALONE = "import the trace of each process by itself"


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
    launched_by = _launching_processes(found, path)
    process, coverage = _main_process(found, launched_by)
    own = found.events[found.events["process"] == process]
    operators, ranges = (own[own["category"] == one] for one in (categories.OPERATOR, categories.RANGE))
    calls = own[own["category"].isin(categories.CALLS)].reset_index(drop=True)
    launches = found.of(*categories.ON_DEVICE)[launched_by == process].reset_index(drop=True)
    _refuse_without_kernels(path, calls, launches)
    launches, told = _leave_out_impossible(path, pd.concat([operators, ranges, calls]), calls, launches)
    owners = find_owners(operators, calls, launches)
    if (mixed := find_mixed(calls, launches, owners.call_of_launch)) is not None:
        raise DataError(
            f"{path} is of several processes that are all called {process}, as several calls at once have the "
            f"correlation {mixed}: {ALONE}"
        )
    made = np.where(
        owners.call_of_launch >= 0,
        np.append(calls["start"].to_numpy(), 0)[owners.call_of_launch],
        launches["start"].to_numpy(),
    ).astype(np.int64)
    host = pd.concat([part for part in (operators, ranges, calls) if len(part)] or [launches])
    ends = [int((part["start"] + part["ns"]).max()) for part in (host, launches) if len(part)]
    span = int(min(host["start"].min(), made.min() if len(made) else host["start"].min())), max(ends)
    steps = _find_steps(path, ranges, owners, launches, _work(owners, calls, launches, made), span, asked)
    parts = find_parts(ranges, operators, steps.spans)
    before = _launched_before(owners, launches)
    made[before] = np.minimum(made[before], steps.spans[0, 0] - 1)
    gpu_ns = None
    if len(launches):
        gpu_ns = gpu_step_ns(steps.spans, made, (launches["start"] + launches["ns"]).to_numpy())
    wall_ns = steps.spans[:, 1] - steps.spans[:, 0]
    return DividedTrace(
        process, owners, ranges, calls, launches, made, steps, parts, wall_ns, gpu_ns,
        [*found.notes, *coverage, *told, *filter(None, [steps.passed])],
    )  # fmt: skip


def _find_steps(
    path: str, ranges: pd.DataFrame, owners: LaunchOwners, launches: pd.DataFrame, work: trace_steps.Work,
    span: tuple[int, int], asked: str | None,
) -> trace_steps.Steps:  # fmt: skip
    known = owners.call_of_launch >= 0
    known = known if known.any() else ~known
    made = work.made[: len(launches)] if len(launches) else np.zeros(0, dtype=np.int64)
    order = np.lexsort((launches["start"].to_numpy()[known], made[known]))
    begin = _begin_operators(owners, made)[known][order]
    # Not before what was launched before it.
    begin[1:] = np.maximum(begin[1:], made[known][order][:-1] + 1)
    sequence = launches[known].iloc[order][["name", "category"]].assign(begin=begin, made=made[known][order])
    try:
        return trace_steps.find_steps(ranges, sequence, span, work, asked)
    except LookupError as error:
        raise DataError(f"{path} has no ranges called {asked!r}, which were to be its steps: {error}") from None


def _begin_operators(owners: LaunchOwners, made: np.ndarray) -> np.ndarray:
    """Return, per launch, when the outermost operator around its call began; without one, when it was made."""
    outer = np.append(owners.parents, -1)
    outer = np.where(outer >= 0, outer, np.arange(len(outer)))
    while (further := outer[outer] != outer).any():
        outer[further] = outer[outer[further]]
    starts = np.append(owners.operators["start"].to_numpy(dtype=np.int64), 1 << 62)
    return np.minimum(starts[outer[owners.of_launches]], made)


def _work(owners: LaunchOwners, calls: pd.DataFrame, launches: pd.DataFrame, made: np.ndarray) -> trace_steps.Work:
    """Return the launches; on a CPU operators, with their time without those that they call."""
    if len(launches):
        threads = np.append(calls["thread"].to_numpy(dtype=object), "")[owners.call_of_launch]
        return trace_steps.Work(made, launches["ns"].to_numpy(dtype=np.int64), threads)
    operators, inner = owners.operators, owners.parents >= 0
    ns = operators["ns"].to_numpy(dtype=np.int64)
    called = np.bincount(owners.parents[inner], weights=ns[inner], minlength=len(ns)).astype(np.int64)
    return trace_steps.Work(
        operators["start"].to_numpy(dtype=np.int64),
        np.maximum(ns - called, 0),
        operators["thread"].to_numpy(dtype=object),
    )


def _launched_before(owners: LaunchOwners, launches: pd.DataFrame) -> np.ndarray:
    """Return which launches were made before the trace began: they ran before any that has a call, on their stream."""
    called = owners.call_of_launch >= 0
    if not called.any() or called.all():
        return np.zeros(len(launches), dtype=bool)
    starts, queues = launches["start"], [launches["device"], launches["stream"]]
    first = starts[called].groupby([queue[called] for queue in queues]).min().rename("first")
    own = pd.DataFrame({"device": queues[0], "stream": queues[1]}).join(first, on=["device", "stream"])["first"]
    return np.asarray(~called & (starts < own.fillna(starts[called].min())).to_numpy())


def _launching_processes(found: ForeignTrace, path: str) -> np.ndarray:
    """Return, per event of a GPU, the host process that launched it; empty for one that no process of several has.

    Numbers of correlations are unique within a process only. A trace that was merged of several ranks tells them apart
    by what it calls processes, such as `[TP00] 100` and `[TP00] 0`, or by numbers that only one of them has.

    Raises:
        DataError: neither tells them apart.
    """
    launches = found.of(*categories.ON_DEVICE)
    calls = found.of(*categories.CALLS)
    hosts = sorted(calls.loc[calls["correlation"] >= 0, "process"].unique())
    if len(hosts) <= 1:
        return np.full(len(launches), hosts[0] if hosts else _busiest(found), dtype=object)
    tags = {host: _tags(host) for host in hosts}
    numbers = calls[calls["correlation"] >= 0].groupby("correlation")["process"].agg(["first", "nunique"])
    alone = launches["correlation"].map(numbers["first"].where(numbers["nunique"] == 1))
    several = launches["correlation"].map(numbers["nunique"]).fillna(0) > 1
    owner = pd.Series("", index=launches.index, dtype="object")
    for place, own in launches.groupby("process"):
        named = {host for host, own_tags in tags.items() if own_tags & _tags(str(place))}
        known = named if len(named) == 1 else set(alone[own.index].dropna())
        if len(known) == 1:
            owner[own.index] = known.pop()
        elif several[own.index].any():
            raise DataError(
                f"{path} is of {len(hosts)} processes ({', '.join(hosts[:4])}), and {int(several[own.index].sum()):,} "
                f"launches on {place} have correlations that several of them have: {ALONE}"
            )
        else:
            owner[own.index] = alone[own.index].fillna("")
    return owner.to_numpy(dtype=object)


def _tags(process: str) -> set[str]:
    """Return what a name of a process has beside its number, in which a merged trace may put its rank.

    >>> sorted(_tags("[TP00] 100")), sorted(_tags("7_rank1")), _tags("100")
    (['[TP00]'], ['7_rank', 'rank1'], set())
    """
    return {found[1] for form in TAGS if (found := form.fullmatch(process))}


def _busiest(found: ForeignTrace) -> str:
    """Return the process with most events of the host, empty without any."""
    host = found.events[~found.events["category"].isin((*categories.ON_DEVICE, categories.LINK))]
    return str(host.groupby("process").size().sort_values(kind="stable").index[-1]) if len(host) else ""


def _main_process(found: ForeignTrace, launched_by: np.ndarray) -> tuple[str, list[str]]:
    """Return the host process that is read, the one that kept the GPU busiest, and what there is to say of others."""
    launches = found.of(*categories.ON_DEVICE)
    busy = launches.groupby(launched_by)["ns"].sum().drop("", errors="ignore").sort_values(kind="stable")
    process = str(busy.index[-1]) if len(busy) else _busiest(found)
    host = found.events[~found.events["category"].isin((*categories.ON_DEVICE, categories.LINK))]
    others, lines = host[host["process"] != process], list[str]()
    if len(others):
        number = others["process"].nunique()
        lines.append(f"{len(others):,} host events of {number} other process(es) than {process} are left out")
    if (left := launched_by != process).any():
        share = launches.loc[left, "ns"].sum() / max(launches["ns"].sum(), 1)
        lines.append(
            f"{int(left.sum()):,} of {len(launches):,} launches ({share:.1%} of GPU time) are of other processes than "
            f"{process} and are left out: {ALONE}"
        )
    return process, lines


def _leave_out_impossible(
    path: str, host: pd.DataFrame, calls: pd.DataFrame, launches: pd.DataFrame
) -> tuple[pd.DataFrame, list[str]]:
    """Return the launches whose times can be, and a line about others.

    Raises:
        DataError: they are more than a few.
    """
    call = call_positions(calls, launches)
    named = np.append(calls["name"].to_numpy(dtype=object), "")[call]
    streams = launches.groupby(["device", "context", "stream"], sort=False).ngroup().to_numpy()
    graph = np.array([name.startswith(REPLAYS) for name in named], dtype=bool)
    span = int((host["start"] + host["ns"]).max() - host["start"].min()) if len(host) else None
    start, ns = (launches[name].to_numpy(dtype=np.int64) for name in ("start", "ns"))
    called = np.append(calls["start"].to_numpy(dtype=np.int64), -1)[call]
    queue = np.where(graph | (launches["stream"] == ""), -1, streams)
    wrong = find_impossible(start, ns, np.where(call >= 0, called, -1), queue, span)
    kept = launches.drop(index=launches.index[[*wrong]]).reset_index(drop=True)
    return kept, tell_impossible(
        path, {at: (launches["name"].iloc[at], why) for at, why in wrong.items()}, len(launches)
    )


def _refuse_without_kernels(path: str, calls: pd.DataFrame, launches: pd.DataFrame) -> None:
    kernels = int((launches["category"] == categories.KERNEL).sum())
    made = int(calls["name"].str.startswith(LAUNCHING).sum()) if len(calls) else 0
    if made and not kernels:
        raise DataError(
            f"{path} holds {made:,} calls that launch kernels and no kernel: the profiler could not trace the GPU, or "
            "the trace was cut to the host's part; record it again with ProfilerActivity.CUDA"
        )
