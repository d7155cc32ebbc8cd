"""Takes some of the numbers that a network gave, by which it is told how far other settings change them."""

import functools
from typing import Any

import torch
from torch import Tensor

from profzoo.harness import safe_inspection, tensor_trees

# Of all tensors together.
SAMPLE = 64


def sample_outputs(outputs: Any) -> list[float]:
    """Values from all over the tensors of floating point numbers in a structure, always from the same places."""
    tensors = [one.flatten() for one in _numbers(outputs) if one.numel() and not one.is_complex()]
    found: list[float] = []
    for tensor in tensors[:SAMPLE]:
        count = min(len(tensor), SAMPLE // min(len(tensors), SAMPLE))
        places = torch.arange(count, device=tensor.device) * len(tensor) // count
        found += tensor[places].double().tolist()
    return found


def is_finite(outputs: Any) -> bool:
    """Whether no number in a structure is NaN or infinite, of those that can be read."""
    return all(
        safe_inspection.attempt(
            f"an output of {one.dtype} was not searched for NaN", functools.partial(_finite, one), True
        )
        for one in _numbers(outputs)
    )


def _finite(tensor: Tensor) -> bool:
    # Types of eight bits have no such test of their own.
    return bool((tensor if tensor.element_size() > 1 else tensor.float()).isfinite().all())


def _numbers(outputs: Any) -> list[Tensor]:
    """The dense tensors of floating point or complex numbers in a structure whose values can be read."""
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
