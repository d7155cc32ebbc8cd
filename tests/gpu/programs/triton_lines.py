"""A Triton kernel whose loads per line are known. A mark names the line of the load."""

from pathlib import Path

import triton
import triton.language as tl
from torch import Tensor

LANES, WARPS_OF_BLOCK, PROGRAMS, TURNS = 128, 4, 264, 200
FILE = Path(__file__)


@triton.jit
def adds(out, values, turns, width: tl.constexpr):
    """Add up `turns` rows of `width` values in each program."""
    lanes = tl.arange(0, width)
    total = tl.zeros((width,), dtype=tl.float32)
    for turn in range(turns):
        total += tl.load(values + (tl.program_id(0) + turn) * width + lanes)  # load
    tl.store(out + tl.program_id(0) * width + lanes, total)


def launch(out: Tensor, values: Tensor) -> None:
    """Launch the kernel: each of its warps loads once per turn."""
    adds[(PROGRAMS,)](out, values, TURNS, width=LANES, num_warps=WARPS_OF_BLOCK, num_stages=1)


def line_of_load() -> int:
    (found,) = [at for at, line in enumerate(FILE.read_text().splitlines(), 1) if line.endswith("  # load")]
    return found
