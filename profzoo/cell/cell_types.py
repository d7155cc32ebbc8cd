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
    # `synthetic` (defined in the model's file: either two random batches, made by its `sample` before the first
    # step and used in turn, or its own `dataset`, read in every step), `dataset` (a torchvision dataset on disk) or
    # `folder` (an image folder on disk).
    source: Literal["synthetic", "dataset", "folder"]


class ProfilerSettings(TypedDict):
    """Options of torch.profiler."""

    # Steps that are timed in the same process after the warm-up, before the profiler starts.
    baseline: NotRequired[int]
    # Estimate the FLOPs of operators that torch has a formula for (conv2d, mm, addmm, add, mul).
    flops: bool
    # Track allocations of tensors.
    memory: bool
    # Record the layer that each operator and launch belongs to, by ranges around the calls of the network's
    # modules.
    modules: bool
    # Cycles; the last one is exported.
    repeat: int
    # Record the shapes of operators' inputs and group operators by them.
    shapes: bool
    # Record source locations; slow, and makes large traces.
    stacks: bool
    # Steps that the profiler skips at the start of each cycle.
    wait: int
    # Steps traced and discarded in each cycle, in addition to the cell's own warm-up.
    warmup: int


class CellSettings(TypedDict):
    """How one cell runs, as `profzoo.cell.settings.resolve_cell` returns it."""

    # Items in one batch; null takes the model's own batch size for the phase and workload; `auto` halves that until
    # the step fits into memory and writes the chosen size into the sidecar.
    batch: int
    # Keep images and convolution weights in channels-last memory format.
    channels_last: bool
    # Checkpoint activations in training.
    checkpoint: NotRequired[bool]
    # The command line that runs the script, such as `python train.py --epochs 1`, from the folder that snakemake
    # runs in.
    command: NotRequired[str]
    # Compile the network with torch.compile, in one of its modes; `true` is `default`.
    compile: Literal[False, True, "default", "reduce-overhead", "max-autotune-no-cudagraphs"]
    # Let cuDNN time its algorithms and use the fastest; its choice may differ from run to run.
    cudnn_benchmark: bool
    # Where samples come from.
    data: DataSettings
    # Let PyTorch, cuDNN and cuBLAS use only algorithms whose results repeat exactly.
    deterministic: bool
    # Where the models run; `auto` takes the GPU where one is visible, else the CPU.
    device: Literal["auto", "cuda", "cpu"]
    # The most epochs, which are passes through the data set.
    epochs: int
    # Whether the script runs to its own end after the window, instead of ending there.
    finish: NotRequired[bool]
    # Whether the batch is halved until it fits into memory.
    fit: bool
    # GPUs per node for training, by DistributedDataParallel under torchrun with one process per GPU; `batch` is the
    # batch of one process.
    gpus: int
    # Capture the whole step in one CUDA graph (forward, loss, backward and optimizer in training, forward in
    # inference).
    graph: NotRequired[bool]
    # Files and folders whose change measures the script again, besides the `.py` files that the command names and
    # the modules that the script imports from outside of installed packages.
    inputs: NotRequired[list[str]]
    # Name of the model, without variant.
    model: str
    # Dotted name of the module that holds the model.
    module: str
    # Nodes for training, with `gpus` GPUs each; more than one needs Slurm (profiles/slurm).
    nodes: int
    # Implementation of the optimizer, `for_loop` (operations for each parameter), `foreach` (each operation for all
    # parameters at once) or `fused` (one kernel for the whole update); `auto` takes PyTorch's default.
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
    # Samples in the data set; an epoch has samples/batch whole steps.
    samples: int
    # Seed of weights, data and sampling.
    seed: int
    # The model's own shape parameters, by name.
    shape: Mapping[str, Any]
    # What ends a step.
    step: NotRequired[str]
    # Steps in all: warm-up, window, and what the profiler's schedule adds.
    steps: int
    # CPU threads of PyTorch.
    threads: int | None
    # Warm-up steps before the window, in which allocators, caches and lazy initialisation reach their steady state.
    warmup: int
    # Steps in the profiled window; `rest` takes all steps of the data set and its epochs that remain after the
    # warm-up; null takes the tool's own number (`window` under the tool's name).
    window: int
    # Worker processes of the DataLoader; 0 loads in the main process.
    workers: int
    # Shapes and batch sizes, `trimmed` (small, fits an 8 GB GPU) or `reference` (those of AI Benchmark 0.1.2).
    workload: Literal["trimmed", "reference"]
