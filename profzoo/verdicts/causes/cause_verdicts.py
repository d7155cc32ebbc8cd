"""Judges single causes: chains of kernels, layers, the allocator, tuning, guards of torch.compile, repeated modules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.fusion.gains import NUMBER
from profzoo.fusion.patterns import PATTERNS_OF_SHARE
from profzoo.fusion.row_patterns import ENTRY
from profzoo.range_names import COMPILED, FORWARD, ROOT, STEP
from profzoo.tables.layers import NODE
from profzoo.verdicts.advice_scores import find_kind
from profzoo.verdicts.causes.noted_verdicts import GUARDS, NOTED, REPEATED, expect_all, make_row
from profzoo.verdicts.gain_models import CHAINS, WITHOUT_TUNING, RequestedChange
from profzoo.verdicts.rules.feasibility import add_wait_texts
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.rules.rule_types import KnownSettings, Rule
from profzoo.verdicts.rules.step_quality import saved_share
from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import AllocatorFacts, RepeatedCall


# Judge the chains of a cell that fewer kernels could compute, by what fusing them would save of the step.

EVIDENCE = "fusion.csv: bytes, fused_bytes, ns, fused_ns"
# So many layers are named.
NAMED = 3
FUSED_NS = "fused_ns"


def judge_chains(judged: CellRules, found: tuple[pd.DataFrame, pd.DataFrame] | None) -> Iterator[Verdict]:
    """Yield verdicts by rules about chains; none without traced steps that can be simulated.

    found: rows of the cell's fusion.csv and of its fusion-kernels.csv; None without them.
    """
    chains, kernels = found or (pd.DataFrame({"pattern": []}), pd.DataFrame())
    for rule in judged.given["rules"]:
        if rule["of"] == "chains" and judged.replayed:
            rows = chains[chains["pattern"].isin(PATTERNS_OF_SHARE[rule["share"]])]
            if len(rows) and (row := _judge(judged, rule, rows, kernels)):
                yield row


def _judge(judged: CellRules, rule: Rule, rows: pd.DataFrame, kernels: pd.DataFrame) -> Verdict | None:
    assert judged.replayed
    asked = ask_fusion(rows, kernels, FUSED_NS)
    gain = judged.replayed.gain(asked, judged.step, 0.0)
    if gain is None or (share := 1 - 1 / gain.gain) < rule["at_least"]:
        return None
    row = replace(judged.row(rule, share, None, LAYER_LEVEL, EVIDENCE), level=CELL_LEVEL, change=asked)
    found = judged.expect(replace(row, lead=f"{describe_entry(rows)}{describe_places(rows)}: "))
    bound = judged.scored.bound(find_kind(row.settings))
    ends = [
        judged.replayed.gain(ask_fusion(rows, kernels, f"{FUSED_NS}_{end}"), judged.step, bound)
        for end in ("low", "high")
    ]
    lows = [one.told_low for one in ends if one and one.told_low] + ([found.gain_low] if found.gain_low else [])
    highs = [one.high for one in ends if one] + ([found.gain_high] if found.gain_high else [])
    return replace(found, gain_low=min(lows, default=None), gain_high=max(highs)) if found.gain else found


def ask_fusion(rows: pd.DataFrame, kernels: pd.DataFrame, column: str) -> RequestedChange:
    """Return the change that fuses chains; column: which of the expected times their fused kernels take."""
    own = kernels[kernels[NUMBER].isin(rows["chain"])]
    return RequestedChange(CHAINS, own, fused=rows.set_index("chain")[column])


def describe_entry(rows: pd.DataFrame) -> str:
    """Return where double precision enters, by the first operator in it; empty for chains of other patterns.

    >>> describe_entry(pd.DataFrame({"pattern": [ENTRY], "module": ["a.0"], "type": ["A"], "source": ["m.py:2-9"],
    ...     "operators": ["mul x 2, add"]}))
    'fp64 enters in a.0 (A, m.py:2-9) at mul; '
    """
    first = rows[rows["pattern"] == ENTRY]
    if first.empty:
        return ""
    row = first.iloc[0]
    about = ", ".join(filter(None, (row["type"], row["source"])))
    operator = row["operators"].partition(",")[0].partition(" x ")[0]
    return f"fp64 enters in {row['module']}{f' ({about})' if about else ''} at {operator}; "


def describe_places(rows: pd.DataFrame) -> str:
    """Return where chains are, those first that save most: module, class with its source lines, and operators.

    >>> rows = pd.DataFrame({"module": ["blocks.*.attn", "(loss)"], "type": ["Attention", ""], "ns": [9.0, 2.0],
    ...     "source": ["model.py:10-32", ""], "operators": ["bmm, _softmax, bmm", "exp, sum"], "fused_ns": [4.0, 1.0]})
    >>> describe_places(rows)
    'blocks.*.attn (Attention, model.py:10-32) runs bmm, _softmax, bmm; (loss) runs exp, sum'
    """
    ordered = rows.assign(saved=rows["ns"] - rows[FUSED_NS]).sort_values("saved", ascending=False, kind="stable")
    told = ordered.drop_duplicates("module")
    parts = []
    for _, row in told.head(NAMED).iterrows():
        about = ", ".join(filter(None, (row["type"], row["source"])))
        parts.append(f"{row['module']}{f' ({about})' if about else ''} runs {shorten_chain(row['operators'])}")
    more = len(told) - NAMED
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def shorten_chain(operators: str, most: int = 8) -> str:
    """Return the first operators of a list.

    >>> shorten_chain("mul, add, tanh", 2)
    'mul, add and 1 more'
    """
    names = operators.split(", ")
    return operators if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


# Judge the layers of a cell by their own kernels and by the operations that their shapes call for.

# So many layers are named, those first from which most is to be had.
TOP = 10
PADDED = "padded"
# Of products and convolutions, which tiles are made for.
TILED = ("convolution", "gemm")


def judge_top_layers(judged: CellRules, kernels: pd.DataFrame, tree: pd.DataFrame) -> list[Verdict]:
    """Return one verdict for each of the TOP layers of a cell, forward and backward separately, largest gain first.

    Args:
        kernels: rows of its layer-kernels.csv; tree: rows of its layers.csv.
    """
    if kernels.empty:
        return []
    traits = judged.mark_traits(kernels, kernels.assign(level="launch"))
    total, work = traits["total_ns"].sum(), _work(tree)
    layers = traits.groupby(NODE, sort=False)
    summed = judged.summed(layers)
    most = judged.most(summed, total).sort_values(ascending=False, kind="stable")
    sums = summed.to_dict("index")
    found: list[tuple[tuple[str, str], Verdict, Rule]] = []
    for node, gain in most.items():
        # The rest gains less than what was found, whatever holds it.
        if len(found) >= TOP and gain <= sorted(row.sorting_gain for _, row, _ in found)[-TOP]:
            break
        own = layers.get_group(node)
        rows = [
            *judged.of_some(own, total, LAYER_LEVEL, sums[node]),
            *_padded_share(judged, own, total, work.get(node, 1.0)),
        ]
        if rows:
            rule, best = max(rows, key=lambda one: one[1].sorting_gain)
            found.append((node, best, rule))
    # Running a step again takes longer than Amdahl's law, by which the layers are chosen.
    chosen = sorted(found, key=lambda one: -one[1].sorting_gain)[:TOP]
    told = [_describe_layer(rule, row, node, layers.get_group(node)) for node, row, rule in chosen]
    return sorted(map(judged.expect, told), key=lambda row: -row.sorting_gain)


def _work(tree: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return counted over needed operations by module and direction, where both are completely known."""
    own = tree[(tree["self_ns"] >= 0.99 * tree["total_ns"]) & (tree["needed_share"] > 0.99) & (tree["needed_flop"] > 0)]
    own = own[own["counted_share"] > 0.99].set_index(NODE)
    return ((own["simt_flop"] + own["tensor_flop"]) / own["needed_flop"]).to_dict()


def _padded_share(judged: CellRules, own: pd.DataFrame, total: float, ratio: float) -> list[tuple[Rule, Verdict]]:
    """Return the verdict that a layer computes more than its shapes call for; empty if that is not its problem."""
    least = judged.given["traits"]["padded"]["flop_at_least"]
    if ratio < least or (tiled := _is_tiled(own)).empty:
        return []
    (rule,) = (one for one in judged.given["rules"] if one["of"] == "layers" and one["share"] == PADDED)
    row = judged.row(
        {**rule, "cured": 1 - 1 / ratio}, judged.share_of(tiled, total), tiled, LAYER_LEVEL, "layers.csv: flop"
    )
    return [(rule, replace(row, value=ratio, threshold=least, metric="operations counted / needed"))]


def _is_tiled(own: pd.DataFrame) -> pd.DataFrame:
    return own[own["class"].isin(TILED) & own["bound"].isin(("simt", "tensor"))]


def _describe_layer(rule: Rule, row: Verdict, node: tuple[str, str], own: pd.DataFrame) -> Verdict:
    """Add the layer's name and a description of it to its verdict."""
    largest = own.iloc[own["total_ns"].argmax()]
    return replace(
        row,
        module=node[0],
        direction=node[1],
        kernel_class=largest["class"],
        function=largest["function"],
        lead=f"{_counted_rows(rule, row, own)}: ",
    )


def _counted_rows(rule: Rule, row: Verdict, own: pd.DataFrame) -> str:
    if rule["of"] == "layers":
        return f"{row.value:.1f} times the operations that it needs, with inputs {_shapes(_is_tiled(own))}"
    chosen = own[own[f"{rule['share']}_ns"] > 0]
    first = chosen.iloc[chosen["total_ns"].argmax()]
    efficiency = f"{(chosen['efficiency'] * chosen['total_ns']).sum() / chosen['total_ns'].sum():.0%}"
    calls = chosen["launches"].sum()
    leads = {
        "short": f"{calls:,.0f} kernels of {chosen['total_ns'].sum() / calls / 1e3:.1f} µs"
        f" ({', '.join(sorted(chosen['class'].unique()))})",
        "small_grid": f"{first['grid_x'] * first['grid_y'] * first['grid_z']:,.0f} blocks for"
        f" {first.get('multiprocessors', float('nan')):.0f} multiprocessors",
        "memory": f"at {efficiency} of what {'DRAM' if first['bound'] == 'dram' else 'L2'} can do",
        "simt": f"{first['operator']} {_shapes(chosen)} runs without tensor cores, at {efficiency} of what it could",
        "tensor": f"at {efficiency} of what tensor cores can do",
        "underused": f"{first['operator']} {_shapes(chosen)} at {efficiency} of the nearest roof",
    }
    return leads.get(rule["share"], f"{first['operator']} {_shapes(chosen)}")


def _shapes(rows: pd.DataFrame) -> str:
    """Format the shapes of the first two inputs of the operator that takes longest."""
    shapes = rows.groupby("shapes", sort=False)["total_ns"].sum().idxmax()
    first = shapes.removeprefix("[").split("]")[:2]
    return " and ".join(part.strip(", ").removeprefix("[").replace(", ", "x") for part in first if part.strip(", []"))


# Judges how PyTorch's allocator of GPU memory fared within the window: retries, and memory that no tensor used.

# Shares of rules about memory, and the change that simulates steps without calls of the driver for memory.
RETRIES, UNUSED, STALLS = "retries", "unused_memory", "allocations_removed"
OF_RETRIES = f"share of the step: {RETRIES}"
# Memory that is held matters where it is at least this part of what the process may take.
LARGE = 0.5
MEMORY_EVIDENCE = "sidecar of the unprofiled run: allocator"
# With these settings memory is kept for captured graphs, which no tensor uses while they do not run.
KEEPING = {"graph": (True,), "compile": ("reduce-overhead", "max-autotune")}


def judge_memory(judged: CellRules, allocator: "AllocatorFacts | None") -> Iterator[Verdict]:
    """Yield the verdicts on retries and on unused memory; allocator: what was noted of the unprofiled run."""
    judges = {RETRIES: _judge_retries, UNUSED: _judge_unused}
    for rule in judged.given["rules"]:
        judge = judges.get(rule["share"]) if rule["of"] == NOTED else None
        if judge and allocator and (found := judge(judged, rule, allocator)):
            yield found


def _judge_retries(judged: CellRules, rule: Rule, allocator: "AllocatorFacts") -> Verdict | None:
    """Return the verdict on retries, which cost what the calls of the driver for memory do; without a trace unknown."""
    if not allocator["retries"]:
        return None
    lead = f"{describe_retries(allocator)}: "
    if judged.replayed is None:
        row = judged.row(rule, 0.0, None, LAYER_LEVEL, MEMORY_EVIDENCE)
        return replace(
            row, level=CELL_LEVEL, metric="retries in the window", value=allocator["retries"], threshold=1, share=None,
            cured=None, gain=None, next_step=lead + row.next_step,
        )  # fmt: skip
    gain = judged.replayed.gain(RequestedChange(STALLS), judged.step, 0.0)
    if gain is None or (share := 1 - 1 / gain.gain) < rule["at_least"]:
        return None
    row = judged.row(rule, share, None, LAYER_LEVEL, f"{MEMORY_EVIDENCE}; program.npz: run again")
    # As of the verdict on allocator stalls, in whose place this one stands.
    row = add_wait_texts(replace(row, level=CELL_LEVEL, about=STALLS), judged.feasible)
    return judged.expect(replace(row, lead=lead))


def _judge_unused(judged: CellRules, rule: Rule, allocator: "AllocatorFacts") -> Verdict | None:
    """Return the verdict on memory that is held and that no tensor used; it has no gain by itself."""
    kept = any(judged.ran_with.get(name, False) in values for name, values in KEEPING.items())
    reserved, limit = allocator["reserved_bytes"], allocator["limit_bytes"]
    if kept or not limit or reserved < LARGE * limit:
        return None
    if (share := 1 - allocator["used_peak_bytes"] / reserved) < rule["at_least"]:
        return None
    row = judged.row(rule, share, None, LAYER_LEVEL, MEMORY_EVIDENCE)
    return replace(
        row, level=CELL_LEVEL, metric="share of the reserved memory: unused", share=None, gain=None,
        next_step=f"{describe_unused(allocator)}: {row.next_step}",
    )  # fmt: skip


def without_stalls(found: Sequence[Verdict]) -> list[Verdict]:
    """Return verdicts; the general one on the allocator's calls is left out where retries explain them."""
    explained = any(row.about == STALLS and row.metric == OF_RETRIES for row in found)
    return [row for row in found if not (explained and row.about == STALLS and row.metric != OF_RETRIES)]


def describe_retries(allocator: "AllocatorFacts") -> str:
    """Describe retries.

    >>> found = {"retries": 12, "driver_allocations": 40, "driver_frees": 38, "reserved_bytes": 76e9}
    >>> describe_retries(found | {"used_peak_bytes": 52e9, "limit_bytes": 80e9})[:71]
    'within the window the allocator found no block that fits and no more me'
    """
    times = "once" if allocator["retries"] == 1 else f"{allocator['retries']} times"
    return (
        f"within the window the allocator found no block that fits and no more memory {times}, waited for the GPU and "
        f"gave its free blocks back ({allocator['driver_allocations']} blocks taken from the driver, "
        f"{allocator['driver_frees']} given back); tensors use {_format(allocator['used_peak_bytes'])} at most, of "
        f"{_format(allocator['limit_bytes'])} that the process may take"
    )


def describe_unused(allocator: "AllocatorFacts") -> str:
    """Describe memory that is held and not used.

    >>> describe_unused({"reserved_bytes": 70 * 2**30, "used_peak_bytes": 42 * 2**30, "limit_bytes": 80 * 2**30})
    'the allocator holds 70.0 GiB of the 80.0 GiB that the process may take, and tensors never used more than 42.0 GiB'
    """
    return (
        f"the allocator holds {_format(allocator['reserved_bytes'])} of the {_format(allocator['limit_bytes'])} that "
        f"the process may take, and tensors never used more than {_format(allocator['used_peak_bytes'])}"
    )


def _format(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


# Judges what libraries try for new shapes, by the traced steps without it, or by the host's time for convolutions.

TUNING = "tuning"
CONVOLUTIONS = r"aten::(cudnn|miopen)_convolution|aten::convolution_backward"
# A call of so many times the usual duration does more than launch kernels.
LONGER = 10.0
# Columns of the activities of torch.profiler.
COUNT, HOST, SHAPES = "count", "cpu_ns", "shapes"
TUNING_EVIDENCE = "torch.csv: cpu_ns of convolutions, by shapes"


@dataclass(frozen=True)
class Tuning:
    """Host time per step beyond what convolutions usually take, in ns; and the operator and shapes that take most."""

    ns: float
    operator: str
    shapes: str


def find_tuning(activities: pd.DataFrame) -> Tuning | None:
    """Return what convolutions take for shapes that only some of the traced steps have; None if it is nothing.

    activities: of torch.profiler, a row per operator and shapes of its inputs. A shape that all steps have was tuned
    for in the warm-up.

    >>> rows = pd.DataFrame({"kind": ["operator", "operator", "range"], "count": [1, 9, 2], "cpu_ns": [5e7, 9e5, 6e7],
    ...     "name": ["aten::cudnn_convolution", "aten::cudnn_convolution", "step"], "shapes": ["a", "b", ""]})
    >>> find_tuning(rows)
    Tuning(ns=24950000.0, operator='aten::cudnn_convolution', shapes='a')
    """
    steps = activities.loc[(activities["kind"] == "range") & (activities["name"] == STEP), COUNT].max()
    mine = activities[(activities["kind"] == "operator") & activities["name"].str.match(CONVOLUTIONS)]
    mine = mine[mine[COUNT].gt(0) & mine[HOST].notna()]
    if mine.empty or not steps > 1:
        return None
    each = mine[HOST] / mine[COUNT]
    # Of the calls of each operator, the median.
    usual = mine["name"].map({name: own.repeat(mine.loc[own.index, COUNT].astype(int)).median()
                              for name, own in each.groupby(mine["name"])})  # fmt: skip
    usual = usual.clip(upper=each.min() * LONGER)
    tuned = mine[(mine[COUNT] < steps) & (each >= LONGER * usual)]
    if tuned.empty:
        return None
    beyond = tuned[HOST] - usual[tuned.index] * tuned[COUNT]
    most = tuned.loc[beyond.idxmax()]
    return Tuning(float(beyond.sum() / steps), str(most["name"]), str(most[SHAPES]))


def judge_tuning(judged: CellRules, activities: pd.DataFrame | None) -> Iterator[Verdict]:
    """Yield the verdict on tuning for new shapes: what the simulated steps save without the kernels that are timed.

    Where the host's time for new shapes, as far as the GPU is idle meanwhile, is more than the trace of nsys shows, the
    gain follows from that time by Amdahl's law. activities: of torch.profiler, None without.
    """
    found = None if activities is None else find_tuning(activities)
    # Tuning is of a step as most are.
    of_host = min(found.ns, float(judged.step["idle_ns"])) / float(judged.step["step_median_ns"]) if found else 0.0
    simulated = saved_share(judged.replayed, WITHOUT_TUNING, judged.step) if judged.replayed else 0.0
    lead = f"{found.operator} of {shorten_shapes(found.shapes)}, a shape that not every step has: " if found else ""
    for rule in judged.given["rules"]:
        share = max(of_host, simulated)
        if rule["of"] == NOTED and rule["share"] == TUNING and share >= rule["at_least"]:
            evidence = TUNING_EVIDENCE if share > simulated else "program.npz: run again"
            row = judged.row(rule, share, None, LAYER_LEVEL, evidence)
            change = None if share > simulated else row.change
            yield judged.expect(replace(row, level=CELL_LEVEL, change=change, lead=lead))


def shorten_shapes(shapes: str) -> str:
    """Return the shapes of input and weight.

    >>> shorten_shapes("[[16, 3, 84, 84], [64, 3, 7, 7], [], []]")
    '[16, 3, 84, 84] and [64, 3, 7, 7]'
    """
    parts = [f"{part.strip(' [],')}" for part in shapes.split("],")]
    return " and ".join(f"[{part}]" for part in parts if part)


# Judges the host's time for guards of torch.compile, which checks at each call whether compiled code still fits.

# What torch calls the search for compiled code whose guards hold; it holds nothing else, and nothing is within it.
LOOKUP = "TorchDynamo Cache Lookup"


@dataclass(frozen=True)
class GuardTime:
    """Time of the host for guards per step, in ns, and how many times per step they are checked."""

    ns: float
    calls: float


def find_guards(activities: pd.DataFrame | None) -> GuardTime | None:
    """Return what guards take; None if the trace shows none. activities: of torch.profiler, a row per operator.

    >>> rows = pd.DataFrame({"kind": ["operator", "range"], "name": [LOOKUP, "step"], "count": [30, 10],
    ...     "cpu_ns": [6e7, 5e8]})
    >>> find_guards(rows)
    GuardTime(ns=6000000.0, calls=3.0)
    """
    if activities is None:
        return None
    steps = activities.loc[(activities["kind"] == "range") & (activities["name"] == STEP), "count"].max()
    mine = activities[(activities["kind"] == "operator") & (activities["name"] == LOOKUP)]
    if mine.empty or not steps > 0:
        return None
    return GuardTime(float(mine["cpu_ns"].sum() / steps), float(mine["count"].sum() / steps))


def judge_guards(
    rules: Sequence[Rule], found: GuardTime | None, ran_with: KnownSettings, step_ns: float, most_ns: float
) -> Iterator[Verdict]:
    """Yield the verdict on guards. The gain is by Amdahl's law, as they take a known part of the step.

    step_ns: the step; most_ns: the most that can be saved of it, which on a GPU is its idle time.
    """
    for rule in rules:
        if rule["of"] != NOTED or rule["share"] != GUARDS or found is None or not step_ns > 0:
            continue
        share = min(found.ns, most_ns) / step_ns
        if share >= rule["at_least"]:
            times = "once" if found.calls < 1.5 else f"{found.calls:.0f} times"
            lead = f"torch.compile checks guards {times} per step, which takes {found.ns / 1e3:,.0f} µs: "
            yield expect_all(make_row(rule, share, lead, ran_with), share)


# Judges modules that a step calls again on the same inputs, by the time of their forward pass in tables of layers.

# So many modules, and lines of each, are named.
REPEATED_NAMED = 3


def judge_repeated(
    judged: CellRules, found: "Sequence[RepeatedCall]", tree: pd.DataFrame | None, total: float
) -> Iterator[Verdict]:
    """Yield the verdict on repeated calls of a cell on a GPU, whose launches take neither GPU time nor launch time.

    found: modules that were called again. tree: the cell's layers.csv, None without it. total: GPU time of the cell's
    kernels per step, in ns.
    """
    if not found or tree is None:
        return
    forward = (
        tree[tree["direction"].isin(FORWARD)]
        .groupby("module")
        .agg(dict.fromkeys(("total_ns", "launches"), "sum") | {"calls": "max"})
    )
    again = {one["module"]: one for one in found if one["module"] in forward.index}
    rows = forward.loc[list(again)]
    parts = [repeated_part(one["calls"], float(rows.at[name, "calls"])) for name, one in again.items()]
    gone = rows[["total_ns", "launches"]].mul(parts, axis=0).sum()
    gain = float(judged.most(gone.to_frame().T, total).iloc[0]) if len(rows) else 1.0
    yield from _judge_repeated(judged.given["rules"], list(again.values()), 1 - 1 / gain, judged.ran_with)


def judge_repeated_on_cpu(
    rules: Sequence[Rule],
    found: "Sequence[RepeatedCall]",
    operators: pd.DataFrame,
    times: Mapping[str, float],
    ran_with: KnownSettings,
) -> Iterator[Verdict]:
    """Yield the same for a cell on a CPU; operators: its layer-operators.csv. times: its step by part, in ns."""
    forward, whole = operators[operators["direction"].isin(FORWARD)], sum(times.values())
    if not found or not whole:
        return
    sums = [forward.loc[belongs_to(forward["module"], one["module"]), "total_ns"].sum() for one in found]
    gone = sum(own * repeated_part(one["calls"], one["calls"]) for own, one in zip(sums, found, strict=True))
    yield from _judge_repeated(rules, found, min(gone / whole, 1.0), ran_with)


def repeated_part(same: int, calls: float) -> float:
    """Return the part of a module's calls that is not needed; same: calls with equal inputs. calls: all per step.

    >>> repeated_part(2, 2.0), repeated_part(2, 4.0), repeated_part(3, float("nan"))
    (0.5, 0.25, 0.6666666666666666)
    """
    return (same - 1) / max(same, calls) if calls == calls else (same - 1) / same


def belongs_to(modules: pd.Series, name: str) -> pd.Series:
    """Return whether each module is the named one or lies within it.

    >>> belongs_to(pd.Series(["(root)", "a", "a.0", "ab", "(loss)"]), "a").tolist()
    [False, True, True, False, False]
    >>> belongs_to(pd.Series(["(root)", "a", "a.0", "ab", "(loss)"]), "(root)").tolist()
    [True, True, True, True, False]
    """
    if name == ROOT:
        return ~modules.str.startswith("(") | modules.isin((ROOT, COMPILED))
    return (modules == name) | modules.str.startswith(f"{name}.")


def describe_calls(found: "Sequence[RepeatedCall]") -> str:
    """Describe modules that are called again, and where.

    >>> describe_calls([{"module": "encoder", "type": "ResNet", "calls": 2, "places": ["train.py:8", "train.py:9"]}])
    'encoder (ResNet) is called 2 times on the same inputs, with the same result (train.py:8, train.py:9)'
    """
    told = []
    for one in found[:REPEATED_NAMED]:
        places = f" ({', '.join(one['places'][:REPEATED_NAMED])})" if one["places"] else ""
        told.append(
            f"{one['module']} ({one['type']}) is called {one['calls']} times on the same inputs, with the same "
            f"result{places}"
        )
    more = len(found) - REPEATED_NAMED
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _judge_repeated(
    rules: Sequence[Rule], found: "Sequence[RepeatedCall]", share: float, ran_with: KnownSettings
) -> Iterator[Verdict]:
    for rule in rules:
        if rule["of"] == NOTED and rule["share"] == REPEATED and share >= rule["at_least"]:
            yield expect_all(make_row(rule, share, f"{describe_calls(found)}: ", ran_with), share)
