"""Applies a cell's settings to a script from outside; a setting at its default leaves the script as it is."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profzoo.harness.step import training_step


class OutsideSettings:
    """What of a cell's settings is to be applied, and how.

    Args:
        cell: the resolved settings. defaults: for each setting that can be applied, the value that leaves the script as
            it is.
        nudge: by what part of themselves weights are changed.
    """

    def __init__(self, cell: Mapping[str, Any], defaults: Mapping[str, Any], nudge: float = 0.0) -> None:
        self._cell, self._nudge = cell, nudge
        self.asked = {key: cell[key] for key, default in defaults.items() if key in cell and cell[key] != default}

    def apply_to_process(self) -> None:
        """Set torch's global state; called when torch has been imported, before the script goes on.

        The script may set the same afterwards, so that it is set once more before the window (`apply_arithmetic`).
        """
        if "threads" in self.asked:
            torch.set_num_threads(self.asked["threads"])
        if "seed" in self.asked:
            for draw in (torch.manual_seed, random.seed, np.random.seed):
                draw(self.asked["seed"])
        self.apply_arithmetic()

    def apply_arithmetic(self) -> None:
        """Set TensorFloat-32, cuDNN's tuning and deterministic algorithms, each only where it is asked for."""
        if self.asked.get("precision") == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        if "cudnn_benchmark" in self.asked:
            torch.backends.cudnn.benchmark = True
        if "deterministic" in self.asked:
            training_step.use_deterministic_algorithms()

    def apply_to_network(self, network: nn.Module) -> None:
        """Change a network before its first call: memory format, checkpoints, compilation in place, and a nudge."""
        if "channels_last" in self.asked:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if "checkpoint" in self.asked and network.training:
            training_step.insert_checkpoints(network, self._cell["model"])
        if (mode := self.asked.get("compile")) and not is_compiled(network):
            network.compile(mode=None if mode is True else mode)
        if self._nudge:
            nudge_weights(network, self._nudge)

    def apply_to_inputs(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a network's call, images among them in the cell's memory format."""
        if "channels_last" not in self.asked:
            return inputs
        return tuple(
            one.contiguous(memory_format=torch.channels_last) if isinstance(one, Tensor) and one.dim() == 4 else one
            for one in inputs
        )

    def apply_to_loader(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of a DataLoader with the cell's settings of loading.

        Those of workers are left out where a loader has none.
        """
        changed = {**options, **({"pin_memory": True} if "pin_memory" in self.asked else {})}
        changed |= {"num_workers": self.asked["workers"]} if "workers" in self.asked else {}
        own = {key: self.asked[key] for key in ("prefetch_factor", "persistent_workers") if key in self.asked}
        return changed | own if changed.get("num_workers") else changed

    def apply_to_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Choose the implementation of an optimizer that has not stepped yet; others, without the choice, stay."""
        options = training_step.IMPLEMENTATIONS[self.asked.get("optimizer", "auto")]
        for group in (optimizer.defaults, *optimizer.param_groups):
            group.update({name: value for name, value in options.items() if name in optimizer.defaults})
        if options.get("fused") and "fused" in optimizer.defaults:
            # What torch sets where an optimizer is made as a fused one: a gradient scaler then leaves the rest to it.
            optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]

    def make_autocast(self, device: torch.device) -> torch.autocast | None:
        """Return the autocast context of the cell's precision; None where no lower precision is asked for."""
        dtype = training_step.AUTOCAST.get(self.asked.get("precision", ""))
        return torch.autocast(device.type, dtype) if dtype else None


def is_compiled(network: nn.Module) -> bool:
    """Whether a network was compiled already, by torch.compile or in place."""
    return hasattr(network, "_orig_mod") or network._compiled_call_impl is not None


def nudge_weights(network: nn.Module, share: float) -> None:
    """Make weights larger by a share of themselves in the mean, without the program's random numbers.

    Half of the weights, drawn at random, change by twice the share. Errors of one direction add up, and those of two
    directions show where a norm takes out what all weights have in common.
    """
    with torch.no_grad():
        for number, one in enumerate(network.parameters()):
            if is_lazy(one) or not one.is_floating_point():
                continue
            generator = torch.Generator(one.device).manual_seed(number)
            drawn = torch.randint(0, 2, one.shape, generator=generator, device=one.device, dtype=one.dtype)
            one.mul_(1 + 2 * share * drawn)
