"""torch.profiler runs inside the process."""

from collections.abc import Mapping
from pathlib import Path


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Where it writes, and where the baseline that is timed before it does."""
    timed = ["--steps", str(made["steps"])] if "steps" in made else []
    return [*timed, "--operators", str(made["operators"]), "--trace", str(made["trace"])]
