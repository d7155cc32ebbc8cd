"""A network that also launches kernels of known behaviour, which NVRTC and Triton compile with a table of lines."""

import ctypes
import functools
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.cuda import _utils

WORKLOADS = {"trimmed": {"train": {"batch": 2}, "inference": {"batch": 2}}}
CUDA_FILE = Path(__file__).with_suffix(".cu")
KERNELS = ("spills", "tight", "phases")
BLOCKS, THREADS, STEPS, SIZE = 264, 256, 200, 1 << 20
WARPS = BLOCKS * THREADS // 32
# Of each half of the kernel `phases`, its blocks, and the vectors that it reads: 1 GiB, which no L2 holds.
EACH_NS, PHASE_BLOCKS, READ = 500_000, 132, 1 << 26


def compile_source(architecture: str) -> bytes:
    """Return the machine code of CUDA_FILE for an architecture such as `sm_90`, with its table of lines."""
    library = _utils._get_gpu_rtc_library()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text, name = CUDA_FILE.read_bytes(), str(CUDA_FILE).encode()
    assert not library.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    options = [f"--gpu-architecture={architecture}".encode(), b"-lineinfo"]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if code:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, made)
    return made.raw


def line_of(mark: str) -> int:
    """Return the number of the source line that ends with a mark."""
    (found,) = [
        number for number, line in enumerate(CUDA_FILE.read_text().splitlines(), 1) if line.endswith(f"  // {mark}")
    ]
    return found


@functools.cache
def load_kernels() -> dict[str, _utils._CudaKernel]:
    """Return the kernels, compiled for this GPU."""
    major, minor = torch.cuda.get_device_capability()
    made = _utils._cuda_load_module(compile_source(f"sm_{major}{minor}"), list(KERNELS))
    assert isinstance(made, dict)
    return made


def launch_triton(out: Tensor, values: Tensor) -> None:
    """Launch the kernel of triton_lines, where Triton works; it needs a C compiler."""
    try:
        from tests.gpu.programs import triton_lines

        triton_lines.launch(out, values)
    except Exception as error:
        print(f"no Triton kernel: {error!r}", file=sys.stderr)


class Network(nn.Module):
    """Classifies its inputs, and launches the kernels besides."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(1, 2)
        for name, size in (("out", PHASE_BLOCKS * 1024 * 4), ("some", SIZE), ("many", READ * 4)):
            self.register_buffer(name, torch.zeros(size), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        kernels = load_kernels()
        kernels["spills"]((BLOCKS, 1, 1), (THREADS, 1, 1), [self.out, self.some, STEPS, SIZE])
        kernels["tight"]((1, 1, 1), (1024, 1, 1), [self.out, self.some])
        kernels["phases"]((PHASE_BLOCKS, 1, 1), (1024, 1, 1), [self.out, self.many, EACH_NS, READ])
        launch_triton(self.out, self.some)
        return self.classify(inputs)


def build(shape: object) -> nn.Module:
    return Network()


def sample(shape: object, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.zeros(1), 0
