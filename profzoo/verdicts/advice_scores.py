"""Read scores of past advice: how well each kind of verdict predicted measured gains."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import yaml

from profzoo.errors import ConfigError, suggest_nearest
from profzoo.json_types import JsonObject

FILES = ("scores.yaml",)
FILE = Path(__file__).with_name(FILES[0])
# The row of all verdicts together.
ALL_VERDICTS = "all"
HALVES = ("fitted", "held_out")
NUMBERS = ("enough", "coin", "unscored_error", "unrepeated")
UNSCORED = "no trials of such advice yet"
# With fewer errors, the bound of nine in ten errors is unknown.
FEWEST_TRIALS = 9


@dataclass(frozen=True)
class Score:
    """How well a verdict's expected gains matched trials; verdicts/scores.yaml describes the values.

    trials, advised: numbers of trials, and of trials with advice. helped, slowed_down, undecided: shares of the advice.
    covered: share of all gains within their interval. error, over, median_error, constant_error: relative errors.
    width: median ratio of an interval's ends.
    """

    trials: int
    advised: int
    median_error: float
    error: float
    over: float
    covered: float
    helped: float
    slowed_down: float
    width: float = 1.0
    constant_error: float = 0.0
    undecided: float = 0.0


MEASURES = tuple(field.name for field in fields(Score))
COUNTS = ("trials", "advised")


class ScoreColumns(TypedDict):
    """The columns of a verdict about its score; numbers are those of `Score`."""

    trials: int
    score: str
    median_error: NotRequired[float]
    slowed_down: NotRequired[float]
    covered: NotRequired[float]


@dataclass(frozen=True)
class Scores:
    """The scores of both halves by verdict, and values to use without a score; verdicts/scores.yaml describes them.

    unrepeated: half width of the 90 % interval of the logarithm of another process's step, as in Program.apart.
    """

    enough: int
    coin: float
    unscored_error: float
    unrepeated: float
    fitted: Mapping[str, Score]
    held_out: Mapping[str, Score]

    def error(self, verdict: str) -> float:
        """Return the relative error of nine of ten expected gains, on the models that rules were fitted to."""
        known = self._fitted(verdict)
        return known.error if known else self.unscored_error

    def doubts(self, verdict: str, gain: float | None) -> bool:
        """Whether a gain is below the usual error of such predictions in trials, so that it may be no gain at all.

        A verdict without trials of its own is never doubted, because other verdicts say little about it.

        >>> known = Score(9, 9, 0.1, 0.5, over=0.2, covered=0.9, helped=1.0, slowed_down=0.0)
        >>> [Scores(3, 0.5, 0.61, 0.2, {"launch-bound": known}, {}).doubts("launch-bound", gain) for gain in (1.2, 1.3)]
        [True, False]
        """
        known = self.fitted.get(verdict)
        return bool(known and known.trials >= FEWEST_TRIALS and gain is not None and gain <= 1 + known.over)

    def _fitted(self, verdict: str) -> Score | None:
        """Return the verdict's score on the models that rules were fitted to, else that of all verdicts together."""
        known = (self.fitted.get(name) for name in (verdict, ALL_VERDICTS))
        return next((score for score in known if score and score.trials >= FEWEST_TRIALS), None)

    def abstains(self, verdict: str) -> bool:
        """Whether the verdict's advice helped no more often than chance, on models that no rule was fitted to."""
        known = self.held_out.get(verdict)
        return bool(known and known.advised >= self.enough and known.helped <= self.coin)

    def columns(self, verdict: str) -> ScoreColumns:
        """Return the columns about a verdict's score."""
        known = self.held_out.get(verdict)
        if not known or not known.trials:
            return {"trials": 0, "score": UNSCORED}
        said = describe_score(known)
        if known.trials < self.enough:
            said = f"too few trials of such advice: {known.trials} of {self.enough}"
        if self.abstains(verdict):
            helped = round(known.helped * known.advised)
            said = (
                f"abstains: in trials, such advice helped {helped} of {known.advised} cells, no more than a coin would"
            )
        return {
            "trials": known.trials,
            "median_error": known.median_error,
            "slowed_down": known.slowed_down,
            "covered": known.covered,
            "score": said,
        }


def describe_score(known: Score) -> str:
    """Say in sentences how right such advice has been in trials.

    >>> describe_score(Score(20, 13, 0.05, 0.1, 0.1, 1.0, 1.0, 0.0, constant_error=0.14, undecided=0.62))
    'In 20 trials, such gains were off by 5% in the median; the same gain for all cells would be off by 14%. \
Of 13 cells, 0 became slower and 8 are undecided.'
    """
    constant = f"; the same gain for all cells would be off by {known.constant_error:.0%}"
    said = f"In {known.trials} trials, such gains were off by {known.median_error:.0%} in the median"
    said += f"{constant}." if known.constant_error else "."
    if not known.advised:
        return said
    slower, undecided = (round(share * known.advised) for share in (known.slowed_down, known.undecided))
    undecided_too = f" and {undecided} {'is' if undecided == 1 else 'are'} undecided" if undecided else ""
    cells = "1 cell" if known.advised == 1 else f"{known.advised} cells"
    return f"{said} Of {cells}, {slower} became slower{undecided_too}."


@functools.cache
def load_scores() -> Scores:
    """Read and check the recorded scores."""
    return check_scores(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def check_scores(content: JsonObject) -> Scores:
    """Check the content of a file of scores and return the scores.

    Raises:
        ConfigError: a key is unknown or missing, or a value is not a number.
    """
    _check_keys("scores.yaml", content, (*NUMBERS, *HALVES))
    for name in NUMBERS:
        _check_number(name, content[name])
    for half in HALVES:
        if not isinstance(content[half], Mapping):
            raise ConfigError(f"scores.yaml: {half} is not a mapping of verdicts")
        for verdict, known in content[half].items():
            _check_keys(f"{half}.{verdict}", known, MEASURES)
            for name, value in known.items():
                _check_number(f"{half}.{verdict}.{name}", value)
    fitted, held_out = ({verdict: Score(**known) for verdict, known in content[half].items()} for half in HALVES)
    return Scores(**{name: content[name] for name in NUMBERS}, fitted=fitted, held_out=held_out)


def _check_keys(where: str, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is not a mapping: it takes {', '.join(known)}")
    if unknown := [key for key in given if key not in known]:
        raise ConfigError(f"{where}: unknown key '{unknown[0]}'; {suggest_nearest(unknown[0], known)}")
    if missing := [key for key in known if key not in given]:
        raise ConfigError(f"{where}: '{missing[0]}' is missing")


def _check_number(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigError(f"scores.yaml: {where} = {value!r} is not a number from 0 on")
