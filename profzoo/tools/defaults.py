"""Defaults of a tool's modules; the registry fills in whatever a module leaves out.

Each class here stands for one module of a tool, and has its functions and names with their default values. The classes
of the same names in profzoo/tools/__init__.py describe them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar
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
