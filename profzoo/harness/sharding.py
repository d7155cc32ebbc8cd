"""Splits a network's weights over the processes of a cell: by fully sharded data parallelism, or by tensor parallelism.

Both change the network in place, before its optimizers are made, which then hold each process's part of the weights.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from profzoo.cell.process_count import process_count
from profzoo.errors import ConfigError
from profzoo.harness.interface import ModelFunctions

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


DDP, FSDP, TENSOR = "ddp", "fsdp", "tensor"
# How a model splits a linear layer: each process computes some of its outputs, or adds up some of its inputs.
COLUMNS, ROWS = "columns", "rows"


def parallel_kind(cell: "CellSettings") -> str:
    """How several processes share the training: DDP, FSDP or TENSOR."""
    return cell.get("parallel", DDP)


def shard_network(network: nn.Module, cell: "CellSettings", model: ModelFunctions, device: torch.device) -> None:
    """Split the weights over the processes; does nothing for DDP, which keeps all of them in each process.

    Raises:
        ConfigError: the model has no plan for tensor parallelism, or its plan does not fit the network.
    """
    kind = parallel_kind(cell)
    if process_count(cell) == 1 or kind == DDP:
        return
    # Imported here, because the import takes half a second that other cells need not wait for.
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(device.type, (process_count(cell),))
    if kind == FSDP:
        from torch.distributed.fsdp import fully_shard

        for part in find_units(network):
            fully_shard(part, mesh=mesh)
        fully_shard(network, mesh=mesh)
        return
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    styles = {COLUMNS: ColwiseParallel, ROWS: RowwiseParallel}
    plan = tensor_plan(network, cell, model)
    parallelize_module(network, mesh, {name: styles[how]() for name, how in plan.items()})


def find_units(network: nn.Module) -> list[nn.Module]:
    """Return the parts of the network whose weights are gathered together: the blocks that it is a list of.

    These are the members of its outermost lists and sequences of modules, if they hold weights. What is in no block
    belongs to the network as a whole.

    >>> blocks = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
    >>> [type(part).__name__ for part in find_units(nn.ModuleDict({"blocks": blocks, "head": nn.Linear(1, 1)}))]
    ['Linear', 'Sequential']
    """
    # Weights that two parts share cannot be gathered for one of them alone.
    shared = _shared_weights(network)

    def walk(module: nn.Module) -> Iterator[nn.Module]:
        for part in module.children():
            holds = [id(weight) for weight in part.parameters()]
            if isinstance(module, nn.ModuleList | nn.Sequential) and not isinstance(part, nn.ModuleList):
                if holds and not shared & set(holds):
                    yield part
                continue
            yield from walk(part)

    return list(dict.fromkeys(walk(network)))


def _shared_weights(network: nn.Module) -> set[int]:
    """Return the IDs of weights that more than one module holds itself."""
    counts: dict[int, int] = {}
    for module in network.modules():
        for weight in module.parameters(recurse=False):
            counts[id(weight)] = counts.get(id(weight), 0) + 1
    return {weight for weight, count in counts.items() if count > 1}


def tensor_plan(network: nn.Module, cell: "CellSettings", model: ModelFunctions) -> Mapping[str, str]:
    """Return how the model's linear layers are split, by their names.

    Raises:
        ConfigError: the model has no plan, or its plan does not fit the network and the processes.
    """
    where, processes = f"parallel = '{TENSOR}': {cell['model']}", process_count(cell)
    if model.split is None:
        raise ConfigError(
            f"{where} has no plan of how its layers are split: define split(network) in its file, or set parallel to "
            f"{FSDP} or {DDP}"
        )
    plan, parts = model.split(network), dict(network.named_modules())
    for name, how in plan.items():
        if not isinstance(part := parts.get(name), nn.Linear):
            raise ConfigError(f"{where}: split(network) names {name!r}, which is no linear layer of the network")
        if how not in (COLUMNS, ROWS):
            raise ConfigError(f"{where}: split(network) says {how!r} of {name}: say {COLUMNS} or {ROWS}")
        size = part.out_features if how == COLUMNS else part.in_features
        if size % processes:
            raise ConfigError(f"{where}: the {size} {how} of {name} cannot be split evenly over {processes} processes")
    return plan


def separate_groups(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Put split weights and whole ones into different groups of a fresh optimizer, as one kernel cannot take both."""
    groups = []
    for group in optimizer.param_groups:
        split = [weight for weight in group["params"] if is_split(weight)]
        whole = [weight for weight in group["params"] if not is_split(weight)]
        groups += [{**group, "params": weights} for weights in (whole, split) if weights]
    optimizer.param_groups[:] = groups
    return optimizer


def is_split(tensor: Any) -> bool:
    """Whether a tensor is a process's part of one that is split over several processes."""
    return hasattr(tensor, "full_tensor")


def whole_state(network: nn.Module, cell: "CellSettings") -> dict[str, Any]:
    """Return the network's weights as one process would have them; all processes have to call it."""
    if process_count(cell) == 1 or parallel_kind(cell) == DDP:
        return network.state_dict()
    return {name: one.full_tensor() if is_split(one) else one for name, one in network.state_dict().items()}
