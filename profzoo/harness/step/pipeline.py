"""Pipeline parallelism: each process has a stage of the network, through which the batches of a step pass in turn.

torch's schedule 1F1B says when a stage computes which batch. Each of its passes has the ranges of any other pass. What
a stage sends, receives and waits for is between them, in no part of the step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from profzoo.cell.process_count import process_count
from profzoo.errors import ConfigError
from profzoo.harness import distributed
from profzoo.harness.interface import ModelFunctions, Stages
from profzoo.harness.step import batches

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


def find_stages(network: nn.Module, cell: "CellSettings", model: ModelFunctions) -> Stages:
    """Return how a model's network is cut.

    Raises:
        ConfigError: the model does not say how, or has too few blocks.
    """
    where, processes = f"parallel = '{distributed.PIPELINE}': {cell['model']}", process_count(cell)
    if model.stages is None or model.training_step:
        raise ConfigError(
            f"{where} cannot be cut into stages: define stages(network) and no training_step in its file, or set "
            f"parallel to {distributed.FSDP} or {distributed.DDP}"
        )
    stages = model.stages(network)
    if (count := len(list(stages.blocks))) < processes:
        raise ConfigError(f"{where} has {count} blocks, too few for {processes} stages: lower gpus or nodes")
    return stages


def find_blocks(network: nn.Module, cell: "CellSettings", model: ModelFunctions) -> Sequence[nn.Module]:
    """The blocks between which a pipeline's network is cut; none for another cell."""
    return list(find_stages(network, cell, model).blocks) if distributed.is_pipeline(cell) else ()


def cut_network(network: nn.Module, stages: Stages, rank: int, processes: int, name: str) -> list[nn.Parameter]:
    """Leave a network only the weights of one stage; returns those of them that the first and the last share.

    name: the model's, for error messages.

    Raises:
        ConfigError: a weight belongs to no stage, or to others than the first and the last together.
    """
    blocks, last = list(stages.blocks), processes - 1
    held = [_tensors(share_blocks(blocks, one, processes)) for one in range(processes)]
    held[0] |= _tensors(stages.before)
    held[last] |= _tensors(stages.after)
    ends = held[0] & held[last]
    for path, weight in network.named_parameters():
        owners = sum(weight in one for one in held)
        if not owners or owners > 1 + (weight in ends):
            where = "several stages" if owners else "no stage"
            raise ConfigError(f"parallel = '{distributed.PIPELINE}': stages(network) of {name} puts {path} in {where}")
    gone = set[torch.Tensor]().union(*held) - held[rank]
    for module in network.modules():
        for store in (module._parameters, module._buffers):
            store.update({key: None for key, one in store.items() if one in gone})
    # In an order that is the same in both stages.
    return [one for one in network.parameters() if one in ends and one.requires_grad]


def share_blocks(blocks: Sequence[nn.Module], rank: int, processes: int) -> Sequence[nn.Module]:
    """A stage's blocks, as many as any other's or one more.

    >>> [len(share_blocks([nn.Identity()] * 7, rank, 3)) for rank in range(3)]
    [2, 2, 3]
    """
    return blocks[len(blocks) * rank // processes : len(blocks) * (rank + 1) // processes]


def _tensors(parts: Iterable[nn.Module | torch.Tensor]) -> set[torch.Tensor]:
    """The parts' weights and buffers."""
    found = set[torch.Tensor]()
    for part in parts:
        found |= {*part.parameters(), *part.buffers()} if isinstance(part, nn.Module) else {part}
    return found


class Pipeline:
    """A process's stage of a network, which is cut, and torch's schedule of passes through all of them."""

    def __init__(
        self,
        network: nn.Module,
        cell: "CellSettings",
        model: ModelFunctions,
        device: torch.device,
        parts: Mapping[str, Callable[[], AbstractContextManager[None]]],
    ) -> None:
        """network: whole and on the device; parts: make the contexts of the parts of a pass, by their names."""
        # Imported here, because the import takes time that other cells need not wait for.
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        self._cell, self._model, self._parts = cell, model, parts
        rank, processes = distributed.read_rank(cell), process_count(cell)
        stages = find_stages(network, cell, model)
        self._first, self._run, self._last = stages.first, stages.run, stages.last
        self._blocks = share_blocks(list(stages.blocks), rank, processes)
        self._is_first, self._is_last = rank == 0, rank == processes - 1
        self._shared = cut_network(network, stages, rank, processes, cell["model"])
        if device.type == "cuda":
            # The whole network was there only to be cut.
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        # All processes take part in making the group.
        self._ends = dist.new_group([0, processes - 1]) if processes > 2 else None
        self._batches: Sequence[Any] = ()
        self._no_loss = torch.zeros((), device=device)
        network.forward = self._compute
        stage = PipelineStage(network, rank, processes, device)
        pass_back = stage.backward_one_chunk

        def backward(*given: Any, **named: Any) -> Any:
            with parts["backward"]():
                return pass_back(*given, **named)

        stage.backward_one_chunk = backward  # type: ignore[method-assign]
        # Losses are divided by the number of batches, as without a pipeline.
        self._schedule = Schedule1F1B(stage, cell["accumulate"], lambda loss, _: loss, scale_grads=False)

    def run(self, several: Sequence[Any]) -> torch.Tensor:
        """Compute gradients of the mean loss of the batches; returns it in the last stage, and 0 in others."""
        self._batches = several
        losses: list[torch.Tensor] = []
        # Batches may be of any form: torch divides and hands round their numbers.
        numbers = torch.arange(len(several))
        self._schedule.step(number=numbers, target=numbers, losses=losses)
        for weight in self._shared:
            with self._parts["backward"]():
                dist.all_reduce(weight.grad, group=self._ends)
        return torch.stack(losses).detach().sum() if losses else self._no_loss

    def _compute(self, *received: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        """Return what the stage sends on for the batch of a number, or the last one's part of the mean loss."""
        inputs, target = batches.split_batch(self._batches[int(number)], self._cell, self._model)
        with self._parts["forward"]():
            flow = self._first(inputs) if self._is_first else received[0]
            flow = self._run(flow, inputs, self._blocks)
            if not self._is_last:
                return flow.contiguous()
            outputs = self._last(flow)
        with self._parts["loss"]():
            # torch joins the results of all batches, as if each were a batch.
            return (self._model.loss(outputs, target) / len(self._batches)).reshape(1)

    def measure_norm(self, weights: Iterable[torch.Tensor]) -> torch.Tensor:
        """Euclidean norm of the gradients in all stages together, those of shared weights once."""
        repeated = set() if self._is_first else set(self._shared)
        norms = [one.grad.norm() for one in weights if one.grad is not None and one not in repeated]
        # Of one type in all stages, also in one whose weights are frozen.
        squares = torch.stack(norms or [self._no_loss]).square().sum(dtype=torch.float64)
        dist.all_reduce(squares)
        return squares.sqrt().to(norms[0].dtype) if norms else squares.sqrt()
