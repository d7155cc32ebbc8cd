"""Says which settings to try on a cell: a panel of variants, and those that the advice of verdicts names."""

from collections.abc import Mapping
from typing import Any, TypedDict

import pandas as pd

from profzoo.cell import settings, variant_settings
from profzoo.cell.cell_types import CellSettings
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.verdicts import cpu_verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.other_settings import SETTING_LEVEL
from profzoo.verdicts.rule_evaluation import CELL_LEVEL

SettingWords = list[str]


class ExpectedGain(TypedDict):
    """A gain with the ends of its interval, None where it has none, the verdict that expects it, and whether that holds
    for the cell, so that it advises it."""

    gain: float
    low: float | None
    high: float | None
    verdict: str
    advised: bool


# Of the panel, what no variant says: twice as many samples a batch.
DOUBLE_BATCH = "double_batch"
# The name of what is tried, as a variant.
TRIAL_VARIANT = "tried"
# A device of cells, which by default is a GPU only where there is one.
GPU = "cuda"


def candidate_words(
    cell_model: str, phase: str, config: Mapping[str, Any]
) -> tuple[dict[str, SettingWords], dict[str, str]]:
    """The words by which each candidate changes a cell, by its name; and why others cannot be tried, by name.

    What changes nothing of the cell is neither.

    Raises:
        ConfigError: the panel names what is no variant.
    """
    resolved = settings.resolve_cell(cell_model, phase, "time", config)
    base = settings.setting_words(resolved)
    found: dict[str, SettingWords] = {}
    refused: dict[str, str] = {}
    for name, given in _name_candidates(config, resolved).items():
        model, own = settings.split_variant(cell_model)
        # By a name of its own, as that of joined variants would be taken apart.
        changed = {**variant_settings.combine_changes(variant_settings.split_names(own), config["variants"]), **given}
        variants = {**config["variants"], TRIAL_VARIANT: changed}
        try:
            cell = settings.resolve_cell(f"{model}@{TRIAL_VARIANT}", phase, "time", {**config, "variants": variants})
        except ConfigError as error:
            refused[name] = str(error)
            continue
        if words := [word for word in settings.setting_words(cell) if word not in base]:
            found[name] = words
    return found, refused


def _name_candidates(config: Mapping[str, Any], cell: CellSettings) -> dict[str, Mapping[str, Any]]:
    """The settings of every candidate by name, advice that no variant follows by its words; cell: its settings."""
    known = _panel_settings(config, cell["batch"])
    rules = verdict_rules.load_rules()["rules"]
    of_cpus = [rule for rule in rules if rule["of"] == cpu_verdicts.CPU]
    # Where a cell will run need not be known here, so that what is advised of CPUs alone comes last.
    rules = [rule for rule in rules if rule not in of_cpus] + (of_cpus if cell["device"] != GPU else [])
    advice = [_advice_words(one, cell) for rule in rules for one in rule["advice"]]
    own = {
        words: settings.parse_words(words.split()) for words in advice if words and _find_name(words, known) == words
    }
    return {**known, **own}


def _panel_settings(config: Mapping[str, Any], batch: int | None) -> dict[str, Mapping[str, Any]]:
    """What the panel names, where a batch has so many samples; DOUBLE only where that is known."""
    known = {**config["variants"], DOUBLE_BATCH: {"batch": 2 * batch} if batch else {}}
    for name in config["trials"]["panel"]:
        if unknown := variant_settings.find_unknown(name, known):
            raise ConfigError(f"trials.panel: '{unknown}' is no variant: {suggest_nearest(unknown, known)}")
    return {
        name: variant_settings.combine_changes(variant_settings.split_names(name), known)
        for name in config["trials"]["panel"]
    }


def _advice_words(advice: Mapping[str, Any], cell: CellSettings) -> str:
    """The words of an advice to that cell; none where it has none."""
    if doubled := advice.get("doubled"):
        own: Mapping[str, Any] = cell
        return f"{doubled}={2 * own[doubled]}"
    return str(advice.get("settings") or "")


def name_candidate(words: str, config: Mapping[str, Any], batch: int | None = None) -> str:
    """The name of the candidate that has these settings: of what the panel names, else the words themselves.

    batch: samples in a batch of the cell, if that is known.
    """
    return _find_name(words, _panel_settings(config, batch))


def _find_name(words: str, panel: Mapping[str, Mapping[str, Any]]) -> str:
    wanted = _as_texts(settings.parse_words(words.split()))
    return next((name for name, given in panel.items() if given and _as_texts(given) == wanted), words)


def _as_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Settings as texts, as words and YAML have other types."""
    return {key: str(value).lower() for key, value in settings.flatten(given).items()}


def expected_gains(
    verdicts: pd.DataFrame, config: Mapping[str, Any], batches: Mapping[str, int]
) -> dict[str, dict[str, ExpectedGain]]:
    """The gain that is expected of each candidate, advised or not, by cell (`lstm train`) and name.

    verdicts: the table of that name; batches: samples in a batch, by cell.
    """
    known = (
        verdicts["level"].isin([CELL_LEVEL, SETTING_LEVEL])
        & verdicts["settings"].fillna("").ne("")
        & (verdicts["gain"] > 0)
    )
    rows = verdicts[known]
    found: dict[str, dict[str, ExpectedGain]] = {}
    for row in rows.sort_values(["level", "rank"]).itertuples():
        low, high = (float(end) if end > 0 else None for end in (row.gain_low, row.gain_high))
        own: ExpectedGain = {"gain": float(row.gain), "low": low, "high": high, "verdict": str(row.verdict),
                         "advised": row.level == CELL_LEVEL}  # fmt: skip
        cell = f"{row.model} {row.phase}"
        found.setdefault(cell, {}).setdefault(name_candidate(row.settings, config, batches.get(cell)), own)
    return found
