"""Does every collective operation, and sends and receives, a known number of times in traced steps.

torchrun starts it: `torchrun --nproc-per-node=2 -m tests.gpu.programs.every_operation cpu FOLDER`. Each process leaves
its trace in the folder, named as those of a cell.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

STEPS, ELEMENTS = 3, 1200
# Elements of the whole buffer by operation; every one takes place once per step, but for sends and receives.
WHOLE = dict.fromkeys(("broadcast", "reduce", "gather", "all_gather", "all_to_all", "all_reduce"), ELEMENTS)
# Per step and process: one each with and without a batch.
SENDS, RECEIVES = 2, 2


def operate(device: torch.device) -> None:
    """Do each of WHOLE, then send to the next process and receive from the one before, twice."""
    rank, size = dist.get_rank(), dist.get_world_size()
    whole, other = torch.ones(ELEMENTS, device=device), torch.zeros(ELEMENTS, device=device)
    part = torch.ones(ELEMENTS // size, device=device)
    dist.broadcast(whole, 0)
    dist.reduce(whole, 0)
    dist.gather(part, list(other.chunk(size)) if rank == 0 else None, 0)
    dist.all_gather_into_tensor(other, part)
    dist.all_to_all_single(other, whole)
    dist.all_reduce(whole)
    after, before = (rank + 1) % size, (rank - 1) % size
    pair = [dist.P2POp(dist.isend, whole, after), dist.P2POp(dist.irecv, other, before)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    # The order in which neither waits for the other before it receives.
    if rank == 0:
        dist.send(whole, after)
        dist.recv(other, before)
    else:
        dist.recv(other, before)
        dist.send(whole, after)


def main() -> None:
    kind, folder = sys.argv[1:]
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    activities = [ProfilerActivity.CPU]
    if kind == "cuda":
        torch.cuda.set_device(device)
        activities.append(ProfilerActivity.CUDA)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", device_id=device if kind == "cuda" else None)
    operate(device)
    with profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(STEPS):
            with record_function("profzoo:step"), record_function("profzoo:backward"):
                operate(device)
        # Threads of gloo note the end of an operation a moment after it.
        dist.barrier()
        if kind == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(Path(folder) / f"host.{dist.get_rank()}.trace.json.gz"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
