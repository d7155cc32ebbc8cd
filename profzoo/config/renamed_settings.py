"""Read settings under their names of the previous version, which the schema holds under `formerly`."""

from collections.abc import Iterator, Mapping
from typing import Any

from profzoo import schema
from profzoo.errors import ConfigError
from profzoo.json_types import GivenSettings, JsonSchema

# The keys that lead to a setting: its own key, or the key of a section and its own.
Place = tuple[str, ...]


def former_names() -> dict[Place, Place]:
    """Return the present place of each renamed setting, by its former place.

    >>> former_names()[("trials", "most")]
    ('trials', 'max_settings')
    """
    return dict(_walk(schema.load_schema(), ()))


def rename_settings(given: GivenSettings) -> dict[str, Any]:
    """Return the configuration with present names of settings; given: the user's configuration.

    Raises:
        ConfigError: a setting is given under both names.

    >>> rename_settings({"trials": {"most": 3}, "margin": 0.05})
    {'trials': {'max_settings': 3}, 'equivalence_margin': 0.05}
    """
    config = {key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    for old, new in _used(config):
        part = _section(config, old)
        if new[-1] in part:
            raise ConfigError(
                f"{_dotted(old)} and {_dotted(new)} are the same setting: leave out {_dotted(old)}, its former name"
            )
        part[new[-1]] = part.pop(old[-1])
    return config


def describe_renamed(given: GivenSettings) -> list[str]:
    """Return a message in one line for each setting that is given under its former name.

    >>> describe_renamed({"margin": 0.05})
    ['margin is now called equivalence_margin: the former name is read in this version only']
    """
    return [
        f"{_dotted(old)} is now called {_dotted(new)}: the former name is read in this version only"
        for old, new in _used(given)
    ]


def _used(given: GivenSettings) -> list[tuple[Place, Place]]:
    """Return the former and the present place of each setting that is given under its former name."""
    return [(old, new) for old, new in former_names().items() if old[-1] in _section(given, old)]


def _section(config: GivenSettings, place: Place) -> Any:
    """Return the mapping that holds a setting, or an empty mapping if the configuration has no such section."""
    part = config if len(place) == 1 else config.get(place[0])
    return part if isinstance(part, Mapping) else {}


def _walk(part: JsonSchema, place: Place) -> Iterator[tuple[Place, Place]]:
    """Yield the former and the present place of each renamed setting in a schema and its sections."""
    for key, own in part.get("properties", {}).items():
        if "formerly" in own:
            yield (*place, own["formerly"]), (*place, key)
        if not place:
            yield from _walk(own, (*place, key))


def _dotted(place: Place) -> str:
    return ".".join(place)
