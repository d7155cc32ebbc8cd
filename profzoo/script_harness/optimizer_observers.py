"""Tells a session of optimizers that are made and that step, by themselves or by a gradient scaler."""

import functools
from typing import Any

import torch
from torch import Tensor

from profzoo.script_harness.session import Session
from profzoo.script_harness.wrapping import Function, within_part, wrap


class OptimizerWatcher:
    """Tells of optimizers that are made and that step.

    Torch wraps the `step` of each class of optimizers when the first one of it is made; this wraps around that, so that
    a step of the session ends when all of an optimizer's step has.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._started: set[int] = set()
        self._within: list[torch.optim.Optimizer] = []

    def watch(self) -> None:
        """Begin to watch."""
        hook, made = torch.optim.Optimizer.profile_hook_step, torch.optim.Optimizer.__init__

        def profile_hook_step(function: Function) -> Function:
            return self._observe(hook(function))

        @functools.wraps(made)
        def init(optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> None:
            self._session.finder.optimizer_made()
            made(optimizer, *given, **named)

        torch.optim.Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[method-assign, assignment]
        torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign, assignment]

    def _observe(self, step: Function) -> Function:
        session, within = self._session, self._within

        @functools.wraps(step)
        def observed(optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> Any:
            # Optimizers that wrap another, or call the step of the class that they are made of, step once.
            if torch.compiler.is_compiling() or within or not session.is_watching():
                return step(optimizer, *given, **named)
            self._prepare(optimizer)
            if session.first_steps.is_noting():
                session.first_steps.note_gradients([optimizer], torch.ones(()))
            within.append(optimizer)
            opened = session.begin_part("optimizer")
            try:
                result = step(optimizer, *given, **named)
            finally:
                within.pop()
                if opened:
                    session.end_part()
            if session.scaling:
                session.scaled_steps.append(optimizer)
            else:
                session.optimizer_stepped(optimizer)
            return result

        return observed

    def _prepare(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._started:
            self._started.add(id(optimizer))
            self._session.settings.apply_to_optimizer(optimizer)


def watch_scalers(session: Session) -> None:
    """Tell of steps that a gradient scaler makes or skips; they end when the scaler is updated."""
    scaler = torch.amp.GradScaler

    def step(original: Function) -> Function:
        inside = within_part(session, "optimizer", original)

        def call(self: Any, optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> Any:
            if not session.is_watching() or not self.is_enabled():
                return original(self, optimizer, *given, **named)
            session.scaling, session.scaled_steps = True, []
            try:
                result = inside(self, optimizer, *given, **named)
            finally:
                session.scaling = False
            session.await_update(optimizer, skipped=not session.scaled_steps)
            return result

        return call

    def update(original: Function) -> Function:
        inside = within_part(session, "optimizer", original)

        def call(self: Any, *given: Any, **named: Any) -> Any:
            result = inside(self, *given, **named)
            if session.is_watching():
                session.end_scaled_steps()
            return result

        return call

    def scale(original: Function) -> Function:
        def call(self: Any, outputs: Any) -> Any:
            if session.is_watching() and isinstance(outputs, Tensor):
                session.note_unscaled_loss(outputs)
            return original(self, outputs)

        return call

    wrap(scaler, "step", step)
    wrap(scaler, "update", update)
    wrap(scaler, "scale", scale)
