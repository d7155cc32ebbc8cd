"""Refuses names that are one where a disk does not tell case apart: results of two would be taken for each other's."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from profzoo.cell import registry
from profzoo.errors import ConfigError


def check(config: Mapping[str, Any]) -> None:
    """That models, variants and section sets have folders and files of their own on every disk.

    Raises:
        ConfigError: two of a kind would share them.
    """
    _check("models", "in models/ or settings", [*registry.shipped_models(), *config["settings"]])
    _check("variants", "in variants", config["variants"])
    _check("section sets", "in ncu.sets", config["ncu"]["sets"])


def _check(kind: str, where: str, names: Iterable[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(_folded(name), name)
        if other != name:
            raise ConfigError(
                f"{kind} '{other}' and '{name}' differ by case alone, so that on a disk that does not tell case apart "
                f"results of one would be taken for the other's: rename one of them, {where}"
            )


def _folded(name: str) -> str:
    """What a name is on a disk that tells neither case nor ways to write a letter apart.

    >>> _folded("UNet") == _folded("unet"), _folded("e\\u0301") == _folded("\\u00c9")
    (True, True)
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
