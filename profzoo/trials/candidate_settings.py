"""List the settings to try on a cell: a panel of variants, and the settings that verdicts advise."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NotRequired, TypedDict

import pandas as pd

from profzoo import tools
from profzoo.cell import settings, variant_settings
from profzoo.cell.cell_types import CellSettings
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.json_types import GivenSettings
from profzoo.plans.infeasible_settings import IN_FORCE
from profzoo.verdicts import cpu_verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.rule_types import Advice, KnownSettings

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config

SettingWords = list[str]


class ExpectedGain(TypedDict):
    """An expected gain with the ends of its interval (None without one), and the verdicts that could advise it.

    advised: whether a verdict on the cell advises the settings. rank: place among the plans of the cell. words: the
    settings. not_possible: why the cell cannot have them, by the table of plans.
    """

    gain: float | None
    low: float | None
    high: float | None
    verdict: str
    advised: bool
    rank: NotRequired[int]
    words: NotRequired[SettingWords]
    not_possible: NotRequired[str]


# This name in the panel is not a variant; it doubles the batch.
DOUBLE_BATCH = "double_batch"
# The name of a candidate's settings as a temporary variant.
TRIAL_VARIANT = "tried"
# A device of cells, which by default is a GPU only where there is one.
GPU = "cuda"


def candidate_words(cell_model: str, phase: str, config: "Config") -> tuple[dict[str, SettingWords], dict[str, str]]:
    """Return each candidate's setting words by name, and why other candidates cannot be tried, by name.

    Candidates that would not change the cell are in neither.

    Raises:
        ConfigError: the panel names an unknown variant.
    """
    resolved = settings.resolve_cell(cell_model, phase, tools.BASELINE, config)
    base = settings.setting_words(resolved)
    found: dict[str, SettingWords] = {}
    refused: dict[str, str] = {}
    for name, given in _name_candidates(config, resolved).items():
        model, own = settings.split_variant(cell_model)
        # By a name of its own, as that of joined variants would be taken apart.
        changed = {**variant_settings.combine_changes(variant_settings.split_names(own), config["variants"]), **given}
        variants = {**config["variants"], TRIAL_VARIANT: changed}
        try:
            cell = settings.resolve_cell(
                f"{model}@{TRIAL_VARIANT}", phase, tools.BASELINE, {**config, "variants": variants}
            )
        except ConfigError as error:
            refused[name] = str(error)
            continue
        if words := [word for word in settings.setting_words(cell) if word not in base]:
            found[name] = words
    return found, refused


def _name_candidates(config: "Config", cell: CellSettings) -> dict[str, GivenSettings]:
    """Return the settings of every candidate by name; advice that no variant follows is named by its words."""
    known = _panel_settings(config, cell["batch"])
    rules = verdict_rules.load_rules()["rules"]
    of_cpus = [rule for rule in rules if rule["of"] == cpu_verdicts.CPU]
    # The device of the cell need not be known here, so settings that are advised only on CPUs come last.
    rules = [rule for rule in rules if rule not in of_cpus] + (of_cpus if cell["device"] != GPU else [])
    advice = [_advice_words(one, cell) for rule in rules for one in rule["advice"]]
    own = {
        words: settings.parse_words(words.split()) for words in advice if words and _find_name(words, known) == words
    }
    return {**known, **own}


def _panel_settings(config: "Config", batch: int | None) -> dict[str, GivenSettings]:
    """Return the settings of each name of the panel; batch: items per batch, or None if unknown (then no DOUBLE)."""
    known = {**config["variants"], DOUBLE_BATCH: {"batch": 2 * batch} if batch else {}}
    for name in config["trials"]["panel"]:
        if unknown := variant_settings.find_unknown(name, known):
            raise ConfigError(f"trials.panel: '{unknown}' is no variant: {suggest_nearest(unknown, known)}")
    return {
        name: variant_settings.combine_changes(variant_settings.split_names(name), known)
        for name in config["trials"]["panel"]
    }


def _advice_words(advice: Advice, cell: CellSettings) -> str:
    """Return the setting words of an advice for a cell; empty if it has none."""
    if doubled := advice.get("doubled"):
        own: KnownSettings = cell
        return f"{doubled}={2 * own[doubled]}"
    return str(advice.get("settings") or "")


def name_candidate(words: str, config: "Config", batch: int | None = None) -> str:
    """Return the name of the panel's candidate with these settings, else the words themselves.

    batch: data samples per batch of the cell, if known.
    """
    return _find_name(words, _panel_settings(config, batch))


def _find_name(words: str, panel: Mapping[str, GivenSettings]) -> str:
    wanted = _as_texts(settings.parse_words(words.split()))
    return next((name for name, given in panel.items() if given and _as_texts(given) == wanted), words)


def _as_texts(given: GivenSettings) -> dict[str, str]:
    """Return settings as texts, because words and YAML have different types."""
    return {key: str(value).lower() for key, value in settings.flatten(given).items()}


def expected_gains(
    plans: pd.DataFrame, config: "Config", batches: Mapping[str, int]
) -> dict[str, dict[str, ExpectedGain]]:
    """Return what is expected of each plan, advised or not, by cell (`lstm train`) and name.

    Settings that are not possible have no gain, but the reason; those that the cell runs with already are left out.

    plans: the table of plans. batches: data samples per batch, by cell.
    """
    found: dict[str, dict[str, ExpectedGain]] = {}
    impossible = plans["not_possible"].fillna("").ne("") & plans["not_possible"].ne(IN_FORCE)
    for row in plans[(plans["gain"] > 0) | impossible].sort_values("rank").itertuples():
        low, high = (float(end) if end > 0 else None for end in (row.gain_low, row.gain_high))
        own: ExpectedGain = {
            "gain": float(row.gain) if row.gain > 0 else None,
            "low": low,
            "high": high,
            "verdict": str(row.verdicts),
            "advised": bool(row.advised),
            "rank": int(row.rank),
            "words": row.settings.split(),
        }
        if row.not_possible:
            own["not_possible"] = row.not_possible
        cell = f"{row.model} {row.phase}"
        found.setdefault(cell, {}).setdefault(name_candidate(row.settings, config, batches.get(cell)), own)
    return found
