"""Says which settings to try on a cell: a panel of variants, and those that the advice of verdicts names."""

from collections.abc import Mapping
from typing import Any, TypedDict

import pandas as pd

from profzoo.cell import combining, settings
from profzoo.errors import ConfigError, suggest
from profzoo.verdicts import on_cpu
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.judged import CELL, SETTING

Words = list[str]


class Expected(TypedDict):
    """A gain with the ends of its interval, None where it has none, the verdict that expects it, and whether that holds
    for the cell, so that it advises it."""

    gain: float
    low: float | None
    high: float | None
    verdict: str
    advised: bool


# Of the panel, what no variant says: twice as many samples a batch.
DOUBLE = "double_batch"


def candidates(cell_model: str, phase: str, config: Mapping[str, Any]) -> tuple[dict[str, Words], dict[str, str]]:
    """The words by which each candidate changes a cell, by its name; and why others cannot be tried, by name.

    What changes nothing of the cell is neither.

    Raises:
        ConfigError: the panel names what is no variant.
    """
    resolved = settings.resolve(cell_model, phase, "time", config)
    base = settings.words(resolved)
    found: dict[str, Words] = {}
    refused: dict[str, str] = {}
    for name, given in _named(config, resolved["batch"]).items():
        variants = {**config["variants"], name: given}
        model, own = settings.split_variant(cell_model)
        if own:
            variants[name] = {**combining.combined(combining.parts(own), config["variants"]), **given}
        try:
            cell = settings.resolve(f"{model}@{name}", phase, "time", {**config, "variants": variants})
        except ConfigError as error:
            refused[name] = str(error)
            continue
        if words := [word for word in settings.words(cell) if word not in base]:
            found[name] = words
    return found, refused


def _named(config: Mapping[str, Any], batch: int) -> dict[str, Mapping[str, Any]]:
    """The settings of every candidate by name, advice that no variant follows by its words; batch: of the cell."""
    variants = {**config["variants"], DOUBLE: {"batch": 2 * batch}}
    if unknown := [name for name in config["trials"]["panel"] if name not in variants]:
        raise ConfigError(f"trials.panel: '{unknown[0]}' is no variant: {suggest(unknown[0], variants)}")
    known = {name: variants[name] for name in config["trials"]["panel"]}
    # On a CPU the panel tries the like of it.
    rules = [rule for rule in verdict_rules.load()["rules"] if rule["of"] != on_cpu.CPU]
    advice = [one.get("settings") for rule in rules for one in rule["advice"]]
    own = {words: settings.parse(words.split()) for words in advice if words and name_of(words, config) == words}
    return {**known, **own}


def name_of(words: str, config: Mapping[str, Any]) -> str:
    """The name of the candidate that has these settings: of a variant of the panel, else the words themselves."""
    wanted = _plain(settings.parse(words.split()))
    for name in config["trials"]["panel"]:
        if _plain(config["variants"].get(name) or {}) == wanted:
            return str(name)
    return words


def _plain(given: Mapping[str, Any]) -> dict[str, str]:
    """Settings as texts, as words and YAML have other types."""
    return {key: str(value).lower() for key, value in settings.flat(given).items()}


def expected(verdicts: pd.DataFrame, config: Mapping[str, Any]) -> dict[str, dict[str, Expected]]:
    """The gain that is expected of each candidate, advised or not, by cell (`lstm train`) and name.

    verdicts: the table of that name.
    """
    known = verdicts["level"].isin([CELL, SETTING]) & verdicts["settings"].fillna("").ne("") & (verdicts["gain"] > 0)
    rows = verdicts[known]
    found: dict[str, dict[str, Expected]] = {}
    for row in rows.sort_values(["level", "rank"]).itertuples():
        low, high = (float(end) if end > 0 else None for end in (row.gain_low, row.gain_high))
        own: Expected = {"gain": float(row.gain), "low": low, "high": high, "verdict": str(row.verdict),
                         "advised": row.level == CELL}  # fmt: skip
        found.setdefault(f"{row.model} {row.phase}", {}).setdefault(name_of(row.settings, config), own)
    return found
