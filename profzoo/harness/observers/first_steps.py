"""Records numbers of a run's first steps, by which two runs are compared: losses, gradients, updates, outputs, buffers.

All are taken in warm-up steps that are not captured in a graph, between a step and the next one. They stay on the
device until the run has ended, so that no step waits for them.
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profzoo.harness import distributed, inspection
from profzoo.harness.inspection import strided_tensors

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import OutputSample, StepNumbers


# Samples values of a network's outputs, to compare how much other settings change them.

# Number of values, over all tensors together.
SAMPLE = 64


def sample_outputs(outputs: Any) -> list[float]:
    """Values from fixed positions across all floating-point tensors in a structure."""
    tensors = [one.flatten() for one in _numbers(outputs) if one.numel() and not one.is_complex()]
    found: list[float] = []
    for tensor in tensors[:SAMPLE]:
        found += _pick(tensor, SAMPLE // min(len(tensors), SAMPLE)).tolist()
    return found


def _pick(tensor: Tensor, most: int = SAMPLE) -> Tensor:
    """At most so many values of a flat tensor, from fixed positions all over it."""
    count = min(len(tensor), most)
    return tensor[torch.arange(count, device=tensor.device) * len(tensor) // count].double()


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
    found = [part for one in inspection.find_tensors(outputs) for part in inspection.strided_tensors(one)]
    tensors = [part.flatten() for part in found if part.numel() and not part.is_complex()][:SAMPLE]
    samples = []
    for tensor in tensors:
        numbers = tensor if tensor.is_floating_point() else None
        rms = None if numbers is None else _root_mean_square(numbers)
        samples.append(DeviceSample(_pick(tensor, SAMPLE // len(tensors)), rms))
    return samples


def _root_mean_square(tensor: Tensor) -> Tensor:
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return torch.linalg.vector_norm(tensor, dtype=wide) / math.sqrt(len(tensor))


def is_finite(outputs: Any) -> bool:
    """Whether all readable numbers in a structure are finite."""
    return all(
        inspection.attempt(f"an output of {one.dtype} was not searched for NaN", functools.partial(_finite, one), True)
        for one in _numbers(outputs)
    )


def _finite(tensor: Tensor) -> bool:
    # torch.isfinite does not support types of eight bits.
    return bool((tensor if tensor.element_size() > 1 else tensor.float()).isfinite().all())


def _numbers(outputs: Any) -> list[Tensor]:
    """Readable dense floating-point or complex tensors in a structure."""
    found: list[Tensor] = []
    none: list[Tensor] = []
    for tensor in inspection.attempt(
        "outputs were not looked at", lambda: list(inspection.find_tensors(outputs)), none
    ):
        what = f"an output of type {type(tensor).__name__} was not looked at"
        found += inspection.attempt(what, functools.partial(_readable, tensor), [])
    return found


def _readable(tensor: Tensor) -> list[Tensor]:
    parts = [part for part in inspection.strided_tensors(tensor) if part.is_floating_point() or part.is_complex()]
    for part in parts:
        if part.numel():
            part.flatten()[:1].tolist()
    return parts


# How many steps are looked into, and of how many the losses are kept.
STEPS, LOSSES = 2, 32
# Into so many parts a network's weights are divided, in their order.
PARTS = 16


class FirstSteps:
    """Numbers of the first steps of a run; call `note` after each step, and `read` after the last one."""

    def __init__(self, cell: "CellSettings", network: nn.Module) -> None:
        """network: on its device, before the first step."""
        # The last warm-up step of a graph is captured: what is computed beside it would be captured too.
        self._noted, self._left = 0, min(STEPS, cell["warmup"] - (1 if cell.get("graph") else 0))
        self._cell, self._network, self._training = cell, network, cell["phase"] == "train"
        # A pipeline has not been cut yet.
        self._names = [name for name, _ in network.named_parameters()]
        self._gradients: list[list[Tensor]] = []
        self._gradient_parts: list[Tensor] = []
        self._moved: list[Tensor] = []
        self._draws: list[int] = []
        self._used: Tensor | None = None
        self._data: list[Tensor] = []
        self._buffers: list[Tensor] = []
        self._outputs: list[list[DeviceSample]] = []
        self._weights = combine_norms(network.parameters()) if self.is_noting() else None
        self._sampled: list[Tensor] = self._sample_weights() if self.is_noting() else []

    def is_noting(self) -> bool:
        """Whether the next step is looked into."""
        return self._left > 0 and not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())

    def note_gradients(self, optimizers: Iterable[torch.optim.Optimizer], scale: Tensor) -> None:
        """Note the gradients before the optimizers step; scale: what they are multiplied by."""
        made = [one for one in find_weights(self._network, optimizers) if one.grad is not None]
        with suppress(Exception):
            norms, sizes = measure_norms([one.grad for one in made]), [one.numel() for one in made]
            if distributed.is_pipeline(self._cell):
                norms, sizes = self._join_stages(made, norms)
            if self._used is None:
                counts = [torch.where(norm > 0, size, 0) for size, norm in zip(sizes, norms, strict=True)]
                self._used = torch.stack(counts).sum() if counts else None
            whole = torch.stack(norms).norm() if norms else torch.zeros(())
            if len(self._gradients) == self._noted:
                self._gradients.append([])
                self._gradient_parts.append(torch.stack(norms) / scale.to(whole.device))
            self._gradients[-1].append(whole / scale.to(whole.device))

    def _join_stages(self, made: Sequence[Tensor], norms: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
        """Norms and sizes of what all stages of a pipeline made, in the order of the whole network's weights."""
        names: dict[Tensor, str] = {weight: name for name, weight in self._network.named_parameters()}
        own = {names[one]: (float(norm), one.numel()) for one, norm in zip(made, norms, strict=True)}
        whole = distributed.join_stages(self._cell, own)
        found = [whole[name] for name in self._names if name in whole]
        return list(torch.tensor([norm for norm, _ in found], dtype=torch.float64)), [size for _, size in found]

    def note(self, batch: Any, result: Any) -> None:
        """Note a step that has ended; batch: on the device. result: the step's outputs, or its loss in training."""
        if not self.is_noting():
            return
        self._noted, self._left = self._noted + 1, self._left - 1
        with suppress(Exception):
            tensors = [one for one in inspection.find_tensors(batch) if not one.is_complex()]
            parts = [part for one in tensors for part in strided_tensors(one)]
            self._data.append(torch.stack([part.sum(dtype=torch.float64) for part in parts]).sum())
        with suppress(Exception):
            self._buffers.append(combine_norms(self._network.buffers()))
        with suppress(Exception):
            self._draws.append(_describe_draws(self._network))
        if self._training:
            with suppress(Exception):
                self._note_movement()
            return
        with suppress(Exception):
            self._outputs.append(sample_on_device(result))

    def _note_movement(self) -> None:
        """Note how far the weights have moved in this step, by some values of each tensor."""
        before, self._sampled = self._sampled, self._sample_weights()
        moved = [(one - other).norm() for one, other in zip(self._sampled, before, strict=True)]
        if moved:
            self._moved.append(torch.stack(moved).norm())

    def _sample_weights(self) -> list[Tensor]:
        """Values from fixed positions of each tensor of weights; none where processes hold parts of them."""
        found: list[Tensor] = []
        weights = [] if not self._training else [one for one in self._network.parameters() if not is_lazy(one)]
        if any(map(distributed.is_split, weights)) or distributed.is_pipeline(self._cell):
            return found
        with suppress(Exception):
            for one in (one.detach() for one in weights if one.is_floating_point() and one.numel()):
                found.append(_pick(one.flatten()))
        return found

    def read(self, losses: Sequence[float | None], last: Any) -> "StepNumbers":
        """Read all numbers; losses: of all steps. last: outputs of the last step, None in training."""
        outputs: list[list[OutputSample]] = []
        # Tensors without values, such as those on the device `meta`, cannot be read.
        with suppress(Exception):
            outputs = [[one.read() for one in step] for step in self._outputs]
        ended: list[Tensor] = []
        final: list[OutputSample] = []
        with suppress(Exception):
            ended = [combine_norms(self._network.buffers())]
        if not self._training:
            with suppress(Exception):
                final = [one.read() for one in sample_on_device(last)]
        return {
            "losses": [finite_or_none(loss) for loss in losses[:LOSSES] if loss is not None],
            "gradient_norms": [[finite_or_none(float(one)) for one in step] for step in self._gradients],
            "used_parameters": None if self._used is None else int(self._used),
            "weight_norm": None if self._weights is None else finite_or_none(float(self._weights)),
            "gradient_parts": [join_parts(one.tolist()) for one in self._gradient_parts],
            "movements": [finite_or_none(float(one)) for one in self._moved],
            "draws": self._draws,
            "data_sums": [finite_or_none(float(one)) for one in self._data],
            "buffer_norms": [finite_or_none(float(one)) for one in [*self._buffers, *ended]],
            "outputs": outputs,
            "last_outputs": final,
        }


def find_weights(network: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """Return the weights of the optimizers; those of the network where an optimizer of the model's own lists none."""
    several = list(optimizers)
    if not all(hasattr(one, "param_groups") for one in several):
        return list(network.parameters())
    return [one for optimizer in several for group in optimizer.param_groups for one in group["params"]]


def join_parts(norms: Sequence[float]) -> list[float | None]:
    """Join norms of tensors to those of at most PARTS parts, each of tensors that follow each other.

    >>> join_parts([3.0, 4.0]), len(join_parts([1.0] * 40))
    ([3.0, 4.0], 16)
    """
    count = min(len(norms), PARTS)
    ends = [len(norms) * part // count for part in range(count + 1)] if count else [0]
    return [finite_or_none(math.hypot(*norms[begin:end])) for begin, end in itertools.pairwise(ends)]


def _describe_draws(network: nn.Module) -> int:
    """Return a digest of the state of the generator that random numbers on the network's device come from.

    It is a number, as `snakemake share` would replace a text.
    """
    device = next((one.device for one in network.parameters()), torch.device("cpu"))
    state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    return int.from_bytes(hashlib.blake2b(state.numpy().tobytes(), digest_size=6).digest(), "big")


def combine_norms(tensors: Iterable[Any]) -> Tensor:
    """Euclidean norm over all floating-point tensors together, as a tensor on their device; 0 if there are none."""
    parts = [part for one in tensors if not is_lazy(one) for part in strided_tensors(_summed(one))]
    # Of numbers in 8 bits torch knows no norm.
    numbers = [part for part in parts if part.is_floating_point() and part.itemsize > 1 and part.numel()]
    if not numbers:
        return torch.zeros((), dtype=torch.float64)
    # Those of one type are computed together.
    return torch.stack([one.double() for one in torch._foreach_norm(numbers)]).norm()


def measure_norms(tensors: Sequence[Any]) -> list[Tensor]:
    """Euclidean norm of each tensor, as tensors on their device; of one split over processes, the whole tensor's."""
    if any(map(distributed.is_split, tensors)):
        norms = (torch.linalg.vector_norm(one) for one in tensors)
        return [(one.full_tensor() if distributed.is_split(one) else one).double() for one in norms]
    if all(one.layout is torch.strided and one.is_floating_point() and one.numel() for one in tensors):
        return [one.double() for one in torch._foreach_norm(list(tensors))] if tensors else []
    return [combine_norms([one]) for one in tensors]


def _summed(tensor: Tensor) -> Tensor:
    """The tensor; of a sparse one that holds an index twice, with the values of each index added up."""
    return tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor


def finite_or_none(value: float | None) -> float | None:
    """The value, or None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
