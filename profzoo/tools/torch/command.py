"""torch.profiler runs inside the process."""

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError


def check_settings(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of torch.profiler.

    Raises:
        ConfigError: counters are asked for. torch.profiler counts (`profiler_metrics`) where it is built with CUPTI's
            range profiler, which it is for CUDA up to 12.6 at most (pytorch/kineto's change 1131).
    """
    if own["counters"]:
        raise ConfigError(
            f"torch.counters = {own['counters']}: torch {importlib.metadata.version('torch')} is built without CUPTI's "
            "range profiler, so torch.profiler counts nothing: let ncu count, such as with ncu.set"
        )
    return own


def program_options(made: Mapping[str, Path]) -> list[str]:
    """Return options with the paths of the trace, of the baseline that is timed before it, and of further files."""
    named = {"--steps": "steps", "--more": "more"}
    others = [word for option, name in named.items() if name in made for word in (option, str(made[name]))]
    return [*others, "--operators", str(made["operators"]), "--trace", str(made["trace"])]
