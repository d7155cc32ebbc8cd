"""Tells a session when ranges of the script's own have ended: of torch.profiler, torch.cuda.nvtx and nvtx."""

from typing import Any

import nvtx
import torch

from profzoo.script_harness.session import Session
from profzoo.script_harness.wrapping import Function, wrap


def watch_ranges(session: Session) -> None:
    """Tell of ranges that have ended, by the thread that opened them last."""
    stack: list[str] = []

    def pushing(original: Function) -> Function:
        def call(message: Any, *given: Any, **named: Any) -> Any:
            stack.append(str(message))
            return original(message, *given, **named)

        return call

    def popping(original: Function) -> Function:
        def call(*given: Any, **named: Any) -> Any:
            result = original(*given, **named)
            if stack and session.is_watching():
                session.range_ended(stack.pop())
            return result

        return call

    def leaving(original: Function) -> Function:
        def call(context: Any, *given: Any) -> Any:
            result = original(context, *given)
            if session.is_watching():
                # torch.profiler calls it name, the package nvtx message.
                session.range_ended(str(getattr(context, "name", None) or getattr(context, "message", "")))
            return result

        return call

    for owner, push, pop in ((torch.cuda.nvtx, "range_push", "range_pop"), (nvtx, "push_range", "pop_range")):
        wrap(owner, push, pushing)
        wrap(owner, pop, popping)
    for context in (torch.autograd.profiler.record_function, nvtx.annotate):
        wrap(context, "__exit__", leaving)
