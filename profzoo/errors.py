"""Errors in users' input and interrupts, each told in one line, and suggestions of valid names."""

import difflib
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ConfigError(ValueError):
    """Input that cannot be used; the message is one line that says what, where and what would be valid."""


class UnusableError(ConfigError):
    """A Python file that cannot be used, while other files can."""


class DataError(ValueError):
    """A file that cannot be used; the message is one line that says which, what is wrong and what to do."""


class CollectError(RuntimeError):
    """A collection that failed; the message says what and what to do."""


def shorten_interrupts(told: str) -> None:
    """From now on, let a Ctrl-C that ends this process print one line, or nothing, instead of Python's stack.

    told: the line; empty for nothing.
    """

    def print_error(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, where)
        elif told:
            print(told, file=sys.stderr)

    sys.excepthook = print_error


def first_error_line(error: BaseException) -> str:
    """First line of an error's message, or its type if the message is empty.

    >>> first_error_line(RuntimeError("out of memory\\nmore")), first_error_line(EOFError())
    ('out of memory', 'EOFError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip()


def suggest_nearest(value: object, choices: Iterable[str]) -> str:
    """Phrase with the choice most similar to the value, or with all choices if none is similar.

    >>> suggest_nearest("mobilnetv2", ["mobilenetv2", "unet"])
    "did you mean 'mobilenetv2'?"
    >>> suggest_nearest("xyz", ["train", "inference"])
    'valid are: inference, train'
    """
    names = sorted(map(str, choices))
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(value).lower(), lower, n=1)
    return f"did you mean '{lower[near[0]]}'?" if near else f"valid are: {', '.join(names)}"


def run_checked(function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
    """Return the function's result; a configuration error ends the run with its message in one line."""
    try:
        return function(*arguments, **named)
    except ConfigError as error:
        # Imported here, because most programs need no workflow.
        from snakemake.exceptions import WorkflowError

        raise WorkflowError(str(error)) from None


def say(line: str) -> None:
    """Print a line for the user who started the run."""
    print(f"profzoo: {line}", file=sys.stderr)
