"""Counts the samples of each step of a script, by the batches of its data loaders or the inputs of its networks."""

from collections.abc import Hashable, Mapping
from typing import Any

from torch import Tensor


def batch_size(value: Any, depth: int = 3) -> int:
    """Return the size of the first dimension of the first tensor in a batch; 0 if it holds no tensor.

    >>> batch_size({"names": ["a", "b"]})
    0
    """
    if isinstance(value, Tensor):
        return int(value.shape[0]) if value.dim() else 0
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return next(filter(None, (batch_size(one, depth - 1) for one in inner)), 0) if depth else 0


class SampleCount:
    """Samples of one step at a time; batches that a training script evaluates in between do not count."""

    def __init__(self) -> None:
        self._loaded = self._used = 0
        self._by_network: dict[Hashable, int] = {}

    def note_batch(self, batch: Any) -> None:
        """Note a batch of a data loader."""
        self._loaded += batch_size(batch)

    def note_call(self, network: Hashable, inputs: Any, output: Any, evaluates: bool) -> None:
        """Note a network's call; evaluates: whether it is no part of a training step."""
        loaded, self._loaded = self._loaded, 0
        if not evaluates:
            self._used += loaded
            own = batch_size(inputs) or batch_size(output)
            self._by_network[network] = self._by_network.get(network, 0) + own

    def end_step(self) -> int:
        """Return the samples of the step that ends: of its batches, else those of the network that was given fewest."""
        found = self._used or min(self._by_network.values(), default=0) or self._loaded
        self._used, self._by_network = 0, {}
        # A batch that was fetched ahead is of the step that uses it.
        self._loaded = 0 if found == self._loaded else self._loaded
        return found
