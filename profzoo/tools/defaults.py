"""Defaults of a tool's modules; the registry fills in whatever a module leaves out.

Each class here stands for one module of a tool, and has its functions and names with their default values. The classes
of the same names in profzoo/tools/__init__.py describe them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from profzoo.cell.schema import BASELINE
from profzoo.errors import ConfigError, DataError

if TYPE_CHECKING:
    from profzoo.cell.job_types import Plan, Sidecar
    from profzoo.machine.doctor_checks import Check

# The outputs of a collecting job that the job itself writes, after the tool has ended.
SIDECARS = ("sidecar", "timed")


class Filled:
    """A module of a tool, completed by defaults for the names that it does not define."""

    def __init__(self, tool: str, module: ModuleType | None, defaults: "Callable[[str, Filled], object]") -> None:
        """Complete a module; module: None if the tool has no such file, so that all values are defaults."""
        self._module, self._defaults = module, defaults(tool, self)

    def __getattr__(self, name: str) -> Any:
        """Return the module's own value if it has one, else the default."""
        return getattr(self._module if hasattr(self._module, name) else self._defaults, name)


class Command:
    """The module `command` of a tool that runs inside the measured process and checks nothing."""

    PROGRAM = None
    SEES_OTHERS = False
    INSTALL = ""
    BESIDE: Sequence[str] = ()

    def __init__(self, tool: str, own: Filled) -> None:
        """Defaults of a command depend on neither the tool nor its module."""

    def check_settings(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration unchanged: the schema accepts no setting that fails later."""
        return own

    def wrap_command(self, options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
        """Return no words: the tool runs inside the measured process."""
        return []

    def program_options(self, made: Mapping[str, Path]) -> list[str]:
        """Return no options: the measured program marks the window by itself."""
        return []

    def adapt_command(self, command: Sequence[str], gpu: bool) -> list[str]:
        """Return the command unchanged."""
        return list(command)

    def launch_server(self, port: int) -> list[str]:
        """Return no words: the tool does not attach to processes."""
        return []

    def attach_command(
        self, command: Sequence[str], server: Sequence[str], note: Path, planned: "Plan | None"
    ) -> list[str]:
        """Return no words: the tool does not attach to processes."""
        return []

    def output_files(self, made: Mapping[str, Path]) -> list[Path]:
        """Return all outputs of the job except sidecars, which the job writes after the tool has ended."""
        return [path for name, path in made.items() if name not in SIDECARS]

    def arrange_outputs(self, made: Mapping[str, Path]) -> None:
        """Do nothing: the tool writes its files to the right places."""


class Files:
    """The module `files` of a tool that exports one table, `{phase}.{tool}.csv`, with a sidecar."""

    def __init__(self, tool: str, own: Filled) -> None:
        """Keep the tool's name and its module, because `required_files` depends on the module's `table_inputs`."""
        self._tool, self._own = tool, own

    def exported_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Return the pattern of the tool's table."""
        return [f"{{phase}}.{self._tool}.csv"]

    def table_inputs(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the patterns of the tool's table and its sidecar."""
        csv = f"{{phase}}.{self._tool}.csv"
        return {self._tool: csv, f"{self._tool}_sidecar": f"{csv}.json"}

    def provided_files(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """Nothing besides the inputs of tables."""
        return {}

    def required_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Return all patterns of `table_inputs`."""
        return [*self._own.table_inputs(own).values()]

    def name_parts(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Return the tool's name."""
        return [self._tool]


class Activity:
    """The module `activity` of a tool whose table is not summarised by kernel, part of the step, or cell."""

    PLACE = None
    ALONE = False
    FACTS: Mapping[str, Any] = {}
    COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {}

    def __init__(self, tool: str, own: Filled) -> None:
        """Defaults of an activity depend on neither the tool nor its module."""

    def summarise_kernels(self, table: Any, facts: "Sidecar") -> None:
        """Return None: the table has no kernels."""

    def summarise_ranges(self, table: Any, facts: "Sidecar") -> None:
        """Return None: the table has no parts of the step."""

    def summarise_cell(self, table: Any, facts: "Sidecar") -> Mapping[str, float | str]:
        """Return no columns."""
        return {}


class Doctor:
    """The module `doctor` of a tool that needs nothing that its checks do not name."""

    REPORT_BYTES = 1_000_000

    def __init__(self, tool: str, own: Filled) -> None:
        """Keep the tool's name."""
        self._tool = tool

    def list_checks(self) -> "Sequence[Check]":
        """Return no checks."""
        return ()

    def describe_use(self, lacking: frozenset[str]) -> str | None:
        """Return the tool's name: it can profile wherever torch can be imported."""
        return None if "torch" in lacking else self._tool


# Names the files of a cell that rules, tables and pages read whichever tool provides them.

# What each holds, and in brackets the table or module that declares its form.
PROVIDED: Mapping[str, str] = {
    BASELINE: "steps without a profiler, with their times (profzoo.tools.time.tables.TABLE)",
    f"{BASELINE}_sidecar": "the sidecar of these steps",
    "launch_times": "GPU time per launch configuration and range, with sidecar (profzoo.tools.nsys.tables.TABLE)",
    "steps": "where the time of a step goes (profzoo.tools.nsys.steps.steps.TABLE)",
    "kernels": "time and counters per launch configuration and range (profzoo.tables.kernel_table.TABLE)",
    "trace_database": "the trace as nsys exports it to SQLite (profzoo.tools.nsys.events.trace)",
    "trace_database_sidecar": "the sidecar of that trace",
    "perfetto_trace": "the whole trace in the Trace Event Format, for Perfetto (profzoo.tools.nsys.pictures.perfetto)",
    "timeline": "one typical step of the trace as JSON (profzoo.tools.nsys.pictures.median_step)",
    "program": "the traced steps, for what-if simulations (profzoo.what_if.program)",
    "replay": "what changes would gain, by simulation (profzoo.what_if.tables.GAINS)",
    "host": "host time by cause (profzoo.what_if.tables.TAX)",
    "ranks": "what each process of a cell on several GPUs did per step (profzoo.tools.nsys.steps.ranks.TABLE)",
    "collectives": "collective operations of a cell on several GPUs (profzoo.tools.torch.collective_tables.CALL_TABLE)",
    "skew": "which of its processes comes late, and in which part (profzoo.tools.torch.collective_tables.TABLE)",
    "layers": "time and counters per module (profzoo.tables.layers.TABLE)",
    "layer_kernels": "the kernels of each module (profzoo.tables.layers.LAYER_KERNELS_TABLE)",
    "fusion": "operators that fewer kernels could compute (profzoo.fusion.table.CHAINS)",
    "fusion_kernels": "launches of a step, by chain and under autocast (profzoo.fusion.table.KERNELS)",
    "operators": "time per operator and its input shapes (profzoo.tables.layers.OPERATORS_TABLE)",
    "activities": "time per operator, range and kernel as torch.profiler has it (profzoo.tools.torch.tables.TABLE)",
    "owners": "how much of the GPU time has an owner (profzoo.tables.layers.OWNER_COVERAGE_TABLE)",
    "counters": "counters per launch, from which a roofline follows (profzoo.tools.ncu.export_schema.TABLE)",
    "occupancy": "occupancy per launch configuration and its limiter (profzoo.tables.cell_counters.TABLE)",
    "memory_chart": "bytes between parts of the memory system (profzoo.tables.cell_counters.CHART_TABLE)",
    "pipes": "how busy the pipes of the SMs are (profzoo.tables.cell_counters.PIPES_TABLE)",
    "warp_states": "what warps wait for (profzoo.tables.cell_counters.WARP_STATES_TABLE)",
    "coverage": "counted launch configurations, of all traced ones (profzoo.tables.kernel_table.COVERAGE_TABLE)",
    "advice": "the details page of ncu, with its advice (profzoo.tools.ncu.raw_page)",
    "advised_launches": "the launches that the advice is about (profzoo.tools.ncu.export_schema.TABLE)",
    "samples": "power and clocks of the GPU over time (profzoo.tools.sample.tables.TABLE)",
}


# Finds the files of a cell's processes on several GPUs, each named by host and rank.


def files_by_rank(paths: Iterable[Path], ending: str, processes: int, what: str) -> list[tuple[str, int, Path]]:
    """Return (host, rank, path) of each process of a cell, by rank; files are named `{host}.{rank}{ending}`.

    what: what the files are, for messages, such as `trace`.

    Raises:
        DataError: a process has no file, or several.
    """
    found = {}
    for path in paths:
        host, _, number = path.name.removesuffix(ending).rpartition(".")
        if not number.isascii() or not number.isdecimal() or int(number) in found:
            raise DataError(
                f"{path} is not named as the {what} of a process (HOST.RANK), or it occurs twice: delete it"
            )
        found[int(number)] = (host, int(number), path)
    missing = sorted(set(range(processes)) - set(found))
    if missing:
        raise DataError(f"{processes} processes, but no {what} of rank {', '.join(map(str, missing))}")
    return [found[number] for number in sorted(found)]


# Refuses options of a tool that the workflow itself gives, or that it cannot work with.


def check(
    key: str, words: Sequence[str], own: Mapping[str, str], refused: Mapping[str, str], whole: Collection[str] = ()
) -> None:
    """Check that the words contain no refused option, in full, shortened, or with its value in the same word.

    Args:
        key: key of the configuration that holds the words.
        words: options that the user added.
        own: options that the workflow gives, each with the key to change instead.
        refused: options that the workflow cannot work with, each with the reason.
        whole: other options whose beginnings are among the refused ones.

    >>> check("ncu.extra", ["-k5"], {"-k": "ncu.kernel_name"}, {})
    Traceback (most recent call last):
    profzoo.errors.ConfigError: ncu.extra holds -k, which the workflow sets itself: change ncu.kernel_name

    Raises:
        ConfigError: a refused option is among the words.
    """
    for word in words:
        if word.partition("=")[0] in whole:
            continue
        if (option := _meant(word, own)) in own:
            raise ConfigError(f"{key} holds {option}, which the workflow sets itself: change {own[option]}")
        if (option := _meant(word, refused)) in refused:
            raise ConfigError(f"{key} holds {option}, which {refused[option]}: remove it")


def _meant(word: str, options: Mapping[str, str]) -> str:
    """Return which of these options a word stands for; if none, the word without its value."""
    name = word.partition("=")[0]
    if name in options or not name.startswith("-"):
        return name
    if not name.startswith("--"):
        return name[:2]
    # Tools accept the beginning of an option if it is not the beginning of another one.
    longer = [option for option in options if option.startswith(name)]
    return longer[0] if len(longer) == 1 and len(name) > len("--") else name
