"""The tools, a package each, and the registry that finds them: whatever asks which tool, asks here.

A tool is a folder with a `schema.yaml`: its part of the configuration, its place among the tools (`order`), what it
does (`does`, of schema.DOES) and, if known, seconds that a job of it takes on a GPU and on a CPU (`costs`). Beside that
it has those of these modules that concern it, under these names:

command: its command line from the configuration;
files: what it leaves under results/, and what tables are made of;
export: its reports as tidy CSV, called by a script of the workflow;
activity: what its exported CSV says of kernels, parts of the step, and cells;
failures: what its program prints when it fails, and what to do;
losses: what it lost of what it was to record, for which a job is repeated;
doctor: what it takes to run here;
settings: what of its configuration follows from the whole configuration.

A module defines what differs from profzoo/tools/defaults.py, which says what holds otherwise; an `activity` has to
define its TABLE.

A module that goes through all tools declares so in a literal FILES, such as `("../tools/*/activity.py",)`, so that what
it is made of is known.
"""

import functools
import importlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from profzoo import extensions, schema
from profzoo.tools import defaults
from profzoo.tools.provided import PROVIDED as PROVIDED

if TYPE_CHECKING:
    import pandas as pd

    from profzoo.cell.config_types import Config
    from profzoo.cell.job_types import Sidecar
    from profzoo.io.csv_tables import Table
    from profzoo.io.sidecars import Needs
    from profzoo.machine.doctor_checks import Check

HERE = Path(__file__).parent
BASELINE: Final = schema.BASELINE
TIME, TRACE, COUNT, ATTRIBUTE, SAMPLE = DOES = schema.DOES
# The sidecar of a tool's counters, among its table inputs, where the tool has no table there.
COUNTED = "_counted"


class Command(Protocol):
    """A tool's module `command`.

    PROGRAM: its name on PATH, None for what runs inside the process; INSTALL: how it comes there. SEES_OTHERS: whether
    it records what other processes run on the machine. BESIDE: files that run beside the measured program, by paths
    from the project's root; a change of one makes the tool's jobs run again. `made` is the files to make, by the names
    of the rule's outputs.
    """

    PROGRAM: str | None
    SEES_OTHERS: bool
    INSTALL: str
    BESIDE: Sequence[str]

    def check_settings(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """The tool's part of the configuration; ConfigError for what it would refuse only once it runs."""

    def wrap_command(self, options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
        """The words before the measured program, of which so many processes run."""

    def program_options(self, made: Mapping[str, Path]) -> list[str]:
        """The words that the measured program gets of it."""

    def adapt_command(self, command: Sequence[str], gpu: bool) -> list[str]:
        """The words before the program and those of it, as the tool that is here takes them.

        gpu: whether the cell will run on one.

        Raises:
            CollectError, ConfigError: it cannot run here.
        """

    def output_files(self, made: Mapping[str, Path]) -> list[Path]:
        """The files that it must have left once it ends well."""

    def arrange_outputs(self, made: Mapping[str, Path]) -> None:
        """Put in its place what it left elsewhere."""


class Settings(Protocol):
    """A tool's module `settings`."""

    def resolve_settings(self, config: "Config") -> Mapping[str, Any]:
        """The tool's part of the configuration, by all of that, which is complete; ConfigError where two disagree."""


class Files(Protocol):
    """A tool's module `files`. Patterns are of one cell, from results/{model}/ on, with {phase} in them."""

    def exported_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """What `all` makes with the tool, by its part of the configuration."""

    def table_inputs(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """What tables are made of, by name; under the tool's own name its table, and `{tool}_sidecar` beside it.

        A tool without a table that counted something has the sidecar of the counters, under `{tool}_counted`.
        """

    def provided_files(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """Files that other rules read by what these hold: patterns by names of PROVIDED.

        The `table_inputs` under such names are provided as well. If several chosen tools provide one file, the tool
        that the configuration names last counts; the baseline counts least.
        """

    def required_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """What of it tables take, and cannot be made of anything else that it leaves: all must be there, or none is."""

    def name_parts(self, own: Mapping[str, Any]) -> Sequence[str]:
        """What stands between the dots of the tool's file names, after the phase."""


class Activity(Protocol):
    """A tool's module `activity`.

    PLACE: among the tools whose numbers are held against each other, the one to go by first; None for one that sees
    other things. ALONE: whether each launch ran alone, by replay, so that the step's own time says nothing. TABLE: what
    is declared of its CSV; FACTS: of its sidecar, beyond what all have. COLUMNS: of `summarise_cell`, for the page:
    column and form, by heading.
    """

    PLACE: int | None
    ALONE: bool
    TABLE: "Table"
    FACTS: "Needs"
    COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]]

    def summarise_kernels(self, table: "pd.DataFrame", facts: "Sidecar") -> "pd.DataFrame | None":
        """Columns kind, name, range, count and ns of its kernels or operators, sums over its window; None for none."""

    def summarise_ranges(self, table: "pd.DataFrame", facts: "Sidecar") -> tuple[str, Mapping[str, Any]] | None:
        """Clock (gpu or cpu), and ns and launches by part of the step, sums over its window; None for none."""

    def summarise_cell(self, table: "pd.DataFrame", facts: "Sidecar") -> Mapping[str, float | str]:
        """Columns that the table of cells gets from it: numbers, and `clocks`, why these were not steady."""


class Failures(Protocol):
    """A tool's module `failures`. CAUSES: pattern in its log, and the cause in words with what to do; first wins."""

    CAUSES: Sequence[tuple[str, str]]


class Losses(Protocol):
    """A tool's module `losses`."""

    def explain_losses(self, made: Mapping[str, Path]) -> tuple[str, Mapping[str, Any]]:
        """Why a job is to be repeated, nothing where it left all; and what its sidecar is to say of what it left.

        made: the job's files, by the names of its outputs.
        """


class Doctor(Protocol):
    """A tool's module `doctor`."""

    def list_checks(self) -> "Sequence[Check]":
        """What is looked at for it, in order."""

    def describe_use(self, lacking: frozenset[str]) -> str | None:
        """How this machine can profile with it, where checks of these names lack something; None where it cannot."""


def settings_of(config: "Config", tool: str) -> Mapping[str, Any]:
    """Return a tool's part of the configuration, also that of an extension's tool."""
    parts: Mapping[str, Any] = config
    return parts[tool]


def names() -> list[str]:
    """The tools, in their order."""
    return list(schema.tool_schemas())


def that(does: str) -> list[str]:
    """Names of the tools that do one of DOES, in their order.

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
    """The modules `command` of all tools, by name."""
    return cast(dict[str, Command], _filled("command", defaults.Command, names()))


def settings() -> dict[str, Settings]:
    """The modules `settings` of the tools that have one, by name."""
    return cast(dict[str, Settings], _parts("settings"))


def files() -> dict[str, Files]:
    """The modules `files` of all tools, by name."""
    return cast(dict[str, Files], _filled("files", defaults.Files, names()))


def activities() -> dict[str, Activity]:
    """The modules `activity` of the tools that have one, the tool to go by first."""
    found = cast(dict[str, Activity], _filled("activity", defaults.Activity, [*_parts("activity")]))
    return dict(sorted(found.items(), key=lambda item: math.inf if item[1].PLACE is None else item[1].PLACE))


def compared_activities() -> dict[str, Activity]:
    """Those of them whose numbers are held against each other."""
    return {name: activity for name, activity in activities().items() if activity.PLACE is not None}


def failures() -> dict[str, Failures]:
    """The modules `failures` of the tools that have one, by name."""
    return cast(dict[str, Failures], _parts("failures"))


def losses() -> dict[str, Losses]:
    """The modules `losses` of the tools that have one, by name."""
    return cast(dict[str, Losses], _parts("losses"))


def doctors() -> dict[str, Doctor]:
    """The modules `doctor` of the tools that have one, by name."""
    return cast(dict[str, Doctor], _parts("doctor"))


def _filled(part: str, default: Any, of: Sequence[str]) -> dict[str, defaults.Filled]:
    return {name: defaults.Filled(name, _parts(part).get(name), default) for name in of}


def _parts(part: str) -> dict[str, Any]:
    return _imported(part, extensions.folders())


@functools.cache
def _imported(part: str, extended: tuple[Path, ...]) -> dict[str, Any]:
    shipped = {name: f"{__name__}.{name}.{part}" for name in names() if (HERE / name / f"{part}.py").exists()}
    own = {path.parent.name: extensions.module_name(path) for path in extensions.files(f"tools/*/{part}.py")}
    found = {name: (shipped | own)[name] for name in names() if name in shipped | own}
    return {name: importlib.import_module(module) for name, module in found.items()}
