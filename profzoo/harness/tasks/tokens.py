"""Texts as numbers of tokens; and what tells the clock of a run that a model has generated a token."""

from collections.abc import Callable

import torch
from torch import Tensor

_listeners: list[Callable[[], object]] = []


def random(vocabulary: int, length: int, generator: torch.Generator) -> Tensor:
    """Tokens (length,) of a vocabulary, all as likely."""
    return torch.randint(vocabulary, (length,), generator=generator)


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the vocabulary of (batch, length, vocabulary); targets of -100 do not count."""
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def note_token() -> None:
    """Say that the host has launched the work of one more token; a model calls this after each.

    Without a clock that listens, nothing happens. Tokens stay unknown in code that torch.compile has compiled, and in a
    step that was captured in a CUDA graph, whose replays do not call this.
    """
    if torch.compiler.is_compiling():
        return
    for listener in _listeners:
        listener()


def listen(listener: Callable[[], object]) -> None:
    """Call a function at each token from now on."""
    _listeners.append(listener)


def ignore(listener: Callable[[], object]) -> None:
    """Call the function no more."""
    _listeners.remove(listener)
