"""Types of the plan of an ncu run, and of the settings that determine it, as the JSON files hold them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet


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


class ReplacedSample(TypedDict):
    """A sample of launches that the plan does not use, because profiling all launches takes no longer."""

    launches: int
    runs: int
    error: float
    estimate_s: float


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
    # Seconds per profiled launch by the shipped costs, number of earlier runs used by the estimate, and path of the
    # census CSV.
    shipped_s: NotRequired[float]
    outcomes: NotRequired[int]
    census: NotRequired[str]
    # Reason why ncu counted the launches itself.
    census_note: NotRequired[str]
