"""Types of a job's description and of the sidecar that it leaves, as the JSON files hold them."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from profzoo.cell.cell_types import CellSettings
from profzoo.cell.plan_types import Plan, PlanOptions


class Trials(TypedDict):
    """What a job of trials tries: setting words by the candidate's name, in the order to try them."""

    candidates: Mapping[str, Sequence[str]]
    order: Sequence[str]
    refused: Mapping[str, str]
    # Path of the file that says what each candidate is expected to gain; empty for none.
    expected: str
    budget_s: float
    repeats: int
    most: int


class Job(TypedDict):
    """All that a collecting job depends on; a change to it runs the job again."""

    # `time`, `ncu`, `nsys`, `torch`, `sample`, `peaks` or `probe`.
    tool: str
    cell: CellSettings
    # Names of the environment variables that the program sees besides those that it needs.
    environment: Sequence[str]
    # Values of variables that change what is measured; digests of the user's own.
    variables: NotRequired[Mapping[str, str]]
    # Processes that time the cell, one after the other.
    repeats: NotRequired[int]
    # Settings by side of a comparison, and the order in which processes of the sides run.
    sides: NotRequired[Mapping[str, CellSettings]]
    order: NotRequired[Sequence[str]]
    order_seed: NotRequired[str]
    # Paths of the weights that each side starts with.
    weights: NotRequired[Mapping[str, str]]
    trials: NotRequired[Trials]
    # Options of the tool's command line, and the section set of ncu.
    options: NotRequired[Sequence[str]]
    set: NotRequired[str]
    planned: NotRequired[PlanOptions]


class ProcessFacts(TypedDict, total=False):
    """What one process says of its steps."""

    # Rank of one of several processes of a cell, and the machine that it ran on.
    rank: int
    host: str
    device_uuid: str | None
    batch: int
    # Steps and data samples of the window, and times in ns: of a step in the mean, of the window, and its begin.
    steps: int
    items: int
    step_ns: float
    window_wall_ns: int
    window_began_ns: int
    # Share of the window's time in which other programs used the CPU, and turns that the window was made in.
    cpu_taken_share: float
    shifts: int
    # Loss of the last step, None where the model has none, and samples of what the network returned in it.
    loss: float | None
    outputs: Sequence[float]
    peak_memory_bytes: int | None
    peak_rss_bytes: int
    # Of processes that ran in turn: the side or setting, and the number of the round.
    side: str
    round: int


class ScriptArithmetic(TypedDict):
    """The arithmetic that a script was seen to use."""

    # "fp32", "tf32", "bf16" or "fp16".
    precision: str
    # Whether torch.compile made a network.
    compile: bool
    cudnn_benchmark: bool


class ScriptFacts(TypedDict):
    """What was seen of a script in its window."""

    # What ends a step, and how often each event occurs in most steps.
    step: str
    per_step: Mapping[str, int]
    # Share of the window's steps with these counts.
    regular_share: float
    # Optimizer steps that a gradient scaler skipped.
    skipped_updates: int
    loss_is_finite: bool
    networks: Sequence[str]
    # Settings that were applied from outside, by name.
    applied: Mapping[str, Any]
    observed: ScriptArithmetic


class Sidecar(ProcessFacts, total=False):
    """The JSON file beside a measured file: its job, what ran it, and what the program said of itself."""

    tool: str
    cell: CellSettings
    environment: Sequence[str]
    # Options of the tool's command line, and the section set of ncu.
    options: Sequence[str]
    set: str
    # The command line that ran, without the private folder that it wrote to.
    command: Sequence[str]
    # Name of the GPU, or of the CPU; "cuda" or "cpu"; and why it is a CPU where a GPU was not found.
    device: str
    device_type: str
    device_why: str | None
    gpu: str
    gpu_uuid: str
    driver: str
    cuda: str | None
    torch: str
    tool_version: str
    commit: str
    # Start in UTC (ISO 8601), and seconds that the command ran and waited for a GPU.
    started: str
    wall_s: float
    waited_s: float
    warnings: Sequence[str]
    parameters: int
    # Only of a script.
    script: ScriptFacts
    # Steps in a trace that lost others; what else a trace lost, a line each.
    traced_steps: int
    left_out: Sequence[str]
    # One sidecar per process of a cell on several GPUs, and per process that timed the cell.
    ranks: Sequence[ProcessFacts]
    processes: Sequence[ProcessFacts]
    # "window" or "run": what nsys traced.
    capture: str
    plan: Plan
    # Settings by side of a comparison.
    sides: Mapping[str, CellSettings]
    # The job of trials; the names of settings that were tried; why settings failed, by name; the names of the fastest;
    # and what ended the trials.
    trials: Trials
    tried: Sequence[str]
    failed: Mapping[str, str]
    chosen: str
    ended: str
    # Of NVML's samples: what power is ("mean" or "instant"), and why they do not describe the cell.
    power_is: str
    gaps: Sequence[str]
    # Record of the job: digests of sources and inputs, and of the files that it left.
    job_keys: Sequence[str]
    inputs: Mapping[str, str]
    sources: Mapping[str, str]
    sources_changed: Sequence[str]
    files: Mapping[str, Any]
    sha256_of_the_rest: str
