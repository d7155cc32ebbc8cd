"""Counts the samples of each step of a script, by the batches of its data loaders or the inputs of its networks."""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from profzoo.script_harness.outside_settings import is_compiled

# Modules that take sequences with the batch first or second, and say which.
SEQUENCE = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)


def tensors(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """Yield the tensors in a batch that have a dimension.

    >>> [one.shape[0] for one in tensors({"names": ["a", "b"], "pair": (torch.ones(3), [torch.ones(2, 4)])})]
    [3, 2]
    """
    if isinstance(value, Tensor):
        if value.dim():
            yield value
        return
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for one in inner if depth else ():
        yield from tensors(one, depth - 1)


class BatchAxis:
    """Which dimension of a network's inputs is the batch.

    It is the first one, unless modules in the network that take sequences are given as many samples as another one is
    long. Their hooks stay for one call, so that further ones cost nothing and torch.compile sees none.
    """

    def __init__(self, network: nn.Module) -> None:
        modules = list(network.modules())
        takes = [module for module in modules if isinstance(module, SEQUENCE)]
        self._sizes: set[int] = set()
        self._unbatched = False
        # Of compiled modules nothing is seen within.
        hidden = any(map(is_compiled, modules))
        self._unseen = hidden and not all(map(_batch_first, takes))
        seen = [] if hidden else takes
        self._hooks = [module.register_forward_hook(partial(self._note), with_kwargs=True) for module in seen]
        self._axis: int | None = 0
        self._decided = False

    def _note(self, module: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        first = next(iter((*inputs, *named.values())), None)
        if torch.compiler.is_compiling() or first is None:
            return
        if isinstance(first, PackedSequence):
            self._sizes.add(int(first.batch_sizes[0]))
        elif first.dim() == 2:
            self._unbatched = True
        else:
            self._sizes.add(first.shape[0 if _batch_first(module) else 1])

    def count(self, inputs: Any, output: Any) -> int | None:
        """Samples of a call; None where it is not known which dimension they are, 0 where there is no tensor."""
        first = next(tensors(inputs), None)
        first = next(tensors(output), None) if first is None else first
        if first is None:
            return 0
        if not self._decided:
            self._decide(first)
        if self._unbatched:
            return 1
        return None if self._axis is None or self._axis >= first.dim() else int(first.shape[self._axis])

    def _decide(self, first: Tensor) -> None:
        for hook in self._hooks:
            hook.remove()
        self._decided = True
        self._unbatched = self._unbatched and not self._sizes
        if self._unseen:
            self._axis = 0 if first.dim() == 1 else None
        elif self._sizes and first.shape[0] not in self._sizes:
            places = [place for place, size in enumerate(first.shape[1:], 1) if size in self._sizes]
            # Windows or positions of a sample are samples of a module within.
            whole = all(size % first.shape[0] == 0 for size in self._sizes)
            self._axis = places[0] if places else 0 if whole else None


def _batch_first(module: nn.Module) -> bool:
    return bool(getattr(module, "self_attn", module).batch_first)


class LoadedSizes:
    """How many samples the batches of a data loader's iterator have, in the order in which it asks for them."""

    def __init__(self) -> None:
        self._epoch: Any = None
        self._asked: deque[int | None] = deque()

    def ask(self, epoch: Any, indices: Any) -> None:
        """Note the samples that the next batch is made of; epoch: the iterator over them, a new one in each epoch."""
        if epoch is not self._epoch:
            self._epoch, self._asked = epoch, deque()
        self._asked.append(len(indices) if isinstance(indices, list | tuple) else None)

    def count(self, batch: Any) -> int:
        """Samples of the batch that has come: those that it was made of, else the first dimension of its tensors."""
        asked = self._asked.popleft() if self._asked else None
        first = next(tensors(batch), None)
        own = 0 if first is None else int(first.shape[0])
        return own if asked is None else asked


class SampleCount:
    """Samples of one step at a time; batches that a training script evaluates in between do not count."""

    def __init__(self) -> None:
        self._loaded = self._used = 0
        self._by_network: dict[Hashable, int | None] = {}
        self._axes: dict[Hashable, BatchAxis] = {}
        # Whether an optimizer computes the loss of its step again, as line searches do.
        self.repeats = False

    def watch(self, network: nn.Module) -> None:
        """Prepare to count the inputs of a network, before its first call."""
        self._axes[id(network)] = BatchAxis(network)

    def note_batch(self, samples: int) -> None:
        """Note a batch of a data loader."""
        self._loaded += samples

    def note_call(self, network: Hashable, inputs: Any, output: Any, evaluates: bool) -> None:
        """Note a network's call; evaluates: whether it is not a part of a training step."""
        loaded, self._loaded = self._loaded, 0
        own = self._axes[network].count(inputs, output)
        if evaluates:
            return
        self._used += loaded
        if not self.repeats:
            before = self._by_network.get(network, 0)
            self._by_network[network] = None if own is None or before is None else before + own

    def end_step(self, ended_by: Hashable) -> int | None:
        """Return the samples of the step that ends: of its batches, else of the network whose call ends it.

        Where an optimizer ends it, they are those of the network that was given fewest. None where it is not known
        which dimension of the networks' inputs they are.
        """
        if ended_by in self._by_network:
            self._by_network = {ended_by: self._by_network[ended_by]}
        known = [count for count in self._by_network.values() if count is not None]
        unknown = len(known) < len(self._by_network) and not any(known)
        found = self._used or min(known, default=0) or (0 if unknown else self._loaded)
        self._used, self._by_network = 0, {}
        # A batch that was fetched ahead is of the step that uses it.
        self._loaded = 0 if found == self._loaded else self._loaded
        return None if unknown and not found else found
