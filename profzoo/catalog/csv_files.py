"""Declares each CSV under results/: what it holds, what a row is, and its table."""

import fnmatch
import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from profzoo.compare import comparison_table, contributions, counter_changes
from profzoo.fusion import table as fusion
from profzoo.io import csv_tables, text_files
from profzoo.io import csv_tables as reading
from profzoo.io.columns import TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.plans import first_plan
from profzoo.plans import plan_table as plans
from profzoo.tables import cell_counters, kernel_table, layers, repetition, roofline, schemas, tokens, user_ranges
from profzoo.tables.table_descriptions import DESCRIPTIONS
from profzoo.tools.ncu import export_schema, instances, raw_page, source_lines
from profzoo.tools.ncu.quantities import CHARTS, SET_OF, SET_OF_ALL
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.host import host_schema as nsys_host
from profzoo.tools.nsys.over_time import gpu_memory, gpu_metrics
from profzoo.tools.nsys.pictures import tracks
from profzoo.tools.nsys.steps import ranks as nsys_ranks
from profzoo.tools.nsys.steps import step_sequence as nsys_launched
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.nsys.steps import streams as nsys_streams
from profzoo.tools.sample import tables as sample_tables
from profzoo.tools.time import tables as time_tables
from profzoo.tools.torch import allocator_snapshot as torch_snapshot
from profzoo.tools.torch import collective_events, collective_tables
from profzoo.tools.torch import cycles as torch_cycles
from profzoo.tools.torch import export as torch_dtypes
from profzoo.tools.torch import memory_over_time as torch_memory
from profzoo.tools.torch import owners as torch_owners
from profzoo.tools.torch import streams as torch_streams
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import user_ranges as torch_user_ranges
from profzoo.trials import trial_table as trials
from profzoo.verdicts import verdict as verdicts
from profzoo.verdicts.causes import verdict_table
from profzoo.what_if import tables as replay

# Declares the columns of the tables across the zoo and the commands that make them, and reads tables by name.

TABLES = {
    **schemas.TABLES,
    "verdicts": verdicts.VERDICTS_TABLE,
    "plans": plans.PLANS_TABLE,
    "waits": verdict_table.WAITS_TABLE,
    "fusion": verdict_table.FUSION_TABLE,
    "trials": trials.TRIALS_TABLE,
    "compare": comparison_table.COMPARISON_TABLE,
    "compare_parts": contributions.PARTS_TABLE,
    "compare_counters": counter_changes.COUNTERS_TABLE,
    "compare_latency": comparison_table.LATENCY_TABLE,
}
# Commands for tables that the default configuration does not make.
COMMANDS = {
    "ranks": "snakemake report --config gpus=2 tool=nsys",
    **{name: f"snakemake results/tables/{name}.csv --config gpus=2 tool=torch" for name in ("collectives", "skew")},
    **{name: f"snakemake results/tables/{name}.csv --config tool=nsys" for name in ("replay", "host")},
    **{name: f"snakemake results/tables/{name}.csv --config tool=torch" for name in ("layers", "owners")},
    "fusion": "snakemake results/tables/fusion.csv --config tool=nsys,torch",
    "tokens": "snakemake results/tables/tokens.csv --config models=gpt phases=inference tool=torch",
    "roofline": "snakemake report --config tool=ncu,nsys ncu='{set: roofline}'",
    **{
        name: f"snakemake report --config tool=ncu,nsys ncu='{{set: {SET_OF.get(name, SET_OF_ALL)}}}'"
        for name in CHARTS
    },
    **dict.fromkeys(
        ("compare", "compare_parts", "compare_counters", "compare_latency"), "snakemake compare --config candidate=bf16"
    ),
    "trials": "snakemake trials",
}


def read_table(name: str, path: str | Path) -> pd.DataFrame:
    """Read a table by its name; raises DataError if the file does not match the table's declaration."""
    return reading.read(path, TABLES[name])


DICTIONARY = Table(
    columns={
        "table": Column(TEXT, "CSV below results/, with what differs between files in braces."),
        "column": Column(TEXT, "Name of the column, or of a family of columns with `*`."),
        "unit": Column(
            TEXT, "Unit; `count`, `fraction` (from 0 to 1) or `ratio` where there is no physical one; empty for text."),
        "meaning": Column(TEXT, "What the column holds."),
        "tool": Column(TEXT, "Tool that measured it; empty where it is set or derived."),
        "clock": Column(TEXT, "Clock of a time: `gpu` (on a CPU the host's), or `cpu` for the host's."),
    },
    key=["table", "column"],
)  # fmt: skip
# What programs print, which profzoo keeps as it is.
_PRINTED = Table(
    columns={},
    families={"*": Column(TEXT, "As `nsys stats` prints it; the name of the column has its unit.", "see name", "nsys")},
)
_DETAILS = Table(
    columns={}, families={"*": Column(TEXT, "As `ncu --page details --csv` prints it.", "see the row", "ncu")}
)
# What ncu measured of whole ranges, which have no launch configuration.
_RANGES = replace(export_schema.TABLE, columns=select(export_schema.TABLE.columns, "id", "range"), optional={}, key=())


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


_details_page = functools.partial(File, row="a metric or piece of advice", table=_DETAILS, read=raw_page.read_texts)
CSV_FILES: Mapping[str, File] = {
    **{f"tables/{name}.csv": File(holds, row, TABLES[name]) for name, (holds, row) in DESCRIPTIONS.items()},
    "tables/columns.csv": File("This dictionary.", "a table and column", DICTIONARY),
    "peaks/{gpu}.csv": File("Measured peaks of the GPU.", "a peak", roofline.PEAKS),
    "peaks/{gpu}.links.{nodes}x{gpus}.csv": File(
        "How fast the links between GPUs are.", "a collective operation and size", collective_events.TABLE
    ),
    "{model}/{phase}.time.csv": File("Steps without any profiler.", "a step", time_tables.REPEATED, time_tables.TABLE),
    "{model}/{phase}.memory.csv": File(
        "Memory through a step, and what holds it.", "a range or a module", time_tables.MEMORY
    ),
    "{model}/train.memory-remedies.csv": File(
        "The same, and what each remedy is expected to leave.", "a range, a module or a remedy", time_tables.MEMORY
    ),
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
        "GPU metrics that nsys sampled.", "a sample of a GPU", gpu_metrics.METRIC_SAMPLES
    ),
    "{model}/{phase}.nsys-metrics-steps.csv": File(
        "Mean and peak of GPU metrics per step.", "a GPU and step", gpu_metrics.STEPS
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
    "{model}/{phase}.nsys/{report}.csv": File("A report of `nsys stats`, as it is.", "as nsys has it", _PRINTED),
    "{model}/{phase}.first-plan.csv": File(
        "Plans of a cell by its trace, before counters have come.", "a plan", first_plan.FIRST_TABLE
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
        "Launch configurations that nsys traced, ncu profiled, or both.",
        "a launch configuration",
        kernel_table.COVERAGE_TABLE,
    ),
    "{model}/{phase}.ncu-details.csv": _details_page("ncu's details page, as it is: metrics and advice."),
    "{model}/{phase}.ncu-details.{set}.csv": _details_page("The details page of one section set, as it is."),
    "{model}/{phase}.ncu-source.{set}.csv": File(
        "Stalls and counters of the most expensive kernels, where the set has machine code.",
        "a source line or instruction",
        source_lines.TABLE,
    ),
    "{model}/{phase}.ncu-instances.{set}.csv": File(
        "Metrics of the most expensive kernels that have several values per launch.", "a value", instances.TABLE
    ),
    "{model}/{phase}.kernels.csv": File(
        "Time by nsys and counters by ncu.", "a launch configuration and range", kernel_table.TABLE
    ),
    "{model}/{phase}.occupancy.csv": File(
        "Occupancy by ncu, what limits it, and what would change it.", "a launch configuration", cell_counters.TABLE
    ),
    "{model}/{phase}.memory-chart.csv": File(
        "Bytes between the parts of the memory system, by ncu.",
        "a class of kernels and link",
        cell_counters.CHART_TABLE,
    ),
    "{model}/{phase}.pipes.csv": File(
        "How busy the pipes of the SMs are, by ncu.", "a class of kernels and pipe", cell_counters.PIPES_TABLE
    ),
    "{model}/{phase}.warp-states.csv": File(
        "What warps wait for, by ncu.", "a class of kernels and state", cell_counters.WARP_STATES_TABLE
    ),
    "{model}/{phase}.torch-collectives.csv": File(
        "Collective operations of several processes, by size.", "a kind and size", collective_tables.CALL_TABLE
    ),
    "{model}/{phase}.torch-skew.csv": File(
        "Which process comes late, and in which part.", "a process, step and part", collective_tables.TABLE
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
    "{model}/{phase}.tokens.csv": File(
        "Where the time of generated tokens goes.", "a range, module and kind of launches", tokens.TABLE
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
        "Kernels by the operator and module that launched them.", "a kernel by owner", layers.LAYER_KERNELS_TABLE
    ),
    "{model}/{phase}.owners.csv": File("How much GPU time has an owner.", "the cell", layers.OWNER_COVERAGE_TABLE),
    "{model}/{phase}.replay.csv": File("Predicted speedup of changes.", "a process and change", replay.GAINS),
    "{model}/{phase}.fusion.csv": File("Operators that fewer kernels could compute.", "a chain", fusion.CHAINS),
    "{model}/{phase}.fusion-kernels.csv": File(
        "Launches of a typical step of nsys: part of which chain, and what autocast to bf16 would change.",
        "a launch",
        fusion.KERNELS,
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
    table = found[1].table_of(csv_tables.parse_header(heading))
    return csv_tables.read(path, table), table


# The data dictionary: what each column of each CSV under results/ means, as a table.


def list_columns(table: Table) -> list[str]:
    """Return the columns that a table has or may have, families of them by their pattern."""
    declared = {**table.columns, **table.optional}
    return [*declared, *(name for name in table.families if "*" not in name or not fnmatch.filter(declared, name))]


def list_entries() -> Iterator[tuple[str, str, Column]]:
    """Yield each file's pattern, each of its columns, and the declaration of that."""
    for pattern, file in CSV_FILES.items():
        for name in list_columns(file.table):
            column = file.table.describe(name)
            assert column is not None
            yield pattern, name, column


def tabulate_columns() -> pd.DataFrame:
    """Return the dictionary as a table: a row per column of each kind of file."""
    rows = [(file, name, one.unit, one.means, one.tool, one.clock) for file, name, one in list_entries()]
    return pd.DataFrame(rows, columns=list(DICTIONARY.columns))


def main(csv: str | Path) -> None:
    """Write the dictionary."""
    write_csv(tabulate_columns(), csv)
