"""A program whose use of the GPU is known at each moment: it streams, multiplies, sleeps, copies and takes memory.

Run as a script, it does the same in each of STEPS steps, between cudaProfilerStart and cudaProfilerStop:

  stream    STREAMED passes of a kernel that reads GIB and writes GIB; all SMs are active
  sleep     the GPU does nothing for SLEEP_S
  product   PRODUCTS products of matrices in bfloat16, on tensor cores
  memory    BLOCK bytes are taken from CUDA, held for SLEEP_S, and given back
  copy      COPIED copies of GIB on the GPU
  upload    UPLOADED copies of UPLOAD bytes from pinned memory
"""

import time
from collections.abc import Callable, Mapping

import nvtx
import torch

from profzoo.range_names import DOMAIN, STEP, WINDOW, make_nvtx_name

STEPS = 4
GIB = 1 << 30
STREAMED, PRODUCTS, COPIED, UPLOADED = 40, 12, 20, 4
UPLOAD, BLOCK = 256 << 20, 256 << 20
SLEEP_S = 0.03
SIDE = 8192
# The sections in order, each a range of the program's own; no kernel runs right before and after `stream`.
SECTIONS = ("stream", "sleep", "product", "memory", "copy", "upload")


def _take_memory() -> None:
    block = torch.empty(BLOCK, dtype=torch.uint8, device="cuda")
    time.sleep(SLEEP_S)
    del block
    torch.cuda.empty_cache()


def make_sections() -> Mapping[str, Callable[[], object]]:
    values = torch.rand(GIB // 4, device="cuda")
    left, right = (torch.rand(SIDE, SIDE, device="cuda").bfloat16() for _ in range(2))
    out = torch.empty_like(left)
    source, target = (torch.zeros(GIB, dtype=torch.uint8, device="cuda") for _ in range(2))
    pinned = torch.zeros(UPLOAD, dtype=torch.uint8, pin_memory=True)
    place = torch.empty(UPLOAD, dtype=torch.uint8, device="cuda")
    return {
        "stream": lambda: [values.neg_() for _ in range(STREAMED)],
        "product": lambda: [torch.mm(left, right, out=out) for _ in range(PRODUCTS)],
        "sleep": lambda: time.sleep(SLEEP_S),
        "copy": lambda: [target.copy_(source, non_blocking=True) for _ in range(COPIED)],
        "upload": lambda: [place.copy_(pinned, non_blocking=True) for _ in range(UPLOADED)],
        "memory": _take_memory,
    }


def main() -> None:
    sections = make_sections()
    for act in sections.values():
        act()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.profiler.start()
    with nvtx.annotate(make_nvtx_name(WINDOW), domain=DOMAIN):
        for _ in range(STEPS):
            with nvtx.annotate(make_nvtx_name(STEP), domain=DOMAIN):
                for name in SECTIONS:
                    with nvtx.annotate(name):
                        sections[name]()
                        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
