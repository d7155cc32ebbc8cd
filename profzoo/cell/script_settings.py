"""Lists the settings that a script takes: settings applied to it from outside, and settings that describe it."""

from typing import Any

from profzoo import schema
from profzoo.json_types import GivenSettings

# Settings that can be applied to a script from outside; all other settings belong to the zoo's own step loop.
APPLICABLE = (
    "device", "warmup", "window", "precision", "compile", "optimizer", "checkpoint", "channels_last",
    "cudnn_benchmark", "deterministic", "seed", "threads", "workers", "pin_memory",
)  # fmt: skip


def general_settings(is_script: bool, config: GivenSettings) -> dict[str, Any]:
    """Return the top level of the configuration for a program.

    A script takes the defaults of all settings that cannot be applied from outside.
    """
    return {
        key: part["default"] if is_script and key not in (*APPLICABLE, "data") else config[key]
        for key, part in schema.cell_properties().items()
    }


def own_settings(changes: GivenSettings) -> dict[str, Any]:
    """Return the settings that describe a script, without its phase; changes: the script's configured settings."""
    known = schema.script_properties()
    return {key: changes.get(key, part["default"]) for key, part in known.items() if key != "phase"}
