"""Types of a job's description and of the sidecar that it leaves, as the JSON files hold them."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from profzoo.cell.cell_types import CellSettings


class Trials(TypedDict):
    """What a job of trials tries: settings by the candidate's name, in the order to try them."""

    candidates: Mapping[str, Mapping[str, Any]]
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
    planned: NotRequired[Mapping[str, Any]]


class Sidecar(TypedDict, total=False):
    """The JSON file beside a measured file: its job, what ran it, and what the program said of itself."""

    tool: str
    cell: CellSettings
    environment: Sequence[str]
    # The command line that ran, without the private folder that it wrote to.
    command: Sequence[str]
    # Name and UUID of the GPU, or of the CPU; "cuda" or "cpu"; and why it is a CPU where a GPU was not found.
    device: str
    device_uuid: str
    device_type: str
    device_why: str
    gpu: str
    gpu_uuid: str
    driver: str
    cuda: str
    torch: str
    tool_version: str
    commit: str
    host: str
    # Start in UTC (ISO 8601), and seconds that the command ran and waited for a GPU.
    started: str
    wall_s: float
    waited_s: float
    warnings: Sequence[str]
    parameters: int
    batch: int
    steps: int
    traced_steps: int
    items: int
    # Loss of the last step; None where the model has none.
    loss: float | None
    peak_memory_bytes: int | None
    peak_rss_bytes: int
    step_ns: Sequence[float]
    # One sidecar per process of a cell on several GPUs, and per process that timed the cell.
    ranks: Sequence[Mapping[str, Any]]
    processes: Sequence[Mapping[str, Any]]
    capture: Mapping[str, Any]
    plan: Mapping[str, Any]
    # Record of the job: digests of sources and inputs, and of the files that it left.
    job_keys: Sequence[str]
    inputs: Mapping[str, str]
    sources: Mapping[str, str]
    sources_changed: Sequence[str]
    files: Mapping[str, Any]
    sha256_of_the_rest: str
