"""One process that uses two GPUs: it reads and writes memory of GPU 0, copies to GPU 1, and does half as much there.

Run as a script, it does the same in each of STEPS steps, between cudaProfilerStart and cudaProfilerStop.
"""

import nvtx
import torch

from profzoo.range_names import DOMAIN, STEP, WINDOW, make_nvtx_name

STEPS = 4
GIB = 1 << 30
# Passes over GIB of each GPU, and copies of GIB from the first to the second.
PASSES, COPIES = (40, 20), 4


def main() -> None:
    values = [torch.rand(GIB // 4, device=f"cuda:{gpu}") for gpu in (0, 1)]
    target = torch.empty_like(values[1])

    def step() -> None:
        for own, passes in zip(values, PASSES, strict=True):
            for _ in range(passes):
                own.neg_()
            torch.cuda.synchronize(own.device)
        for _ in range(COPIES):
            target.copy_(values[0], non_blocking=True)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    step()
    torch.cuda.profiler.start()
    with nvtx.annotate(make_nvtx_name(WINDOW), domain=DOMAIN):
        for _ in range(STEPS):
            with nvtx.annotate(make_nvtx_name(STEP), domain=DOMAIN):
                step()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
