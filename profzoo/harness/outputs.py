"""Takes some of the numbers that a network gave, by which it is told how far other settings change them."""

from typing import Any

import torch

from profzoo.harness import trees

# Of all tensors together.
SAMPLE = 64


def sampled(outputs: Any) -> list[float]:
    """Values from all over the tensors of floating point numbers in a structure, always from the same places."""
    tensors = [tensor.detach().flatten() for tensor in trees.tensors(outputs) if tensor.is_floating_point()]
    tensors = [tensor for tensor in tensors if len(tensor)]
    found: list[float] = []
    for tensor in tensors[:SAMPLE]:
        count = min(len(tensor), SAMPLE // min(len(tensors), SAMPLE))
        places = torch.arange(count, device=tensor.device) * len(tensor) // count
        found += tensor[places].double().tolist()
    return found
