"""Judges what the measured process noted: padding, compilations, starts of workers, clocks, and lines of the host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo import formatting
from profzoo.io.csv_tables import Row
from profzoo.range_names import FORWARD
from profzoo.tables.cell_tables import amdahl_gain
from profzoo.tables.schemas import CELL
from profzoo.tools.nsys.steps.steps import INPUT
from profzoo.tools.sample.gpu_state import summarise_clocks
from profzoo.verdicts import AMDAHL
from profzoo.verdicts.advice_scores import UNSCORED
from profzoo.verdicts.gain_models import FASTER, RequestedChange
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import NAMED, NotedFacts, Padding
from profzoo.verdicts.rules.feasibility import NAMED as FEASIBILITY_NAMED
from profzoo.verdicts.rules.feasibility import describe_lines
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.rules.rule_types import KnownSettings, Rule
from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine, ClockReading, HostLine

NOTED = "noted"
PADDING, COMPILING, BREAKS, GUARDS = "padding", "compiling", "graph_breaks", "guards"
REPEATED, STARTS = "repeated_calls", "worker_starts"
# Parts of a step whose work grows with the places of a batch.
GROWING = (*FORWARD, "loss", "backward")
# Attention's work grows with their square.
SQUARED = "attention"
# A batch whose longest row is shorter than its places by this share can be cut; else rows have to be grouped or packed.
CUT = 0.1
# What a launch takes at least, in ns, as in the rules on short launches.
SHORTEST_NS = 2000.0
EVIDENCE = {
    PADDING: "sidecar of the unprofiled run: padding", COMPILING: "sidecar of the unprofiled run: compilations",
    BREAKS: "sidecar of the unprofiled run: compilations", GUARDS: "torch.csv: cpu_ns of TorchDynamo Cache Lookup",
    REPEATED: "sidecar of the unprofiled run: repeated_calls; layers.csv: total_ns",
    STARTS: "sidecar of the unprofiled run: loading",
}  # fmt: skip


def judge_padding(judged: CellRules, launches: pd.DataFrame, noted: NotedFacts) -> Iterator[Verdict]:
    """Yield the verdict on padding, by simulating the step without the places that are padding.

    launches: the cell's rows of the table of kernels.
    """
    found, rows = noted.most_padded(), launches[launches["range"].isin(GROWING) & launches["total_ns"].gt(0)]
    for rule in judged.given["rules"]:
        if rule["of"] != NOTED or rule["share"] != PADDING or found is None or judged.replayed is None or rows.empty:
            continue
        part = found.behind if found.behind >= CUT else found.padded
        asked = [RequestedChange(FASTER, rows, saved_share(rows, one, squared)) for one, squared in
                 ((part, True), (part, False), (max(part, found.padded), True))]  # fmt: skip
        gains = [judged.replayed.gain(one, judged.step, 0.0) for one in asked]
        if gains[0] is None or (share := 1 - 1 / gains[0].gain) < rule["at_least"]:
            continue
        row = judged.row(rule, share, None, LAYER_LEVEL, EVIDENCE[PADDING])
        row = judged.expect(replace(row, level=CELL_LEVEL, change=asked[0], lead=f"{describe_padding(found)}: "))
        ends = [(one.low, one.high) for one in gains if one]
        if row.gain:
            lows, highs = (
                [end for end in own if end] for own in zip(*ends, (row.gain_low, row.gain_high), strict=True)
            )
            row = replace(row, gain_low=min(lows) if row.gain_low else None, gain_high=max(highs))
        yield row


def saved_share(launches: pd.DataFrame, part: float, squared: bool) -> pd.Series:
    """Return the share of each launch's time that goes with a part of the places; a launch keeps the shortest time.

    squared: whether attention's time goes with the square of the places, as it does without padding's kernels.
    """
    kept = pd.Series(1 - part, launches.index)
    if squared:
        kept = kept.where(launches["class"] != SQUARED, (1 - part) ** 2)
    least = SHORTEST_NS / launches["mean_ns"]
    return 1 - kept.clip(lower=least.clip(upper=1.0))


def describe_padding(found: Padding) -> str:
    """Describe padding.

    >>> describe_padding(Padding(32, 512, 0, 0.8, 0.75))
    '80 % of a batch of 32 x 512 is padding (rows that end in 0), and its longest row has 128 places'
    >>> describe_padding(Padding(32, 512, 0, 0.8, 0.75, "attention_mask"))
    '80 % of a batch of 32 x 512 is padding (by attention_mask), and its longest row has 128 places'
    """
    longest = round(found.places * (1 - found.behind))
    told = f"by {found.mask}" if found.mask else f"rows that end in {found.value}"
    return (
        f"{100 * found.padded:.0f} % of a batch of {found.rows} x {found.places} is padding ({told}), and its longest "
        f"row has {longest} places"
    )


def judge_window(rules: Sequence[Rule], noted: NotedFacts, ran_with: KnownSettings) -> Iterator[Verdict]:
    """Yield verdicts on code that was compiled and workers that were started within the window, and on graph breaks.

    The gain is by Amdahl's law: compiling and starting take known parts of the window. Graph breaks have none.
    """
    share, breaks = noted.compiling_share(), noted.graph_breaks()
    starting, at_most = noted.starting_shares()
    for rule in rules:
        if rule["of"] != NOTED:
            continue
        if rule["share"] == COMPILING and share >= rule["at_least"]:
            # The last compilation may have ended behind the window.
            yield expect_all(make_row(rule, share, f"{noted.describe_compilations()}: ", ran_with), share)
        elif rule["share"] == STARTS and starting >= rule["at_least"]:
            # Workers that stay still load their first batches, but need not start for them.
            yield expect_all(make_row(rule, starting, f"{noted.describe_starts()}: ", ran_with), at_most)
        elif rule["share"] == BREAKS and len(breaks) >= rule["at_least"]:
            more = f" and {len(breaks) - NAMED} more" if len(breaks) > NAMED else ""
            yield make_row(rule, len(breaks), f"{', '.join(breaks[:NAMED])}{more}: ", ran_with)


def make_row(rule: Rule, value: float, lead: str, ran_with: KnownSettings) -> Verdict:
    """Return the verdict of a rule that applies, without a gain; lead: the beginning of its next step."""
    advice = verdict_rules.choose_advice(rule, {}, ran_with)
    metric = "lines with graph breaks" if rule["share"] == BREAKS else f"share of the step: {rule['share']}"
    return Verdict(
        level=CELL_LEVEL,
        verdict=rule["verdict"],
        metric=metric,
        value=value,
        threshold=rule["at_least"],
        evidence=EVIDENCE[rule["share"]],
        next_step=lead + advice.next_step,
        settings=advice.settings,
        source=rule["source"],
        about=rule["share"],
    )


def expect_all(row: Verdict, share: float) -> Verdict:
    """Return a verdict whose advice may save a whole share of the step, by Amdahl's law."""
    gain = amdahl_gain(share, 1)
    return replace(row, share=share, cured=1.0, gain=gain, gain_low=1.0, gain_high=gain, method=AMDAHL)


def judge_noted(
    rules: Sequence[Rule], noted: NotedFacts, ran_with: KnownSettings, times: Mapping[str, float]
) -> list[Verdict]:
    """Return verdicts on a cell on a CPU; times: of its step by part, in ns. The parts that padding reaches shrink."""
    found, whole = noted.most_padded(), sum(times.values())
    rows = list(judge_window(rules, noted, ran_with))
    for rule in rules:
        if rule["of"] == NOTED and rule["share"] == PADDING and found and whole:
            part = found.behind if found.behind >= CUT else found.padded
            grows = sum(times.get(name, 0.0) for name in GROWING) / whole
            if (share := grows * part) >= rule["at_least"]:
                gain, most = amdahl_gain(grows, part), amdahl_gain(grows, 1 - (1 - max(part, found.padded)) ** 2)
                row = make_row(rule, share, f"{describe_padding(found)}: ", ran_with)
                rows.append(
                    replace(row, share=share, cured=1.0, gain=gain, gain_low=1.0, gain_high=most, method=AMDAHL)
                )
    return rows


# Judge whether the GPU's clock dropped during the steps, by NVML, and by how much that slows them down.
#
# By NVML's samples, where clocks were sampled; else by what unprofiled processes read at both ends of their windows.

DROPPED = "dropped clocks"
# Columns of the table of cells, there where clocks were sampled: mean and high clock, share of the samples in which
# something slowed the GPU down, and what did.
MEAN, HIGH, THROTTLED, WHY = "sm_clock_hz", "sm_clock_high_hz", "throttled_share", "clocks"
COLUMNS = (MEAN, HIGH, THROTTLED, WHY)
# And there where it generates: tokens of a step.
GENERATED = "generated"
# The least share of the step that the lower clock costs, and of the samples in which something slowed the GPU down.
LEAST_LOST, LEAST_THROTTLED = 0.03, 0.05
ADVICE = (
    "the GPU cannot hold its clock: cool it better, raise its power limit (nvidia-smi --power-limit) if you may, or "
    "leave the GPUs beside it idle; do not compare these times with those at another clock"
)


def add_cells(steps: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of steps with what the table of cells says of clocks and tokens; nan where it says nothing."""
    known = cells.reindex(columns=[*CELL, *COLUMNS, GENERATED])
    return steps.merge(known, on=CELL, how="left")


def judge_clocks(judged: CellRules, readings: "Sequence[ClockReading]" = ()) -> Iterator[Verdict]:
    """Yield the verdict on a clock that dropped: kernels that only the clock limits take longer in proportion.

    The high clock is that of the fastest samples or readings, so a GPU that was slow all the time is not noticed.
    Kernels that wait for memory do not follow the clock; the gain is therefore between none and that of all kernels.

    readings: of unprofiled processes, which count where no clock was sampled. Of these, only those are lower than the
    high clock in which something limits it.
    """
    row = judged.step
    mean, high, throttled = (float(row.get(name, np.nan)) for name in (MEAN, HIGH, THROTTLED))
    why, evidence = row.get(WHY), f"cells.csv: {MEAN}, {HIGH}, {THROTTLED}"
    if np.isnan(mean) and (found := summarise_clocks(readings)):
        mean, high, throttled, why = found.kept_hz, found.high_hz, found.limited_share, found.reasons
        evidence = "sidecar of the unprofiled run: clocks"
    lost = 1 - mean / high if high > 0 else 0.0
    share = judged.shares["kernels"]
    if not throttled >= LEAST_THROTTLED or share * lost < LEAST_LOST:
        return
    gain = amdahl_gain(share, lost)
    yield Verdict(
        level=CELL_LEVEL,
        verdict=DROPPED,
        metric="share of the step: lost to a lower SM clock",
        value=share * lost,
        threshold=LEAST_LOST,
        share=share * lost,
        evidence=evidence,
        cured=1.0,
        gain=gain,
        gain_low=1.0,
        gain_high=gain,
        method=AMDAHL,
        trials=0,
        score=UNSCORED,
        next_step=f"the SM clock was {mean / 1e6:,.0f} MHz in the mean and {high / 1e6:,.0f} MHz at best"
        f"{_reason(why)}: {ADVICE}",
        source="NVML API reference, clocks event reasons; nvidia-smi, power limits",
    )


def _reason(said: object) -> str:
    """Return what the samples say of the reasons, in brackets; empty without any."""
    return f" ({said})" if isinstance(said, str) and said else ""


def tell_per_token(row: Verdict, step: Row) -> Verdict:
    """Return a verdict that says what its gain is for a token, where the step generates any.

    >>> row = Verdict(verdict="copied cache", metric="", value=0.2, evidence="", next_step="do", level="", gain=1.25)
    >>> tell_per_token(row, {"step_ns": 1e8, "generated": 16.0}).next_step
    'do; expected for each of 16 tokens: 1.25 ms less'
    """
    tokens = step.get(GENERATED, np.nan)
    if not (tokens > 0 and row.gain and row.gain > 1):
        return row
    saved = formatting.format_ns(step["step_ns"] * (1 - 1 / row.gain) / tokens)
    return replace(row, next_step=f"{row.next_step}; expected for each of {tokens:.0f} tokens: {saved} less")


# Says in verdicts on the host at which lines of the program it spends its time, as samples of a step showed them.

# Shares of rules, and the share of the step that is too little for a line to be named.
LOCK, WORK, DATA, COPIES = "lock_waits_removed", "host_work_removed", "idle_input", "copies_pinned"
TOO_LITTLE = 0.02
# Beginnings of files that are not the program's own, and names of the operations by which a program copies to a GPU.
OTHERS = ("torch/", "profzoo/")
COPYING = (".to()", ".cuda()", ".copy_()", "torch.tensor()", "torch.as_tensor()")
OPTIMIZER = "optimizer"
# What a DataLoader does, in the words of a sentence.
WORKS = {"reading": "reading samples", "collating": "collating samples", "": "the rest"}


def name_places(
    row: Verdict, host: "Sequence[HostLine] | None", waits: "Sequence[BlockingLine] | None" = None
) -> Verdict:
    """Return a verdict whose next step begins with the lines that it is about; the same where none is known.

    Args:
        row: the verdict. host: lines at which the host spends a step, None if none was sampled.
        waits: lines at which it waits for the GPU, None if none was observed.
    """
    find = {LOCK: _of_other_threads, WORK: _of_work, DATA: describe_input}.get(row.about)
    told = find(host) if find and host else ""
    if row.about == COPIES and waits:
        copies = [line for line in waits if line["operation"] in COPYING]
        told = describe_lines(copies) if copies else ""
    return replace(row, next_step=f"{told}: {row.next_step}") if told else row


def describe_places(lines: "Sequence[HostLine]") -> str:
    """Describe lines, those that take most of the step first; empty without any that takes TOO_LITTLE or more.

    >>> line = {"thread": "", "range": "forward", "work": "", "file": "net.py", "text": "for x in y:", "share": 0.2}
    >>> describe_places([line | {"line": 7, "function": "Net.scale"}, line | {"line": 8, "function": "Net.scale"}])
    'Net.scale at net.py:7, 40 % of the step'
    """
    sums: dict[tuple[str, str], list[float]] = {}
    for line in sorted(lines, key=lambda line: -line["share"]):
        entry = sums.setdefault((line["function"], line["file"]), [line["line"], 0.0])
        entry[1] += line["share"]
    ordered = sorted(sums.items(), key=lambda one: -one[1][1])
    return "; ".join(
        f"{function} at {file}:{line:.0f}, {share * 100:.0f} % of the step"
        for (function, file), (line, share) in ordered[:FEASIBILITY_NAMED]
        if share >= TOO_LITTLE
    )


def _of_other_threads(host: "Sequence[HostLine]") -> str:
    """Describe the threads besides the launching one that ran, each with its lines."""
    names = dict.fromkeys(line["thread"] for line in host if line["thread"])
    told = {name: describe_places([line for line in host if line["thread"] == name]) for name in names}
    return "; ".join(f"thread '{name}' runs {places}" for name, places in told.items() if places)


def _of_work(host: "Sequence[HostLine]") -> str:
    """Describe the program's own lines at which the launching thread spends the step, besides input and optimizer."""
    apart = (*INPUT, OPTIMIZER)
    mine = [one for one in host if not one["thread"] and one["range"] not in apart]
    return describe_places([one for one in mine if not one["file"].startswith(OTHERS)])


def describe_input(host: "Sequence[HostLine]") -> str:
    """Describe how much of the step each kind of work on the input takes, and its lines; empty without any."""
    data = [one for one in host if not one["thread"] and one["range"] in INPUT]
    parts: dict[str, list[HostLine]] = {work: [line for line in data if line["work"] == work] for work in WORKS}
    told = []
    for work, lines in sorted(parts.items(), key=lambda part: -sum(line["share"] for line in part[1])):
        if (share := sum(line["share"] for line in lines)) >= TOO_LITTLE:
            places = describe_places(lines)
            told.append(f"{WORKS[work]} takes {share * 100:.0f} % of the step{f' ({places})' if places else ''}")
    return ", ".join(told)
