"""Resolves the source of the census, which depends on what nsys traces."""

from collections.abc import Mapping
from typing import Any

from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu.census import census_source


def resolve_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of ncu with `census` as it is for the chosen tools.

    Raises:
        ConfigError: nsys is to be its source, and does not trace what ncu profiles.
    """
    return {**config[TOOL], "census": census_source(config)}
