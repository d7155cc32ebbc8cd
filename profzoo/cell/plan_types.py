"""Types of the plan of an ncu run, and of the settings that it is made by, as the JSON files hold them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet


class LaunchOptions(TypedDict):
    """Settings of `ncu` that say how, and of which launches, section sets are collected."""

    launches: str | int
    replay: Literal["auto", "kernel", "application", "range", "app-range"]
    kernel_name: str | None
    budget: str | float | None
    sets: "Mapping[str, SectionSet]"


class PlanOptions(LaunchOptions):
    """What a plan is made by: settings of one section set of a cell."""

    # ncu's own words for the launches, so that a plan is made again when these change.
    selection: NotRequired[Sequence[str]]
    # With `launches: sampled`: the relative error of totals, such as "2%", and whether ncu may run only once.
    error: NotRequired[str]
    one_run: NotRequired[bool]


class ReplacedSample(TypedDict):
    """The sample of launches in whose place all launches are profiled, as that takes no longer."""

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
    # Launch configurations among these launches, and among all that were asked for.
    configurations: int
    configurations_of_window: int
    # Share of the window's GPU time in these configurations.
    share: float
    # Relative error of totals that is expected not to be exceeded in nine of ten cases; None where none is sampled.
    error: float | None
    # Passes per launch, and what this number and `launch_s` come from.
    passes: int
    basis: str
    # Seconds: a process under ncu with no launch profiled, one profiled launch, and all runs.
    start_s: float
    launch_s: float
    estimate_s: float
    # The configured limit, such as "10m".
    budget: str | float | None
    # Words of ncu's command line.
    options: Sequence[str]
    instead_of: NotRequired[ReplacedSample]
    # Seconds of one profiled launch by the shipped costs, number of earlier runs that the estimate goes by, and the
    # CSV of the census.
    shipped_s: NotRequired[float]
    outcomes: NotRequired[int]
    census: NotRequired[str]
    # Why ncu counted the launches itself.
    census_note: NotRequired[str]
