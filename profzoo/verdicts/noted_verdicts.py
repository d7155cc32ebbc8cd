"""Judges padding, compilation within the window, and graph breaks, by what the unprofiled process noted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from profzoo.tables.step_shares import amdahl
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.gain_methods import AMDAHL
from profzoo.verdicts.gain_models import FASTER, RequestedChange
from profzoo.verdicts.noted_facts import NAMED, NotedFacts, Padding
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.rule_types import KnownSettings, Rule
from profzoo.verdicts.verdict import Verdict

NOTED = "noted"
PADDING, COMPILING, BREAKS, GUARDS = "padding", "compiling", "graph_breaks", "guards"
REPEATED = "repeated_calls"
# Parts of a step whose work grows with the places of a batch.
GROWING = ("forward", "loss", "backward")
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
            row = replace(row, gain_low=min(lows), gain_high=max(highs))
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
    """
    longest = round(found.places * (1 - found.behind))
    return (
        f"{100 * found.padded:.0f} % of a batch of {found.rows} x {found.places} is padding (rows that end in "
        f"{found.value}), and its longest row has {longest} places"
    )


def judge_compilation(rules: Sequence[Rule], noted: NotedFacts, ran_with: KnownSettings) -> Iterator[Verdict]:
    """Yield verdicts on code that was compiled within the window, and on graph breaks; the latter have no gain.

    The gain is by Amdahl's law: compiling takes a known part of the window.
    """
    share, breaks = noted.compiling_share(), noted.graph_breaks()
    for rule in rules:
        if rule["of"] != NOTED:
            continue
        if rule["share"] == COMPILING and share >= rule["at_least"]:
            row = make_row(rule, share, f"{noted.describe_compilations()}: ", ran_with)
            gain = amdahl(share, 1)
            # The last compilation may have ended behind the window.
            yield replace(row, share=share, cured=1.0, gain=gain, gain_low=1.0, gain_high=gain, method=AMDAHL)
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


def judge_noted(
    rules: Sequence[Rule], noted: NotedFacts, ran_with: KnownSettings, times: Mapping[str, float]
) -> list[Verdict]:
    """Return verdicts on a cell on a CPU; times: of its step by part, in ns. The parts that padding reaches shrink."""
    found, whole = noted.most_padded(), sum(times.values())
    rows = list(judge_compilation(rules, noted, ran_with))
    for rule in rules:
        if rule["of"] == NOTED and rule["share"] == PADDING and found and whole:
            part = found.behind if found.behind >= CUT else found.padded
            grows = sum(times.get(name, 0.0) for name in GROWING) / whole
            if (share := grows * part) >= rule["at_least"]:
                gain, most = amdahl(grows, part), amdahl(grows, 1 - (1 - max(part, found.padded)) ** 2)
                row = make_row(rule, share, f"{describe_padding(found)}: ", ran_with)
                rows.append(
                    replace(row, share=share, cured=1.0, gain=gain, gain_low=1.0, gain_high=most, method=AMDAHL)
                )
    return rows
