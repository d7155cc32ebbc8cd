"""torch.profiler runs inside the process."""

from collections.abc import Mapping
from pathlib import Path


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Return options with the paths of the trace, and of the baseline that the same process times before it."""
    timed = ["--steps", str(made["steps"])] if "steps" in made else []
    return [*timed, "--operators", str(made["operators"]), "--trace", str(made["trace"])]
