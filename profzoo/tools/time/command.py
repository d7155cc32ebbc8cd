"""The baseline is a clock inside the process."""

from collections.abc import Mapping
from pathlib import Path


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Where the clock writes, and what is told of memory after it."""
    memory = ["--memory", str(made["memory"])] if "memory" in made else []
    return ["--steps", str(made["steps"]), *memory]
