"""Types of a job's description and of the sidecar that it leaves, as the JSON files hold them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from profzoo.cell.cell_types import CellSettings

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet


# Types of numbers in sidecars: those by which two runs of a cell are compared, and rates of the CPU.


class OutputSample(TypedDict):
    """Values of one output tensor at fixed places; rms: root mean square of the whole tensor, None of whole numbers."""

    values: Sequence[float]
    rms: float | None


class StepNumbers(TypedDict):
    """Numbers of a run's first steps. None stands for what is not finite, or was not seen."""

    # Losses of the first steps, from step 0 on; empty in inference.
    losses: Sequence[float | None]
    # Norm of all gradients together, before each update of each of the steps that were looked into.
    gradient_norms: Sequence[Sequence[float | None]]
    # Parameters (numbers, not tensors) in tensors whose gradient in step 0 is not all zero.
    used_parameters: int | None
    # Norm of all parameters together before step 0.
    weight_norm: float | None
    # Norms of the gradients of at most 16 parts of the network, before the first update of each of these steps.
    gradient_parts: NotRequired[Sequence[Sequence[float | None]]]
    # Norm of how far some values of each tensor of weights moved, in each of these steps.
    movements: NotRequired[Sequence[float | None]]
    # Digests of the state of the generator of random numbers after each of these steps.
    draws: NotRequired[Sequence[int]]
    # Sum of all values of the batch, for each of the steps that were looked into.
    data_sums: Sequence[float | None]
    # Norm of all buffers together, after each of these steps and after the last step.
    buffer_norms: Sequence[float | None]
    # Samples of the outputs of these steps and of the last step, by tensor; empty in training.
    outputs: Sequence[Sequence[OutputSample]]
    last_outputs: Sequence[OutputSample]


class DoubleNumbers(TypedDict):
    """The first steps of a cell repeated in double precision, without compilation, graph or other layout.

    Where this could not be done, only `why` is there, which says so.
    """

    why: NotRequired[str]
    steps: NotRequired[StepNumbers]
    # The same steps in bf16 and in fp32, by this precision, each time with weights that are rounded to it up or down at
    # random; in fp32 only in training.
    roundings: NotRequired[Mapping[str, Sequence[StepNumbers]]]
    # Whether a step draws random numbers, as dropout does; losses of step 0 with other draws.
    random: NotRequired[bool]
    redrawn_losses: NotRequired[Sequence[float]]
    # Floating-point operations of products, convolutions and attention in a step, and operators that it calls; None
    # if they could not be counted.
    operations: NotRequired[int | None]
    operators: NotRequired[int | None]
    # Losses of the same steps in single precision with other seeds, of weights and data; a list for each seed.
    seed_losses: NotRequired[Sequence[Sequence[float]]]
    # Of steps that draw random numbers: step 0 without dropout, whether it still draws some, and the dropout's shares.
    undropped: NotRequired[StepNumbers]
    undropped_random: NotRequired[bool]
    dropouts: NotRequired[Sequence[float]]
    wall_s: NotRequired[float]


class CpuRoof(TypedDict):
    """Rates that torch reaches on the CPU of a cell: in a large matrix product, and in a large copy."""

    # Arithmetic of the product, "fp32" or "bf16".
    precision: str
    flop_per_s: float
    bytes_per_s: float


# Types of the plan of an ncu run, and of the settings that determine it, as the JSON files hold them.


class LaunchOptions(TypedDict):
    """Settings of `ncu` that choose the launches to profile and the way to collect their section sets."""

    launches: str | int
    replay: Literal["auto", "kernel", "application", "range", "app-range"]
    kernel_name: str | None
    budget: str | float | None
    sets: "Mapping[str, SectionSet]"


class PlanOptions(LaunchOptions):
    """Settings of one section set of a cell that determine its plan."""

    # Command line options by which ncu selects launches; a change to them makes the plan again.
    selection: NotRequired[Sequence[str]]
    # With `launches: sampled`: allowed relative error of totals, such as "2%", and whether ncu may run only once.
    error: NotRequired[str]
    one_run: NotRequired[bool]
    # Whether operations may come from earlier reports: "known", or "counted" where they may not.
    operations: NotRequired[str]


class ReplacedSample(TypedDict):
    """A sample of launches that the plan does not use, because profiling all launches takes no longer."""

    launches: int
    runs: int
    error: float
    estimate_s: float


class KnownOperations(TypedDict):
    """Operations of launch configurations that a plan takes from earlier reports."""

    # Parts of a launch configuration, then metrics; each row has a value for each.
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    # By metric.
    units: Mapping[str, str]
    # Names of the tables that the values come from, such as `bert/train.ncu.survey.csv`.
    sources: Sequence[str]


class Plan(TypedDict):
    """How ncu collects a section set of a cell, and how long that takes by an estimate."""

    # Name of the section set.
    set: str
    # "kernel" or "application".
    replay: str
    # Launches to profile in all runs of ncu together, and the number of runs.
    launches: int
    runs: int
    # Number of launch configurations among these launches, and among all requested launches.
    configurations: int
    configurations_of_window: int
    # Share of the window's GPU time in these configurations.
    share: float
    # Relative error of totals that nine of ten cases are expected not to exceed; None if launches are not sampled.
    error: float | None
    # Passes per launch, and the source of this number and of `launch_s`.
    passes: int
    basis: str
    # Durations in seconds: a process under ncu without profiled launches, one profiled launch, and all runs.
    start_s: float
    launch_s: float
    estimate_s: float
    # The configured limit, such as "10m".
    budget: str | float | None
    # Words of ncu's command line.
    options: Sequence[str]
    instead_of: NotRequired[ReplacedSample]
    # Number of the last runs, which count operations of launches that the first run profiles too.
    joined: NotRequired[int]
    # Operations that earlier reports have counted, so that ncu does not count them here.
    known: NotRequired[KnownOperations]
    # Seconds per profiled launch by the shipped costs, number of earlier runs used by the estimate, and path of the
    # census CSV.
    shipped_s: NotRequired[float]
    outcomes: NotRequired[int]
    census: NotRequired[str]
    # Reason why ncu counted the launches itself.
    census_note: NotRequired[str]


class Trials(TypedDict):
    """What a job of trials tries: setting words by the candidate's name, in the order to try them."""

    candidates: Mapping[str, Sequence[str]]
    order: Sequence[str]
    refused: Mapping[str, str]
    # Path of the file with the expected gain of each candidate; empty for none.
    expected: str
    budget_s: float
    # Processes of each setting; None repeats rounds until they decide.
    repeats: int | None
    most: int


class Job(TypedDict):
    """Everything that a collecting job depends on; a change to any value runs the job again."""

    # `time`, `ncu`, `nsys`, `torch`, `sample`, `peaks`, `probe` or `links`.
    tool: str
    cell: CellSettings
    # Names of further environment variables that the program sees, besides the fixed list of allowed variables.
    environment: Sequence[str]
    # Values of environment variables that change measurements; for variables of no fixed list, digests.
    variables: NotRequired[Mapping[str, str]]
    # Number of processes that time the cell, one after the other.
    repeats: NotRequired[int]
    # Settings by side of a comparison, and the order in which processes of the sides run.
    sides: NotRequired[Mapping[str, CellSettings]]
    order: NotRequired[Sequence[str]]
    order_seed: NotRequired[str]
    # For processes whose rounds are repeated until they decide: the largest number of rounds.
    most_rounds: NotRequired[int]
    # False if each of several processes starts by itself, instead of as a fork of one that has imported what it needs.
    fork: NotRequired[bool]
    # Paths of the weights that each side starts with.
    weights: NotRequired[Mapping[str, str]]
    trials: NotRequired[Trials]
    # Options of the tool's command line, and the section set of ncu.
    options: NotRequired[Sequence[str]]
    set: NotRequired[str]
    planned: NotRequired[PlanOptions]


class GradientSync(TypedDict):
    """How DistributedDataParallel sends gradients, by its own numbers."""

    # Networks of the process that send gradients; the rest is of the first one.
    networks: NotRequired[int]
    bucket_bytes: Sequence[int]
    find_unused_parameters: bool
    # Means of the backward passes that it timed: time of sending, and the part of it beside the backward pass.
    communication_ns: int
    overlap_ns: int


class AllocatorFacts(TypedDict):
    """What PyTorch's allocator of GPU memory did in the window, and how much memory it held."""

    # In the window: allocations that failed until free blocks were given back, those that failed even then, and calls
    # that took memory from the driver and gave it back.
    retries: int
    failures: int
    driver_allocations: int
    driver_frees: int
    # Held from the driver at the end of the window or at its beginning, whichever is more; and the most that tensors
    # held at any time since the process began.
    reserved_bytes: int
    used_peak_bytes: int
    # Free memory at the end that cannot be given back, as tensors hold other parts of the same blocks.
    stuck_bytes: int
    # What the process may take; 0 if unknown.
    limit_bytes: int


class ClockReading(TypedDict):
    """The clock of the GPU's multiprocessors at one moment, and NVML's bits for what limits it."""

    sm_clock_hz: int
    throttle_reasons: int


class ProcessFacts(TypedDict, total=False):
    """Facts that one process reports about its steps."""

    # Rank of the process, if a cell has several, and the machine that it ran on.
    rank: int
    host: str
    device_uuid: str | None
    # Samples of a step; None where it is not known which dimension of its inputs they are.
    batch: int | None
    # Steps and data samples in the window; mean time per step, duration of the window and its start, all in ns.
    steps: int
    items: int | None
    step_ns: float
    window_wall_ns: int
    window_began_ns: int
    # Share of the window's time in which other programs used the CPU, and number of turns (shifts) in the window.
    cpu_taken_share: float
    shifts: int
    # Loss of the last step (None without a loss), and sampled values of the network's outputs in that step.
    loss: float | None
    outputs: Sequence[float]
    # Numbers of the first steps; and, of the first process of a side, of the same steps in double precision.
    first_steps: StepNumbers
    double_precision: DoubleNumbers
    # Only where gradients are sent between processes.
    gradient_sync: GradientSync
    peak_memory_bytes: int | None
    peak_rss_bytes: int
    # Of an unprofiled process on a GPU: what its allocator did, and clocks at both ends of the window.
    allocator: AllocatorFacts
    clocks: Sequence[ClockReading]
    # The settings that the process itself resolved from its command line.
    ran_with: CellSettings
    # For processes that ran in turn: the side or setting, and the number of the round; and how many processes ran at
    # once, if those of a round did.
    side: str
    round: int
    beside: int
    # Whether the process was forked from one that had imported what it needs and built the network.
    forked: bool


class ScriptArithmetic(TypedDict):
    """The arithmetic that a script was seen to use."""

    # "fp32", "tf32", "bf16" or "fp16".
    precision: str
    # Whether torch.compile made a network.
    compile: bool
    cudnn_benchmark: bool


class MadeObject(TypedDict):
    """A line of a script's own files that makes an object of its loop, or that calls its network."""

    # "model", "optimizer", "loader", or "call" for a call of the model.
    kind: str
    # The class of an optimizer of torch's own; empty for others.
    name: str
    # As of a BlockingLine.
    file: str
    line: int


class ScriptFacts(TypedDict):
    """Observations of a script during its window."""

    # The event that ends a step, and how often each event occurs in most steps.
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
    # Where its networks, optimizers and loaders are made, as far as its own files make them.
    made: Sequence[MadeObject]


class BlockingLine(TypedDict):
    """A line of the program at which the host waits for the GPU, as one warm-up step showed it."""

    # Relative to its installed package or to the working folder, where it lies inside.
    file: str
    line: int
    function: str
    # The line as it is written, and what waits there, such as `.item()` or `x[mask]`.
    text: str
    operation: str
    # The range in which it waits, such as `forward`, empty outside of all parts of the step; and its waits per step.
    range: str
    calls: int


class HostLine(TypedDict):
    """A line of the program at which a thread of the host spends time, as samples of one warm-up step showed it."""

    # Name of the thread; empty for the one that launches.
    thread: str
    # As of a BlockingLine.
    range: str
    # What a DataLoader does meanwhile, "reading" or "collating"; empty outside of one.
    work: str
    file: str
    line: int
    function: str
    text: str
    # Share of the step; of other threads, of the time that they ran on a CPU.
    share: float


class PaddedRows(TypedDict):
    """A tensor of an early batch that is padded, by an attention mask or by a value that its rows end in."""

    # Its shape, the value, padded places, those of the longest row without padding, and the mask's name (or empty).
    rows: int
    places: int
    value: int
    padded: int
    longest: int
    mask: NotRequired[str]


class LoadingFacts(TypedDict, total=False):
    """What steps of the warm-up took of the CPU; missing with too few steps of warm-up."""

    # Mean number of cores that the process kept busy while it loaded or received a batch, and in the rest of a step.
    loading_cores: float
    step_cores: float
    # Size of the tensors of a batch.
    batch_bytes: int
    # Only for scripts: worker processes of its DataLoader, and whether it pins memory.
    workers: int
    pin_memory: bool
    # Of worker processes that a script's loaders started within the window, if any: how often a loader did, the seconds
    # in which it started and ended them, and those in which the step waited for the first batch of each.
    worker_starts: int
    starting_s: float
    first_batches_s: float


class RepeatedCall(TypedDict):
    """A module that one warm-up step called several times on the same inputs, with the same result."""

    # Its path in the network, its class, and the number of calls.
    module: str
    type: str
    calls: int
    # Lines of the program that called it, as FILE:LINE.
    places: Sequence[str]


class Compilation(TypedDict):
    """One compilation by torch.compile."""

    function: str
    file: str
    line: int
    # Whether it is the code behind a graph break, which is at that line.
    resumed: bool
    # Which guard did not hold, where code was compiled before; else empty.
    why_again: str
    seconds: float
    in_window: bool


class Sidecar(ProcessFacts, total=False):
    """The JSON file beside a measured file: the job, its software and machine, and the facts from the program."""

    tool: str
    cell: CellSettings
    environment: Sequence[str]
    # Options of the tool's command line, and the section set of ncu.
    options: Sequence[str]
    set: str
    # The command line that ran, without the private folder that it wrote to.
    command: Sequence[str]
    # Name of the GPU or CPU; "cuda" or "cpu"; and the reason if a CPU was used because no GPU was found.
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
    # Start in UTC (ISO 8601); seconds that the command ran, and seconds that it waited for a GPU.
    started: str
    wall_s: float
    waited_s: float
    # Number of runs of the tool in which it was attached to a fork; missing where it started the program.
    attached: int
    warnings: Sequence[str]
    parameters: int
    # "initial", or the file from which the network's weights were loaded, such as "lstm/weights.pt".
    weights_from: str
    # Lines at which a step waits for the GPU; missing where no step was observed.
    blocking_lines: Sequence[BlockingLine]
    # Lines at which the host spends the step; missing where no step was sampled.
    host_lines: Sequence[HostLine]
    # Cores that the process may use, its part of those that processes of one launcher share; and what loading takes.
    cores: float
    loading: LoadingFacts
    # Padding of early batches, compilations, and modules that were called again; missing where none was looked at.
    padding: Sequence[PaddedRows]
    compilations: Sequence[Compilation]
    repeated_calls: Sequence[RepeatedCall]
    # Only on a CPU, of the unprofiled process; and only for scripts.
    roof: CpuRoof
    script: ScriptFacts
    # What the program itself read, by path (profzoo/records/read_files.py).
    read: Mapping[str, str | Sequence[str]]
    # Of a script and a model of the user's own: digests of the environment variables that it read (None for one that
    # was not set), and names of those that did not reach it.
    read_variables: Mapping[str, str | None]
    withheld_variables: Sequence[str]
    # Versions of the packages that the program imported, by name, and the folders in which it looks, in order.
    packages: Mapping[str, str]
    packages_from: Sequence[str]
    # For an imported report: its files, the source of its steps, and what is missing.
    imported: Mapping[str, Any]
    # Steps that remain in a trace that lost some; other losses of the trace, one line each.
    traced_steps: int
    left_out: Sequence[str]
    # Sidecars of the processes of a cell on several GPUs, and of the processes that timed the cell.
    ranks: Sequence[ProcessFacts]
    processes: Sequence[ProcessFacts]
    # The interval that nsys traced: "window" or "run".
    capture: str
    plan: Plan
    # Settings by side of a comparison.
    sides: Mapping[str, CellSettings]
    # For trials: the job; names of the settings tried; words of these and of combinations that ran, by name; reasons of
    # failed settings, by name, also of earlier trials; names of the fastest settings; and the reason why the trials
    # ended.
    trials: Trials
    tried: Sequence[str]
    words: Mapping[str, Sequence[str]]
    failed: Mapping[str, str]
    chosen: str
    ended: str
    # For rounds that are repeated until they decide, seconds of the last round; such rounds have `ended`, too. For
    # trials, seconds of a process of the unchanged cell and one with settings.
    round_s: float
    # What is known of the spread of rounds from other processes: arguments of sequential.Spread.
    spread: Mapping[str, Any]
    # For NVML's samples: the kind of power value ("mean" or "instant"), and a reason if they do not describe the cell.
    power_is: str
    gaps: Sequence[str]
    # Record of the job: version of its form, digests of its sources, inputs and output files.
    record_version: int
    job_keys: Sequence[str]
    inputs: Mapping[str, str]
    sources: Mapping[str, str]
    sources_changed: Sequence[str]
    files: Mapping[str, Any]
    sha256_of_the_rest: str
