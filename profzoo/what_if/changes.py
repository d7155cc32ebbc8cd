"""Changes a program: pure functions from a program to the changed one, which can be chained."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.tools.nsys.steps.steps import INPUT
from profzoo.what_if import dependencies
from profzoo.what_if.program import BEGIN, CALL, END, Program, read_flags, replace_tables
from profzoo.what_if.trace_events import KERNEL

# Launching a graph of consecutive nodes takes 2.5 us plus 1 ns per node (NVIDIA's technical blog, "Constant Time Launch
# for Straight-Line CUDA Graphs", 2024, for CUDA 12.6).
GRAPH_CALL_NS, GRAPH_CALL_NODE_NS = 2_500.0, 1.0
# Gap between two nodes of a graph, if the trace has no graphs. A kernel of 2.9 us takes 3.4 us as a node ("Getting
# Started with CUDA Graphs", 2019). Kernels in a queue begin no sooner after one another: 1 us in traces.
NODE_GAP_NS = 1_000.0
# Longest CPU time that counts as one operator's. Under nsys on virtual machines, nine of ten launches of the zoo took
# 5 to 60 us, and 99 of 100 took up to 150 us.
OPERATOR_NS = 100_000.0
# Columns of the host's times that shrink together where the CPU is faster; earlier programs lack the last two.
PACED = ("gap", "own", "input", "library", "locked", "data")
IN_INPUT = [PARTS.index(name) + 1 for name in INPUT]
IN_DATA = IN_INPUT[0]


def speed_up_kernels(program: Program, chosen: np.ndarray, times: float | np.ndarray) -> Program:
    """Make the chosen operations faster, but for those that a tuner times.

    Args:
        chosen: one flag per operation, for example from program.choose_operations.
        times: speedup of all operations, or an array with one speedup per operation.
    """
    chosen = chosen & ~read_flags(program.gpu, "tried")
    ns, dep = program.gpu["ns"].to_numpy(dtype=float), program.gpu["dep"].to_numpy()
    dep_gap = program.gpu["dep_gap"].to_numpy(dtype=float)
    # If an operation begins before the one that it depends on has ended, the overlap shrinks with that one.
    overlaps = (dep >= 0) & (dep_gap < 0) & chosen[dep]
    sooner = times if isinstance(times, float | int) else times[dep]
    return replace_tables(
        program,
        gpu={"ns": np.where(chosen, ns / times, ns), "dep_gap": np.where(overlaps, dep_gap / sooner, dep_gap)},
    )


def fuse(program: Program, chosen: np.ndarray, share: float = 1.0) -> Program:
    """Fuse each chosen operation into the operation before it on its stream.

    The launching call of a fused operation is removed, and with it the CPU time since the previous call. If this time
    is longer than one operator takes, the excess stays, because it is other work. A call that launches further
    operations, such as a CUDA graph, stays too, and so does what a tuner launches.

    Args:
        chosen: one flag per operation.
        share: share of the operation's GPU time that fusing saves, 0 to 1; the rest is added to the operation before.
    """
    gpu = program.gpu
    gone = chosen & ~gpu["gone"].to_numpy() & ~read_flags(gpu, "tried")
    ns = gpu["ns"].to_numpy(dtype=float)
    left = np.where(gone, ns * (1 - share), 0.0)
    kept = np.where(gone, 0.0, ns)
    # On each stream, the remaining time is added to the last operation before that stays.
    for rows in gpu.groupby("stream").indices.values():
        stays = ~gone[rows]
        last = np.maximum.accumulate(np.where(stays, np.arange(len(rows)), -1))
        receives = rows[last[last >= 0]]
        np.add.at(kept, receives, left[rows[last >= 0]])
    calls = gpu["host"].to_numpy()
    every, going = (np.bincount(calls, weights=flags, minlength=len(program.host)) for flags in (calls >= 0, gone))
    whole = (every > 0) & (every == going)
    lean = replace_tables(
        program,
        host={"wait": np.where(whole, dependencies.NOTHING, program.host["wait"])},
        gpu={
            "ns": kept,
            "gone": gpu["gone"].to_numpy() | gone,
            "dep_gap": np.where(gone[gpu["dep"]], np.maximum(gpu["dep_gap"], 0), gpu["dep_gap"]),
        },
    )
    return _without(lean, find_belonging(program, whole), _of_operators(program))


def capture_as_graph(program: Program, node_gap_ns: float | None = None) -> Program:
    """Replay everything that each step launches, except for its input, as one CUDA graph.

    One call per step launches the graph, in the place of the first launch after the input. The other launching calls
    are removed, and so is the CPU time between them; waits stay. Nodes keep the order of their streams. What a tuner
    does stays as it is, and so does making and loading code, because no graph holds it.

    Args:
        node_gap_ns: gap between two nodes in ns, and never more than was measured. By default node_gap() of the trace.
    """
    host, gpu = program.host, program.gpu
    inside = (host["kind"] == CALL).to_numpy() & ~host["part"].isin(IN_INPUT).to_numpy()
    calls = gpu["host"].to_numpy()
    nodes = inside[calls] & ~gpu["gone"].to_numpy() & ~read_flags(gpu, "tried")
    steps = host["step"].to_numpy()[calls]
    first = np.full(program.steps + 1, -1)
    # The first launching call of each step. Assigned in reverse order, because the last assignment counts.
    first[steps[nodes][::-1]] = calls[nodes][::-1]
    graphs = first[first >= 0]
    goes = inside | ((host["kind"] != BEGIN).to_numpy() & (host["kind"] != CALL).to_numpy())
    lean = _without(program, goes)
    own = lean.host["own"].to_numpy(dtype=float).copy()
    own[graphs] = GRAPH_CALL_NS + GRAPH_CALL_NODE_NS * np.bincount(steps[nodes], minlength=len(first))[first >= 0]
    space = node_gap(program) if node_gap_ns is None else node_gap_ns
    moved = np.where(nodes, first[steps], calls)
    leads = np.isin(np.arange(len(gpu)), _first_of(moved, nodes))
    latency = np.where(leads, own[moved] + program.after, np.where(nodes, 0.0, gpu["latency"]))
    limit = np.where(nodes, space, np.inf)
    columns = {"latency": latency, "gap": np.minimum(gpu["gap"], limit), "dep_gap": np.minimum(gpu["dep_gap"], limit)}
    return _reordered(replace_tables(lean, host={"own": own}, gpu={"host": moved, **columns}))


def _first_of(moved: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Return the index of the first operation of each call, among the flagged operations; moved: call of each one."""
    rows = np.flatnonzero(nodes)
    return rows[np.unique(moved[rows], return_index=True)[1]]


def node_gap(program: Program) -> float:
    """Return the median gap in ns between two nodes of the graphs in the trace; NODE_GAP_NS without graphs."""
    gpu = program.gpu
    follows = gpu["node"] & (gpu["dep"] >= 0) & np.isneginf(gpu["gap"])
    gaps = gpu.loc[follows & (gpu["dep_gap"] >= 0), "dep_gap"]
    return float(gaps.median()) if len(gaps) else NODE_GAP_NS


def prefetch_input(program: Program, kept_ns: float = 0.0) -> Program:
    """Have the batch of each step loaded when it begins: remove the CPU time of the range `data`.

    What the range gives the GPU stays with its calls, because only this process can do it. So does the range `transfer`
    with its copies.

    kept_ns: time in ns of each step that stays, at most as much as loading takes.
    """
    host, gap = program.host, program.host["gap"].to_numpy(dtype=float)
    own, data, calls = _split_loading(program)
    whole = np.bincount(np.maximum(host["step"], 0), weights=own + data)[np.maximum(host["step"], 0)]
    gone = 1 - np.minimum(kept_ns / np.maximum(whole, 1.0), 1.0)
    columns = {
        "gap": gap - data * gone,
        "input": np.maximum(np.minimum(host["input"], gap) - data * gone, 0.0),
        "data": data * (1 - gone),
        "own": host["own"] - own * gone,
        "wait": np.where(calls, dependencies.NOTHING, host["wait"]),
    }
    return replace_tables(program, host=columns)


def loading_ns(program: Program) -> float:
    """Return the CPU time in ns per step that `prefetch_input` removes, without the first step if there are several."""
    own, data, _ = _split_loading(program)
    first = min(1, program.steps - 1)
    counted = (program.host["step"] >= first).to_numpy()
    return float((own + data)[counted].sum() / (program.steps - first))


def _split_loading(program: Program) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return per host row the ns of a call that loads, those of the gap before it, and whether the call loads.

    Programs of earlier versions do not tell loading from copying the input.
    """
    host = program.host
    loads = (host["part"] == IN_DATA).to_numpy() & (host["kind"] == CALL).to_numpy() & ~host["launches"].to_numpy()
    data = np.minimum(host["data"] if "data" in host else host["input"], host["gap"]).to_numpy(dtype=float)
    return np.where(loads, host["own"], 0.0), data, loads


def remove_waits(program: Program) -> Program:
    """Remove all waits for the GPU except those for room in its queue."""
    return replace_tables(program, host={"wait": np.full(len(program.host), dependencies.NOTHING)})


def add_launches(program: Program, more: np.ndarray, ns: float | np.ndarray, within: bool = False) -> Program:
    """Add launches before each operation.

    Each added launch takes the mean CPU time of the traced launches. The median would be too low for another operator,
    because many launches are not the first of their operator.

    Args:
        more: number of launches to add, one value per operation; operations of CUDA graphs get none.
        ns: GPU time in ns of each added launch, one for all or one per operation.
        within: the added launches belong to the operator that is there, so each takes the median time of a call alone.
    """
    host, gpu = program.host, program.gpu
    launching = (host["launches"] & (host["kind"] == CALL) & (host["wait"] == dependencies.NOTHING)).to_numpy()
    launching, more = launching & ~read_flags(host, "tries"), np.where(read_flags(gpu, "tried"), 0.0, more)
    gap, own = (host[name].to_numpy(dtype=float) for name in ("gap", "own"))
    alone = launching & ~host["overlaps"].to_numpy()
    usual = 0.0
    if alone.any():
        usual = float(np.median(own[alone]) if within else (gap + own)[alone].mean())
    # Added launches of a graph would be part of the same call.
    asked = np.where(gpu["node"].to_numpy(), 0.0, more)
    longer = np.bincount(gpu["host"], weights=asked, minlength=len(host)) * usual
    return replace_tables(program, host={"gap": gap + longer}, gpu={"ns": gpu["ns"].to_numpy(dtype=float) + more * ns})


def remove_allocations(program: Program) -> Program:
    """Remove all calls that allocate memory from the driver or free it, with their waits, except for a tuner's."""
    return _without_calls(program, program.host["allocates"].to_numpy(dtype=bool) & ~read_flags(program.host, "tries"))


def _without_calls(program: Program, going: np.ndarray) -> Program:
    """Let the flagged calls take no time and wait for nothing; the time before them stays."""
    host = program.host
    return replace_tables(
        program,
        host={
            "own": np.where(going, 0.0, host["own"]),
            "tail": np.where(going, 0.0, host["tail"]),
            "wait": np.where(going, dependencies.NOTHING, host["wait"]),
        },
    )


# Finds what a tuner does within steps, and removes it.
#
# A tuner is a library or a compiler that times several of its kernels for one operator and chooses the fastest: it
# launches one, waits for it, launches the same again, waits again, and goes on with the next (cuDNN's search,
# time_sorted_plan in cudnn_frontend_find_plan.h; Triton's do_bench; torch's TunableOp). At last it launches the chosen
# one without waiting for it. A program that reads values waits, too, but for a copy to the host.

# A tuner times one operator, which has no more launch configurations: cuDNN's algorithms by transforms have up to six.
MOST_TIMED = 8


class Section(NamedTuple):
    """The kernels that a step launches between two waits of the host.

    first, last: places of its first and last operation; kernels: numbers of their launch configurations; timed: the
    host waits for these kernels and for nothing else.
    """

    step: int
    first: int
    last: int
    kernels: frozenset[int]
    timed: bool


def mark_tuning(program: Program) -> Program:
    """Return the program with the columns `tried` of operations and `tries` of calls: they are a tuner's.

    The calls are those from the last launch before what the tuner times to the first launch after it, without input.
    """
    host, gpu = program.host, program.gpu
    tried, tries = np.zeros(len(gpu), dtype=bool), np.zeros(len(host), dtype=bool)
    numbers, calls, kinds = _number_kernels(program), gpu["host"].to_numpy(), host["kind"].to_numpy()
    steps, rows = host["step"].to_numpy(), np.arange(len(host))
    of_step = (np.cumsum(kinds == BEGIN) > np.cumsum(kinds == END)) & (kinds == CALL)
    of_step &= ~host["part"].isin(IN_INPUT).to_numpy()
    for first, last in _find_searches(_split_at_waits(program, numbers), program.steps):
        begin, step = first.first, first.step
        # The first launches may come before any wait of the tuner.
        while begin and numbers[begin - 1] in first.kernels and steps[calls[begin - 1]] == step:
            begin -= 1
        tried[begin : last.last + 1] = True
        before = calls[begin - 1] if begin else -1
        behind = calls[last.last + 1] if last.last + 1 < len(gpu) else len(host)
        tries |= of_step & (steps == step) & (rows > before) & (rows < behind)
    return replace_tables(program, host={"tries": tries}, gpu={"tried": tried})


def _number_kernels(program: Program) -> np.ndarray:
    """Return the number of each operation's launch configuration, -1 for what is not a kernel that computes."""
    gpu = program.gpu
    kernels = (gpu["kind"] == KERNEL).to_numpy() & ~gpu["talking"].to_numpy(dtype=bool)
    return np.where(kernels, gpu.groupby(PACKS, sort=False).ngroup().to_numpy(), -1)


def _split_at_waits(program: Program, numbers: np.ndarray) -> list[Section]:
    """Return the sections of all steps that have kernels; numbers: of the operations' launch configurations."""
    host, gpu = program.host, program.gpu
    waits = (host["wait"] != dependencies.NOTHING) & ~host["launches"].astype(bool) & ~host["allocates"].astype(bool)
    calls, ends = gpu["host"].to_numpy(), host["step"].to_numpy()[waits]
    steps, before = host["step"].to_numpy()[calls], np.cumsum(waits.to_numpy())[calls]
    mixed = gpu["crossing"].to_numpy(dtype=bool) | gpu["talking"].to_numpy(dtype=bool)
    found = []
    for places in np.split(np.arange(len(gpu)), np.flatnonzero(np.diff(steps) | np.diff(before)) + 1):
        kernels = frozenset(numbers[places].tolist()) - {-1}
        if kernels:
            step, section = steps[places[0]], before[places[0]]
            waited = section < len(ends) and ends[section] == step and not mixed[places].any()
            found.append(Section(step, places[0], places[-1], kernels, waited and len(kernels) <= MOST_TIMED))
    return found


def _find_searches(sections: Sequence[Section], steps: int) -> Iterator[tuple[Section, Section]]:
    """Yield the first and last section of each search of a tuner.

    In a search, the host waits for each kernel several times in a row, and for several kernels. Later the step launches
    one of them again. Fewer than half of the steps have this search: what most steps time is the program's own.
    """
    again = [
        one.timed and other.timed and one.kernels == other.kernels and one.step == other.step
        for one, other in pairwise(sections)
    ]
    repeated = [before or behind for before, behind in zip([False, *again], [*again, False], strict=True)]
    searches = []
    for (step, found), run in groupby(range(len(sections)), lambda at: (sections[at].step, repeated[at])):
        places = list(run)
        tried = {sections[at].kernels for at in places}
        if found and len(tried) > 1:
            later = [
                at for at in range(places[-1] + 1, len(sections)) if sections[at].step == step and not repeated[at]
            ]
            launched = frozenset[int]().union(*(sections[at].kernels for at in later))
            if any(one <= launched for one in tried):
                searches.append((sections[places[0]], sections[places[-1]], frozenset[int]().union(*tried)))
    seen = Counter(kernels for _, kernels in {(first.step, kernels) for first, _, kernels in searches})
    yield from ((first, last) for first, last, kernels in searches if 2 * seen[kernels] < steps)


def remove_tuning(program: Program) -> Program:
    """Remove what a tuner launches, with its calls and the CPU time between them.

    Steps in which a tuner runs allocate no memory either, because torch gives its free memory back after each search of
    cuDNN, and takes it again. Before the first launch behind a search, the time of one operator stays.
    """
    host, gpu = program.host, program.gpu
    tries, tried = read_flags(host, "tries"), read_flags(gpu, "tried")
    if not tries.any():
        return program
    gap, launching = host["gap"].to_numpy(dtype=float), (host["launches"] & (host["kind"] == CALL)).to_numpy()
    usual = float(np.median(gap[launching & ~tries])) if (launching & ~tries).any() else 0.0
    searches = np.cumsum(~tries)
    spent = gap + np.append(0.0, np.bincount(searches, weights=gap * tries))[searches]
    follows = np.append(False, tries[:-1]) & launching & ~tries
    kept = np.where(tries, np.minimum(host["input"], gap), np.where(follows, np.minimum(spent, usual), gap))
    within = np.isin(host["step"], host["step"][tries]) & host["allocates"].to_numpy(dtype=bool)
    lean = _without_calls(replace_tables(program, host={"gap": kept}), tries | within)
    return replace_tables(lean, gpu={"gone": gpu["gone"].to_numpy() | tried, "ns": np.where(tried, 0.0, gpu["ns"])})


def making_ns(program: Program) -> np.ndarray:
    """Return for each host row the ns of its gap in which code for the GPU is made, before a call that loads it.

    Time up to OPERATOR_NS is not counted, because it is that of the operator.
    """
    host = program.host
    gap = host["gap"].to_numpy(dtype=float)
    own = gap - np.minimum(host["input"].to_numpy(dtype=float), gap)
    return np.where(read_flags(host, "loads"), np.maximum(own - OPERATOR_NS, 0.0), 0.0)


def speed_up_host(program: Program, times: float) -> Program:
    """Make the CPU `times` as fast, in Python and in CUDA calls; the latency from a call's end to the GPU stays."""
    host, gpu = program.host, program.gpu
    own = host["own"].to_numpy(dtype=float)
    latency = gpu["latency"].to_numpy(dtype=float)
    in_call = np.clip(latency, 0, own[gpu["host"].to_numpy()])
    return replace_tables(
        program,
        host={name: host[name].to_numpy(dtype=float) / times for name in PACED if name in host},
        gpu={"latency": latency - in_call * (1 - 1 / times)},
    )


def _following(program: Program) -> np.ndarray:
    """Return for each host row the index of the next launch or step edge, or its own; the row count without any."""
    host = program.host
    marks = host["launches"].to_numpy() | (host["kind"] != CALL).to_numpy()
    upcoming = np.where(marks, np.arange(len(host)), len(host))
    return np.minimum.accumulate(upcoming[::-1])[::-1]


def find_belonging(program: Program, going: np.ndarray) -> np.ndarray:
    """Return flags of removed calls and of the calls since the launch before that neither launch nor wait."""
    host = program.host
    found = np.append(going, False)[_following(program)]
    return found & (going | ((host["wait"] == dependencies.NOTHING) & (host["kind"] == CALL)).to_numpy())


def _of_operators(program: Program) -> np.ndarray:
    """Return per host row the share of the CPU time before it that belongs to the next launching operator, 0 to 1.

    The time from one launch to the next belongs to an operator unless it is far out (Tukey, Exploratory Data Analysis,
    1977). Far out means beyond the upper quartile by more than three interquartile ranges. Times up to OPERATOR_NS
    always belong to the operator, because most launches may not be the first of their operator.
    """
    host, following, tries = program.host, _following(program), read_flags(program.host, "tries")
    own = np.where(tries, 0.0, host["gap"] - np.minimum(host["input"], host["gap"]))
    taken = np.bincount(following, weights=own, minlength=len(host) + 1)
    launching = taken[:-1][(host["launches"] & (host["kind"] == CALL)).to_numpy() & ~tries]
    if not len(launching):
        return np.ones(len(host))
    low, high = np.quantile(launching, [0.25, 0.75])
    longest = max(high + 3 * (high - low), OPERATOR_NS)
    return np.asarray((longest / np.maximum(taken, longest))[following])


def _without(program: Program, rows: np.ndarray, share: float | np.ndarray = 1.0) -> Program:
    """Remove the CPU time of the flagged host rows and `share` of the time before them; share: 0 to 1.

    Time that prepares the input stays, and so do waits, a tuner's calls, and making and loading of code.
    """
    host = program.host
    kept = np.minimum(host["input"], host["gap"]) + making_ns(program)
    rows = rows & ~read_flags(host, "tries")
    return replace_tables(
        program,
        host={
            "gap": np.where(rows, kept + (host["gap"] - kept) * (1 - share), host["gap"]),
            "own": np.where(rows & ~read_flags(host, "loads"), 0.0, host["own"]),
        },
    )


def _reordered(program: Program) -> Program:
    """Sort operations by their calls again, and renumber the operations that others depend on or wait for."""
    gpu = program.gpu
    order = np.argsort(gpu["host"].to_numpy(), kind="stable")
    if (np.diff(order) == 1).all():
        return program
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    found = gpu.iloc[order].reset_index(drop=True)
    dep = np.where(found["dep"] >= 0, place[found["dep"]], -1)
    host = program.host
    for_one = host["wait"].isin([dependencies.OPERATION, dependencies.BEFORE]).to_numpy()
    target = host["target"].to_numpy()
    target = np.where(for_one, place[np.where(for_one, target, 0)], target)
    return replace(program, host=host.assign(target=target), gpu=found.assign(dep=dep))


# Runs communication beside all other operations, as if nothing waited for it.

# Number of the simulated stream that runs overlapped communication.
APART = -2


def overlap_communication(program: Program) -> Program:
    """Run kernels that communicate beside all others.

    No other operation waits for them any longer. They still wait for each other and for what they waited for before.
    The first step is not counted, and its communication is made as short as later steps have it: a process that waits
    there until the others have started would otherwise still communicate when counted steps have long computed.
    """
    gpu = program.gpu
    talking = gpu["talking"].to_numpy(dtype=bool)
    dep = gpu["dep"].to_numpy()
    # A communication waits for the last operation before it on its stream that is not a communication itself.
    previous = np.full(len(gpu), -1)
    for rows in gpu.groupby("stream").indices.values():
        at = np.where(~talking[rows], np.arange(len(rows)), -1)
        last = np.concatenate(([-1], np.maximum.accumulate(at)[:-1]))
        previous[rows] = np.where(last >= 0, rows[np.maximum(last, 0)], -1)
    own = np.where(dep >= 0, dep, previous)
    free = np.where((dep >= 0) & talking[dep] & ~talking, -1, dep)
    return replace_tables(
        program,
        gpu={
            "stream": np.where(talking, APART, gpu["stream"]),
            "dep": np.where(talking, own, free),
            "ns": _shorten_first(program, talking),
        },
    )


def _shorten_first(program: Program, talking: np.ndarray) -> np.ndarray:
    """Return ns of all operations; communication of the first step is no longer than the median of later steps.

    Operations correspond by their order within their steps, counted among those that communicate.
    """
    ns = program.gpu["ns"].to_numpy(dtype=float).copy()
    rows = np.flatnonzero(talking)
    steps = program.host["step"].to_numpy()[program.gpu["host"].to_numpy()[rows]]
    found = pd.DataFrame({"row": rows, "step": steps, "ns": ns[rows]})
    found["place"] = found.groupby("step").cumcount()
    usual = found[found["step"] > 0].groupby("place")["ns"].median()
    first = found[found["step"] <= 0]
    ns[first["row"]] = np.fmin(first["ns"], first["place"].map(usual))
    return ns


# Changes a program so that the host no longer waits at some of its calls.


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
            "wait": np.where(chosen, dependencies.NOTHING, host["wait"]),
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
