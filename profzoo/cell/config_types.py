"""Types of the checked and complete configuration; `make docs` writes this file from profzoo/cell/schema.yaml."""

from collections.abc import Mapping
from typing import Literal, TypedDict

from profzoo.cell.cell_types import DataSettings
from profzoo.cell.tool_types import NcuSettings, NsysSettings, SampleSettings, TimeSettings, TorchSettings
from profzoo.json_types import GivenSettings


class LocksSettings(TypedDict):
    """Locks on GPUs, with which the jobs of all users of a machine take turns, so that no GPU ever runs two jobs
    at once."""

    # Folder of the lock files.
    folder: str
    # On a machine with one GPU, start a job's program while another job still uses the GPU.
    overlap: bool
    # The longest time that a job waits for GPUs that other jobs hold, such as `12h`.
    wait: str | float | None


class TrialsSettings(TypedDict):
    """Which settings `snakemake trials` tries on each cell besides its plans, and for how long."""

    # The longest time that the trials of one cell may take, such as `120s` or `10m`; also that of other processes
    # that are repeated until they decide.
    budget: str | float
    # The largest number of settings to try on a cell.
    max_settings: int | None
    # Variants to try, also joined (`graph+bf16`), and `double_batch`, which doubles the batch.
    panel: list[str]
    # The table of plans that are tried first, such as `other/tables/plans.csv` from a machine on which the cells
    # were profiled before.
    plans: str | None
    # Number of processes for each setting that proves at least as fast as the unchanged cell.
    repeats: int | None


class ShareSettings(TypedDict):
    """Which files `snakemake share` packs."""

    # Whether to pack the tools' reports too (`.ncu-rep`, `.nsys-rep`, SQLite, traces), except reports that hold a
    # secret.
    reports: bool


class ServeSettings(TypedDict):
    """Settings of `snakemake serve`, which serves the report on this machine, only to users who have the address
    that it prints."""

    # Address of the Perfetto page that opens traces.
    perfetto: str
    # The port on 127.0.0.1.
    port: int


class FiguresSettings(TypedDict):
    """Settings of figures."""

    # Resolution of PNG files of figures, in dots per inch.
    dpi: int
    # Number of kernels or operators in figures that show the largest ones.
    top: int


class Config(TypedDict):
    """The configuration, as `profzoo.config.configuration.normalise_config` returns it."""

    # Batches per update of the weights.
    accumulate: int
    # Items in one batch.
    batch: int | str | None
    # The candidates of `compare`, which are compared with the reference side (`reference`).
    candidate: list[str]
    # Keep images and convolution weights in channels-last memory format.
    channels_last: bool
    # Checkpoint activations in training.
    checkpoint: bool
    # GPU chip whose metrics `snakemake metrics` lists, such as `gh100`, as `ncu --list-chips` names it.
    chip: str | None
    # The largest norm of all gradients together, to which they are scaled down before the optimizer steps (in the
    # range `optimizer`).
    clip: float | None
    # Whether to measure and export results that are missing or out of date.
    collect: bool
    # Compile the network with torch.compile, in one of its modes; `true` means the mode `default`.
    compile: Literal[False, True, "default", "reduce-overhead", "max-autotune-no-cudagraphs"]
    # Tokens of the prompt in inference of a model that generates, such as `8k`, where `k` is 1024.
    context: int | str | None
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
    ema: float | None
    # What happens to results that were measured with other versions of torch, the driver, a profiler, or a package
    # that the program imports.
    environment: Literal["say", "measure", "fail"]
    # Largest number of epochs, which are passes through the data set.
    epochs: int
    # Largest relative difference in time at which `compare` still calls a cell `equivalent`.
    equivalence_margin: float
    # Formats in which `all`, `report` and `import` write all tables in addition to CSV; a comma-separated list on
    # the command line.
    export: list[str]
    # Folders, or packages that can be imported, with figures, rules and words of verdicts, section sets, tools and
    # models of your own (docs/guides/extending.md).
    extensions: list[str]
    # When `compare` ends with an exit code other than 0, such as in continuous integration: if a candidate is
    # `slower`, if it is `different` because it computes something else, or in `either` case.
    fail_on: Literal["slower", "different", "either", None]
    # Settings of figures.
    figures: FiguresSettings
    # Whether processes that measure a cell without a profiler's program are forked from one process that has
    # imported PyTorch, and those under ncu from another, to which ncu then attaches.
    fork: bool
    # Name under which the measured peaks of the GPU are stored (`peaks/{gpu}.csv`); choose one name for each kind
    # of GPU.
    gpu: str
    # GPUs per node for training, under torchrun with one process per GPU (see `parallel`); `batch` is the batch of
    # one process.
    gpus: int
    # Capture the whole step in one CUDA graph (forward, loss, backward and optimizer in training, forward in
    # inference).
    graph: bool
    # Reports that were made without profzoo, by the name of the model that each becomes (docs/guides/reports.md).
    imported: Mapping[str, GivenSettings]
    # Locks on GPUs, with which the jobs of all users of a machine take turns, so that no GPU ever runs two jobs at
    # once.
    locks: LocksSettings
    # Words that names or descriptions of metrics must have in the list of `snakemake metrics`.
    match: str | None
    # Models, groups of models, or `all`, as a list or a comma-separated string.
    models: list[str]
    # Nsight Compute.
    ncu: NcuSettings
    # Nodes for training, with `gpus` GPUs each; more than one needs Slurm (profiles/slurm) or pods of Kubernetes
    # (profiles/kubernetes/nodes.yaml).
    nodes: int
    # Nsight Systems.
    nsys: NsysSettings
    # Implementation of the optimizer.
    optimizer: Literal["auto", "for_loop", "foreach", "fused", "8bit"]
    # How several processes share the training.
    parallel: Literal["ddp", "fsdp", "tensor", "pipeline"]
    # Folders by name; all output is written to `results`.
    pathvars: Mapping[str, str]
    # Whether worker processes stay from epoch to epoch, or start anew in each; needs `workers`.
    persistent_workers: bool | None
    # Phases to run.
    phases: list[str]
    # Load batches into page-locked host memory and copy them to the GPU asynchronously.
    pin_memory: bool
    # Arithmetic.
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
    # Batches that each worker process loads ahead; needs `workers`.
    prefetch_factor: int | None
    # The reference side of `compare`, with which candidates are compared.
    reference: str
    # Number of processes that time each cell without a profiler, one after the other.
    repeats: int | str | None
    # A name for the results of one state of your own code, such as `before`.
    run: str | None
    # NVML's counters, sampled during an unprofiled run.
    sample: SampleSettings
    # Samples in the data set; an epoch has samples/batch whole steps.
    samples: int | None
    # Seed of weights, data and sampling.
    seed: int
    # Settings of `snakemake serve`, which serves the report on this machine, only to users who have the address
    # that it prints.
    serve: ServeSettings
    # Settings by model: any of the cell settings above, and the model's own shape parameters (`size`,
    # `sequence_length`, ...).
    settings: Mapping[str, GivenSettings]
    # Which files `snakemake share` packs.
    share: ShareSettings
    # Values of cell settings or shape parameters by key, such as `{batch: [1, 8], context: [1k, 8k]}`.
    sweep: Mapping[str, list[bool | int | float | str]]
    # CPU threads of PyTorch.
    threads: int | None
    # The unprofiled baseline.
    time: TimeSettings
    # Tools with which `all`, `figures` and `report` measure; a comma-separated list on the command line.
    tool: list[str]
    # torch.profiler.
    torch: TorchSettings
    # Which settings `snakemake trials` tries on each cell besides its plans, and for how long.
    trials: TrialsSettings
    # Environment variables that all measured processes start with, besides the few that they need.
    variables: list[str]
    # Named sets of cell settings, selected as model@variant.
    variants: Mapping[str, GivenSettings]
    # Warm-up steps before the window, in which allocators, caches and lazy initialisation reach their steady state.
    warmup: int
    # Weights that inference starts with.
    weights: Literal["initial", "trained"]
    # Steps in the profiled window.
    window: int | str | None
    # Worker processes of the DataLoader; 0 loads in the main process.
    workers: int
    # Shapes and batch sizes.
    workload: Literal["trimmed", "reference", "large", "single"]
