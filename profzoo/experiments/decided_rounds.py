"""Says after each round of processes whether another one is worth its time: until all is decided, or cannot be."""

import csv
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np

from profzoo.statistics import sequential
from profzoo.statistics.steady_state import drop_warmup

# Why rounds ended: all was decided, the next one would exceed the budget, no decision is possible within the budget, or
# the largest number of rounds was reached.
DECIDED, BUDGET, HOPELESS, MOST = "decided", "budget", "hopeless", "most"


class StopRule(TypedDict):
    """When rounds of processes end.

    margin: largest relative difference that counts as equivalent. comparisons: number of comparisons that are judged
    together. budget_s: seconds that all rounds may take.
    """

    margin: float
    comparisons: int
    budget_s: float


def read_steady_steps(path: Path) -> np.ndarray:
    """Return the steps in steady state in ns, by the GPU's clock if it was used; path: a CSV of one process's steps."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    clock = "gpu_ns" if any(row["gpu_ns"] for row in rows) else "wall_ns"
    return drop_warmup(np.array([float(row[clock]) for row in rows]))


def median_step(path: Path) -> float:
    """Return the median step in steady state in ns, by the GPU's clock if it was used; path: a CSV of steps."""
    return float(np.median(read_steady_steps(path)))


@dataclass
class Rounds:
    """The rounds of some sides so far.

    rule: when to stop. reference: side with which the others are compared. sample_ns: times of a data sample by side,
    one per round. began_s: start of the rounds by the monotonic clock. round_s: seconds of the last round.
    """

    rule: StopRule
    reference: str
    sample_ns: dict[str, list[float]] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    round_s: float = 0.0

    def add(self, times: Mapping[str, float], round_s: float) -> None:
        """Add a round: the time of a data sample by side, and the seconds that the round took."""
        for side, ns in times.items():
            self.sample_ns.setdefault(side, []).append(ns)
        self.round_s = round_s

    def why_end(self) -> str:
        """Reason why no further round is worth its time; empty if one is."""
        decisions = self._decisions()
        if decisions is None:
            return DECIDED
        left = self.rule["budget_s"] - (time.monotonic() - self.began_s)
        if self.round_s > left:
            return BUDGET
        known = [one for one in decisions if one.rounds >= sequential.GIVEN_UP_FROM]
        if known and all(one.hopeful is None or one.hopeful * self.round_s > left for one in known):
            return HOPELESS
        return ""

    def _decisions(self) -> "Sequence[sequential.Decision] | None":
        """Return the undecided comparisons; None if there are none left to decide."""
        margin = self.rule["margin"]
        logs = {side: [math.log(ns) for ns in times] for side, times in self.sample_ns.items()}
        others = [side for side in logs if side != self.reference]
        if not others:
            return None if sequential.is_precise(logs[self.reference], margin) else []
        between = [np.subtract(logs[side], logs[self.reference]).tolist() for side in others]
        found = [sequential.decide(one, margin, comparisons=self.rule["comparisons"]) for one in between]
        return [one for one in found if one.missing != 0] or None


def read_round(sides: Sequence[str], steps: Sequence[Path], batches: Sequence[int | None]) -> dict[str, float]:
    """Return the time of a data sample in ns by side; steps: step tables of the round; batches: samples per step."""
    return {side: median_step(path) / (batch or 1) for side, path, batch in zip(sides, steps, batches, strict=True)}
