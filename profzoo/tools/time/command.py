"""The baseline is a clock inside the process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = None
SEES_OTHERS = False
INSTALL = ""


def checked(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings unchanged: the schema already rejects all invalid settings."""
    return own


def around(options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
    """Nothing."""
    return []


def inside(made: Mapping[str, Path]) -> list[str]:
    """Where the clock writes, and what is told of memory after it."""
    return ["--steps", str(made["steps"]), *(["--memory", str(made["memory"])] if "memory" in made else [])]


def prepared(command: Sequence[str], gpu: bool) -> list[str]:
    """As it is."""
    return list(command)


def leaves(made: Mapping[str, Path]) -> list[Path]:
    """The steps, and what is told of memory."""
    return [made[name] for name in ("steps", "memory") if name in made]


def settle(made: Mapping[str, Path]) -> None:
    """Do nothing: all outputs already have their final names."""
