"""Judges the host's time for guards of torch.compile, which checks at each call whether compiled code still fits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from profzoo.range_names import STEP
from profzoo.tables.step_shares import amdahl
from profzoo.verdicts.gain_methods import AMDAHL
from profzoo.verdicts.noted_verdicts import GUARDS, NOTED, make_row
from profzoo.verdicts.rule_types import KnownSettings, Rule
from profzoo.verdicts.verdict import Verdict

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
            gain = amdahl(share, 1)
            row = make_row(rule, share, lead, ran_with)
            yield replace(row, share=share, cured=1.0, gain=gain, gain_low=1.0, gain_high=gain, method=AMDAHL)
