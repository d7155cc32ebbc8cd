"""Refuse names that differ only in case, because some disks would mix up their results."""

import unicodedata
from collections.abc import Iterable

from profzoo import tools
from profzoo.cell import registry
from profzoo.cell.config_types import Config
from profzoo.errors import ConfigError


def check_collisions(config: Config) -> None:
    """Check that no two models, variants or section sets have names that differ only in case.

    Raises:
        ConfigError: two names would share folders or files on a disk that ignores case.
    """
    _check_names(
        "models",
        "in models/, settings or imported",
        [*registry.shipped_models(), *config["settings"], *config["imported"]],
    )
    _check_names("variants", "in variants", config["variants"])
    for tool in tools.with_setting("sets"):
        _check_names("section sets", f"in {tool}.sets", tools.settings_of(config, tool)["sets"])


def _check_names(kind: str, where: str, names: Iterable[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(_fold_name(name), name)
        if other != name:
            raise ConfigError(
                f"{kind} '{other}' and '{name}' differ only in case: on a disk that ignores case their results would "
                f"be mixed up. Rename one of them, {where}"
            )


def _fold_name(name: str) -> str:
    """Return the form of a name that is compared by disks which ignore case and Unicode forms.

    >>> _fold_name("UNet") == _fold_name("unet"), _fold_name("e\\u0301") == _fold_name("\\u00c9")
    (True, True)
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
