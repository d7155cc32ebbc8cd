"""Types of a cell's resolved settings; `make docs` writes this file from profzoo/schema.yaml."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict


class DataSettings(TypedDict):
    """Where the samples of a cell come from."""

    # Further keyword arguments of the torchvision dataset.
    arguments: Mapping[str, Any]
    # Class name in torchvision.datasets, such as MNIST or VOCSegmentation, for source `dataset`.
    name: str | None
    # Folder that holds the data set or the images; nothing is ever downloaded.
    root: str | None
    # `synthetic` (of the model's file: random, made by its `sample`, of which two batches are made beforehand and
    # come again and again; or read in every step from its own `dataset`), `dataset` (a torchvision dataset on disk)
    # or `folder` (an image folder on disk).
    source: Literal["synthetic", "dataset", "folder"]


class ProfilerSettings(TypedDict):
    """Options of torch.profiler."""

    # Steps that are timed before the profiler starts, in the same process, after the warm-up: the unprofiled
    # baseline, which then needs no process of its own (`{phase}.torch-time.csv`, by which tables go instead of
    # `{phase}.time.csv`).
    baseline: NotRequired[int]
    # Estimate the FLOPs of operators that torch has a formula for (conv2d, mm, addmm, add, mul).
    flops: bool
    # Track allocations of tensors.
    memory: bool
    # Record which module of the network each operator and launch belongs to, by ranges around the modules' calls.
    modules: bool
    # Cycles; the last one is exported.
    repeat: int
    # Record the shapes of operators' inputs and group operators by them.
    shapes: bool
    # Record source locations; slow, and makes large traces.
    stacks: bool
    # Steps that the profiler sits out at the start of each cycle.
    wait: int
    # Steps traced and thrown away in each cycle, on top of the cell's own warm-up.
    warmup: int


class CellSettings(TypedDict):
    """How one cell runs, as `profzoo.cell.settings.resolve_cell` returns it."""

    # Samples in one batch; null takes the model's own for the phase and workload; `auto` halves that until it fits
    # into memory, and says in the sidecar what it came to.
    batch: int
    # Keep images and convolution weights in channels-last memory format.
    channels_last: bool
    # Checkpoint activations in training, of which the backward pass then computes again what is within sequences of
    # modules; needs less memory and more time.
    checkpoint: NotRequired[bool]
    # Compile the network with torch.compile, in one of its modes; `true` is `default`.
    compile: Literal[False, True, "default", "reduce-overhead", "max-autotune-no-cudagraphs"]
    # Let cuDNN time its algorithms and take the fastest; its choice may differ from run to run.
    cudnn_benchmark: bool
    # Where samples come from.
    data: DataSettings
    # Have torch, cuDNN and cuBLAS take only algorithms whose results repeat exactly.
    deterministic: bool
    # Where the models run; `auto` takes the GPU where one is visible, else the CPU.
    device: Literal["auto", "cuda", "cpu"]
    # How many times the data set may be gone through.
    epochs: int
    # Whether the batch is halved until it fits into memory.
    fit: bool
    # GPUs of a node that training is spread over, by DistributedDataParallel under torchrun with a process each;
    # `batch` is of one of them.
    gpus: int
    # Capture the whole step in one CUDA graph (forward, loss, backward and optimizer in training, forward in
    # inference), which the last step of the warm-up and those of the window replay.
    graph: NotRequired[bool]
    # Name of the model, without variant.
    model: str
    # Dotted name of the module that holds the model.
    module: str
    # Nodes that training is spread over, `gpus` of each; more than one takes Slurm (profiles/slurm).
    nodes: int
    # Implementation of the optimizer, `for_loop` (operations for each parameter), `foreach` (for all parameters at
    # once) or `fused` (one kernel for all of it); `auto` takes the one that torch would.
    optimizer: NotRequired[Literal["auto", "for_loop", "foreach", "fused"]]
    # What a step does.
    phase: Literal["train", "inference"]
    # Load batches into page-locked host memory and copy them to the GPU asynchronously.
    pin_memory: bool
    # Arithmetic, `fp32`, `tf32` (fp32 with TensorFloat-32 products), or autocast to `bf16` or `fp16` (fp16 trains
    # with a gradient scaler).
    precision: Literal["fp32", "tf32", "bf16", "fp16"]
    # Options of torch.profiler; only of cells under the tool `torch`.
    profiler: NotRequired[ProfilerSettings]
    # Samples in the data set, of which an epoch makes samples/batch whole steps; null takes as many as warm-up and
    # window need.
    samples: int
    # Seed of weights, data and sampling.
    seed: int
    # The model's own shape parameters, by name.
    shape: Mapping[str, Any]
    # Steps in all: warm-up, window, and what the profiler's schedule adds.
    steps: int
    # CPU threads of torch.
    threads: int | None
    # Steps run before the window, to settle allocators, caches and lazy initialisation.
    warmup: int
    # Steps in the profiled window; `rest` is all that samples and epochs leave after the warm-up; null takes the
    # tool's own (`window` under the tool's name).
    window: int
    # Worker processes of the DataLoader; 0 loads in the main process.
    workers: int
    # Shapes and batch sizes, `trimmed` (small, fits an 8 GB GPU) or `reference` (those of AI Benchmark 0.1.2).
    workload: Literal["trimmed", "reference"]
