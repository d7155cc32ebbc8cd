"""Ends a run in one line where its user has written something wrong."""

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from snakemake.exceptions import WorkflowError

from profzoo.errors import ConfigError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def run_checked(function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
    """The function's result; where it finds the configuration wrong, the run ends with one line that says so."""
    try:
        return function(*arguments, **named)
    except ConfigError as error:
        raise WorkflowError(str(error)) from None


def say(line: str) -> None:
    """Tell whoever started the run."""
    print(f"profzoo: {line}", file=sys.stderr)
