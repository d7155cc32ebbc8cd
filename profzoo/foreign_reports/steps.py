"""Finds the steps of a foreign trace: by the ranges that it has, by repetition of its launches, or the whole of it."""

import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from profzoo.foreign_reports.torch_events import KERNEL
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv, write_json
from profzoo.range_names import PARTS, STEP, WINDOW, make_nvtx_name, make_torch_name
from profzoo.tools.nsys.events.intervals import find_open
from profzoo.tools.time import tables
from profzoo.tools.torch.user_ranges import OTHERS
from profzoo.tools.user_ranges import ROUNDING_NS

# Finds the period with which a sequence of launches repeats itself.

# Shorter ones are a kernel in a loop rather than a step; fewer repetitions may be chance; and what is not repeated may
# be no more than a program's beginning.
LEAST_PERIOD, LEAST_REPEATS, LEAST_REPEATED_SHARE = 4, 3, 0.9
# Periods that are tried, the shortest first.
TRIED = 2000


def find_repetition(names: np.ndarray) -> np.ndarray:
    """Return where each repetition begins, and where the last whole one ends; empty where the sequence does not repeat.

    names: of launches, in order. A sequence repeats if it ends in one and the same sequence of launches over and over,
    the last one perhaps cut off, and these are nearly all of it. So layers that repeat within a step, or parameters in
    an optimizer, are not taken for steps: a step has other launches too, before or behind them.

    >>> find_repetition(np.array([*"efabcdefabcdefabcdefab"])).tolist()
    [0, 6, 12, 18]
    >>> find_repetition(np.array([*"abcdefabcdefabcdefhead"])).tolist()
    []
    """
    count = len(names)
    nothing = np.zeros(0, dtype=np.int64)
    if count < LEAST_PERIOD * LEAST_REPEATS:
        return nothing
    _, codes = np.unique(names, return_inverse=True)
    best, begin = 0, count
    # Where the last launch is found earlier, the sequence may have been at the same point.
    for period in ((count - 1) - np.flatnonzero(codes[:-1] == codes[-1])[::-1][:TRIED]).tolist():
        if period < LEAST_PERIOD or period * LEAST_REPEATS > count:
            continue
        other = np.flatnonzero(codes[period:] != codes[:-period])
        first = int(other[-1]) + 1 if len(other) else 0
        if first < begin and count - first >= LEAST_REPEATS * period:
            best, begin = period, first
    if not best or count - begin < LEAST_REPEATED_SHARE * count:
        return nothing
    return np.arange(begin, count + 1, best)


# Computes which moments are in a step of a foreign trace, and how long the GPU took for each step.


def gpu_step_ns(steps: np.ndarray, launched: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the time of each step as CUDA events at its beginning and end would measure it, in ns.

    Such an event is reached when all work that was launched before it has ended, and no earlier than the host records
    it.

    Args:
        steps: start and end of each step on the host, shape (steps, 2). launched: when each work of the GPU was
            launched; ends: when it ended.

    Two steps of 10 ns on the host, whose work ends late:

    >>> gpu_step_ns(np.array([[0, 10], [10, 20]]), np.array([1, 11]), np.array([30, 70])).tolist()
    [30, 40]
    """
    order = np.argsort(launched, kind="stable")
    times, done = launched[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
    edges = []
    for moments in (steps[:, 0], steps[:, 1]):
        before = np.searchsorted(times, moments, side="left") - 1
        edges.append(np.maximum(moments, np.append(done, -(1 << 62))[before]))
    return edges[1] - edges[0]


def in_steps(moments: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Return, per moment, whether it is in a step; spans: start and end of each in order, shape (steps, 2).

    >>> in_steps(np.array([5, 10, 15, 25]), np.array([[0, 10], [20, 30]])).tolist()
    [True, False, False, True]
    """
    return np.asarray(find_open(moments, spans[:, 0], spans[:, 1]) >= 0)


PROFILER_STEP = re.compile(r"ProfilerStep#?\d*\*?")
OWN = (make_torch_name(STEP), make_nvtx_name(STEP))
# Words of users' own ranges for a step, as whole words.
WORDS = re.compile(r"(?:^|[^a-z])(?:step|iteration|iter|batch)(?:[^a-z]|$)")
# Words of a name that say that it is of a part of a step, of what is done beside steps, or of an operator.
NO_STEP = re.compile(
    r"optimi[sz]er|optim|opt|adamw?|sgd|scheduler|sched|lr|scaler|forward|fwd|backward|bwd|loss|criterion|zero|clip|micro|"
    r"microbatch|ubatch|load|loader|loading|dataloader|data|fetch|prefetch|next|get|collate|prepare|to|copy|transfer|move|"
    r"upload|pin|log|logging|logger|save|checkpoint|norm|isend|irecv|send|recv"
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+")
# Operators and nodes of autograd under torch's emit_nvtx, and the number that it puts behind each name.
OPERATOR = re.compile(r"[a-z_][a-z0-9_]*::.*|.*, (?:seq|sizes|input_op_ids) = .*")
NUMBERED = re.compile(r", op_id = \d+$")
DIGITS = re.compile(r"\d+")
# A boundary of torch's own, where steps meet: at the beginning of a forward pass or of the next batch, at the end of an
# optimizer's step.
FORWARD = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward")
OPTIMIZER, LOADER = "Optimizer.step#", "enumerate(DataLoader)#"
WHOLE, RANGES = "the whole trace", "the ranges "
# Of all work so much is in the steps, and of that so much is launched by the thread that marks them.
LEAST_SHARE, LEAST_OF_THREAD = 0.8, 0.1


@dataclass(frozen=True)
class Work:
    """What a program ran: when it was launched, or on a CPU began, its time in ns, and the thread that launched it.

    threads: as ranges name theirs; empty or 0 where it is not known.
    """

    made: np.ndarray
    ns: np.ndarray
    threads: np.ndarray

    def known(self) -> bool:
        """Whether the thread of any work is known."""
        return bool((self.threads.astype("str") != "").any() and (self.threads.astype("str") != "0").any())


@dataclass(frozen=True)
class Steps:
    """Steps of a trace, in order, without overlap.

    spans: start and end of each in ns, shape (steps, 2). found_by: what they are taken from, in words. whole: whether
    the whole trace is one step, as nothing tells steps apart. own: whether profzoo itself marked them. passed: a line
    about ranges that are called like steps and are none; empty without them.
    """

    spans: np.ndarray
    found_by: str
    whole: bool = False
    own: bool = False
    passed: str = ""


def find_steps(
    ranges: pd.DataFrame, launches: pd.DataFrame, span: tuple[int, int], work: Work, asked: str | None = None
) -> Steps:
    """Find the steps.

    Args:
        ranges: what the program marked: name, start, ns, process, thread.
        launches: name and category of each launch, `made`, when it was launched, and `begin`, when a step that it is
            the first of begins, in the order of the launches.
        span: when the trace begins and ends, in ns. work: what steps hold nearly all of. The first and last ranges may
            hold none: a profiler that stops opens one more step, in which nothing runs.
        asked: name of the ranges that the user calls steps; several with numbers in their names count as one name.

    Raises:
        LookupError: no range has the asked name; the message names ranges that there are.
    """
    if asked:
        chosen = ranges["name"].map(lambda name: _same(name, asked)).astype(bool)
        found = _working(_outermost(ranges[chosen], work), work.made)
        if not len(found):
            raise LookupError(_known(ranges))
        return Steps(found, f"{RANGES}{asked}")
    passed = ""
    for alike in _candidates(ranges, span, work):
        steps, missed = _fitting(alike, work)
        passed = passed or missed
        if steps:
            return replace(steps, passed=passed)
    for sequence in (launches, launches[launches["category"] == KERNEL]):
        # Copies may come and go, such as of a loss that is printed now and then.
        edges = find_repetition(sequence["name"].to_numpy())
        if not len(edges):
            continue
        repeated = f"repetition: the same {edges[1] - edges[0]} launches over and over"
        return Steps(_repeated(sequence, edges), repeated, passed=passed)
    return Steps(np.array([span], dtype=np.int64), WHOLE, whole=True, passed=passed)


def _repeated(launches: pd.DataFrame, edges: np.ndarray) -> np.ndarray:
    """Return the spans of repetitions; edges: where each begins, and where the last one ends.

    Where the trace ends with the last one, that is as long as most, or as long as it launches.
    """
    begins = launches["begin"].to_numpy(dtype=np.int64)
    starts = begins[edges[:-1]]
    usual = max(starts[-1] + int(np.median(np.diff(starts))), int(launches["made"].iloc[-1]) + 1)
    return np.column_stack([starts, np.append(starts[1:], begins[edges[-1]] if edges[-1] < len(begins) else usual)])


def _candidates(ranges: pd.DataFrame, span: tuple[int, int], work: Work) -> Iterator[list[Steps]]:
    """Yield steps by each kind of range, the surest first; of those in one list, the outermost that fit are taken."""
    names = ranges["name"]
    yield [Steps(_outermost(ranges[names.isin(OWN)], work), "profzoo's own ranges", own=True)]
    numbered = names.map(lambda name: bool(PROFILER_STEP.fullmatch(name))).astype(bool)
    yield [Steps(_outermost(ranges[numbered], work), "ProfilerStep")]
    known = {name: _is_step(name) for name in names.unique()}
    own = ranges[names.map(known).astype(bool)]
    yield [
        Steps(_launching(_outermost(alike, work), alike, work), f"{RANGES}{alike['name'].iloc[0]}")
        for _, alike in own.groupby(own["name"].map(_plain), sort=False)
    ]
    optimizer = _of_one_name(ranges, OPTIMIZER)
    for name in FORWARD:
        forward = ranges[names == name]
        # Several passes per step of the optimizer accumulate gradients.
        if not 1 < len(optimizer) <= len(forward) / 2:
            yield [Steps(_between(forward, work, span), f"{name}: from one call to the next")]
    yield [Steps(_behind(optimizer, work), "Optimizer.step: from the end of one to the next")]
    loaded = _between(_of_one_name(ranges, LOADER), work, span)
    # The last batch of an epoch is followed by a call that finds none.
    yield [Steps(loaded, "enumerate(DataLoader): from one batch to the next")]


def _fitting(alike: list[Steps], work: Work) -> tuple[Steps | None, str]:
    """Return the outermost steps that hold nearly all work, None without any, and a line about the best that do not."""
    fitting, missed = list[Steps](), dict[float, str]()
    for steps in alike:
        spans = steps.spans if steps.own else _working(steps.spans, work.made)
        if not len(spans):
            continue
        several = len(spans) > 1 or not steps.found_by.startswith(RANGES)
        share = 1.0 if steps.own else held_share(spans, work, several)
        if share >= LEAST_SHARE:
            fitting.append(replace(steps, spans=spans))
        else:
            name = steps.found_by.removeprefix(RANGES)
            asking = f"; to take them all the same, import with step={name!r}" * (name != steps.found_by)
            missed[share] = (
                f"{steps.found_by}: not taken for steps, as they hold {share:.0%} of what was launched{asking}"
            )
    # A range around all of a loop is not a step; of several in one another, the outer ones are the longest.
    chosen = [steps for steps in fitting if len(steps.spans) > 1] or fitting
    chosen.sort(key=lambda steps: float(np.median(steps.spans[:, 1] - steps.spans[:, 0])))
    return (chosen[-1], "") if chosen else (None, missed[max(missed)] if missed else "")


def held_share(spans: np.ndarray, work: Work, several: bool = True) -> float:
    """Return which share of the time of all work is in these spans.

    several: a step that the trace cuts off at its beginning or end does not count, as long as it holds no more than a
    whole one.

    Two steps of 4 ns of work each, 2 ns between them, 3 ns of a step that is cut off:

    >>> work = Work(np.array([0, 10, 15, 20]), np.array([4, 2, 4, 3]), np.array(["1"] * 4))
    >>> held_share(np.array([[0, 9], [15, 19]]), work)
    0.8
    """
    ns = work.ns.astype(np.float64) if work.ns.any() else np.ones(len(work.ns))
    inside = find_open(work.made, spans[:, 0], spans[:, 1])
    per_step = np.bincount(inside[inside >= 0], weights=ns[inside >= 0], minlength=len(spans))
    longest = per_step.max() if several else 0.0
    edges = (ns[work.made < spans[0, 0]].sum(), ns[work.made >= spans[-1, 1]].sum())
    counted = ns.sum() - sum(min(edge, longest) for edge in edges)
    return float(per_step.sum() / counted) if counted > 0 else 0.0


def _working(spans: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return the spans without the first and last ones in which nothing was launched.

    >>> _working(np.array([[0, 10], [10, 20], [20, 21]]), np.array([4, 12])).tolist()
    [[0, 10], [10, 20]]
    """
    times = np.sort(work)
    held = np.searchsorted(times, spans[:, 1]) > np.searchsorted(times, spans[:, 0])
    places = np.flatnonzero(held)
    return spans[places[0] : places[-1] + 1] if len(places) else spans[:0]


def _outermost(ranges: pd.DataFrame, work: Work) -> np.ndarray:
    """Return spans of ranges of the thread that launches most of those that have any, without those inside others.

    Where one ends behind the beginning of the next, as clocks are rounded, it is cut off there.
    """
    own = ranges[ranges["thread"] == _thread(ranges, work)].sort_values(["start", "ns"], ascending=[True, False])
    kept: list[list[int]] = []
    for start, ns in zip(own["start"].tolist(), own["ns"].tolist(), strict=True):
        if ns <= 0 or (kept and start + ns <= kept[-1][1]):
            continue
        if kept:
            kept[-1][1] = min(kept[-1][1], start)
        kept.append([start, start + ns])
    return np.array(kept, dtype=np.int64).reshape(-1, 2)


def _thread(ranges: pd.DataFrame, work: Work) -> object:
    """Return the thread that launches most of those that have ranges; of equal ones that with most ranges."""
    if ranges.empty:
        return None
    sizes = ranges.groupby("thread", sort=False).size()
    launched = sizes.index.map(pd.Series(work.ns).groupby(work.threads).sum()).fillna(0).to_numpy(dtype=np.float64)
    return sizes.index[int(np.lexsort((sizes.to_numpy(), launched))[-1])]


def _launching(spans: np.ndarray, ranges: pd.DataFrame, work: Work) -> np.ndarray:
    """Return the spans; none if their thread launches nearly nothing of what is in them, such as a loader's."""
    inside = find_open(work.made, spans[:, 0], spans[:, 1]) >= 0
    total = work.ns[inside].sum()
    own = work.ns[inside & (work.threads == _thread(ranges, work))].sum()
    return spans[:0] if work.known() and total and own < LEAST_OF_THREAD * total else spans


def _between(ranges: pd.DataFrame, work: Work, span: tuple[int, int]) -> np.ndarray:
    """Return spans from each range's start to the next one's, the last to the end of the trace."""
    found = _outermost(ranges, work)
    return np.column_stack([found[:, 0], np.append(found[1:, 0], span[1])]) if len(found) > 1 else found[:0]


def _behind(ranges: pd.DataFrame, work: Work) -> np.ndarray:
    """Return spans from each range's end to the next one's; what is before the first end may be no whole step."""
    found = _outermost(ranges, work)
    return np.column_stack([found[:-1, 1], found[1:, 1]]) if len(found) > 1 else found[:0]


def _of_one_name(ranges: pd.DataFrame, beginning: str) -> pd.DataFrame:
    """Return the ranges of the first of the most frequent names that begin so."""
    own = ranges[ranges["name"].str.startswith(beginning)]
    return own[own["name"] == own["name"].value_counts(sort=True).index[0]] if len(own) else own


def _is_step(name: str) -> bool:
    """Whether a user's range is called like a step: not like a part of it, an operator, or a range of torch's own.

    >>> [_is_step(name) for name in ("iteration 12", "train_step, op_id = 7", "Trainer::train_batch")]
    [True, True, True]
    >>> [_is_step(name) for name in ("## optimizer_step ##", "aten::batch_norm, op_id = 2", "micro_batch", "Batcher")]
    [False, False, False, False]
    """
    plain = NUMBERED.sub("", name)
    if not WORDS.search(plain.lower()) or OPERATOR.fullmatch(plain) or OTHERS.fullmatch(plain):
        return False
    return not any(NO_STEP.fullmatch(word.lower()) for word in WORD.findall(plain)) and not plain.startswith(OWN)


def _plain(name: str) -> str:
    """Return a name without numbers.

    >>> _plain("iteration 12"), _plain("step[DECODE bs=32]")
    ('iteration #', 'step[DECODE bs=#]')
    """
    return DIGITS.sub("#", name)


def _same(name: str, asked: str) -> bool:
    return name == asked or _plain(name) in (_plain(asked), f"{asked}#", f"{asked} #")


def _known(ranges: pd.DataFrame) -> str:
    names = ranges["name"].map(_plain)
    counted = names[~names.str.startswith(WINDOW)].value_counts()
    shown = ", ".join(f"{name} ({count})" for name, count in counted.head(5).items())
    return f"it has {shown}" if shown else "it has no ranges at all"


# Finds the parts of the step in a foreign trace: data, transfer, forward, loss, backward, optimizer.

COLUMNS = ["name", "start", "end", "found_by"]
# Names that users give to ranges of parts, without anything but letters.
NAMES = {part: part for part in PARTS} | {
    "fwd": "forward", "forwardpass": "forward", "bwd": "backward", "backwardpass": "backward", "optim": "optimizer",
    "optimizerstep": "optimizer", "optstep": "optimizer", "dataloading": "data", "dataloader": "data",
    "loaddata": "data", "computeloss": "loss", "criterion": "loss", "h2d": "transfer", "datatransfer": "transfer",
}  # fmt: skip
LETTERS = re.compile(r"[^a-z0-9]")
# What autograd's engine calls its nodes.
ENGINE = "autograd::engine::evaluate_function: "


def find_parts(ranges: pd.DataFrame, operators: pd.DataFrame, steps: np.ndarray) -> pd.DataFrame:
    """Return the parts that the trace tells, without overlap, by start: columns COLUMNS.

    They are the program's own ranges of these names, then what torch itself marks, then the time from autograd's first
    node to its last in each step. Time in none of them has no part.

    Args:
        ranges, operators: name, start and ns of each. steps: spans of the steps in ns, shape (steps, 2).
    """
    kept = pd.DataFrame(columns=COLUMNS)
    for found in _part_candidates(ranges, operators, steps):
        inside = _keep_free(found, kept)
        if len(inside):
            kept = pd.concat([kept, inside], ignore_index=True) if len(kept) else inside
    return kept.sort_values(["start", "end"], ignore_index=True)


def _part_candidates(ranges: pd.DataFrame, operators: pd.DataFrame, steps: np.ndarray) -> Iterator[pd.DataFrame]:
    own = {make(part): part for part in PARTS for make in (make_torch_name, make_nvtx_name)}
    yield _named(ranges, lambda name: own.get(name, ""), "profzoo's own ranges")
    yield _named(ranges, lambda name: NAMES.get(LETTERS.sub("", name.lower()), ""), "the program's own ranges")
    yield _named(ranges, _of_torch, "ranges of torch")
    yield _backward(operators, steps)


def _of_torch(name: str) -> str:
    """Return the part that a range of torch's own is.

    >>> _of_torch("Optimizer.step#AdamW.step"), _of_torch("aten::add")
    ('optimizer', '')
    """
    if name.startswith(LOADER):
        return "data"
    if name in FORWARD:
        return "forward"
    return "optimizer" if name.startswith((OPTIMIZER, "Optimizer.zero_grad#")) else ""


def _named(ranges: pd.DataFrame, part_of: Callable[[str], str], found_by: str) -> pd.DataFrame:
    parts = ranges["name"].map(part_of)
    own = ranges[parts.astype("str") != ""]
    table = pd.DataFrame({"name": parts[own.index], "start": own["start"], "end": own["start"] + own["ns"]})
    table = table.sort_values(["start", "end"], ascending=[True, False], ignore_index=True)
    # Of ranges in one another, the outer one; those that meet are cut off where the next one begins.
    table = table[table["end"] > table["end"].cummax().shift(fill_value=-(1 << 62))]
    following = table["start"].shift(-1, fill_value=1 << 62)
    return table.assign(end=np.minimum(table["end"], following), found_by=found_by)[COLUMNS]


def _backward(operators: pd.DataFrame, steps: np.ndarray) -> pd.DataFrame:
    """Return, per step, the time from the first to the last node of autograd."""
    nodes = operators[operators["name"].str.startswith(ENGINE)]
    start, end = nodes["start"].to_numpy(dtype=np.int64), (nodes["start"] + nodes["ns"]).to_numpy(dtype=np.int64)
    rows = []
    for begin, over in steps.tolist():
        inside = (start >= begin) & (start < over)
        if inside.any():
            rows.append(("backward", int(start[inside].min()), int(end[inside].max()), "nodes of autograd"))
    return pd.DataFrame(rows, columns=COLUMNS)


def _keep_free(found: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """Return the spans that overlap none of those that are known, but by ROUNDING_NS, by which they are cut off."""
    if kept.empty or found.empty:
        return found
    known = kept.sort_values("start")
    starts, ends = (np.append(known[name].to_numpy(dtype=np.int64), 1 << 62) for name in ("start", "end"))
    begin, end = (found[name].to_numpy(dtype=np.int64) for name in ("start", "end"))
    # The first of the known ones that is not over yet, but for ROUNDING_NS.
    at = np.searchsorted(ends, begin + ROUNDING_NS, side="right")
    before = np.append(-(1 << 62), ends)[at]
    cut = found.assign(start=np.maximum(begin, before), end=np.minimum(end, starts[at]))
    return cut[(starts[at] >= end - ROUNDING_NS) & (cut["end"] > cut["start"])]


# Makes the table of steps of an imported cell, by what its reports tell of them.

STEPS: fact.Needs = {
    "device": fact.TEXT,
    "imported": {"steps_from": fact.TEXT, "wall_ns": fact.LIST, "gpu_ns": fact.or_null(fact.LIST)},
}
# What only whoever ran the program knows.
UNKNOWN = ("parameters", "batch", "items", "peak_memory_bytes", "peak_rss_bytes", "loss", "cpu_taken_share")
BY = {"torch": "torch.profiler", "nsys": "Nsight Systems", "ncu": "Nsight Compute"}


def write_step_table(told: Sequence[str], steps: str, sidecar: str) -> None:
    """Write the steps as the first of several sidecars tells them, and the sidecar of the table.

    told: sidecars of a cell's imported reports, that of the surest tool first.
    """
    facts = [read_json(path, STEPS) for path in told]
    first = facts[0]
    own = first["imported"]
    gpu_ns = own["gpu_ns"]
    table = pd.DataFrame({"step": range(len(own["wall_ns"])), "wall_ns": own["wall_ns"]})
    table["gpu_ns"] = pd.array(gpu_ns or [None] * len(table), dtype="Int64")
    table["items"] = pd.array([None] * len(table), dtype="Int64")
    write_csv(table[[name for name in tables.TABLE.columns if name in table]], steps)
    write_json(_facts(first, facts, gpu_ns or own["wall_ns"]), sidecar)


def _facts(first: dict[str, Any], facts: Sequence[dict[str, Any]], clock: Sequence[int]) -> dict[str, Any]:
    """Return what the table's sidecar says: as of a baseline, with null for what is not known."""
    known = {
        key: next((one[key] for one in facts if one.get(key)), first.get(key))
        for key in ("device", "started", "torch", "cuda", "driver")
    }
    kept = {key: value for key, value in first.items() if key not in ("traced_steps", "left_out", "capture")}
    about = {
        "steps_from": f"{first['imported']['steps_from']}, as {BY[first['tool']]} saw them",
        "timed_under": BY[first["tool"]],
        "files": [file for one in facts for file in one["imported"]["files"]],
        "coverage": [f"{BY[one['tool']]}: {line}" for one in facts for line in one["imported"].get("coverage", [])],
        "whole": bool(first["imported"].get("whole")),
    }
    return {
        **kept,
        **{key: value for key, value in known.items() if value is not None or key == "cuda"},
        **dict.fromkeys(UNKNOWN),
        "tool": "time",
        "steps": len(clock),
        "step_ns": float(statistics.median(clock)),
        "imported": about,
    }
