"""Refuse names that differ only in case, because some disks would mix up their results."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from profzoo.cell import registry
from profzoo.errors import ConfigError


def check_collisions(config: Mapping[str, Any]) -> None:
    """Check that models, variants and section sets have separate folders and files on every disk.

    Raises:
        ConfigError: two of a kind would share them.
    """
    _check_names(
        "models",
        "in models/, settings or imported",
        [*registry.shipped_models(), *config["settings"], *config["imported"]],
    )
    _check_names("variants", "in variants", config["variants"])
    _check_names("section sets", "in ncu.sets", config["ncu"]["sets"])


def _check_names(kind: str, where: str, names: Iterable[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(_fold_name(name), name)
        if other != name:
            raise ConfigError(
                f"{kind} '{other}' and '{name}' differ by case alone, so that on a disk that does not tell case apart "
                f"results of one would be taken for the other's: rename one of them, {where}"
            )


def _fold_name(name: str) -> str:
    """Return a name as a disk compares it that ignores case and Unicode forms.

    >>> _fold_name("UNet") == _fold_name("unet"), _fold_name("e\\u0301") == _fold_name("\\u00c9")
    (True, True)
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
