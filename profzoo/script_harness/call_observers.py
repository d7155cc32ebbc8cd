"""Tells a session of a script's backward passes, losses, batches, transfers and autocast contexts."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import dataloader

from profzoo.script_harness.session import Session
from profzoo.script_harness.wrapping import Function, within_part, wrap


def watch_backward(session: Session) -> None:
    """Tell of backward passes: `Tensor.backward` calls this function too."""

    def backward(original: Function) -> Function:
        inside = within_part(session, "backward", original)

        def call(tensors: Any, *given: Any, **named: Any) -> Any:
            result = inside(tensors, *given, **named)
            if session.is_watching():
                session.backward_ended(tensors[0] if isinstance(tensors, tuple | list) and tensors else tensors)
            return result

        return call

    wrap(torch.autograd, "backward", backward)
    wrap(torch.autograd, "grad", lambda original: within_part(session, "backward", original))
    wrap(torch.optim.Optimizer, "zero_grad", lambda original: within_part(session, "optimizer", original))


def watch_losses(session: Session) -> None:
    """Put torch's functions of losses into the part `loss`, unless a network calls them."""
    for name in dir(nn.functional):
        if name.endswith("_loss") or "cross_entropy" in name or name == "kl_div":
            wrap(nn.functional, name, lambda original: within_part(session, "loss", original))


def watch_loaders(session: Session) -> None:
    """Tell of the batches of torch's data loaders, and apply the settings of loaders."""

    def following(original: Function) -> Function:
        inside = within_part(session, "data", original)

        def call(iterator: Any) -> Any:
            if not session.is_watching():
                return original(iterator)
            session.batch_asked_for()
            batch = inside(iterator)
            session.batch_loaded(batch)
            return batch

        return call

    def init(original: Function) -> Function:
        def call(loader: Any, *given: Any, **named: Any) -> None:
            original(loader, *given, **session.settings.apply_to_loader(named))

        return call

    wrap(dataloader._BaseDataLoaderIter, "__next__", following)
    wrap(dataloader.DataLoader, "__init__", init)


def watch_transfers(session: Session) -> None:
    """Put copies of tensors to the GPU into the part `transfer`, unless another part makes them."""

    def moving(original: Function) -> Function:
        inside = within_part(session, "transfer", original)

        def call(tensor: Tensor, *given: Any, **named: Any) -> Any:
            # Most are of tensors on the GPU, within a network.
            if session.parts.current or tensor.is_cuda or not session.networks.on_gpu:
                return original(tensor, *given, **named)
            return inside(tensor, *given, **named)

        return call

    for name in ("to", "cuda"):
        wrap(torch.Tensor, name, moving)


def watch_autocast(session: Session) -> None:
    """Note the arithmetic that the script chooses by autocast."""

    def enter(original: Function) -> Function:
        def call(context: Any) -> Any:
            if session.is_watching() and context._enabled:
                session.observed.add(str(context.fast_dtype).removeprefix("torch."))
            return original(context)

        return call

    with suppress(AttributeError):
        wrap(torch.autocast, "__enter__", enter)
