"""Read scores of past advice: how well gains were expected of each kind of settings."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import yaml

from profzoo.errors import ConfigError, suggest_nearest
from profzoo.json_types import JsonObject

FILES = ("scores.yaml",)
FILE = Path(__file__).with_name(FILES[0])
# The row of all kinds together.
ALL_KINDS = "all"
HALVES = ("fitted", "held_out")
NUMBERS = ("enough", "coin", "unscored_error", "unrepeated", "widest", "least_covered", "picked")
# What the trials ran on, the digest of the code that expected their gains, and tables whose gains older code expected.
ORIGINS = ("code", "gpus", "kept")
UNSCORED = "no trials of such advice yet"
# With fewer errors, the bound of nine in ten errors is unknown.
FEWEST_TRIALS = 9


# What a combination of settings is named by, and settings whose values or keys say of which kind they are.
TOGETHER = " + "
_KINDS = {"graph=true": "graph", "workers": "input", "pin_memory": "input"}


def find_kind(words: str | None) -> str:
    """Return the kind of settings, by which scores are kept; empty for advice without settings.

    >>> find_kind("precision=bf16 graph=true"), find_kind("workers=4 pin_memory=true"), find_kind("compile=true")
    ('graph + bf16', 'input', 'compile')
    """
    kinds = set()
    for word in (words or "").split():
        key, _, value = word.partition("=")
        kinds.add(_KINDS.get(word) or _KINDS.get(key) or (value if key == "precision" else key))
    return TOGETHER.join(sorted(kinds, key=lambda kind: (kind != "graph", kind)))


@dataclass(frozen=True)
class ErrorBound:
    """What nine in ten expected gains of a kind of settings were wrong by, as relative errors.

    error: in either direction. above: of the upper end of the interval.
    whole: whether the interval is narrow enough to be told; otherwise only its upper end is.
    repeated: whether the error was measured on cells with several processes, and so includes how far these are apart.
    hopeful: expected gains are divided by it.
    """

    error: float
    above: float
    whole: bool = True
    repeated: bool = False
    hopeful: float = 1.0


@dataclass(frozen=True)
class Score:
    """How well expected gains of a kind of settings matched trials; verdicts/scores.yaml describes the values.

    trials, advised: numbers of trials, and of trials with advice. helped, slowed_down, undecided: shares of the advice.
    covered, below: shares of all gains within their interval, and below its upper end where only that is told.
    error, above, largest, over, median_error, constant_error: relative errors.
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
    above: float = 0.0
    largest: float = 0.0
    below: float = 1.0


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
    """The scores of both halves by kind of settings, and values to use without a score; scores.yaml describes them.

    unrepeated: half width of the 90 % interval of the logarithm of another process's step, as in Program.apart.
    gpus: GPUs of the trials. gpu: that of the cell that gains are expected for.
    """

    enough: int
    coin: float
    unscored_error: float
    unrepeated: float
    fitted: Mapping[str, Score]
    held_out: Mapping[str, Score]
    widest: float = 1.8
    least_covered: float = 0.85
    picked: float = 1.0
    gpus: Sequence[str] = ()
    gpu: str = field(default="", kw_only=True)

    def bound(self, kind: str) -> ErrorBound:
        """Return the error of nine of ten expected gains of such settings, on models that nothing was fitted to.

        Settings of which there are few trials have the error of all kinds together. On a GPU without trials, the
        largest error counts instead of that of nine in ten. Advice that was never tried has `unscored_error`.
        """
        known = own if (own := self.held_out.get(kind)) and self._counts(own) else self.held_out.get(ALL_KINDS)
        hopeful = max(self.picked, 1.0) if TOGETHER in kind else 1.0
        if not own or not known or not self._counts(known):
            told = (1 + self.unscored_error) ** 2 <= self.widest
            return ErrorBound(self.unscored_error, self.unscored_error, told, hopeful=hopeful)
        error, above, width = known.error, known.above, known.width
        if self.gpu not in self.gpus:
            error = above = known.largest
            width = (1 + error) ** 2
        whole = width <= self.widest and known.covered >= self.least_covered
        return ErrorBound(error, error if whole else above, whole, True, hopeful)

    def _counts(self, known: Score) -> bool:
        return known.trials >= FEWEST_TRIALS

    def doubts(self, kind: str, gain: float | None) -> bool:
        """Whether a gain is below the usual error of such predictions in trials, so that it may be no gain at all.

        Settings without trials of their own are never doubted, because other settings say little about them.

        >>> known = Score(9, 9, 0.1, 0.5, over=0.2, covered=0.9, helped=1.0, slowed_down=0.0)
        >>> [Scores(3, 0.5, 0.61, 0.2, {"graph": known}, {}).doubts("graph", gain) for gain in (1.2, 1.3)]
        [True, False]
        """
        known = self.fitted.get(kind)
        return bool(known and self._counts(known) and gain is not None and gain <= 1 + known.over)

    def abstains(self, kind: str) -> bool:
        """Whether advice of such settings helped no more often than chance, on models that no rule was fitted to."""
        known = self.held_out.get(kind)
        return bool(known and known.advised >= self.enough and known.helped <= self.coin)

    def columns(self, kind: str) -> ScoreColumns:
        """Return the columns about the score of settings."""
        known = self.held_out.get(kind)
        if not known or not known.trials:
            return {"trials": 0, "score": UNSCORED}
        said = describe_score(known)
        if known.trials < self.enough:
            said = f"too few trials of such advice: {known.trials} of {self.enough}"
        if not self._counts(known):
            said = f"{said.removesuffix('.')}; the interval is that of all settings"
        if self.abstains(kind):
            helped = round(known.helped * known.advised)
            said = (
                f"abstains: in trials, such advice helped {helped} of {known.advised} cells, no more than a coin would"
            )
        return {
            "trials": known.trials,
            "median_error": known.median_error,
            "slowed_down": known.slowed_down,
            "covered": known.covered if self.bound(kind).whole else known.below,
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


def scores_on(gpu: str | None, scored: Scores | None = None) -> Scores:
    """Return scores as they count on a GPU, the recorded ones by default; gpu: its name, None if it is unknown."""
    return replace(scored or load_scores(), gpu=gpu or "")


def check_scores(content: JsonObject) -> Scores:
    """Check the content of a file of scores and return the scores.

    Raises:
        ConfigError: a key is unknown or missing, or a value is not a number.
    """
    _check_keys("scores.yaml", content, (*NUMBERS, *ORIGINS, *HALVES))
    for name in NUMBERS:
        _check_number(name, content[name])
    for half in HALVES:
        if not isinstance(content[half], Mapping):
            raise ConfigError(f"scores.yaml: {half} is not a mapping of kinds of settings")
        for kind, known in content[half].items():
            _check_keys(f"{half}.{kind}", known, MEASURES)
            for name, value in known.items():
                _check_number(f"{half}.{kind}.{name}", value)
    fitted, held_out = ({kind: Score(**known) for kind, known in content[half].items()} for half in HALVES)
    numbers = {name: content[name] for name in NUMBERS}
    return Scores(**numbers, gpus=tuple(content["gpus"]), fitted=fitted, held_out=held_out)


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
