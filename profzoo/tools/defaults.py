"""What holds of a tool whose modules do not say otherwise: the registry fills in what a module leaves out.

Each class here has the functions and names of one module of a tool, with the defaults as their values.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# The outputs of a collecting job that the job itself writes, after the tool has ended.
SIDECARS = ("sidecar", "timed")


class Filled:
    """A module of a tool; what it does not define is looked up among the defaults."""

    def __init__(self, tool: str, module: ModuleType | None, defaults: "Callable[[str, Filled], object]") -> None:
        """Module: None where the tool has no such file, so that all of it is defaults."""
        self._module, self._defaults = module, defaults(tool, self)

    def __getattr__(self, name: str) -> Any:
        """The module's own value if it has one, else the default."""
        return getattr(self._module if hasattr(self._module, name) else self._defaults, name)


class Command:
    """The module `command` of a tool that needs no program beside the measured one and checks nothing."""

    PROGRAM = None
    SEES_OTHERS = False
    INSTALL = ""
    BESIDE: Sequence[str] = ()

    def __init__(self, tool: str, own: Filled) -> None:
        """Defaults of a command depend on neither the tool nor its module."""

    def check_settings(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration as it is: its schema accepts nothing that fails later."""
        return own

    def wrap_command(self, options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
        """No words: the tool runs inside the measured process."""
        return []

    def program_options(self, made: Mapping[str, Path]) -> list[str]:
        """No words: the measured program marks the window by itself."""
        return []

    def adapt_command(self, command: Sequence[str], gpu: bool) -> list[str]:
        """The command as it is."""
        return list(command)

    def output_files(self, made: Mapping[str, Path]) -> list[Path]:
        """All outputs of the job, except for sidecars, which the job writes once the tool has ended."""
        return [path for name, path in made.items() if name not in SIDECARS]

    def arrange_outputs(self, made: Mapping[str, Path]) -> None:
        """Do nothing: the tool writes its files to their places."""


class Files:
    """The module `files` of a tool that exports one table, `{phase}.{tool}.csv`, with a sidecar."""

    def __init__(self, tool: str, own: Filled) -> None:
        """Keep the tool's name, and its module, from whose `table_inputs` the `required_files` follow."""
        self._tool, self._own = tool, own

    def exported_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """The table."""
        return [f"{{phase}}.{self._tool}.csv"]

    def table_inputs(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """The table with its sidecar."""
        csv = f"{{phase}}.{self._tool}.csv"
        return {self._tool: csv, f"{self._tool}_sidecar": f"{csv}.json"}

    def provided_files(self, own: Mapping[str, Any]) -> Mapping[str, str]:
        """Nothing besides the inputs of tables."""
        return {}

    def required_files(self, own: Mapping[str, Any]) -> Sequence[str]:
        """Everything that tables are made of."""
        return [*self._own.table_inputs(own).values()]

    def name_parts(self, own: Mapping[str, Any]) -> Sequence[str]:
        """The tool's name."""
        return [self._tool]


class Activity:
    """The module `activity` of a tool whose table tells nothing of kernels, parts of the step, or cells."""

    PLACE = None
    ALONE = False
    FACTS: Mapping[str, Any] = {}
    COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {}

    def __init__(self, tool: str, own: Filled) -> None:
        """Defaults of an activity depend on neither the tool nor its module."""

    def summarise_kernels(self, table: Any, facts: "Sidecar") -> None:
        """No kernels."""

    def summarise_ranges(self, table: Any, facts: "Sidecar") -> None:
        """No parts of the step."""

    def summarise_cell(self, table: Any, facts: "Sidecar") -> Mapping[str, float | str]:
        """No columns."""
        return {}
