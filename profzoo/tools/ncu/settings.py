"""Resolves the source of the census, which depends on what nsys traces."""

from typing import TYPE_CHECKING

from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu.census import census_source

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config
    from profzoo.cell.tool_types import NcuSettings


def resolve_settings(config: "Config") -> "NcuSettings":
    """Return the configuration of ncu with `census` as it is for the chosen tools.

    Raises:
        ConfigError: nsys is to be its source, and does not trace what ncu profiles.
    """
    return {**config[TOOL], "census": census_source(config)}
