"""Finds settings that are not possible for a cell, with the reason, as far as the cell's own settings tell."""

from collections.abc import Iterable
from typing import Any

from profzoo import schema
from profzoo.cell import script_settings, settings, variant_settings
from profzoo.cell.cell_types import CellSettings
from profzoo.errors import ConfigError
from profzoo.json_types import GivenSettings
from profzoo.verdicts.rule_types import KnownSettings

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
    changed = {**_all_settings(cell), **parse_typed(words)}
    try:
        variant_settings.check_combination(changed)
    except ConfigError as error:
        return str(error).removeprefix(f"{cell['model']} {cell['phase']}: ")
    return None


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
    if "command" in cell and key not in script_settings.APPLICABLE:
        return OUTSIDE
    if _all_settings(cell).get(key) == value:
        return IN_FORCE
    return find_contradiction(cell, word)


def _all_settings(cell: KnownSettings) -> dict[str, Any]:
    """Return the cell's settings with those that it leaves out, because they have their defaults."""
    defaults = {key: part.get("default") for key, part in schema.cell_properties().items()}
    own: CellSettings | KnownSettings = cell
    return {**defaults, **own}
