"""Provides what a training step needs: optimizers, ranges, autocast and torch's global arithmetic settings."""

import contextlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from profzoo.errors import ConfigError
from profzoo.harness import batch_structure, distributed, interface, optimizers, sharding
from profzoo.range_names import OTHERS

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.harness.first_steps import FirstSteps


# Around products in 8 bits, everything else is computed as with bf16.
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16, "int8": torch.bfloat16}


class Trainer:
    """Objects of a training step: `network`, `others`, their `optimizers`, and the ranges around its parts.

    others: networks that only training needs, such as a discriminator.
    """

    def __init__(
        self,
        cell: "CellSettings",
        model: interface.ModelFunctions,
        network: nn.Module,
        device: torch.device,
        ranges: Any,
    ) -> None:
        """network: on the device already."""
        self.model, self.cell, self._ranges = model, cell, ranges
        distributed.check_shareable(cell, model)
        sharding.shard_network(network, cell, model, device)
        self.others = place_network(model.others(SimpleNamespace(**cell["shape"])), cell, device)
        ranges.mark(self.others, OTHERS)
        several = model.optimizers or (lambda network, others: optimizers.make_optimizers(network, model.optimizer))
        made = map(sharding.separate_groups, several(network, self.others))
        self.optimizers = [optimizers.choose_implementation(one, cell) for one in made]
        self.network = distributed.wrap_network(network, cell, device)
        self._autocast = make_autocast(cell, device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=cell["precision"] == "fp16")
        # Looks at the gradients of the first steps, if set.
        self.first_steps: FirstSteps | None = None
        # Whether the model's own training step has used forward() and update() so far.
        self._forward = self._updated = False

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Range and autocast around the computation of outputs."""
        self._forward = True
        with self._ranges("forward"), self._autocast():
            yield

    @contextlib.contextmanager
    def loss(self) -> Iterator[None]:
        """Range and autocast around the computation of the loss."""
        with self._ranges("loss"), self._autocast():
            yield

    def update(self, loss: torch.Tensor, *several: torch.optim.Optimizer) -> None:
        """Compute gradients of a loss, and step the optimizer, or each of several."""
        self._updated = True
        with self._ranges("backward"):
            self._scaler.scale(loss).backward()
        if self.first_steps and self.first_steps.is_noting():
            self.first_steps.note_gradients(several, self._scaler.scale(torch.ones((), device=loss.device)))
        with self._ranges("optimizer"):
            for optimizer in several:
                self._scaler.step(optimizer)
            self._scaler.update()
            for optimizer in several:
                optimizer.zero_grad(set_to_none=True)

    def check(self, loss: Any) -> None:
        """Check that a training step returned its loss and applied the cell's precision; loss: the returned value.

        The model's own step must apply the precision by itself. Autocast around the whole step would include the
        backward pass and the optimizers, and the gradient scaler has to wrap the backward pass.

        Raises:
            ConfigError: the step did not; the message says which method it has to call.
        """
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            kind = f"a tensor of {loss.numel()}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ConfigError(f"{self._step}: it returned {kind}: return the loss, a tensor of one number")
        precision = self.cell["precision"]
        if precision in AUTOCAST and not self._forward:
            raise ConfigError(
                f"{self._step}: precision = '{precision}' was not applied, as the step did not enter "
                "trainer.forward(): call the network within `with trainer.forward():`, or set precision to fp32"
            )
        if self._scaler.is_enabled() and not self._updated:
            raise ConfigError(
                f"{self._step}: precision = '{precision}' was not applied, as gradients were not scaled: have "
                "trainer.update(loss, optimizer) make them, or set precision to bf16 or fp32"
            )

    @property
    def _step(self) -> str:
        return f"training_step of {self.cell['module']}"


def run_training_step(trainer: Trainer, batch: Any) -> torch.Tensor:
    """Run forward, loss, backward and optimizer once each; returns the loss."""
    inputs, target = batch_structure.split_batch(batch, trainer.cell, trainer.model)
    with trainer.forward():
        outputs = batch_structure.call_network(trainer.network, batch, inputs)
    with trainer.loss():
        loss = trainer.model.loss(outputs, target)
    trainer.update(loss, *trainer.optimizers)
    return loss


def choose_memory_format(cell: "CellSettings") -> torch.memory_format:
    """Memory layout of images and convolution weights."""
    return torch.channels_last if cell["channels_last"] else torch.contiguous_format


def place_network(network: Any, cell: "CellSettings", device: torch.device) -> nn.Module:
    """Move a network to the device, in the cell's memory format.

    Raises:
        ConfigError: the cell is channels-last, but some weights get their shapes only in the first step.
    """
    if not any(map(is_lazy, network.parameters())):
        return network.to(device, memory_format=choose_memory_format(cell))
    if cell["channels_last"]:
        raise ConfigError(
            f"channels_last: true: {cell['model']} has lazy modules, whose weights have no shape yet: give them their "
            "sizes in build, or leave channels_last out"
        )
    return network.to(device)


def make_autocast(cell: "CellSettings", device: torch.device) -> Any:
    """Make a function that creates the autocast context of the cell's precision."""
    dtype = AUTOCAST.get(cell["precision"])
    return lambda: torch.autocast(device.type, dtype) if dtype else contextlib.nullcontext()


def set_arithmetic(cell: "CellSettings") -> None:
    """Set torch's global state: TensorFloat-32 and the choice of cuDNN algorithms."""
    tf32 = cell["precision"] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = cell["cudnn_benchmark"]
    torch.backends.cudnn.deterministic = cell["deterministic"]
    # Called only for a change: the call also loads torch's compiler, which takes a second.
    if cell["deterministic"] or torch.are_deterministic_algorithms_enabled():
        use_deterministic_algorithms(cell["deterministic"])
    # With deterministic algorithms, torch would also fill new tensors, by launches that are not the model's.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def use_deterministic_algorithms(wanted: bool = True) -> None:
    """Let PyTorch, cuDNN and cuBLAS use only algorithms whose results repeat exactly, or any algorithm again.

    Some operations have no such algorithm: torch names them in a warning, and the run continues.
    """
    torch.backends.cudnn.deterministic = wanted
    if wanted:
        # cuBLAS repeats its results only with workspaces of a fixed size, which it reads when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted, warn_only=True)
