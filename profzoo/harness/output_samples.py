"""Samples values of a network's outputs, to compare how much other settings change them."""

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from profzoo.harness import safe_inspection, tensor_trees

if TYPE_CHECKING:
    from profzoo.cell.number_types import OutputSample

# Number of values, over all tensors together.
SAMPLE = 64


def sample_outputs(outputs: Any) -> list[float]:
    """Values from fixed positions across all floating-point tensors in a structure."""
    tensors = [one.flatten() for one in _numbers(outputs) if one.numel() and not one.is_complex()]
    found: list[float] = []
    for tensor in tensors[:SAMPLE]:
        count = min(len(tensor), SAMPLE // min(len(tensors), SAMPLE))
        places = torch.arange(count, device=tensor.device) * len(tensor) // count
        found += tensor[places].double().tolist()
    return found


@dataclass(frozen=True)
class DeviceSample:
    """Sampled values of one tensor, and its root mean square (None for whole numbers), still on the device."""

    values: Tensor
    rms: Tensor | None

    def read(self) -> "OutputSample":
        """Wait for the device, and return the numbers."""
        values = [value if math.isfinite(value) else 0.0 for value in self.values.tolist()]
        rms = None if self.rms is None else float(self.rms)
        return {"values": values, "rms": rms if rms is not None and math.isfinite(rms) else None}


def sample_on_device(outputs: Any) -> list[DeviceSample]:
    """Values from fixed positions of all tensors in a structure, whole numbers too, without a wait for the device."""
    found = [part for one in tensor_trees.find_tensors(outputs) for part in safe_inspection.strided_tensors(one)]
    tensors = [part.flatten() for part in found if part.numel() and not part.is_complex()][:SAMPLE]
    samples = []
    for tensor in tensors:
        count = min(len(tensor), SAMPLE // len(tensors))
        places = torch.arange(count, device=tensor.device) * len(tensor) // count
        numbers = tensor if tensor.is_floating_point() else None
        rms = None if numbers is None else _root_mean_square(numbers)
        samples.append(DeviceSample(tensor[places].double(), rms))
    return samples


def _root_mean_square(tensor: Tensor) -> Tensor:
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return torch.linalg.vector_norm(tensor, dtype=wide) / math.sqrt(len(tensor))


def is_finite(outputs: Any) -> bool:
    """Whether all readable numbers in a structure are finite."""
    return all(
        safe_inspection.attempt(
            f"an output of {one.dtype} was not searched for NaN", functools.partial(_finite, one), True
        )
        for one in _numbers(outputs)
    )


def _finite(tensor: Tensor) -> bool:
    # torch.isfinite does not support types of eight bits.
    return bool((tensor if tensor.element_size() > 1 else tensor.float()).isfinite().all())


def _numbers(outputs: Any) -> list[Tensor]:
    """Readable dense floating-point or complex tensors in a structure."""
    found: list[Tensor] = []
    none: list[Tensor] = []
    for tensor in safe_inspection.attempt(
        "outputs were not looked at", lambda: list(tensor_trees.find_tensors(outputs)), none
    ):
        what = f"an output of type {type(tensor).__name__} was not looked at"
        found += safe_inspection.attempt(what, functools.partial(_readable, tensor), [])
    return found


def _readable(tensor: Tensor) -> list[Tensor]:
    parts = [part for part in safe_inspection.strided_tensors(tensor) if part.is_floating_point() or part.is_complex()]
    for part in parts:
        if part.numel():
            part.flatten()[:1].tolist()
    return parts
