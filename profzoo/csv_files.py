"""Declares each CSV under results/: what it holds, what a row is, and its table."""

import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from profzoo import zoo_tables
from profzoo.fusion import table as fusion
from profzoo.io import column_types, csv_tables, fast_csv, text_files
from profzoo.io.column_types import Kind
from profzoo.io.columns import Column
from profzoo.io.csv_tables import Table
from profzoo.tables import (
    kernel_table,
    layer_kernels,
    layers,
    memory_chart,
    ncu_coverage,
    occupancy,
    owner_coverage,
    pipes,
    repetition,
    roofline,
    user_ranges,
    warp_states,
)
from profzoo.tables.table_descriptions import DESCRIPTIONS
from profzoo.tools.ncu import details_page, export_schema, instances_columns, source_columns
from profzoo.tools.ncu import dictionary as ncu_columns
from profzoo.tools.nsys import gpu_memory, gpu_metric_tables, tracks
from profzoo.tools.nsys import host_schema as nsys_host
from profzoo.tools.nsys import ranks as nsys_ranks
from profzoo.tools.nsys import step_schema as nsys_launched
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import streams as nsys_streams
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.sample import tables as sample_tables
from profzoo.tools.time import tables as time_tables
from profzoo.tools.torch import allocator_snapshot as torch_snapshot
from profzoo.tools.torch import collective_tables as torch_collectives
from profzoo.tools.torch import cycles as torch_cycles
from profzoo.tools.torch import dtypes as torch_dtypes
from profzoo.tools.torch import link_rates
from profzoo.tools.torch import memory_over_time as torch_memory
from profzoo.tools.torch import owners as torch_owners
from profzoo.tools.torch import rank_skew as torch_skew
from profzoo.tools.torch import streams as torch_streams
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import user_ranges as torch_user_ranges
from profzoo.what_if import tables as replay

DICTIONARY_COLUMNS = ("table", "column", "unit", "meaning", "tool", "clock")
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
DICTIONARY = Table(columns=dict.fromkeys(DICTIONARY_COLUMNS, column_types.TEXT), key=["table", "column"], about=_ABOUT)
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

    fewer: the table of a file with fewer columns, as of one process. read: reads a file with rows of unlike length.
    """

    holds: str
    row: str
    table: Table
    fewer: Table | None = None
    read: Callable[[Path], pd.DataFrame] | None = None

    def table_of(self, names: Collection[str]) -> Table:
        """Return the table of a file with these columns."""
        return self.fewer if self.fewer and not set(self.table.columns) <= set(names) else self.table


_details_page = functools.partial(
    File,
    row="a metric or piece of advice",
    table=Table(columns={}, others=_as_printed, about=ncu_columns.DETAILS),
    read=details_page.read_texts,
)
CSV_FILES: Mapping[str, File] = {
    **{f"tables/{name}.csv": File(holds, row, zoo_tables.TABLES[name]) for name, (holds, row) in DESCRIPTIONS.items()},
    "tables/columns.csv": File("This dictionary.", "a table and column", DICTIONARY),
    "peaks/{gpu}.csv": File("Measured peaks of the GPU.", "a peak", roofline.PEAKS),
    "peaks/{gpu}.links.{nodes}x{gpus}.csv": File(
        "How fast the links between GPUs are.", "a collective operation and size", link_rates.TABLE
    ),
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
    "{model}/{phase}.nsys-tracks.csv": File("What happened during the typical step, by nsys.", "a span", tracks.TABLE),
    "{model}/{phase}.nsys-metrics.csv": File(
        "GPU metrics that nsys sampled.", "a sample of a GPU", gpu_metric_tables.SAMPLES
    ),
    "{model}/{phase}.nsys-metrics-steps.csv": File(
        "Mean and peak of GPU metrics per step.", "a GPU and step", gpu_metric_tables.STEPS
    ),
    "{model}/{phase}.nsys-memory.csv": File(
        "GPU memory over time, by nsys.", "an allocation or free", gpu_memory.TABLE
    ),
    "{model}/{phase}.nsys-threads.csv": File(
        "What threads of the host did, by nsys.", "a thread and step", nsys_host.THREADS
    ),
    "{model}/{phase}.nsys-off-cpu.csv": File(
        "The calls in which threads left the CPU, by nsys.", "a thread, step and call", nsys_host.OFF_CPU
    ),
    "{model}/{phase}.nsys-samples.csv": File(
        "CPU samples of the steps, by nsys.", "a thread and function", nsys_host.SAMPLES
    ),
    "{model}/{phase}.nsys-idle.csv": File(
        "Idle time of the GPU by cause and call of the operating system, by nsys.",
        "a cause, launching thread and call",
        nsys_host.IDLE,
    ),
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
    "{model}/{phase}.ncu-details.csv": _details_page("ncu's details page, as it is: metrics and advice."),
    "{model}/{phase}.ncu-details.{set}.csv": _details_page("The details page of one section set, as it is."),
    "{model}/{phase}.ncu-source.{set}.csv": File(
        "Stalls and counters of the most expensive kernels, where the set has machine code.",
        "a source line or instruction",
        source_columns.TABLE,
    ),
    "{model}/{phase}.ncu-instances.{set}.csv": File(
        "Metrics of the most expensive kernels that have several values per launch.",
        "a value",
        instances_columns.TABLE,
    ),
    "{model}/{phase}.kernels.csv": File(
        "Time by nsys and counters by ncu.", "a launch configuration and range", kernel_table.TABLE
    ),
    "{model}/{phase}.occupancy.csv": File(
        "Occupancy by ncu, what limits it, and what would change it.", "a launch configuration", occupancy.TABLE
    ),
    "{model}/{phase}.memory-chart.csv": File(
        "Bytes between the parts of the memory system, by ncu.", "a class of kernels and link", memory_chart.TABLE
    ),
    "{model}/{phase}.pipes.csv": File(
        "How busy the pipes of the SMs are, by ncu.", "a class of kernels and pipe", pipes.TABLE
    ),
    "{model}/{phase}.warp-states.csv": File(
        "What warps wait for, by ncu.", "a class of kernels and state", warp_states.TABLE
    ),
    "{model}/{phase}.torch-collectives.csv": File(
        "Collective operations of several processes, by size.", "a kind and size", torch_collectives.TABLE
    ),
    "{model}/{phase}.torch-skew.csv": File(
        "Which process comes late, and in which part.", "a process, step and part", torch_skew.TABLE
    ),
    "{model}/{phase}.torch.csv": File(
        "Operators, ranges, calls of CUDA and launches by torch.profiler.", "a name by kind", torch_tables.TABLE
    ),
    "{model}/{phase}.torch.launches.csv": File(
        "Launches by torch.profiler with their owners (on a CPU: calls of operators).", "a launch", torch_owners.TABLE
    ),
    "{model}/{phase}.torch.ranges.csv": File(
        "Ranges that the program opened with record_function.", "a range", torch_user_ranges.TABLE
    ),
    "{model}/{phase}.torch.modules.csv": File("Modules that were called.", "a module", torch_owners.MODULES),
    "{model}/{phase}.torch.streams.csv": File(
        "What each stream of the GPU did per step, by torch.profiler.", "a stream", torch_streams.TABLE
    ),
    "{model}/{phase}.torch.dtypes.csv": File(
        "Operators by the types of their inputs, and casts.", "an operator and types", torch_dtypes.TABLE
    ),
    "{model}/{phase}.torch-memory.csv": File(
        "Memory over the traced steps (`torch.memory`).", "an allocation or release", torch_memory.TABLE
    ),
    "{model}/{phase}.torch.cycles.csv": File(
        "Operators, ranges, calls and launches of each cycle of torch.profiler (`torch.repeat`).",
        "a name by kind, range and cycle",
        torch_cycles.TABLE,
    ),
    "{model}/{phase}.torch.cycle-differences.csv": File(
        "How these cycles differ.", "a name by kind and range", torch_cycles.DIFFERENCES
    ),
    "{model}/{phase}.torch-snapshot.csv": File(
        "Blocks that were allocated at the peak of a GPU's memory (`torch.snapshot`).", "a block", torch_snapshot.TABLE
    ),
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

    >>> find_file("lstm@bf16/train.ncu.roofline.csv")[0], find_file("peaks/h200.links.1x2.csv")[0]
    ('{model}/{phase}.ncu.{set}.csv', 'peaks/{gpu}.links.{nodes}x{gpus}.csv')
    """
    for pattern in sorted(CSV_FILES, key=lambda one: (one.count("{"), -len(one))):
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/.]+", re.escape(pattern)), path):
            return pattern, CSV_FILES[pattern]
    return None


def read_file(path: Path, name: str) -> tuple[pd.DataFrame, Table | None]:
    """Read a CSV by its declaration, or with pandas if it has none, and return its rows and its declaration.

    name: path of the CSV below results/.

    Raises:
        DataError: the file does not match its declaration.
    """
    found = find_file(name)
    if found is None:
        return pd.read_csv(path), None
    if found[1].read:
        return found[1].read(path), found[1].table
    with text_files.open_file(path) as file:
        heading = text_files.decode(file.readline(), path, csv_tables.AGAIN)
    table = found[1].table_of(fast_csv.parse_header(heading))
    return csv_tables.read(path, table), table
