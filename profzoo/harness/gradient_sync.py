"""Describes how DistributedDataParallel sends gradients: in which buckets, and how much beside the backward pass.

The numbers are DistributedDataParallel's own: it times its first ten backward passes and every hundredth after them
(torch/csrc/distributed/c10d/reducer.cpp), whether anybody asks for them or not.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from profzoo.harness import safe_inspection

if TYPE_CHECKING:
    from profzoo.cell.job_types import GradientSync


def describe_gradient_sync(networks: Iterable[nn.Module]) -> "dict[str, GradientSync]":
    """Describe the first network that sends gradients, under the name of the fact; empty if none does.

    Call it while the process group exists.
    """
    parts = {id(part): part for network in networks for part in network.modules()}
    sending = [part for part in parts.values() if isinstance(part, DistributedDataParallel)]
    if not sending:
        return {}
    found = safe_inspection.attempt("sending of gradients was not described", lambda: _read(sending), None)
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
