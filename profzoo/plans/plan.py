"""The plan: settings that may be applied to a cell together, with their expected gain and how it is known."""

from dataclasses import dataclass, fields
from typing import Any

# What can be said of an expected gain, by its interval.
HELPS, MAY_NOT_HELP = "expected to help", "it may not help: `snakemake trials` measures it"
DOES_NOT_HELP, NOT_POSSIBLE = "not expected to help", "not possible"
ABSTAINS = "not advised: in trials, such settings made at most half of the cells faster"
# Verdicts that name no bottleneck: nothing is wrong, or nothing is known.
NO_BOTTLENECKS = ("nothing stands out", "undecided")
# What a user may be told to do.
ADVISABLE = (HELPS, MAY_NOT_HELP)


@dataclass(frozen=True)
class Plan:
    """One row of the table of plans, without the cell and the rank; fields are its columns.

    settings: words of `python -m models.run`. changes: what they change, in plain words. verdicts: names of verdicts
    that could advise them. advised: whether a verdict on the cell advises these settings. not_possible: the reason why
    the cell cannot have them; such a row has no gain.
    """

    settings: str
    changes: str
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    outlook: str = NOT_POSSIBLE
    verdicts: str = ""
    advised: bool = False
    method: str = ""
    evidence: str = ""
    trials: int | None = None
    median_error: float | None = None
    covered: float | None = None
    score: str = ""
    command: str = ""
    not_possible: str = ""

    @property
    def words(self) -> frozenset[str]:
        """The plan's settings, each a word."""
        return frozenset(self.settings.split())

    def columns(self) -> dict[str, Any]:
        """Return the plan's part of a row of the table of plans."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def judge_interval(gain: float, low: float | None) -> str:
    """Return what the interval of an expected gain says; low: its lower end, if there is one.

    >>> judge_interval(2.0, 1.4), judge_interval(1.4, 0.8), judge_interval(0.9, 0.7)[:12]
    ('expected to help', 'it may not help: `snakemake trials` measures it', 'not expected')
    """
    if gain <= 1:
        return DOES_NOT_HELP
    return HELPS if low is not None and low > 1 else MAY_NOT_HELP
