"""Compiles a small network by Inductor, and records training steps of it: `python -m tests.compiling FOLDER HOW`.

It leaves a trace, and the code that Inductor generated, as it stands but for comments. HOW: `whole`, `blocks` (each by
itself), or `function` (one that calls the network); `plain` compiles the whole, and notes nothing of it.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from profzoo.harness import compiled_kernels
from profzoo.harness.ranges import Ranges
from profzoo.range_names import STEP

WIDTH, BATCH, BLOCKS, STEPS = 32, 16, 2, 2
COMMENT = re.compile(r"\s*#.*")


class Block(nn.Module):
    """A product, a norm whose backward pass needs sums, and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the next block takes."""
        return torch.relu(self.norm(self.fc(x))) + x


class Network(nn.Module):
    """Blocks, of which the first is called once more at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return four numbers per sample."""
        for block in (*self.blocks, self.blocks[0]):
            x = block(x)
        return torch.sigmoid(self.head(x))


def compile_network(network: Network, how: str) -> Callable[[Tensor], Tensor]:
    """Compile a network, and return what calls it."""
    if how == "blocks":
        for block in network.blocks:
            block.compile()
    elif how == "function":
        return torch.compile(lambda x: torch.tanh(network(x)))
    else:
        network.compile()
    return network


def record(network: Network, called: Callable[[Tensor], Tensor], device: str, path: Path) -> None:
    """Train some steps, and write the trace of the last of them."""
    ranges = Ranges()
    ranges.watch(torch_ranges=True, torch_modules=True)
    ranges.mark(network)
    batch = torch.randn(BATCH, WIDTH, device=device)

    def step() -> None:
        with ranges(STEP):
            with ranges("forward"):
                outputs = called(batch)
            with ranges("loss"):
                loss = outputs.sum()
            with ranges("backward"):
                loss.backward()

    for _ in range(2):
        step()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        profiler.add_metadata_json(*compiled_kernels.trace_metadata())
    profiler.export_chrome_trace(str(path))


def generated_code() -> dict[str, list[str]]:
    """Return the lines of the modules that Inductor generated, in their order, without comments."""
    from torch._inductor.codecache import PyCodeCache

    written = [Path(str(module.__file__)).read_text() for module in PyCodeCache.modules]
    return {"code": [line for text in written for line in text.splitlines() if not COMMENT.fullmatch(line)]}


def main(folder: Path, how: str, device: str = "cpu") -> None:
    """Compile and record."""
    if how != "plain":
        compiled_kernels.watch()
    import torch._inductor.config as inductor

    # Only with this do kernels on a CPU show in a trace; without vectors, nothing is tried out on the CPU first. The
    # headers of all kernels take longest to compile, so they are compiled once.
    inductor.cpp.enable_kernel_profile, inductor.cpp.vec_isa_ok = True, False
    inductor.cpp_cache_precompile_headers = True
    torch.manual_seed(0)
    network = Network().to(device)
    record(network, compile_network(network, how), device, folder / f"{how}.trace.json.gz")
    (folder / f"{how}.json").write_text(json.dumps(generated_code()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
