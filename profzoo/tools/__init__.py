"""The tools, one package each, and the registry that finds them.

A tool is a folder with a `schema.yaml`. This file holds the tool's part of the configuration, its place among the tools
(`order`), what it does (`does`, from schema.DOES) and, if known, the seconds of one of its jobs on a GPU and on a CPU
(`costs`). The folder may also contain these modules:

command: builds the tool's command line from the configuration;
files: names the tool's files under results/, and the files that tables are made of;
export: turns the tool's reports into CSV; a script of the workflow calls it;
activity: summarises an exported CSV by kernel, by part of the step, and by cell;
failures: explains messages of a failing program, and what to do;
losses: finds events that the tool failed to record, after which the job is repeated;
doctor: checks what the tool needs on this machine;
settings: completes the tool's settings from the whole configuration.

A module defines only what differs from the defaults in profzoo/tools/defaults.py. An `activity` must define its TABLE.

A module that imports such modules of all tools declares them in a literal FILES, such as `("../tools/*/activity.py",)`.
A change of one of these files then makes the jobs of that module run again.
"""

import functools
import importlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from profzoo import extensions
from profzoo.cell import schema
from profzoo.tools import defaults
from profzoo.tools.defaults import PROVIDED as PROVIDED

if TYPE_CHECKING:
    import pandas as pd

    from profzoo.cell.config_types import Config
    from profzoo.cell.job_types import Plan, Sidecar
    from profzoo.io.csv_tables import Table
    from profzoo.io.sidecars import Needs
    from profzoo.machine.doctor_checks import Check

HERE = Path(__file__).parent
# The unprofiled baseline, which is measured with every tool.
BASELINE: Final = schema.BASELINE
TIME, TRACE, COUNT, ATTRIBUTE, SAMPLE = DOES = schema.DOES
# Ends the name of the sidecar of a tool's counters among its table inputs, if the tool has no table there.
COUNTED = "_counted"


class Command(Protocol):
    """A tool's module `command`.

    Attributes:
        PROGRAM: the tool's name on PATH; None if it runs inside the measured process.
        INSTALL: advice on how to install it.
        SEES_OTHERS: whether it also records other processes of the machine.
        BESIDE: files that run beside the measured program, as paths from the project's root. A change of one of them
            makes the tool's jobs run again.

    `made` in the methods holds the paths of the files to make, by the names of the rule's outputs.
    """

    PROGRAM: str | None
    SEES_OTHERS: bool
    INSTALL: str
    BESIDE: Sequence[str]

    def check_settings(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check and return the tool's part of the configuration.

        Raises:
            ConfigError: the tool would refuse a setting when it runs.
        """

    def wrap_command(self, options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
        """Return the words to put before the command of the measured program, which runs in `processes` processes."""

    def program_options(self, made: Mapping[str, Path]) -> list[str]:
        """Return the options that the tool adds to the command of the measured program."""

    def adapt_command(self, command: Sequence[str], gpu: bool) -> list[str]:
        """Return the whole command, adapted to the installed version of the tool.

        Args:
            command: the tool's words and the measured program's.
            gpu: whether the cell will run on a GPU.

        Raises:
            CollectError, ConfigError: the tool cannot run on this machine.
        """

    def launch_server(self, port: int) -> list[str]:
        """Return the words to put before a program whose forks wait for the tool to attach; empty if it cannot.

        port: the first of the ports on which they wait.
        """

    def attach_command(
        self, command: Sequence[str], server: Sequence[str], note: Path, planned: "Plan | None"
    ) -> list[str]:
        """Return the command that runs the tool on forks of such a program; empty if the tool cannot do the same.

        Args:
            command: the whole command of `adapt_command`.
            server: socket, number of the process and first port of the program that is forked.
            note: file in which the command leaves the number of processes that were forks.
            planned: the job's plan, if it has one.
        """

    def output_files(self, made: Mapping[str, Path]) -> list[Path]:
        """Return the files that the tool must have written if it succeeds."""

    def arrange_outputs(self, made: Mapping[str, Path]) -> None:
        """Move files that the tool wrote elsewhere to their places."""


class Settings(Protocol):
    """A tool's module `settings`."""

    def resolve_settings(self, config: "Config") -> Mapping[str, Any]:
        """Return the tool's part of the complete configuration; raise ConfigError if settings contradict each other."""


class Files(Protocol):
    """A tool's module `files`. Patterns are names of one cell's files in results/{model}/ and contain {phase}.

    `own` in the methods is the tool's part of the configuration.
    """

    def exported_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Return patterns of the files that the rule `all` makes with the tool."""

    def table_inputs(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """Return patterns of the files that tables are made of, by name: `{tool}`, `{tool}_sidecar`, and others.

        A tool that counted something, but has no table here, names the sidecar of its counters `{tool}_counted`.
        """

    def provided_files(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """Return patterns of the files that other rules read, by names of PROVIDED, which say what a file holds.

        The `table_inputs` under such names are provided as well. If several chosen tools provide one file, the tool
        that the configuration names last counts; the baseline counts least.
        """

    def required_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Return patterns of the files that tables need together: if one is missing, the cell has none of them."""

    def name_parts(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Return the parts of the tool's file names, between dots after the phase, by which they are recognised."""


class Activity(Protocol):
    """A tool's module `activity`.

    Attributes:
        PLACE: place among the tools whose numbers are compared, the most trusted first; None for a tool that measures
            something else.
        ALONE: whether each launch ran alone, by replay, so that the time per step means nothing.
        TABLE: declaration of the tool's CSV.
        FACTS: declaration of its sidecar, beyond the keys that all sidecars have.
        COLUMNS: columns of `summarise_cell` to show on the page: by heading, the column and its format.

    In the methods, `table` is the tool's CSV, and `facts` is its sidecar.
    """

    PLACE: int | None
    ALONE: bool
    TABLE: "Table"
    FACTS: "Needs"
    COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]]

    def summarise_kernels(self, table: "pd.DataFrame", facts: "Sidecar") -> "pd.DataFrame | None":
        """Return kernels or operators with sums over the window, or None: columns kind, name, range, count, ns."""

    def summarise_ranges(self, table: "pd.DataFrame", facts: "Sidecar") -> tuple[str, Mapping[str, Any]] | None:
        """Return the clock (gpu or cpu), and ns and launches by part of the step, as sums over the window; or None."""

    def summarise_cell(self, table: "pd.DataFrame", facts: "Sidecar") -> Mapping[str, float | str]:
        """Return the tool's columns of the table of cells: numbers, and `clocks`, why clock rates were not steady."""


class Failures(Protocol):
    """A tool's module `failures`.

    CAUSES: pairs of a regular expression for the log, and the cause with advice; the first match counts.
    """

    CAUSES: Sequence[tuple[str, str]]


class Losses(Protocol):
    """A tool's module `losses`."""

    def explain_losses(self, made: Mapping[str, Path]) -> tuple[str, Mapping[str, Any]]:
        """Return why a job has to be repeated, empty if nothing was lost; and facts about losses for its sidecar.

        made: paths of the job's files, by the names of the rule's outputs.
        """


class Doctor(Protocol):
    """A tool's module `doctor`. REPORT_BYTES: about what a cell's reports take on the disk, with their tables."""

    REPORT_BYTES: int

    def list_checks(self) -> "Sequence[Check]":
        """Return the checks of the tool, in order."""

    def describe_use(self, lacking: frozenset[str]) -> str | None:
        """Return how this machine can profile with the tool, None if it cannot; lacking: names of failed checks."""


def settings_of(config: "Config", tool: str) -> Mapping[str, Any]:
    """Return a tool's part of the configuration, also that of an extension's tool."""
    parts: Mapping[str, Any] = config
    return parts[tool]


def names() -> list[str]:
    """Return the names of the tools, in their order."""
    return list(schema.tool_schemas())


def that(does: str) -> list[str]:
    """Return the names of the tools that do this, in their order; does: one of DOES.

    >>> that(TRACE), that(COUNT)
    (['torch', 'nsys'], ['ncu'])
    """
    return [name for name, part in schema.tool_schemas().items() if does in part.get("does", ())]


def abilities_of(chosen: Collection[str]) -> set[str]:
    """Names of these tools, and what they do, of DOES; what is also the name of a tool means the tool alone.

    >>> sorted(abilities_of(["nsys", "sample"]))
    ['nsys', 'sample', 'trace']
    """
    known = schema.tool_schemas()
    return {*chosen} | {what for name in chosen for what in known[name].get("does", ()) if what not in known}


def timed_tables() -> list[str]:
    """Names of a cell's tables that may hold the steps without a profiler, as between phase and `.csv`; the first that
    there is counts.

    >>> timed_tables()[0], "torch-time" in timed_tables()
    ('time', True)
    """
    # A profiler may time steps before it starts, in the process that it then profiles.
    return [*that(TIME), *(f"{name}-{BASELINE}" for name in names() if name != BASELINE)]


def with_setting(key: str) -> list[str]:
    """Names of the tools whose part of the configuration has a setting, in their order.

    >>> with_setting("sets"), with_setting("interval_ms")
    (['ncu'], ['sample'])
    """
    return [name for name, part in schema.tool_schemas().items() if key in part["properties"]]


def commands() -> dict[str, Command]:
    """Return the modules `command` of all tools, by name of the tool."""
    return cast(dict[str, Command], _filled("command", defaults.Command, names()))


def settings() -> dict[str, Settings]:
    """The modules `settings` of the tools that have one, by name."""
    return cast(dict[str, Settings], _parts("settings"))


def files() -> dict[str, Files]:
    """Return the modules `files` of all tools, by name of the tool."""
    return cast(dict[str, Files], _filled("files", defaults.Files, names()))


def activities() -> dict[str, Activity]:
    """Return the modules `activity` of the tools that have one, by name of the tool, the most trusted first."""
    found = cast(dict[str, Activity], _filled("activity", defaults.Activity, [*_parts("activity")]))
    return dict(sorted(found.items(), key=lambda item: math.inf if item[1].PLACE is None else item[1].PLACE))


def compared_activities() -> dict[str, Activity]:
    """Return the modules `activity` of the tools whose numbers are compared with each other."""
    return {name: activity for name, activity in activities().items() if activity.PLACE is not None}


def failures() -> dict[str, Failures]:
    """Return the modules `failures` of the tools that have one, by name of the tool."""
    return cast(dict[str, Failures], _parts("failures"))


def losses(tool: str) -> Losses | None:
    """Return the module `losses` of a tool, None if it has none; modules of other tools may take long to import."""
    module = _modules("losses", extensions.folders()).get(tool)
    return cast(Losses, importlib.import_module(module)) if module else None


def doctors() -> dict[str, Doctor]:
    """Return the modules `doctor` of the tools that have one, by name of the tool."""
    return cast(dict[str, Doctor], _filled("doctor", defaults.Doctor, [*_parts("doctor")]))


def _filled(part: str, default: Any, of: Sequence[str]) -> dict[str, defaults.Filled]:
    return {name: defaults.Filled(name, _parts(part).get(name), default) for name in of}


def _parts(part: str) -> dict[str, Any]:
    return {name: importlib.import_module(module) for name, module in _modules(part, extensions.folders()).items()}


@functools.cache
def _modules(part: str, extended: tuple[Path, ...]) -> dict[str, str]:
    shipped = {name: f"{__name__}.{name}.{part}" for name in names() if (HERE / name / f"{part}.py").exists()}
    own = {path.parent.name: extensions.module_name(path) for path in extensions.files(f"tools/*/{part}.py")}
    return {name: (shipped | own)[name] for name in names() if name in shipped | own}
