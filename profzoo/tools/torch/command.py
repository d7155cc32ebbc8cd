"""torch.profiler runs inside the process."""

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
    """Where it writes, and where the baseline that is timed before it does."""
    timed = ["--steps", str(made["steps"])] if "steps" in made else []
    return [*timed, "--operators", str(made["operators"]), "--trace", str(made["trace"])]


def prepared(command: Sequence[str], gpu: bool) -> list[str]:
    """As it is."""
    return list(command)


def leaves(made: Mapping[str, Path]) -> list[Path]:
    """Its table and its trace, and the baseline's."""
    return [made[name] for name in ("operators", "trace", "steps") if name in made]


def settle(made: Mapping[str, Path]) -> None:
    """Do nothing: all outputs already have their final names."""
