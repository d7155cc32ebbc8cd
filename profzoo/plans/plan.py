"""The plan: settings that may be applied to a cell together, with their expected gain; and settings that cannot."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from profzoo.cell import schema, settings
from profzoo.json_types import GivenSettings
from profzoo.verdicts.rules.rule_types import KnownSettings

# What can be said of an expected gain, by its interval.
HELPS, MAY_NOT_HELP = "expected to help", "it may not help: measure it"
DOES_NOT_HELP, NOT_POSSIBLE = "not expected to help", "not possible"
ABSTAINS = "not advised: in trials, such settings made at most half of the cells faster"
# Verdicts that name no bottleneck: nothing is wrong, or nothing is known.
NO_BOTTLENECKS = ("nothing stands out", "undecided")
# What a user may be told to do.
ADVISABLE = (HELPS, MAY_NOT_HELP)


@dataclass(frozen=True)
class Plan:
    """One row of the table of plans, without the cell and the rank; fields are its columns.

    settings: words of `python -m models.run`. changes: what they change, in plain words. recipe: the lines of PyTorch
    that do so in a program of one's own; empty for what no program can do. verdicts: names of verdicts
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
    recipe: str = ""
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
    ('expected to help', 'it may not help: measure it', 'not expected')
    """
    if gain <= 1:
        return DOES_NOT_HELP
    return HELPS if low is not None and low > 1 else MAY_NOT_HELP


# Finds settings that are not possible for a cell, with the reason, as far as the cell's own settings tell.

IN_FORCE = "the cell runs with it already"
OUTSIDE = "it cannot be applied to a script from outside: set it in the script"


def find_infeasible(cell: KnownSettings, words: Iterable[str]) -> dict[str, str]:
    """Return the words that are not possible for the cell, each with the reason.

    Args:
        cell: the settings that the cell ran with; empty where they are not known, which rules nothing out.
        words: single settings, such as `graph=true`.
    """
    reasons = ((word, _find_reason(cell, word)) for word in dict.fromkeys(words))
    return {word: why for word, why in reasons if why}


def find_contradiction(cell: KnownSettings, words: str) -> str | None:
    """Return why settings cannot be combined with each other in the cell; None if nothing is known against it.

    words: settings separated by spaces.
    """
    if "model" not in cell:
        return None
    return settings.explain_conflict({**settings.fill_in_defaults(cell), **parse_typed(words)})


def parse_typed(words: str) -> dict[str, Any]:
    """Return settings by key, with the types of the schema.

    >>> parse_typed("graph=true workers=4")
    {'graph': True, 'workers': 4}
    """
    known = schema.cell_properties()
    given: GivenSettings = settings.parse_words(words.split())
    return {key: schema.coerce_value(value, known.get(key, {})) for key, value in given.items()}


def _find_reason(cell: KnownSettings, word: str) -> str | None:
    if not cell:
        return None
    (key, value), *_ = parse_typed(word).items()
    if "command" in cell and key not in settings.APPLICABLE:
        return OUTSIDE
    if settings.fill_in_defaults(cell).get(key) == value:
        return IN_FORCE
    return find_contradiction(cell, word)
