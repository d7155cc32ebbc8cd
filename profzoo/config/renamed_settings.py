"""Read settings under the names that they had in the version before: the schema says `formerly` beside each."""

from collections.abc import Iterator, Mapping
from typing import Any

from profzoo import schema
from profzoo.errors import ConfigError

# What a setting keeps its place by: the keys that lead to it.
Path = tuple[str, ...]


def former_names() -> dict[Path, Path]:
    """Return the present place of each renamed setting, by its former place.

    >>> former_names()[("trials", "most")]
    ('trials', 'max_settings')
    """
    return dict(_walk(schema.load_schema(), ()))


def rename_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with present names; given: what the user wrote.

    Raises:
        ConfigError: a setting is given under both names.

    >>> rename_settings({"trials": {"most": 3}, "margin": 0.05})
    {'trials': {'max_settings': 3}, 'equivalence_margin': 0.05}
    """
    config = {key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    for old, new in _used(config):
        part = config if len(old) == 1 else config[old[0]]
        if new[-1] in part:
            raise ConfigError(f"{_word(old)} and {_word(new)} are one setting: leave out {_word(old)}, its former name")
        part[new[-1]] = part.pop(old[-1])
    return config


def describe_renamed(given: Mapping[str, Any]) -> list[str]:
    """Return one line per setting that is given under its former name.

    >>> describe_renamed({"margin": 0.05})
    ['margin is now called equivalence_margin: the former name is read in this version only']
    """
    return [
        f"{_word(old)} is now called {_word(new)}: the former name is read in this version only"
        for old, new in _used(given)
    ]


def _used(given: Mapping[str, Any]) -> list[tuple[Path, Path]]:
    """Return former and present place of each renamed setting that is there."""
    found = []
    for old, new in former_names().items():
        part = given if len(old) == 1 else given.get(old[0])
        if isinstance(part, Mapping) and old[-1] in part:
            found.append((old, new))
    return found


def _walk(part: Mapping[str, Any], place: Path) -> Iterator[tuple[Path, Path]]:
    for key, own in part.get("properties", {}).items():
        if "formerly" in own:
            yield (*place, own["formerly"]), (*place, key)
        if len(place) < 1:
            yield from _walk(own, (*place, key))


def _word(place: Path) -> str:
    return ".".join(place)
