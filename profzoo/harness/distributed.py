"""Distributes a cell's training over processes with one GPU each, and describes how they send gradients."""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from profzoo.cell.process_count import process_count, share_count
from profzoo.errors import ConfigError
from profzoo.harness import inspection
from profzoo.harness.interface import ModelFunctions, no_others

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import GradientSync


# Splits a network's weights over the processes of a cell: by fully sharded data parallelism, or by tensor parallelism.
#
# Both change the network in place, before its optimizers are made, which then hold each process's part of the weights.

DDP, FSDP, TENSOR, PIPELINE = "ddp", "fsdp", "tensor", "pipeline"
Value = TypeVar("Value")
# How a model splits a linear layer: each process computes some of its outputs, or adds up some of its inputs.
COLUMNS, ROWS = "columns", "rows"


def parallel_kind(cell: "CellSettings") -> str:
    """How several processes share the training: DDP, FSDP, TENSOR or PIPELINE."""
    return cell.get("parallel", DDP)


def shard_network(network: nn.Module, cell: "CellSettings", model: ModelFunctions, device: torch.device) -> None:
    """Split the weights over the processes; does nothing for DDP and PIPELINE, which split none.

    Raises:
        ConfigError: the model has no plan for tensor parallelism, or its plan does not fit the network.
    """
    kind = parallel_kind(cell)
    if process_count(cell) == 1 or kind in (DDP, PIPELINE):
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
            raise ConfigError(f"{where}: split(network) names {name!r}, which is not a linear layer of the network")
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
    if is_pipeline(cell):
        return join_stages(cell, {name: one.cpu() for name, one in network.state_dict().items()})
    return {name: one.full_tensor() if is_split(one) else one for name, one in network.state_dict().items()}


def is_pipeline(cell: "CellSettings") -> bool:
    """Whether each process has a stage of the network only."""
    return parallel_kind(cell) == PIPELINE and process_count(cell) > 1


def join_stages(cell: "CellSettings", own: Mapping[str, Value]) -> dict[str, Value]:
    """What all stages of a pipeline know by the names of weights, the first that has one; else the process's own.

    All processes have to call it, and wait for each other.
    """
    found: dict[str, Value] = {}
    for each in reversed(gather_facts(cell, own) if is_pipeline(cell) else [own]):
        found |= each
    return found


# Numbers of the meetings of a process with all others.
_MEETINGS = itertools.count()


def read_rank(cell: "CellSettings") -> int:
    """Rank of this process within the cell; 0 if there is only one process.

    Raises:
        ConfigError: torchrun did not start one process for each GPU of the cell.
    """
    started, needed = int(os.environ.get("WORLD_SIZE", "1")), process_count(cell)
    if started != needed:
        raise ConfigError(
            f"gpus = {cell['gpus']} and nodes = {cell['nodes']} take {needed} processes, and {started} started: "
            f"begin with torchrun --standalone --nproc-per-node={cell['gpus']} -m models.run {cell['model']} "
            f"{cell['phase']} module={cell['module']} gpus={cell['gpus']}"
        )
    return int(os.environ.get("RANK", "0"))


def read_local_rank(cell: "CellSettings") -> int:
    """Local rank of this process on its node, which is the index of its GPU."""
    read_rank(cell)
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextlib.contextmanager
def join_group(cell: "CellSettings", device: torch.device) -> Iterator[None]:
    """Hold the process group while the body runs; after an error torchrun ends all processes."""
    if process_count(cell) == 1:
        yield
        return
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    yield
    dist.destroy_process_group()


def wait_for_all(cell: "CellSettings") -> None:
    """Wait until all processes have arrived (barrier)."""
    if process_count(cell) > 1:
        dist.barrier()


def meet_nobody() -> None:
    """Wait for no other process, as where there is only one."""


def meet_all(cell: "CellSettings") -> None:
    """Wait on the CPU until all processes have arrived. Unlike a barrier, this gives the GPU no work."""
    processes = process_count(cell)
    if processes > 1:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
        meet(store, f"profzoo/meeting{next(_MEETINGS)}", processes)


def meet(store: dist.Store, name: str, processes: int) -> None:
    """Wait until so many processes have arrived at a meeting.

    store: what the processes share. name: the same in all of them, and never used before.
    """
    if store.add(name, 1) == processes:
        store.set(f"{name}/complete", "")
    store.wait([f"{name}/complete"])


def wrap_network(network: nn.Module, cell: "CellSettings", device: torch.device) -> nn.Module:
    """Wrap the network so that gradients are averaged over processes; unchanged for one process, or if it is split."""
    if process_count(cell) == 1 or parallel_kind(cell) != DDP:
        return network
    return DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)


def keep_gradients(network: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Context of a pass whose gradients DistributedDataParallel does not send, as further passes add theirs."""
    return network.no_sync() if isinstance(network, DistributedDataParallel) else contextlib.nullcontext()


def check_shareable(cell: "CellSettings", model: ModelFunctions) -> None:
    """Check that several processes can train the model together.

    Raises:
        ConfigError: it trains several networks in turn, which is not supported.
    """
    if process_count(cell) == 1:
        return
    if model.optimizers or model.others is not no_others:
        raise ConfigError(
            f"gpus = {process_count(cell)}: {cell['model']} trains several networks in turn, on one GPU only"
        )


def make_sampler(dataset: Dataset[Any], cell: "CellSettings") -> DistributedSampler[Any] | None:
    """Sampler for this process's share of the samples; None if all of them are its own."""
    if share_count(cell) == 1:
        return None
    return DistributedSampler(
        dataset, process_count(cell), read_rank(cell), shuffle=True, seed=cell["seed"], drop_last=True
    )


def gather_facts(cell: "CellSettings", facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Facts of all processes, in order of rank."""
    if process_count(cell) == 1:
        return [facts]
    said: list[Any] = [None] * process_count(cell)
    dist.all_gather_object(said, facts)
    return said


# Describes how DistributedDataParallel sends gradients: in which buckets, and how much beside the backward pass.
#
# The numbers are DistributedDataParallel's own: it times its first ten backward passes and every hundredth after them
# (torch/csrc/distributed/c10d/reducer.cpp), whether anybody asks for them or not.


def describe_gradient_sync(networks: Iterable[nn.Module]) -> "dict[str, GradientSync]":
    """Describe the first network that sends gradients, under the name of the fact; empty if none does.

    Call it while the process group exists.
    """
    parts = {id(part): part for network in networks for part in network.modules()}
    sending = [part for part in parts.values() if isinstance(part, DistributedDataParallel)]
    if not sending:
        return {}
    found = inspection.attempt("sending of gradients was not described", lambda: _read(sending), None)
    return {} if found is None else {"gradient_sync": found}


def _read(networks: Sequence[DistributedDataParallel]) -> "GradientSync":
    network = networks[0]
    told: dict[str, Any] = network._get_ddp_logging_data()
    # Buckets are made again in the order of the first backward pass, unless parameters may be unused.
    sizes = str(told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or "")
    return {
        "networks": len(networks),
        "bucket_bytes": [int(size) for size in sizes.split(",") if size.strip()],
        "find_unused_parameters": bool(told.get("find_unused_parameters")),
        "communication_ns": int(told.get("avg_backward_comm_time") or 0),
        "overlap_ns": int(told.get("avg_backward_compute_comm_overlap_time") or 0),
    }
