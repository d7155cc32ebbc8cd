"""Replaces functions of torch by ones that tell a session of their calls."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from profzoo.script_harness.session import Session

Function = Callable[..., Any]


def wrap(owner: Any, name: str, around: Callable[[Function], Function]) -> None:
    """Replace a function of a module or class by one that calls it; what torch.compile traces is left as it is."""
    original = getattr(owner, name)
    wrapped = around(original)

    @functools.wraps(original)
    def call(*given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*given, **named)
        return wrapped(*given, **named)

    setattr(owner, name, call)


def within_part(session: Session, part: str, function: Function) -> Function:
    """Wrap a function so that its call is in a part of the step."""

    def call(*given: Any, **named: Any) -> Any:
        if not session.is_watching() or not session.begin_part(part):
            return function(*given, **named)
        try:
            return function(*given, **named)
        finally:
            session.end_part()

    return call
