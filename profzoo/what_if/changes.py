"""Changes a program: pure functions from a program to the changed one, which can be chained."""

from dataclasses import replace

import numpy as np

from profzoo.range_names import PARTS
from profzoo.tools.nsys.launches import PACKS
from profzoo.tools.nsys.steps import INPUT
from profzoo.what_if import blocking_calls
from profzoo.what_if.program import BEGIN, CALL, Program, replace_tables
from profzoo.what_if.trace_events import KERNEL

# The launch of a graph: 2.5 us and 1 ns a node, where the nodes follow one another (NVIDIA's technical blog, "Constant
# Time Launch for Straight-Line CUDA Graphs", 2024, of CUDA 12.6).
GRAPH_CALL_NS, GRAPH_CALL_NODE_NS = 2_500.0, 1.0
# From node to node of a graph, where the trace has no graphs: a kernel of 2.9 us takes 3.4 us as a node ("Getting
# Started with CUDA Graphs", 2019), and begins no sooner after another than kernels in a queue do, 1 us in traces.
NODE_GAP_NS = 1_000.0
# What an operator may take the CPU: 5 to 60 us in nine of ten launches of the zoo under nsys on virtual machines, 150
# in 99 of 100.
OPERATOR_NS = 100_000.0
# The stream of communication that is to overlap.
APART = -2
IN_INPUT = [PARTS.index(name) + 1 for name in INPUT]


def speed_up_kernels(program: Program, chosen: np.ndarray, times: float | np.ndarray) -> Program:
    """Make operations so many times as fast, each or all; chosen: a flag for each, of program.choose_operations."""
    ns, dep = program.gpu["ns"].to_numpy(dtype=float), program.gpu["dep"].to_numpy()
    dep_gap = program.gpu["dep_gap"].to_numpy(dtype=float)
    # What begins as another runs out does so sooner.
    overlaps = (dep >= 0) & (dep_gap < 0) & chosen[dep]
    sooner = times if isinstance(times, float | int) else times[dep]
    return replace_tables(
        program,
        gpu={"ns": np.where(chosen, ns / times, ns), "dep_gap": np.where(overlaps, dep_gap / sooner, dep_gap)},
    )


def fuse(program: Program, chosen: np.ndarray, share: float = 1.0) -> Program:
    """Fuse operations into those before them: their calls go, with the CPU's time since the call before.

    Of that what is longer than an operator takes stays, as it is other work.

    share: of the operation's own time that goes as well; the rest is added to the operation before it on its stream.
    Where all launches of a call do not go, as those of a graph, it stays.
    """
    gpu = program.gpu
    gone = chosen & ~gpu["gone"].to_numpy()
    ns = gpu["ns"].to_numpy(dtype=float)
    left = np.where(gone, ns * (1 - share), 0.0)
    kept = np.where(gone, 0.0, ns)
    # Of each stream, in order: what is left goes to the last operation that stays.
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
        host={"wait": np.where(whole, blocking_calls.NOTHING, program.host["wait"])},
        gpu={
            "ns": kept,
            "gone": gpu["gone"].to_numpy() | gone,
            "dep_gap": np.where(gone[gpu["dep"]], np.maximum(gpu["dep_gap"], 0), gpu["dep_gap"]),
        },
    )
    return _without(lean, _belonging(program, whole), _of_operators(program))


def capture_as_graph(program: Program, node_gap_ns: float | None = None) -> Program:
    """Replay everything that each step launches, except for its input, as one CUDA graph.

    One call a step launches it, in the place of the first launch after the input, and the CPU's time for all others
    goes, with its own between them; waits stay. Nodes follow each other as on their streams, `node_gap_ns` apart: by
    default as those of the graphs that the trace has, else NODE_GAP_NS, and never more than was measured.
    """
    host, gpu = program.host, program.gpu
    inside = (host["kind"] == CALL).to_numpy() & ~host["part"].isin(IN_INPUT).to_numpy()
    calls = gpu["host"].to_numpy()
    nodes = inside[calls] & ~gpu["gone"].to_numpy()
    steps = host["step"].to_numpy()[calls]
    first = np.full(program.steps + 1, -1)
    # Of each step the first; assigned backwards, as the last assignment counts.
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
    """Return the first operation of each call among these."""
    rows = np.flatnonzero(nodes)
    return rows[np.unique(moved[rows], return_index=True)[1]]


def node_gap(program: Program) -> float:
    """Return the ns from node to node: the median of the graphs in the trace; NODE_GAP_NS where it has none."""
    gpu = program.gpu
    follows = gpu["node"] & (gpu["dep"] >= 0) & np.isneginf(gpu["gap"])
    gaps = gpu.loc[follows & (gpu["dep_gap"] >= 0), "dep_gap"]
    return float(gaps.median()) if len(gaps) else NODE_GAP_NS


def prefetch_input(program: Program) -> Program:
    """Have the input on the GPU when a step begins: the work of the ranges data and transfer goes."""
    host, gpu = program.host, program.gpu
    calls = host["part"].isin(IN_INPUT).to_numpy() & (host["kind"] == CALL).to_numpy()
    gone = gpu["gone"].to_numpy() | calls[gpu["host"].to_numpy()]
    gap = np.maximum(host["gap"].to_numpy(dtype=float) - host["input"].to_numpy(dtype=float), 0.0)
    without = {
        "gap": np.where(calls, 0.0, gap),
        "own": np.where(calls, 0.0, host["own"]),
        "wait": np.where(calls, blocking_calls.NOTHING, host["wait"]),
        "input": 0,
    }
    return replace_tables(program, host=without, gpu={"gone": gone, "ns": np.where(gone, 0.0, gpu["ns"])})


def remove_waits(program: Program) -> Program:
    """Remove all waits for the GPU except those for room in its queue."""
    return replace_tables(program, host={"wait": np.full(len(program.host), blocking_calls.NOTHING)})


def add_launches(program: Program, more: np.ndarray, ns: float, within: bool = False) -> Program:
    """Add so many launches before each operation, each of `ns` on the GPU.

    Each takes the CPU as long as those that are there do in the mean. By the median an operator more would be too
    cheap: many launches are the second of theirs. Within an operator it takes what the call alone does, by the median.
    """
    host, gpu = program.host, program.gpu
    launching = (host["launches"] & (host["kind"] == CALL) & (host["wait"] == blocking_calls.NOTHING)).to_numpy()
    gap, own = (host[name].to_numpy(dtype=float) for name in ("gap", "own"))
    alone = launching & ~host["overlaps"].to_numpy()
    usual = 0.0
    if alone.any():
        usual = float(np.median(own[alone]) if within else (gap + own)[alone].mean())
    # A graph launches others with it.
    asked = np.where(gpu["node"].to_numpy(), 0.0, more)
    longer = np.bincount(gpu["host"], weights=asked, minlength=len(host)) * usual
    return replace_tables(program, host={"gap": gap + longer}, gpu={"ns": gpu["ns"].to_numpy(dtype=float) + more * ns})


def remove_allocations(program: Program) -> Program:
    """Remove all calls that take memory from the driver or give it back, with their waits."""
    host = program.host
    going = host["allocates"].to_numpy(dtype=bool)
    return replace_tables(
        program,
        host={
            "own": np.where(going, 0.0, host["own"]),
            "tail": np.where(going, 0.0, host["tail"]),
            "wait": np.where(going, blocking_calls.NOTHING, host["wait"]),
        },
    )


def find_unrepeated(program: Program) -> np.ndarray:
    """Return which operations are kernels of a configuration that fewer than half of the steps have.

    None of a program of fewer than four steps.
    """
    gpu = program.gpu
    steps = program.host["step"].to_numpy()[gpu["host"]]
    seen = gpu[PACKS].assign(step=steps).groupby(PACKS)["step"].transform("nunique").to_numpy()
    kernels = (gpu["kind"] == KERNEL).to_numpy() & ~gpu["talking"].to_numpy(dtype=bool)
    return kernels & (2 * seen < program.steps) & (program.steps >= 4)


def overlap_communication(program: Program) -> Program:
    """Run kernels that communicate beside all others.

    Nothing waits for them, and they wait for what they did and each other.
    """
    gpu = program.gpu
    talking = gpu["talking"].to_numpy(dtype=bool)
    dep = gpu["dep"].to_numpy()
    # What was before a communication on its stream is what it waits for, unless it is one as well.
    previous = np.full(len(gpu), -1)
    for rows in gpu.groupby("stream").indices.values():
        at = np.where(~talking[rows], np.arange(len(rows)), -1)
        last = np.concatenate(([-1], np.maximum.accumulate(at)[:-1]))
        previous[rows] = np.where(last >= 0, rows[np.maximum(last, 0)], -1)
    own = np.where(dep >= 0, dep, previous)
    free = np.where((dep >= 0) & talking[dep] & ~talking, -1, dep)
    return replace_tables(
        program, gpu={"stream": np.where(talking, APART, gpu["stream"]), "dep": np.where(talking, own, free)}
    )


def speed_up_host(program: Program, times: float) -> Program:
    """Make the CPU so many times as fast, in Python and in CUDA calls; the latency to the GPU stays."""
    host, gpu = program.host, program.gpu
    own = host["own"].to_numpy(dtype=float)
    latency = gpu["latency"].to_numpy(dtype=float)
    in_call = np.clip(latency, 0, own[gpu["host"].to_numpy()])
    return replace_tables(
        program,
        host={name: host[name].to_numpy(dtype=float) / times for name in ("gap", "own", "input", "library")},
        gpu={"latency": latency - in_call * (1 - 1 / times)},
    )


def _following(program: Program) -> np.ndarray:
    """Return for each row the next launch or edge of a step, itself included; the number of rows where none follows."""
    host = program.host
    marks = host["launches"].to_numpy() | (host["kind"] != CALL).to_numpy()
    upcoming = np.where(marks, np.arange(len(host)), len(host))
    return np.minimum.accumulate(upcoming[::-1])[::-1]


def _belonging(program: Program, going: np.ndarray) -> np.ndarray:
    """Return the rows of removed calls, with the calls before them that launch nothing, since the last launch."""
    host = program.host
    found = np.append(going, False)[_following(program)]
    return found & (going | ((host["wait"] == blocking_calls.NOTHING) & (host["kind"] == CALL)).to_numpy())


def _of_operators(program: Program) -> np.ndarray:
    """Return the share of the CPU's time before each row that the operator takes whose launch follows, 0 to 1.

    The time from one launch to the next is an operator's, up to where it is far out among all of these (Tukey,
    Exploratory Data Analysis, 1977: three times the middle half beyond it); and up to OPERATOR_NS in any case, as most
    launches may be further ones of theirs.
    """
    host, following = program.host, _following(program)
    taken = np.bincount(
        following, weights=host["gap"] - np.minimum(host["input"], host["gap"]), minlength=len(host) + 1
    )
    launching = taken[:-1][(host["launches"] & (host["kind"] == CALL)).to_numpy()]
    if not len(launching):
        return np.ones(len(host))
    low, high = np.quantile(launching, [0.25, 0.75])
    longest = max(high + 3 * (high - low), OPERATOR_NS)
    return np.asarray((longest / np.maximum(taken, longest))[following])


def _without(program: Program, rows: np.ndarray, share: float | np.ndarray = 1.0) -> Program:
    """Remove the CPU's time in these rows, and that share of the time before them.

    What of it prepares the input stays, and so do waits.
    """
    host = program.host
    kept = np.minimum(host["input"], host["gap"])
    return replace_tables(
        program,
        host={
            "gap": np.where(rows, kept + (host["gap"] - kept) * (1 - share), host["gap"]),
            "own": np.where(rows, 0.0, host["own"]),
        },
    )


def _reordered(program: Program) -> Program:
    """Sort operations by their calls again; dependencies on later ones are dropped."""
    gpu = program.gpu
    order = np.argsort(gpu["host"].to_numpy(), kind="stable")
    if (np.diff(order) == 1).all():
        return program
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    found = gpu.iloc[order].reset_index(drop=True)
    dep = np.where(found["dep"] >= 0, place[found["dep"]], -1)
    host = program.host
    for_one = host["wait"].isin([blocking_calls.OPERATION, blocking_calls.BEFORE]).to_numpy()
    target = host["target"].to_numpy()
    target = np.where(for_one, place[np.where(for_one, target, 0)], target)
    return replace(program, host=host.assign(target=target), gpu=found.assign(dep=dep))
