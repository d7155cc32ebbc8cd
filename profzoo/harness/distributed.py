"""Distributes a cell's training over processes with one GPU each, which torchrun started."""

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler

from profzoo.cell.process_count import batch_count, process_count
from profzoo.errors import ConfigError
from profzoo.harness import sharding
from profzoo.harness.interface import ModelFunctions, no_others

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

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
    if process_count(cell) == 1 or sharding.parallel_kind(cell) != sharding.DDP:
        return network
    return DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)


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
    if batch_count(cell) == 1:
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
