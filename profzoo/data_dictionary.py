"""The data dictionary: which table each CSV under results/ holds, and what each of its columns means."""

import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from profzoo import zoo_tables
from profzoo.fusion import table as fusion
from profzoo.io import column_types
from profzoo.io.column_types import Kind
from profzoo.io.columns import Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tables import (
    kernel_table,
    layer_kernels,
    layers,
    ncu_coverage,
    owner_coverage,
    repetition,
    roofline,
    user_ranges,
)
from profzoo.tables.table_descriptions import DESCRIPTIONS
from profzoo.tools.ncu import dictionary as ncu_columns
from profzoo.tools.ncu import export_schema
from profzoo.tools.nsys import ranks as nsys_ranks
from profzoo.tools.nsys import step_schema as nsys_launched
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import streams as nsys_streams
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.sample import tables as sample_tables
from profzoo.tools.time import tables as time_tables
from profzoo.tools.torch import owners as torch_owners
from profzoo.tools.torch import streams as torch_streams
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import user_ranges as torch_user_ranges
from profzoo.what_if import tables as replay

COLUMNS = ("table", "column", "unit", "meaning", "tool", "clock")
_ABOUT: Mapping[str, Column] = {
    "table": Column("CSV below results/, with what differs between files in braces."),
    "column": Column("Name of the column, or of a family of columns with `*`."),
    "unit": Column(
        "Unit; `count`, `fraction` (from 0 to 1) or `ratio` where there is no physical one; empty for text."
    ),
    "meaning": Column("What the column holds."),
    "tool": Column("Tool that measured it; empty where it is set or derived."),
    "clock": Column("Clock of a time: `gpu` (on a CPU the host's), or `cpu` for the host's."),
}
DICTIONARY = Table(columns=dict.fromkeys(COLUMNS, column_types.TEXT), key=["table", "column"], about=_ABOUT)
# Of programs that profzoo keeps the output of as it is.
_AS_PRINTED = {"*": Column("As `nsys stats` prints it; the name of the column has its unit.", "see name", "nsys")}


def _as_printed(name: str) -> Kind:
    return column_types.TEXT


# What ncu measured of whole ranges, which have no launch configuration.
_RANGES = Table(
    columns={"id": column_types.COUNT, "range": column_types.TEXT},
    others=export_schema.TABLE.others,
    about=export_schema.TABLE.about,
)


@dataclass(frozen=True)
class File:
    """A kind of CSV: what it holds in one line, what a row is, and its table.

    fewer: the table of a file with fewer columns, such as steps of a single process.
    """

    holds: str
    row: str
    table: Table
    fewer: Table | None = None

    def table_of(self, names: Collection[str]) -> Table:
        """Return the table of a file with these columns."""
        return self.fewer if self.fewer and not set(self.table.columns) <= set(names) else self.table


CSV_FILES: Mapping[str, File] = {
    **{f"tables/{name}.csv": File(holds, row, zoo_tables.TABLES[name]) for name, (holds, row) in DESCRIPTIONS.items()},
    "tables/columns.csv": File("This dictionary.", "a table and column", DICTIONARY),
    "peaks/{gpu}.csv": File("Measured peaks of the GPU.", "a peak", roofline.PEAKS),
    "{model}/{phase}.time.csv": File("Steps without any profiler.", "a step", time_tables.REPEATED, time_tables.TABLE),
    "{model}/{phase}.memory.csv": File("Memory through a step, and what holds it.", "a range", time_tables.MEMORY),
    "{model}/{phase}.{side}.rounds.csv": File(
        "Steps of the sides of a comparison, which ran in turn.", "a step", time_tables.REPEATED
    ),
    "{model}/{phase}.trials.csv": File(
        "Steps of trials of settings.", "a step", time_tables.REPEATED, time_tables.TABLE
    ),
    "{model}/{phase}.torch-time.csv": File(
        "Steps of the baseline that torch's job runs in its process.", "a step", time_tables.TABLE
    ),
    "{model}/{phase}.sample-steps.csv": File(
        "Steps of the run that NVML was sampled beside.", "a step", time_tables.REPEATED
    ),
    "{model}/{phase}.nsys.csv": File("GPU time by nsys.", "a launch configuration and range", nsys_tables.TABLE),
    "{model}/{phase}.nsys-steps.csv": File("Where a step's time goes, by nsys.", "a process", nsys_steps.TABLE),
    "{model}/{phase}.nsys-streams.csv": File(
        "What each stream of a GPU did per step, by nsys.", "a process, GPU and stream", nsys_streams.TABLE
    ),
    "{model}/{phase}.nsys-copies.csv": File(
        "What copies moved per step, by nsys.", "a stream, direction and kinds of memory", nsys_streams.COPIES
    ),
    "{model}/{phase}.nsys-launches.csv": File("Launches of a step by nsys, in order.", "a launch", nsys_launched.TABLE),
    "{model}/{phase}.nsys/{report}.csv": File(
        "A report of `nsys stats`, as it is.",
        "as nsys has it",
        Table(columns={}, others=_as_printed, about=_AS_PRINTED),
    ),
    "{model}/{phase}.ranks.csv": File("What each process did, by nsys.", "a process", nsys_ranks.TABLE),
    "{model}/{phase}.ncu.csv": File(
        "Launches that ncu profiled with the set `ncu.set`.", "a launch", export_schema.TABLE, _RANGES
    ),
    "{model}/{phase}.ncu.{set}.csv": File(
        "Launches that ncu profiled with a section set.", "a launch", export_schema.TABLE, _RANGES
    ),
    "{model}/{phase}.ncu-ranks.{set}.csv": File(
        "The same of all processes of the cell.", "a launch", export_schema.TABLE, _RANGES
    ),
    "{model}/{phase}.ncu.{set}.coverage.csv": File(
        "Launch configurations that nsys traced, ncu profiled, or both.", "a launch configuration", ncu_coverage.TABLE
    ),
    "{model}/{phase}.ncu-details.csv": File(
        "ncu's details page, as it is: metrics and advice.",
        "a metric or piece of advice",
        Table(columns={}, others=_as_printed, about=ncu_columns.DETAILS),
    ),
    "{model}/{phase}.kernels.csv": File(
        "Time by nsys and counters by ncu.", "a launch configuration and range", kernel_table.TABLE
    ),
    "{model}/{phase}.torch.csv": File(
        "Operators, ranges, calls of CUDA and launches by torch.profiler.", "a name by kind", torch_tables.TABLE
    ),
    "{model}/{phase}.torch.launches.csv": File(
        "Launches by torch.profiler with their owners (on a CPU: calls of operators).", "a launch", torch_owners.TABLE
    ),
    "{model}/{phase}.torch.streams.csv": File(
        "What each stream of the GPU did per step, by torch.profiler.", "a stream", torch_streams.TABLE
    ),
    "{model}/{phase}.torch.ranges.csv": File(
        "Ranges that the program opened with record_function.", "a range", torch_user_ranges.TABLE
    ),
    "{model}/{phase}.torch.modules.csv": File("Modules that were called.", "a module", torch_owners.MODULES),
    "{model}/{phase}.torch-operators.csv": File(
        "torch.profiler's own table of operators.", "an operator", torch_tables.OPERATORS
    ),
    "{model}/{phase}.layers.csv": File("Time by module and direction.", "a module and direction", layers.TABLE),
    "{model}/{phase}.ranges.csv": File("Time by range that the program opened itself.", "a range", user_ranges.TABLE),
    "{model}/{phase}.repetition.csv": File(
        "How the launches of steps differ; no row where they do not.", "the cell", repetition.TABLE
    ),
    "{model}/{phase}.step-launches.csv": File(
        "Launches of steps that differ, laid over one another.", "a launch", repetition.LAUNCHES_TABLE
    ),
    "{model}/{phase}.operators.csv": File(
        "Time by operator and module.", "an operator and module", layers.OPERATORS_TABLE
    ),
    "{model}/{phase}.layer-kernels.csv": File(
        "Kernels by the operator and module that launched them.", "a kernel by owner", layer_kernels.TABLE
    ),
    "{model}/{phase}.owners.csv": File("How much GPU time has an owner.", "the cell", owner_coverage.TABLE),
    "{model}/{phase}.replay.csv": File("Predicted speedup of changes.", "a process and change", replay.GAINS),
    "{model}/{phase}.fusion.csv": File("Operators that fewer kernels could compute.", "a chain", fusion.CHAINS),
    "{model}/{phase}.fusion-kernels.csv": File(
        "Launches of these operators in a typical step of nsys.", "a launch", fusion.KERNELS
    ),
    "{model}/{phase}.host.csv": File("What the host's time goes to.", "a process", replay.TAX),
    "{model}/{phase}.sample.csv": File("NVML's counters within the window.", "a sample and GPU", sample_tables.TABLE),
    "{model}/{phase}.sample-raw.csv": File("NVML's counters as sampled.", "a sample and GPU", sample_tables.SAMPLES),
}


def find_file(path: str) -> tuple[str, File] | None:
    """Return the pattern of a CSV, by its path below results/, and its kind; None for one that is not known.

    >>> find_file("lstm@bf16/train.ncu.roofline.csv")[0]
    '{model}/{phase}.ncu.{set}.csv'
    """
    for pattern in sorted(CSV_FILES, key=lambda one: (one.count("{"), -len(one))):
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(pattern)), path):
            return pattern, CSV_FILES[pattern]
    return None


def list_columns(table: Table) -> list[str]:
    """Return the columns that a table has or may have, families of them by their pattern."""
    declared = [*table.columns, *(name for name in table.optional if name not in table.columns)]
    more = [name for name in table.about if name not in declared and table.others(name.replace("*", "x")) is not None]
    return declared + [name for name in more if "*" not in name or not fnmatch.filter(declared, name)]


def list_entries() -> Iterator[tuple[str, str, Column]]:
    """Yield each file's pattern, each of its columns, and what that means.

    Raises:
        KeyError: a column has no meaning: describe it in the package's dictionary.py.
    """
    for pattern, file in CSV_FILES.items():
        for name in list_columns(file.table):
            column = file.table.describe(name)
            if column is None:
                raise KeyError(f"{pattern}: the column {name} has no meaning")
            yield pattern, name, column


def tabulate_columns() -> pd.DataFrame:
    """Return the dictionary as a table: COLUMNS, a row per column of each kind of file."""
    rows = [(file, name, one.unit, one.means, one.tool, one.clock) for file, name, one in list_entries()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def main(csv: str | Path) -> None:
    """Write the dictionary."""
    write_csv(tabulate_columns(), csv)
