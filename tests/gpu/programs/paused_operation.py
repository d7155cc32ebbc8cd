"""Times an all_reduce for which one of two processes is late, by CUDA events and without profzoo.

torchrun starts it, one process for each GPU, with the number of bytes. The late process prints the median in ns.
"""

import os
import statistics
import sys

import torch
import torch.distributed as dist

# The late GPU spins for about a quarter of a second, so that the host has launched what follows long before.
TIMES, CYCLES = 12, 400_000_000
# The first calls set up connections.
LEFT_OUT = 2


def main() -> None:
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    values = torch.rand(int(sys.argv[1]) // 4, device=device)
    found = []
    for _ in range(TIMES):
        torch.cuda.synchronize()
        if rank:
            torch.cuda._sleep(CYCLES)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        dist.all_reduce(values)
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e6)
    if rank:
        print(f"took {statistics.median(found[LEFT_OUT:]):.0f} ns")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
