"""Types of a cell's resolved settings; `make docs` writes this file from profzoo/cell/schema.yaml."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict


class DataSettings(TypedDict):
    """Where the samples of a cell come from."""

    # Further keyword arguments of the torchvision dataset.
    arguments: Mapping[str, Any]
    # Class name in torchvision.datasets, such as MNIST or VOCSegmentation, for source `dataset`.
    name: str | None
    # Folder that holds the data set, the images or the texts, or a text file; nothing is ever downloaded.
    root: str | None
    # `synthetic` data are defined in the model's file.
    source: Literal["synthetic", "dataset", "folder", "text"]
    # Share of the samples that only inference reads; training reads the others.
    test: NotRequired[float]
    # Folder that keeps vocabularies learnt from the texts of the training, each under the digest of what it was
    # learnt from.
    vocabulary: NotRequired[str]


class ProfilerSettings(TypedDict):
    """Options of torch.profiler."""

    # Number of steps that are timed in the same process after the warm-up, before the profiler starts.
    baseline: NotRequired[int]
    # Estimate the FLOPs of operators that torch has a formula for (conv2d, mm, addmm, add, mul).
    flops: bool
    # Track allocations of tensors, and export memory over the traced steps.
    memory: bool
    # Record the layer of each operator and launch, by ranges around the calls of the network's modules.
    modules: bool
    # Number of cycles.
    repeat: int
    # Record the shapes of operators' inputs and group operators by them.
    shapes: bool
    # Record source locations.
    stacks: bool
    # Number of steps that the profiler skips at the start of each cycle.
    wait: int
    # Number of steps that are traced and discarded in each cycle, in addition to the cell's own warm-up.
    warmup: int


class CellSettings(TypedDict):
    """How one cell runs, as `profzoo.cell.settings.resolve_cell` returns it."""

    # Batches per update of the weights.
    accumulate: NotRequired[int]
    # Items in one batch.
    batch: int
    # Keep images and convolution weights in channels-last memory format.
    channels_last: bool
    # Checkpoint activations in training.
    checkpoint: NotRequired[bool]
    # The largest norm of all gradients together, to which they are scaled down before the optimizer steps (in the
    # range `optimizer`).
    clip: NotRequired[float | None]
    # The command line that runs the script, such as `python train.py --epochs 1`.
    command: NotRequired[str]
    # Compile the network with torch.compile, in one of its modes; `true` means the mode `default`.
    compile: Literal[False, True, "default", "reduce-overhead", "max-autotune-no-cudagraphs"]
    # Tokens of the prompt in inference of a model that generates, such as `8k`, where `k` is 1024.
    context: NotRequired[int | str | None]
    # Let cuDNN time its algorithms and use the fastest; its choice may differ from run to run.
    cudnn_benchmark: bool
    # Source of the data samples.
    data: DataSettings
    # Let PyTorch, cuDNN and cuBLAS use only algorithms whose results repeat exactly.
    deterministic: bool
    # Device on which the models run; `auto` takes the GPU if one is visible, else the CPU.
    device: Literal["auto", "cuda", "cpu"]
    # Decay of an exponential moving average of the network's weights, which each update moves by the rest (in the
    # range `optimizer`).
    ema: NotRequired[float | None]
    # Largest number of epochs, which are passes through the data set.
    epochs: int
    # Whether the script runs to its own end after the window.
    finish: NotRequired[bool]
    # Whether the batch is halved until it fits into memory.
    fit: bool
    # The folder in which the command starts, from the folder that snakemake runs in.
    folder: NotRequired[str]
    # GPUs per node for training, under torchrun with one process per GPU (see `parallel`); `batch` is the batch of
    # one process.
    gpus: int
    # Capture the whole step in one CUDA graph (forward, loss, backward and optimizer in training, forward in
    # inference).
    graph: NotRequired[bool]
    # Further files and folders whose change causes the script to be measured again.
    inputs: NotRequired[list[str]]
    # Name of the model, without variant.
    model: str
    # Dotted name of the module that holds the model.
    module: str
    # Nodes for training, with `gpus` GPUs each; more than one needs Slurm (profiles/slurm) or pods of Kubernetes
    # (profiles/kubernetes/nodes.yaml).
    nodes: int
    # Implementation of the optimizer.
    optimizer: NotRequired[Literal["auto", "for_loop", "foreach", "fused", "8bit"]]
    # How several processes share the training.
    parallel: NotRequired[Literal["ddp", "fsdp", "tensor", "pipeline"]]
    # Whether worker processes stay from epoch to epoch, or start anew in each; needs `workers`.
    persistent_workers: NotRequired[bool | None]
    # What a step does.
    phase: Literal["train", "inference"]
    # Load batches into page-locked host memory and copy them to the GPU asynchronously.
    pin_memory: bool
    # Arithmetic.
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
    # Batches that each worker process loads ahead; needs `workers`.
    prefetch_factor: NotRequired[int | None]
    # Options of torch.profiler; only of cells under the tool `torch`.
    profiler: NotRequired[ProfilerSettings]
    # Samples in the data set; an epoch has samples/batch whole steps.
    samples: int
    # Seed of weights, data and sampling.
    seed: int
    # The model's own shape parameters, by name.
    shape: Mapping[str, Any]
    # The event that ends a step.
    step: NotRequired[str]
    # Steps in all: warm-up, window, and what the profiler's schedule adds.
    steps: int
    # CPU threads of PyTorch.
    threads: int | None
    # Warm-up steps before the window, in which allocators, caches and lazy initialisation reach their steady state.
    warmup: int
    # Weights that inference starts with.
    weights: NotRequired[Literal["initial", "trained"]]
    # Steps in the profiled window.
    window: int
    # Worker processes of the DataLoader; 0 loads in the main process.
    workers: int
    # Shapes and batch sizes.
    workload: Literal["trimmed", "reference", "large", "single"]
