"""Types of the tools' parts of the configuration; `make docs` writes this file from profzoo/tools/*/schema.yaml."""

from collections.abc import Mapping
from typing import Literal, TypedDict


class SectionSet(TypedDict, total=False):
    """What ncu collects under the name of a section set."""

    cache_control: Literal["all", "none"]
    launches: str | int
    metrics: list[str]
    ranges: list[str]
    replay: Literal["auto", "kernel", "application", "range", "app-range"]
    sass: bool
    sections: list[str] | str
    set: str


class TimeSettings(TypedDict):
    """The unprofiled baseline."""

    # Time limit of one job of this tool, such as `90m` or `24h`.
    time_limit: str | float | None
    # Number of timed steps.
    window: int | str


class TorchSettings(TypedDict):
    """torch.profiler."""

    # Number of steps that are timed in the same process after the warm-up, before the profiler starts.
    baseline: int
    # Names of hardware counters for torch.profiler.
    counters: list[str]
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
    # Record what the GPU's allocator does, from before the network is placed until the window has ended, with the
    # Python lines that allocate.
    snapshot: bool
    # Record source locations.
    stacks: bool
    # Export the traces of all cycles to a folder in the layout of TensorBoard's profiler plugin
    # (`{phase}.tensorboard/`), as `torch.profiler.tensorboard_trace_handler` does.
    tensorboard: bool
    # Time limit of one job of this tool, such as `90m` or `24h`.
    time_limit: str | float | None
    # Number of steps that the profiler skips at the start of each cycle.
    wait: int
    # Number of steps that are traced and discarded in each cycle, in addition to the cell's own warm-up.
    warmup: int
    # Number of recorded steps in one cycle of the profiler's schedule.
    window: int | str


class NcuSettings(TypedDict):
    """Nsight Compute."""

    # The longest time that a section set other than `launch` may take for one cell, such as `120s` or `10m`.
    budget: str | float | None
    # Flush GPU caches before each pass (`all`) or leave them (`none`).
    cache_control: Literal["all", "none"]
    # Source of the census, the list of all launches in the window, by which section sets are planned, matched and
    # weighted.
    census: Literal["auto", "ncu", "nsys"]
    # Lock the GPU's clocks to base while profiling (`base`) or leave them (`none`, which virtual machines need).
    clock_control: Literal["none", "base"]
    # Number of kernels, those with the most GPU time, in `{phase}.ncu-source.{set}.csv` and
    # `{phase}.ncu-instances.{set}.csv`.
    detailed_kernels: int
    # GPUs to profile by CUDA index; an empty list profiles all that the process uses.
    devices: list[int]
    # Environment modules that hold Nsight Compute on this site; loaded with `--sdm env-modules`, and only then.
    envmodules: list[str]
    # With `launches: sampled`, the largest relative error of totals per step in nine of ten cases.
    error: str
    # Further options of ncu, one list entry per word; options that change which launches are profiled are refused.
    extra: list[str]
    # Regular expression that kernel names must match.
    kernel_name: str | None
    # Which launches of the window to profile.
    launches: str | int
    # How the operations of a sampled set are counted.
    operations: Literal["known", "counted"]
    # How metrics that need several passes are collected.
    replay: Literal["auto", "kernel", "application", "range", "app-range"]
    # Keep the kernels' machine code and source in the report, for `{phase}.ncu-source.{set}.csv` and the source
    # page of Nsight Compute's window.
    sass: bool
    # Default section set, which is in `{phase}.ncu.csv` and `{phase}.ncu-details.csv`.
    set: str
    # Section sets by name.
    sets: Mapping[str, SectionSet]
    # Processes to profile.
    target_processes: Literal["all", "application-only"]
    # Filter on the names of processes, in ncu's syntax (`NAME`, `regex:...`, `exclude:NAME`, `exclude-tree:NAME`).
    target_processes_filter: str | None
    # Time limit of one job of this tool, such as `90m` or `24h`.
    time_limit: str | float | None
    # Number of profiled steps.
    window: int | str


class NsysSettings(TypedDict):
    """Nsight Systems."""

    # Method of unwinding CPU backtraces, for samples and for traced CUDA calls that take long.
    backtrace: Literal["none", "auto", "fp", "lbr", "dwarf"]
    # Trace the `window` only, or the whole `run` from start-up to exit.
    capture: Literal["window", "run"]
    # Trace CPU context switches.
    cpuctxsw: Literal["none", "process-tree", "system-wide"]
    # Trace CUDA graphs by `node` (every kernel) or as a whole `graph`, which has less overhead.
    cuda_graph: Literal["node", "graph"]
    # Track the GPU memory in use over time.
    cuda_memory_usage: bool
    # Seconds from the program's start to the start of the trace, with `capture` set to `run`.
    delay: float | None
    # Duration of the trace in seconds, with `capture` set to `run`.
    duration: float | None
    # Environment modules that hold Nsight Systems on this site; loaded with `--sdm env-modules`, and only then.
    envmodules: list[str]
    # Further options of nsys profile, one list entry per word; options that change which steps are recorded are
    # refused.
    extra: list[str]
    # Sample the GPU's metrics over time; needs permission to read performance counters.
    gpu_metrics: bool
    # Also open an NVTX range around each call of each module of the network, named `module:PATH:TYPE`.
    modules: bool
    # PyTorch annotations made by nsys (2024.7 and later).
    pytorch: Literal["none", "autograd-nvtx", "autograd-shapes-nvtx", "functions-trace"]
    # Reports of `nsys stats`, each exported to its own CSV.
    reports: list[str]
    # Sample CPU instruction pointers.
    sample: Literal["none", "process-tree", "system-wide"]
    # Time limit of one job of this tool, such as `90m` or `24h`.
    time_limit: str | float | None
    # APIs to trace.
    traces: list[str]
    # Number of traced steps.
    window: int | str


class SampleSettings(TypedDict):
    """NVML's counters, sampled during an unprofiled run."""

    # Time between two samples in milliseconds; GPUs measure their power every 20 to 100 ms.
    interval_ms: int
    # Time limit of one job of this tool, such as `90m` or `24h`.
    time_limit: str | float | None
    # The least number of steps during which NVML is sampled.
    window: int | str
