"""Ends a run with one line if the user's configuration is wrong."""

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from snakemake.exceptions import WorkflowError

from profzoo.errors import ConfigError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def run_checked(function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
    """Return the function's result; a configuration error ends the run with its message in one line."""
    try:
        return function(*arguments, **named)
    except ConfigError as error:
        raise WorkflowError(str(error)) from None


def say(line: str) -> None:
    """Print a line for the user who started the run."""
    print(f"profzoo: {line}", file=sys.stderr)
