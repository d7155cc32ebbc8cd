"""Holds the best plan for each planted case against its twin, where both are the same settings, and against verdicts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.plans.plan import ADVISABLE, NOT_POSSIBLE
from tests.planted.cases import Case
from tests.planted.scoring import GRAPH, Measured

# Relative difference up to which two numbers are the same.
SAME = 1e-6


@dataclass(frozen=True)
class BestPlan:
    """The first plan that is advised for a case.

    settings: its words; empty where no plan is advised. gain, low, high: as expected; nan without a plan.
    of_twin: whether these are the settings that the twin has and the case has not, so that the twin measures the plan.
    impossible: it has a CUDA graph that cannot be captured.
    apart: settings for which a verdict expects another gain than the plan of the same settings.
    """

    settings: str
    gain: float
    low: float
    high: float
    of_twin: bool
    impossible: bool
    apart: tuple[str, ...]

    def error(self, measured: Measured) -> float:
        """Relative error of the plan's gain by the twin; nan where the twin does something else."""
        return abs(self.gain / measured.gain - 1) if self.of_twin else math.nan


def score_plan(case: Case, plans: pd.DataFrame, verdicts: pd.DataFrame) -> BestPlan:
    """Score the first plan for a case; plans, verdicts: the whole tables."""
    own, said = (table[(table["model"] == case.name) & (table["phase"] == case.phase)] for table in (plans, verdicts))
    possible = own[own["outlook"] != NOT_POSSIBLE].sort_values("rank")
    apart = tuple(_find_differing(possible, said[said["level"] == "cell"]))
    advised = possible[possible["outlook"].isin(ADVISABLE)]
    if advised.empty:
        return BestPlan("", math.nan, math.nan, math.nan, False, False, apart)
    best = advised.iloc[0]
    words = str(best["settings"])
    gain, low, high = (float(best[name]) for name in ("gain", "gain_low", "gain_high"))
    impossible = case.graph_possible is False and GRAPH in words.split()
    return BestPlan(words, gain, low, high, set(words.split()) == _words_of_twin(case), impossible, apart)


def _words_of_twin(case: Case) -> set[str]:
    """Setting words of the twin alone; empty for a twin whose code differs."""
    return {f"{name}={str(value).lower()}" for name, value in case.mended.items()}


def _find_differing(plans: pd.DataFrame, verdicts: pd.DataFrame) -> Iterable[str]:
    """Yield settings for which a verdict with a gain expects another one than the plan of the same settings."""
    gains = {frozenset(str(plan["settings"]).split()): float(plan["gain"]) for _, plan in plans.iterrows()}
    for _, row in verdicts[verdicts["settings"].notna() & verdicts["gain"].notna()].iterrows():
        planned = gains.get(frozenset(str(row["settings"]).split()))
        if planned is not None and not np.isclose(planned, row["gain"], rtol=SAME):
            yield str(row["settings"])


def summarise_plans(scored: Sequence[tuple[Measured, BestPlan]]) -> list[str]:
    """Sentences about the best plans of all cases."""
    told = [(measured, plan) for measured, plan in scored if plan.settings]
    lines = [f"cases with a plan: {len(told)} of {len(scored)}"]
    lines.append(f"best plans with a graph that cannot be captured: {sum(plan.impossible for _, plan in told)}")
    if same := [plan.error(measured) for measured, plan in told if plan.of_twin]:
        lines.append(f"best plans that are what the twin has: {len(same)}, median relative error {np.median(same):.0%}")
    apart = sorted({words for _, plan in scored for words in plan.apart})
    lines.append(f"settings of which a verdict and a plan expect different gains: {'; '.join(apart) or 'none'}")
    return lines
