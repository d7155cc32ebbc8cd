"""A model with kernels whose counters are known: a copy, a chase of pointers, multiplications, and small or full blocks."""

import ctypes

import torch
from torch import Tensor, nn
from torch.cuda import _utils

WORKLOADS = {"trimmed": {"train": {"batch": 2}, "inference": {"batch": 2}}}
# Bytes that the copy reads, and writes: so many times the L2 cache that what stays there counts little.
COPIED = 2**31
# Numbers in the ring of pointers, each 128 bytes from the next, and steps along it.
RING, HOPS = 2**20, 4096
SOURCES = {
    "vector_copy": """
        extern "C" __global__ void vector_copy(const float4 *from, float4 *to) {
            long long place = (long long)blockIdx.x * blockDim.x + threadIdx.x;
            to[place] = from[place];
        }""",
    "pointer_chase": """
        extern "C" __global__ void pointer_chase(const int *next, int *last, int hops) {
            int place = 0;
            for (int hop = 0; hop < hops; hop++) place = next[place * 32];
            last[0] = place;
        }""",
    "multiply_add": """
        extern "C" __global__ void multiply_add(float *sums, int rounds) {
            float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7;
            for (int round = 0; round < rounds; round++) {
                a = a * 0.5f + 1; b = b * 0.5f + 1; c = c * 0.5f + 1; d = d * 0.5f + 1;
                e = e * 0.5f + 1; f = f * 0.5f + 1; g = g * 0.5f + 1; h = h * 0.5f + 1;
            }
            sums[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d + e + f + g + h;
        }""",
    "much_shared": """
        extern "C" __global__ void much_shared(float *sums) {
            __shared__ volatile float all[11000];
            for (int place = threadIdx.x; place < 11000; place += blockDim.x) all[place] = place;
            __syncthreads();
            sums[blockIdx.x * blockDim.x + threadIdx.x] = all[(threadIdx.x * 37) % 11000];
        }""",
    "small_blocks": """
        extern "C" __global__ void small_blocks(float *sums) {
            float value = threadIdx.x;
            // Counters of two passes differ by several percent where a kernel takes but a few microseconds.
            for (int number = 0; number < 20000; number++) value = value * 0.999f + 1.0f;
            sums[blockIdx.x * blockDim.x + threadIdx.x] = value;
        }""",
}
THREADS, BLOCKS = 256, 4096
CAN_COMPILE = all(hasattr(_utils, name) for name in ("_get_gpu_rtc_library", "_cuda_load_module"))


def compile_source(source: str, architecture: str) -> bytes:
    """Compile CUDA to machine code by NVRTC alone, without headers or a toolkit; architecture: such as `sm_90`.

    Raises:
        RuntimeError: NVRTC refuses it.
    """
    library, program, size = _utils._get_gpu_rtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
    option = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"known.cu", 0, None, None) == 0
    if library.nvrtcCompileProgram(program, 1, option):
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    code = ctypes.create_string_buffer(size.value)
    assert library.nvrtcGetCUBIN(program, code) == 0
    return code.raw


class Known(nn.Module):
    """Classifies its inputs, and runs the known kernels besides; copies: how often as many bytes as COPIED are copied."""

    def __init__(self, copies: int = 1) -> None:
        super().__init__()
        self.classify = nn.Linear(1, 2)
        self.copies, self.kernels, self.memory = copies, {}, {}

    def fill_memory(self, device: torch.device) -> None:
        """Compile the kernels, and fill their memory: the ring visits all its places in an order of large strides."""
        architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
        for name, source in SOURCES.items():
            self.kernels |= _utils._cuda_load_module(compile_source(source, architecture), [name])
        places = torch.arange(RING, device=device, dtype=torch.int32)
        ring = torch.zeros(RING * 32, device=device, dtype=torch.int32)
        ring[places.long() * 32] = (places + 387_413) % RING
        numbers = torch.zeros(BLOCKS * THREADS, device=device)
        size = COPIED * self.copies // 4
        self.memory = {"from": torch.ones(size, device=device), "to": torch.zeros(size, device=device), "ring": ring,
                       "numbers": numbers, "last": torch.zeros(1, device=device, dtype=torch.int32)}  # fmt: skip

    @torch.no_grad()
    def run_known(self, device: torch.device) -> None:
        if not self.kernels:
            self.fill_memory(device)
        run, held = self.kernels, self.memory
        blocks = COPIED * self.copies // 16 // THREADS
        run["vector_copy"](grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=[held["from"], held["to"]])
        run["pointer_chase"](grid=(1, 1, 1), block=(1, 1, 1), args=[held["ring"], held["last"], HOPS])
        run["multiply_add"](grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1), args=[held["numbers"], 4096])
        run["much_shared"](grid=(BLOCKS, 1, 1), block=(THREADS, 1, 1), args=[held["numbers"]])
        run["small_blocks"](grid=(BLOCKS, 1, 1), block=(32, 1, 1), args=[held["numbers"]])

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.is_cuda:
            self.run_known(inputs.device)
        return self.classify(inputs)


def build(shape: object) -> nn.Module:
    return Known()


def sample(shape: object, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.zeros(1), 0
