"""Makes a cell's tables of chains that could be fused, and of the kernels that they consist of now."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.fusion import gains
from profzoo.fusion.calls import Call, TracedStep, read_step
from profzoo.fusion.chains import Chain, find_chains
from profzoo.fusion.patterns import FINDERS
from profzoo.io.columns import AMOUNT, COUNT, GPU, NINE_OF_TEN, TEXT, Column, with_interval
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.range_names import ROOT, parent_module
from profzoo.tables.roofline import read_peaks
from profzoo.tables.steps_per_export import NEEDS as OF_SIDECAR
from profzoo.tools.nsys.events import launches
from profzoo.tools.torch.trace import read_trace
from profzoo.what_if import predicted_gains, program, simulator
from profzoo.what_if.graph_obstacles import steps_differ
from profzoo.what_if.predicted_gains import Operations
from profzoo.what_if.program import Program

GAINS = ["gain", "gain_low", "gain_high"]


def _saves(table: pd.DataFrame) -> str | None:
    wrong = table[(table["fused_ns"] > table["ns"]) | (table["fused_launches"] > table["launches"])]
    return f"row {int(wrong.index[0]) + 1}: a fused chain takes longer than now" if len(wrong) else None


CHAINS = Table(
    columns={
        "chain": Column(COUNT, "Number of the row, to which the rows of `fusion-kernels.csv` refer.", "count"),
        "pattern": Column(
            TEXT, "What the operators compute together; `elementwise chain` if that is not known.", tool="torch"),
        "module": Column(
            TEXT, "Innermost module that all operators are in; `*` stands for several layers of a stack; an owner in "
            "parentheses, such as `(loss)`, where no module is.", tool="torch"),
        "type": Column(TEXT, "Class of this module, or of the one around it that is not torch's own.", tool="torch"),
        "source": Column(
            TEXT, "File and lines of the `forward` of this class; empty where they are not known.", tool="torch"),
        **shared("direction"),
        "operators": Column(
            TEXT, "Operators in the order of their first calls, with the number of calls.", tool="torch"),
        "chains": Column(AMOUNT, "How many such chains a step has.", "count", "torch"),
        "launches": Column(AMOUNT, "Launches per step now.", "count", "torch"),
        "fused_launches": Column(AMOUNT, "Launches per step that remain.", "count"),
        "bytes": Column(
            AMOUNT, "Bytes per step that the operators read and write, by their shapes and types.", "byte", "torch"),
        "fused_bytes": Column(
            AMOUNT, "Bytes per step that remain: what goes into the chains and comes out of them.", "byte"),
        "ns": Column(AMOUNT, "GPU time per step now, by torch.profiler; on a CPU host time.", "ns", "torch", GPU),
        "fused_ns": Column(AMOUNT, "Expected GPU time per step of the fused kernels.", "ns", clock=GPU),
        "fused_ns_low": Column(AMOUNT, "Lower end of the interval of `fused_ns`.", "ns", clock=GPU),
        "fused_ns_high": Column(
            AMOUNT, "Upper end of the interval of `fused_ns`: bytes move no faster than now.", "ns", clock=GPU),
        **with_interval("gain", Column(
            AMOUNT.or_missing, "Expected speedup of the step, by simulating the steps that nsys traced; empty "
            "without them.", "ratio", interval=NINE_OF_TEN)),
    },
    key=["chain"],
    holds=_saves,
    ranges={"gain": ("gain_low", "gain_high")},
)  # fmt: skip
COLUMNS = [*CHAINS.columns]
KERNELS = Table(
    columns={
        "chain": Column(COUNT.or_missing, "Row of `fusion.csv` that the launch is part of; empty for none.", "count"),
        "place": Column(COUNT, "Place of the launch in the step, counted from 0.", "count", "nsys"),
        "of_launches": Column(COUNT, "Launches of the step.", "count", "nsys"),
        "stays": Column(COUNT, "Is 1 if the launch remains as that of a fused kernel, else 0.", "count"),
        "waits": Column(
            COUNT, "Is 1 if the host's waits between launches of the chain disappear with it, else 0.", "count"),
        "together": Column(COUNT, "Is 1 if one call makes all launches of the chain that remain, else 0.", "count"),
        **shared("range", "mangled"),
        "ns": Column(AMOUNT, "GPU time of the launch, as a mean over steps.", "ns", "nsys", GPU),
        **shared("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", kind=COUNT.or_missing),
        **shared("smem_static_bytes", "smem_dynamic_bytes"),
        gains.MOVED: Column(
            AMOUNT.or_missing, "Time for the bytes that it moves, by its operator's shapes, at the bandwidth of "
            "memory.", "ns", clock=GPU),
        gains.NARROW: Column(AMOUNT.or_missing, "The same under autocast to bf16.", "ns", clock=GPU),
        gains.CASTS: Column(
            AMOUNT.or_missing, "Changes of type that autocast to bf16 adds before it, or that its gradients need.",
            "count"),
        gains.CASTS_NS: Column(AMOUNT.or_missing, "GPU time of these.", "ns", clock=GPU),
    },
    key=[gains.PLACE],
)  # fmt: skip
# Gains are simulated for so many rows, those first that have most GPU time or launches to save.
SIMULATED = 24
# How long one launch may hold a step up at most, by which rows are chosen.
CALL_NS = 10_000.0
ENDS = ("fused_ns_low", "fused_ns_high")
# Numbers in paths of modules, which stand for all layers of a stack.
NUMBERED = re.compile(r"(?<![^.])\d+(?=\.|$)")


def group_chains(chains: Sequence[Chain]) -> list[list[Chain]]:
    """Return chains that are alike together: of one pattern, operators, bytes, and place in the layers of a stack."""
    groups: dict[tuple[object, ...], list[Chain]] = {}
    for chain in chains:
        key = (chain.pattern, NUMBERED.sub("*", common_module(chain.calls)), chain.calls[0].direction,
               describe_operators(chain.calls), chain.bytes)  # fmt: skip
        groups.setdefault(key, []).append(chain)
    return list(groups.values())


def common_module(calls: Sequence[Call]) -> str:
    """Return the innermost module that all calls are in, the root if they are in several parts of the network."""
    paths = [call.module for call in calls]
    inside = [path for path in paths if not path.startswith("(")]
    if not inside:
        return Counter(paths).most_common(1)[0][0]
    parts = [path.split(".") for path in inside]
    shared = []
    for several in zip(*parts, strict=False):
        if len(set(several)) > 1:
            break
        shared.append(several[0])
    return ".".join(shared) or ROOT


def describe_operators(calls: Sequence[Call]) -> str:
    """Return the operators in the order of their first calls, each with the number of its calls if above one."""
    counts = Counter(call.operator for call in calls)
    return ", ".join(f"{name} x {count}" if count > 1 else name for name, count in counts.items())


def source_lines(step: TracedStep, module: str) -> tuple[str, str]:
    """Return the class of a module and the lines of its `forward`; of torch's own, the module around."""
    path, first = module, step.types.get(module, "")
    while path:
        lines = step.sources.get(step.types.get(path, ""), [])
        if lines and not lines[0].startswith("torch/"):
            return step.types[path], "; ".join(lines)
        path = parent_module(path)
    return first, "; ".join(step.sources.get(first, []))


def make_chains(step: TracedStep, peaks: Mapping[str, float]) -> tuple[pd.DataFrame, list[tuple[int, Chain]]]:
    """Return a row per group of chains without gains, and all chains with the numbers of their rows.

    peaks: measured rates by name, in byte/s and flop/s; may be empty.
    """
    tf32 = bool(len(step.launches)) and step.launches["name"].astype(str).str.contains("tf32", regex=False).any()
    rates = gains.measure_rates(step.calls, peaks, tf32)
    numbered, rows = [], []
    for number, group in enumerate(group_chains(find_chains(step.flow, FINDERS))):
        times = [gains.fused_time(chain, rates) for chain in group]
        names = list(dict.fromkeys(NUMBERED.sub("*", common_module(chain.calls)) for chain in group))
        kind, lines = source_lines(step, common_module(group[0].calls))
        row = {
            "chain": number, "pattern": group[0].pattern, "module": names[0] if len(group) > 1 else
            common_module(group[0].calls), "type": kind, "source": lines, "direction": group[0].calls[0].direction,
            "operators": describe_operators(group[0].calls), "chains": len(group),
            "launches": sum(chain.launches for chain in group),
            "fused_launches": sum(min(chain.fused_launches, chain.launches) for chain in group),
            "bytes": sum(chain.bytes for chain in group),
            "fused_bytes": sum(min(chain.fused_bytes, chain.bytes) for chain in group),
            "ns": sum(time.ns for time in times), "fused_ns": sum(time.fused_ns for time in times),
            "fused_ns_low": sum(time.low for time in times), "fused_ns_high": sum(time.high for time in times),
        }  # fmt: skip
        rows.append(row)
        numbered += [(number, chain) for chain in group]
    return pd.DataFrame(rows, columns=COLUMNS), numbered


def add_gains(table: pd.DataFrame, kernels: pd.DataFrame, programs: Mapping[int, Program]) -> pd.DataFrame:
    """Return the table of chains with the gain of the step for the rows that promise most, by simulation.

    The interval holds the spread between steps and the interval of the fused time.

    Args:
        table: from make_chains; kernels: from joining.join_chains.
        programs: the cell's traced steps by process; the one whose GPU works most is simulated.
    """
    if not programs or table.empty:
        return table
    program = max(programs.values(), key=lambda one: float(one.gpu["ns"].sum()))
    operations = Operations(program)
    unchanged, differ = simulator.step_times(program, simulator.simulate(program)), steps_differ(program)

    def predict(lean: gains.LeanProgram, fused_ns: pd.Series) -> predicted_gains.Gain:
        after = lean.take(fused_ns)
        changed = simulator.step_times(after, simulator.simulate(after))
        return predicted_gains.gain_of_steps(unchanged, changed, differ=differ)

    promise = (table["ns"] - table["fused_ns"]) + CALL_NS * (table["launches"] - table["fused_launches"])
    found, gained = table.set_index("chain"), table.set_index("chain")[GAINS].astype(float)
    rows = dict(iter(kernels.groupby(gains.NUMBER)))
    for number in table["chain"][promise.sort_values(ascending=False).index[:SIMULATED]]:
        if number in rows and (lean := gains.leave_out_fused(operations, rows[number])):
            each = [predict(lean, found.loc[[number], name]) for name in ("fused_ns", *ENDS)]
            low, high = (min(one.low for one in each), max(one.high for one in each))
            gained.loc[number] = each[0].gain, low, high
    return found.assign(**gained).reset_index()[COLUMNS]


def main(traced: str, nsys: tuple[str, str], peaks: str, programs: str, outputs: Mapping[str, str]) -> None:
    """Read the trace of torch, and of nsys where there is one; write `chains` and their `kernels`.

    Args:
        traced: trace of torch.profiler.
        nsys: nsys's export and the sidecar of its report, empty without one; peaks, programs: files, empty without.
    """
    step, rates = read_step(read_trace(traced)), read_peaks(peaks) if peaks else {}
    table, numbered = make_chains(step, rates)
    kernels = KERNELS.empty()
    if nsys[0] and step.gpu:
        facts = read_facts(nsys[1], OF_SIDECAR)
        launched = launches.read_step_launches(nsys[0], facts.get("capture") == "run")
        if len(launched):
            kernels = gains.join_chains(step, numbered, launched, gains.tabulate_autocast(step, rates))
            table = add_gains(table, kernels, program.read_programs(programs) if programs else {})
    write_csv(table, outputs["chains"])
    write_csv(kernels, outputs["kernels"])
