"""Types of the checked and complete configuration; `make docs` writes this file from profzoo/schema.yaml."""

from collections.abc import Mapping
from typing import Literal, TypedDict

from profzoo.cell.cell_types import DataSettings
from profzoo.cell.tool_types import NcuSettings, NsysSettings, SampleSettings, TimeSettings, TorchSettings
from profzoo.json_types import GivenSettings


class LocksSettings(TypedDict):
    """Locks on GPUs, with which the jobs of all users of a machine take turns, so that no GPU ever runs two jobs
    at once."""

    # Folder of the lock files, the same for all users that share the GPUs, on a file system with locks.
    folder: str
    # On a machine with one GPU, start a job's program, imports and network construction while another job still
    # uses the GPU, and wait for the GPU only just before using it.
    overlap: bool
    # The longest time that a job waits for GPUs that other jobs hold, such as `12h`; it then fails and names the
    # processes that hold them.
    wait: str | float | None


class TrialsSettings(TypedDict):
    """Which settings `snakemake trials` tries on each cell besides the advice of verdicts, and for how long."""

    # The most time that the trials of one cell may take, such as `120s` or `10m`; settings with the largest
    # expected gain come first.
    budget: str | float
    # The largest number of settings to try on a cell, those with the largest expected gain; `null` tries all.
    max_settings: int | None
    # Variants to try, also joined (`graph+bf16`), and `double_batch`, which doubles the batch.
    panel: list[str]
    # Processes for each setting that proves at least as fast as the cell as it is.
    repeats: int
    # The table of verdicts whose advice is tried, such as `other/tables/verdicts.csv` from a machine on which the
    # cells were profiled before.
    verdicts: str | None


class ShareSettings(TypedDict):
    """Which files `snakemake share` packs."""

    # Whether to pack the tools' reports too (`.ncu-rep`, `.nsys-rep`, SQLite, traces), except reports that hold a
    # secret.
    reports: bool


class ServeSettings(TypedDict):
    """How `snakemake serve` serves the report on this machine, only to users who have the address that it
    prints."""

    # Address of the Perfetto page that opens traces; name a copy of your own if this machine cannot reach it.
    perfetto: str
    # The port on 127.0.0.1.
    port: int


class FiguresSettings(TypedDict):
    """Settings of figures."""

    # Number of kernels or operators in figures that show the largest ones.
    top: int


class Config(TypedDict):
    """The configuration, as `profzoo.config.configuration.normalise_config` returns it."""

    # Items in one batch; null takes the model's own batch size for the phase and workload; `auto` halves that until
    # the step fits into memory and writes the chosen size into the sidecar.
    batch: int | str | None
    # The candidates of `compare`, which are compared with the reference side (`reference`).
    candidate: list[str]
    # Keep images and convolution weights in channels-last memory format.
    channels_last: bool
    # Checkpoint activations in training.
    checkpoint: bool
    # Whether to measure and export results that are missing or out of date.
    collect: bool
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
    # Environment variables that profiled processes see besides the few that they need.
    environment: list[str]
    # The most epochs, which are passes through the data set.
    epochs: int
    # Largest relative difference in time at which `compare` still calls a cell `equivalent`.
    equivalence_margin: float
    # Folders, or packages that can be imported, with figures, rules and words of verdicts, section sets, tools and
    # models of your own (docs/extending.md); relative ones are looked for from the folder that snakemake runs in.
    extensions: list[str]
    # When `compare` ends with an exit code other than 0, such as in continuous integration: if a candidate is
    # `slower`, if it is `different` because it computes something else, or in `either` case.
    fail_on: Literal["slower", "different", "either", None]
    # Settings of figures.
    figures: FiguresSettings
    # Name under which the measured peaks of the GPU are stored (`peaks/{gpu}.csv`); choose one name for each kind
    # of GPU.
    gpu: str
    # GPUs per node for training, by DistributedDataParallel under torchrun with one process per GPU; `batch` is the
    # batch of one process.
    gpus: int
    # Capture the whole step in one CUDA graph (forward, loss, backward and optimizer in training, forward in
    # inference).
    graph: bool
    # Reports made elsewhere, by the name of the model that each is to be (docs/imported.md).
    imported: Mapping[str, GivenSettings]
    # Locks on GPUs, with which the jobs of all users of a machine take turns, so that no GPU ever runs two jobs at
    # once.
    locks: LocksSettings
    # Models, groups of models, or `all`, as a list or a comma-separated string.
    models: list[str]
    # Nsight Compute.
    ncu: NcuSettings
    # Nodes for training, with `gpus` GPUs each; more than one needs Slurm (profiles/slurm).
    nodes: int
    # Nsight Systems.
    nsys: NsysSettings
    # Implementation of the optimizer, `for_loop` (operations for each parameter), `foreach` (each operation for all
    # parameters at once) or `fused` (one kernel for the whole update); `auto` takes PyTorch's default.
    optimizer: Literal["auto", "for_loop", "foreach", "fused"]
    # Folders by name; all output is written to `results`.
    pathvars: Mapping[str, str]
    # Phases to run.
    phases: list[str]
    # Load batches into page-locked host memory and copy them to the GPU asynchronously.
    pin_memory: bool
    # Arithmetic, `fp32`, `tf32` (fp32 with TensorFloat-32 products), or autocast to `bf16` or `fp16` (fp16 trains
    # with a gradient scaler).
    precision: Literal["fp32", "tf32", "bf16", "fp16"]
    # The reference side of `compare`, with which candidates are compared.
    reference: str
    # Processes that time each cell without a profiler, one after the other; several show how times vary between
    # processes.
    repeats: int | None
    # A name for the results of one state of your own code, such as `before`; they are stored in `runs/{name}/`.
    run: str | None
    # NVML's counters, sampled during an unprofiled run.
    sample: SampleSettings
    # Samples in the data set; an epoch has samples/batch whole steps.
    samples: int | None
    # Seed of weights, data and sampling.
    seed: int
    # How `snakemake serve` serves the report on this machine, only to users who have the address that it prints.
    serve: ServeSettings
    # Settings by model: any of the cell settings above, the model's own shape parameters (`size`,
    # `sequence_length`, ...), and `module`, an importable module that holds a model of your own.
    settings: Mapping[str, GivenSettings]
    # Which files `snakemake share` packs.
    share: ShareSettings
    # CPU threads of PyTorch.
    threads: int | None
    # The unprofiled baseline.
    time: TimeSettings
    # Tools with which `all`, `figures` and `report` measure; a comma-separated list on the command line.
    tool: list[str]
    # torch.profiler.
    torch: TorchSettings
    # Which settings `snakemake trials` tries on each cell besides the advice of verdicts, and for how long.
    trials: TrialsSettings
    # Named sets of cell settings, selected as model@variant; several that do not contradict each other are combined
    # as model@one+other.
    variants: Mapping[str, GivenSettings]
    # Warm-up steps before the window, in which allocators, caches and lazy initialisation reach their steady state.
    warmup: int
    # Steps in the profiled window; `rest` takes all steps of the data set and its epochs that remain after the
    # warm-up; null takes the tool's own number (`window` under the tool's name).
    window: int | str | None
    # Worker processes of the DataLoader; 0 loads in the main process.
    workers: int
    # Shapes and batch sizes, `trimmed` (small, fits an 8 GB GPU) or `reference` (those of AI Benchmark 0.1.2).
    workload: Literal["trimmed", "reference"]
