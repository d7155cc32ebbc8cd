"""Divides the time of a token into what its bytes need, and what comes beside it: traffic, small kernels, gaps, waits.

The bytes that matrix products and attention read and write once (weights, cached keys and values, activations) over the
measured bandwidth of DRAM are the floor of a token's time. What the trace shows above it is told apart by launch. A
launch is idle time before it and time on the GPU; both add up to the wall time between the first and the last launch.
Times on the GPU and short gaps are those of the trace. A profiler slows the host, so longer idle time is that of the
unprofiled run, and goes to what made the host late: its waits, or its calls.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, GPU, NUMBER, TEXT, Column
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.range_names import DECODE, GENERATING, PREFILL
from profzoo.statistics import process_repeats
from profzoo.tables.roofline import read_peaks
from profzoo.tools.time.tables import REPEATED, read_token_times
from profzoo.tools.time.tables import TABLE as STEPS
from profzoo.tools.torch import owners

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# What a launch is there for: work that a token needs, bytes that it does not, little work, the choice of the token, or
# a result that the host waits for. Of little work between two products, one launch is left when all of it is fused.
PRODUCTS, TRAFFIC, SMALL, SAMPLING, WAITS = "products", "extra traffic", "small kernels", "sampling", "waits"
BETWEEN, UNEXPLAINED, BELOW = "between products", "unexplained", "kernels below the roof"
FLOOR = ("weights_ns", "cache_ns", "activations_ns")
HOST = "host_ns"
PARTS = (*FLOOR, "arithmetic_ns", "excess_ns", "gap_ns", HOST)
BYTES = ("weights_bytes", "cache_bytes", "bytes")
KEY = ["range", "module", "kind"]
# What a launch takes at least, and what two launches in the queue have between them at most, in ns.
SHORTEST_NS, QUEUED_NS = 2000.0, 2000.0
# A launch with unknown bytes that takes so many times the shortest one moves more than activations of a token.
LONG = 5
CHOOSING = {f"aten::{name}" for name in ("argmax", "argmin", "topk", "sort", "multinomial", "exponential_")}
# Operators on scores, which layers use too: they belong to sampling outside of modules.
OF_SCORES = {f"aten::{name}" for name in ("_softmax", "_log_softmax", "cumsum", "gather", "div", "masked_fill_")}
TO_HOST = "DtoH"
MATRICES, STACKS = ("mm", "addmm", "_addmm_activation", "_int_mm", "_scaled_mm"), ("bmm", "baddbmm")
# Dimensions of keys that are repeated: (batch, groups, queries, length, width).
REPEATED_KEYS = 5
COPYING = ("copy_", "clone", "_to_copy", "contiguous")
RECURRENT = "rnn"
# Peaks by what names of kernels hold, of which the first counts.
ARITHMETIC = {"bf16": r"bf(?:loat)?16|nvjet_t", "tf32": r"tf32|nvjet_s", "fp16": r"f16|half|nvjet_h"}


def _adds_up(table: pd.DataFrame) -> str | None:
    off = (table[[*PARTS]].sum(axis=1) - table["ns"]).abs() > 1e-6 * table["ns"].abs() + 1e-3
    return f"row {int(off.argmax()) + 1}: parts do not add up to ns" if off.any() else None


TABLE = Table(
    columns={
        "range": Column(
            TEXT, "`prefill`: all up to the first token, per step; `decode`: each further token.", tool="torch"),
        **shared("module"),
        "kind": Column(
            TEXT, "What launches do: `products`, `extra traffic`, little work `between products` (one launch is "
            "needed), other `small kernels`, `sampling`, `waits` for results; or `unexplained`."),
        "operators": Column(TEXT, "Operators with most of the time.", tool="torch"),
        "launches": Column(AMOUNT, "Launches per token.", "count", "torch"),
        "ns": Column(NUMBER, "Time per token without a profiler; all rows of a range add up to it.", "ns", clock=GPU),
        "weights_ns": Column(AMOUNT, "Time for `weights_bytes` at the measured bandwidth of DRAM.", "ns", clock=GPU),
        "cache_ns": Column(AMOUNT, "Time for `cache_bytes` at this bandwidth.", "ns", clock=GPU),
        "activations_ns": Column(
            AMOUNT, "Time for the other bytes that products and attention read and write.", "ns", clock=GPU),
        "arithmetic_ns": Column(
            AMOUNT, "What their operations need beyond these, at the measured peak of their precision.", "ns",
            clock=GPU),
        "excess_ns": Column(
            NUMBER, "Other time on the GPU: of `products` below the roof, of other kinds all.", "ns", "torch", GPU),
        "gap_ns": Column(
            AMOUNT, "Idle time before launches, up to 2 µs each, as between launches in a queue.", "ns", "torch", GPU),
        "host_ns": Column(
            NUMBER, "Longer idle time, as the host was late: by waiting for results and working on them, or by calls.",
            "ns", clock=GPU),
        "traced_ns": Column(AMOUNT, "Time per token in the trace, with the profiler's own.", "ns", "torch", GPU),
        "weights_bytes": Column(AMOUNT, "Bytes of weights per token, each read once.", "byte", "torch"),
        "cache_bytes": Column(AMOUNT, "Bytes of cached keys and values; once if queries share them.", "byte", "torch"),
        "bytes": Column(AMOUNT, "All bytes that operators read and write, by their shapes.", "byte", "torch"),
        "tokens": Column(AMOUNT, "Tokens of a step that the row is a mean of.", "count", "time"),
    },
    key=KEY,
    holds=_adds_up,
)  # fmt: skip
# Of the table of cells, where any generates.
OF_CELL = {
    "context": Column(AMOUNT.or_missing, "Tokens of the prompt.", "count"),
    "generated": Column(AMOUNT.or_missing, "Tokens that a step generates for each sample.", "count", "time"),
    "first_token_ns": Column(AMOUNT.or_missing, "Mean time to the first token.", "ns", "time", GPU),
    "token_ns": Column(AMOUNT.or_missing, "Mean time of each further token.", "ns", "time", GPU),
    "tokens_per_s": Column(
        AMOUNT.or_missing, "Tokens per second of all samples of the batch, with the reading of the prompt.", "1/s",
        "time", GPU),
    "user_tokens_per_s": Column(
        AMOUNT.or_missing, "Tokens per second of one sample, after its first token.", "1/s", "time", GPU),
}  # fmt: skip
# What waits held the host up in the trace.
BLOCKED = "blocked_ns"
SUMS = ["launches", "traced_ns", *PARTS, *BYTES, BLOCKED]


@dataclass(frozen=True)
class Roofs:
    """Measured peaks: bytes per ns of DRAM, and flop per ns by precision."""

    dram: float
    flop: Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """The unprofiled run: ns up to the first token, ns of each further one, and the mean number of these in a step."""

    first_ns: float
    further_ns: float
    further: float


def settle_tokens(steps: pd.DataFrame) -> list[np.ndarray]:
    """Return times of tokens in ns as read_token_times, one array per process; of steps in steady state alone."""
    settled = process_repeats.processes(steps)
    groups = [own for _, own in steps.groupby("process")] if "process" in steps else [steps]
    return [read_token_times(own)[-len(times) :] for own, times in zip(groups, settled, strict=True)]


def measure_tokens(steps: pd.DataFrame) -> Measured | None:
    """Return mean times of tokens; None where no step has a first and a further one. steps: rows of time.csv."""
    times = np.concatenate(settle_tokens(steps)) if len(steps) else np.empty((0, 0))
    there = ~np.isnan(times)
    if not there[:, 1:].any():
        return None
    times, there = times[there[:, 0]], there[there[:, 0]]
    return Measured(
        float(times[:, 0].mean()), float(times[:, 1:][there[:, 1:]].mean()), float(there[:, 1:].sum(1).mean())
    )


def describe_tokens(steps: pd.DataFrame, facts: "Sidecar") -> dict[str, float]:
    """Return the columns of the table of cells on tokens; none of a cell that generates none.

    steps: rows of time.csv. facts: their sidecar, of which shape and batch are used.
    """
    found = measure_tokens(steps)
    if found is None:
        return {}
    all_ns, prompt = found.first_ns + found.further * found.further_ns, facts["cell"].get("shape", {}).get("tokens")
    return {
        **({"context": prompt} if prompt else {}),
        "generated": 1 + found.further,
        "first_token_ns": found.first_ns,
        "token_ns": found.further_ns,
        "tokens_per_s": 1e9 * (1 + found.further) * (facts["batch"] or np.nan) / all_ns,
        "user_tokens_per_s": 1e9 / found.further_ns,
    }


def divide_tokens(launches: pd.DataFrame, measured: Measured, roofs: Roofs) -> pd.DataFrame:
    """Return the rows of TABLE.

    launches: rows of torch.launches.csv; without steps that have both ranges, no row is returned.
    """
    steps = [
        step for _, step in launches[launches["step"].notna()].groupby("step") if {*GENERATING} <= {*step["range"]}
    ]
    # A profiler starts up in the first step.
    pieces = [_lay_out(step, roofs) for step in steps[min(1, len(steps) - 1) :]]
    if not pieces:
        return TABLE.empty()
    whole, found = pd.concat(pieces), []
    for name, ns, count in ((PREFILL, measured.first_ns, 1), (DECODE, measured.further_ns, measured.further)):
        own = whole[whole["range"] == name]
        rows = own.groupby(KEY, sort=False)[SUMS].sum() / (len(pieces) * count)
        told = own.groupby(KEY, sort=False)[["operator", "traced_ns"]].apply(_name_operators)
        found.append(_scale_idle(rows.assign(operators=told).reset_index(), ns).assign(tokens=count, range=name))
    table = pd.concat(found, ignore_index=True)
    return table.assign(ns=table[[*PARTS]].sum(axis=1))[[*TABLE.columns]]


def _lay_out(step: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """Return the pieces of a step's time with SUMS, a row per unit of launches; what idle time is due to is open."""
    rows = step.sort_values(["start_ns", "order"], ignore_index=True)
    rows = rows.astype(dict.fromkeys(("range", "module", "operator", "shapes", "name", "kind"), "object")).fillna(
        {"operator": "", "shapes": ""})  # fmt: skip
    end = rows["start_ns"] + rows["ns"]
    reached = end.cummax().shift(fill_value=rows["start_ns"].iloc[0])
    idle = (rows["start_ns"] - reached).clip(lower=0).astype(float)
    busy = (end - np.maximum(rows["start_ns"], reached)).clip(lower=0).astype(float)
    # The transfer of the prompt, and whatever else comes before the first token, belongs to it. On a stream of its own,
    # some of it may run after launches of further tokens.
    before = (rows.index <= rows.index[rows["range"] == PREFILL].max()) & (rows["range"] != DECODE)
    blocked, queued = _find_blocked(rows), idle <= QUEUED_NS
    usual = idle[queued & (idle > 0)].median()
    rows = rows.assign(
        range=np.where(before, PREFILL, DECODE), busy=busy, traced_ns=busy + idle, launches=1.0,
        gap_ns=idle.where(queued, QUEUED_NS if np.isnan(usual) else usual), reads=blocked > 0,
        blocked_ns=blocked.shift(fill_value=0.0),
    )  # fmt: skip
    # All needs of an operator stand with its first launch; on other streams others may run in between.
    owner = rows.sort_values("order")[["module", "operator", "shapes", "needed_bytes"]]
    same = (owner == owner.shift()).drop(columns="needed_bytes").all(axis=1)
    unit = (~(same & owner["needed_bytes"].eq(0))).cumsum().reindex(rows.index)
    sums = ["busy", "gap_ns", "launches", "traced_ns", BLOCKED, "needed_bytes", "needed_product_flop"]
    units = rows.groupby(unit).agg(
        {**dict.fromkeys((*KEY[:2], "operator", "shapes", "reads"), "first"), **dict.fromkeys(sums, "sum")}
    )
    units["name"] = rows["name"].loc[rows.groupby(unit)["busy"].idxmax()].to_numpy()
    unknown = rows["needed_bytes"].isna().groupby(unit).first()
    found = _split_units(units.assign(kind=_kinds(units, unknown, roofs)), roofs)
    return _keep_one(found).assign(**{HOST: 0.0})


def _find_blocked(rows: pd.DataFrame) -> pd.Series:
    """Return what each launch holds the host up, as it waits for a result, in ns; 0 of launches that copy none to it.

    From the call of a copy to its end the host is blocked. Then it works on the result, until it calls the next launch.
    A copy before whose end there is another call holds nothing up.
    """
    reads = (rows["kind"] == "memcpy") & rows["name"].str.contains(TO_HOST)
    end, called = rows["start_ns"] + rows["ns"], rows["start_ns"] - rows["queued_ns"].astype(float).fillna(0.0)
    pace = called.loc[np.argsort(rows["order"], kind="stable")].diff()
    following = called + pace.shift(-1).reindex(rows.index)
    worked = (following - end - pace.median()).clip(lower=0).fillna(0.0)
    return (end - called + worked).where(reads & ~(following < end), 0.0)


def _keep_one(units: pd.DataFrame) -> pd.DataFrame:
    """Return units in which the longest small one between two products is told apart: it is needed."""
    small, run = units["kind"] == SMALL, (units["kind"] == PRODUCTS).cumsum()
    longest = units[small].groupby(run[small])["busy"].idxmax()
    return units.assign(kind=units["kind"].mask(units.index.isin(longest), BETWEEN))


def _kinds(units: pd.DataFrame, unknown: pd.Series, roofs: Roofs) -> np.ndarray:
    outside = units["module"].str.startswith("(")
    chooses = units["operator"].isin(CHOOSING) | (units["operator"].isin(OF_SCORES) & outside)
    large = (units["needed_bytes"] / roofs.dram >= SHORTEST_NS) | (unknown & (units["busy"] >= LONG * SHORTEST_NS))
    known = [units["reads"], units["needed_product_flop"] > 0, chooses, large]
    return np.select(known, [WAITS, PRODUCTS, SAMPLING, TRAFFIC], SMALL)


def _split_units(units: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """Return units with BYTES, FLOOR, `arithmetic_ns` and `excess_ns`, which add up to their time on the GPU."""
    products = units["kind"] == PRODUCTS
    pairs = {*zip(units["operator"], units["shapes"], strict=True)}
    sizes = _list_sizes(pairs)
    told = {pair: share_bytes(*pair, sizes) for pair in pairs}
    shares = np.array([told[pair] for pair in zip(units["operator"], units["shapes"], strict=True)]).reshape(-1, 3)
    needed = units["needed_bytes"] * (1 - shares[:, 2])
    shares[:, 2] = 1 - shares.sum(axis=1)
    moved = dict(zip(BYTES, (shares[:, :2] * (units["needed_bytes"] * products).to_numpy()[:, None]).T, strict=False))
    shares *= (products / shares.sum(axis=1)).to_numpy()[:, None]
    floor = np.minimum(needed / roofs.dram, units["busy"])
    peaks = find_peaks(units["name"], roofs.flop)
    most = np.minimum(units["needed_product_flop"] / peaks, units["busy"]).where(products, 0.0)
    parts = dict(zip(FLOOR, (shares * floor.to_numpy()[:, None]).T, strict=True))
    arithmetic = (most - floor).clip(lower=0).where(products, 0.0)
    excess = units["busy"] - floor.where(products, 0.0) - arithmetic
    return units.assign(**parts, **moved, bytes=units["needed_bytes"], arithmetic_ns=arithmetic, excess_ns=excess)


def find_peaks(kernels: pd.Series, flop: Mapping[str, float]) -> pd.Series:
    """Return the peak of each kernel's precision in flop per ns, by its name; infinite if it was not measured.

    >>> kernels = pd.Series(["nvjet_tst_64x8", "sm80_xmma_gemm_f32f32_tf32f32", "sgemm"])
    >>> find_peaks(kernels, {"bf16": 8, "fp32": 1}).to_list()
    [8.0, inf, 1.0]
    """
    chosen = pd.Series(flop.get("fp32", np.inf), kernels.index, dtype=float)
    for name, pattern in reversed(ARITHMETIC.items()):
        chosen = chosen.mask(kernels.str.contains(pattern), flop.get(name, np.inf))
    return chosen


class Sizes(NamedTuple):
    """Numbers of elements in a step.

    scores: of inputs of softmax; others: of inputs of what neither multiplies matrices nor copies; repeated: of keys or
    values that are copied for several queries each, with the number of these.
    """

    scores: Collection[int] = ()
    others: Collection[int] = ()
    repeated: Mapping[int, int] = MappingProxyType({})


NO_SIZES = Sizes()


def _list_sizes(calls: Iterable[tuple[str, str]]) -> Sizes:
    """Return the sizes in a step of these operators, with shapes of their inputs."""
    scores, others, repeated = set[int](), set[int](), dict[int, int]()
    for operator, text in calls:
        name, shapes = operator.removeprefix("aten::"), [one for one in json.loads(text or "[]") if one]
        if name in COPYING:
            repeated |= {prod(one): one[2] for one in shapes[:1] if len(one) == REPEATED_KEYS}
        elif name not in (*MATRICES, *STACKS):
            sizes = {prod(one) for one in shapes if type(one[0]) is int}
            (scores if "softmax" in name else others).update(sizes)
    return Sizes(scores, others, repeated)


def share_bytes(operator: str, shapes: str, sizes: Sizes = NO_SIZES) -> tuple[float, float, float]:
    """Return which parts of an operator's bytes are weights, the cache, and the cache again; shapes: of its inputs.

    A product's second matrix is taken for weights. A second stack of matrices is the cache if the step works on it
    otherwise, as on a state, or takes the softmax of the product or of what is multiplied; else it is weights of
    experts. Of keys and values that were repeated for several queries, all but one are read in vain.

    >>> share_bytes("aten::mm", "[[1, 10], [10, 90]]"), share_bytes("aten::bmm", "[[1, 1, 10], [1, 10, 90]]")
    ((0.9, 0.0, 0.0), (0.9, 0.0, 0.0))
    >>> share_bytes("aten::dot", "[[90], [90]]")
    (0.0, 0.0, 0.0)
    >>> share_bytes("aten::bmm", "[[1, 1, 10], [1, 10, 90]]", Sizes(scores={90}))
    (0.0, 0.9, 0.0)
    >>> keys = [1, 9, 2, 4]
    >>> share_bytes("aten::_flash_attention_forward", f"[[1, 1, 2, 4], {keys}, {keys}]", Sizes(repeated={72: 2}))
    (0.0, 0.45, 0.45)
    """
    name, found = operator.removeprefix("aten::"), [one for one in json.loads(shapes or "[]") if one]
    if "attention" in name and len(found) > 2:
        second = prod(found[1])
        cached, whole = second + prod(found[2]), 2 * prod(found[0]) + second + prod(found[2])
    elif RECURRENT in name:
        return 1.0, 0.0, 0.0
    else:
        # What is added, and scales, may stand before and behind both.
        rank = 3 if name in STACKS else 2 if name in MATRICES else None
        pair = [one for one in found if len(one) == rank][-2:]
        if len(pair) < 2:
            return 0.0, 0.0, 0.0
        first, second, result = prod(pair[0]), prod(pair[1]), prod(pair[0][:-1]) * pair[1][-1]
        cached, whole = second, first + second + result
        if name in MATRICES or not (second in sizes.others or {first, result} & {*sizes.scores}):
            return second / whole, 0.0, 0.0
    share, times = cached / whole, sizes.repeated.get(second, 1)
    return 0.0, share / times, share - share / times


def _name_operators(rows: pd.DataFrame) -> str:
    times = rows.groupby("operator")["traced_ns"].sum().sort_values(ascending=False, kind="stable")
    return ", ".join(name.removeprefix("aten::") for name in times.index[:3])


def _scale_idle(rows: pd.DataFrame, measured: float) -> pd.DataFrame:
    """Return a range's rows with idle time such that all add up to the measured time, and a row for what does not.

    Without something, a token would take as long as the host then does, or the GPU, whichever takes longer. So waits
    cost what they hold the host up, and small kernels the time of their calls if that is more than theirs on the GPU;
    both at most the idle time that is there. The rest is that of all other calls. A call counts as long as any other,
    because a profiler slows some more than others.
    """
    busy = rows[[*FLOOR, "arithmetic_ns", "excess_ns"]].sum(axis=1)
    left, gaps = max(measured - busy.sum(), 0.0), rows["gap_ns"].sum()
    gap = rows["gap_ns"] * min(1.0, left / gaps if gaps else 1.0)
    rest, host = max(left - gap.sum(), 0.0), pd.Series(0.0, rows.index)
    waits, small = rows["kind"] == WAITS, rows["kind"] == SMALL
    called, unblocked = rows["launches"] / rows["launches"].sum(), measured - min(rows[BLOCKED].sum(), rest)
    for which, most in (
        (waits, measured - unblocked), (small, unblocked * called[small].sum() - (busy + gap)[small].sum()),
        (~(waits | small), rest),
    ):  # fmt: skip
        if which.any() and rest > 0:
            taken = min(max(most, 0.0), rest)
            host += called.where(which, 0.0) / called[which].sum() * taken
            rest -= taken
    rows = rows.assign(gap_ns=gap, **{HOST: host})
    off = measured - (busy + gap + host).sum()
    if abs(off) > 1e-6 * measured:
        none = pd.DataFrame([dict.fromkeys((*SUMS,), 0.0) | {"module": "", "kind": UNEXPLAINED, "operators": ""}])
        rows = pd.concat([rows, none.assign(**{HOST: off})], ignore_index=True)
    return rows


def list_parts(rows: pd.DataFrame) -> pd.Series:
    """Return the ns per token by part, which add up to the measured time. rows: of TABLE, of one cell and range."""
    kinds = rows["kind"]
    waits, rest = kinds == WAITS, kinds == UNEXPLAINED
    excess = (
        rows.groupby("kind")["excess_ns"].sum().reindex([PRODUCTS, TRAFFIC, SMALL, BETWEEN, SAMPLING], fill_value=0.0)
    )
    return pd.Series(
        {
            **{name.removesuffix("_ns"): rows[name].sum() for name in (*FLOOR, "arithmetic_ns")},
            **excess.rename({PRODUCTS: BELOW}),
            WAITS: rows.loc[waits, ["excess_ns", HOST]].to_numpy().sum(),
            "gaps between launches": rows["gap_ns"].sum(),
            "host": rows.loc[~waits & ~rest, HOST].sum(),
            UNEXPLAINED: rows.loc[rest, "ns"].sum(),
        }
    )


def rank_causes(rows: pd.DataFrame) -> pd.Series:
    """Return the ns per token above the floor by cause: first what need not be, then what is needed; the largest first.

    Launches count with the idle time that goes with them. rows: of TABLE, of one cell and range.
    """
    kinds = rows["kind"]
    needed = kinds.isin((PRODUCTS, BETWEEN))
    avoidable = rows[~needed & (kinds != UNEXPLAINED)].groupby("kind")["ns"].sum()
    avoidable[BELOW] = rows.loc[kinds == PRODUCTS, "excess_ns"].sum()
    avoidable["late launches"] = rows.loc[needed, HOST].sum()
    rest = pd.Series(
        {
            BETWEEN: rows.loc[kinds == BETWEEN, ["excess_ns", "gap_ns"]].to_numpy().sum(),
            "gaps before products": rows.loc[kinds == PRODUCTS, "gap_ns"].sum(),
            "arithmetic": rows["arithmetic_ns"].sum(),
            UNEXPLAINED: rows.loc[kinds == UNEXPLAINED, "ns"].sum(),
        }
    )
    return pd.concat([part.sort_values(ascending=False, kind="stable") for part in (avoidable, rest)])


def main(launches: str, time: tuple[str, str], peaks: str, csv: str) -> None:
    """Read the launches of torch's trace, the unprofiled steps with their sidecar, and the peaks; write the table."""
    repeated = "processes" in read_facts(time[1])
    measured = measure_tokens(reading.read(time[0], REPEATED if repeated else STEPS))
    rates = {name: rate / 1e9 for name, rate in (read_peaks(peaks) if peaks else {}).items()}
    if measured is None or "dram" not in rates:
        write_csv(TABLE.empty(), csv)
        return
    rows: Sequence[pd.DataFrame] = [part[part["step"].notna()] for part in reading.parts(launches, owners.TABLE)]
    write_csv(divide_tokens(pd.concat(rows, ignore_index=True), measured, Roofs(rates["dram"], rates)), csv)
