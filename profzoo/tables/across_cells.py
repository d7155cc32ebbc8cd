"""Makes the tables across cells from every exported cell."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo import tools
from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.statistics import process_repeats
from profzoo.tables import (
    cell_tables,
    kernel_table,
    layers,
    repetition,
    roofline,
    schemas,
    steps_per_export,
    user_ranges,
)
from profzoo.tables.cell_counters import TABLES as CELL_COUNTERS_TABLES
from profzoo.tables.latency import COLUMNS as LATENCY_COLUMNS
from profzoo.tables.latency import FIRST_TOKEN, STEP, TOKEN, list_percentiles
from profzoo.tables.latency import TABLE as LATENCY_TABLE
from profzoo.tables.schemas import CELL, LAUNCH, RANK_SHARES, VERSION, VERSIONS
from profzoo.tables.tokens import settle_tokens
from profzoo.tools import tool_versions
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.nsys.steps.ranks import COLUMNS, TABLE, find_waits
from profzoo.tools.torch import collective_tables
from profzoo.what_if.tables import GAINS, TAX

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Makes the table of the processes of cells on several GPUs: how much they differ, one row per process.


def across_cells(tables: Iterable[tuple[Mapping[str, str], pd.DataFrame]]) -> pd.DataFrame:
    """Return the rows of all cells, with shares of the step and each process's deviation from the cell's mean.

    `waiting_ns` is the process's communication time beyond the shortest in its cell: the time that it waits for other
    processes. `communication_share` and `exposed_share` are relative to the step's wall time, and `overlap_share` to
    the communication time. `imbalance` is the process's compute_ns over the mean of its cell, minus one.
    """
    frames = [table.assign(**cell) for cell, table in tables]
    together = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*CELL, *COLUMNS])
    cells = together.groupby(CELL)
    mean = cells["compute_ns"].transform("mean")
    together["waiting_ns"] = cells["communication_ns"].transform(find_waits)
    together["communication_share"] = together["communication_ns"] / together["wall_ns"]
    together["exposed_share"] = together["exposed_ns"] / together["wall_ns"]
    together["overlap_share"] = together["overlap_ns"] / together["communication_ns"].where(
        together["communication_ns"] > 0
    )
    together["imbalance"] = together["compute_ns"] / mean.where(mean > 0) - 1
    return together[[*CELL, *COLUMNS, *RANK_SHARES]]


def tabulate_ranks(paths: Sequence[str]) -> pd.DataFrame:
    """Return the table of all processes from the cells' files."""
    return across_cells(cell_tables.read(paths, TABLE))


def read_imbalance(paths: Sequence[str]) -> pd.DataFrame:
    """Read the table across cells, if there is a path; else return it without rows."""
    return schemas.read_table("ranks", paths[0]) if paths else across_cells([])


# Flags cells on which tools disagree, with the cause if it is known.

FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)
# The least spread, (largest - smallest) / largest, that is flagged.
LAUNCHES, TIME = 0.02, 0.10
# ns that a launch takes longer under ncu, alone on a GPU that is idle before and after it: the middle half of 42 cells
# on an H200 had 690 to 930 (docs/how/overview.md); what is within this is put down to it.
ALONE_NS = (300.0, 1500.0)
UNKNOWN = "unknown: compare the tools' rows of the cell in activity.csv"


def explain_disagreements(agreement: pd.DataFrame, coverage: pd.DataFrame) -> pd.DataFrame:
    """Return the table of agreement with `flag` (launches, time, both or empty) and `cause`.

    coverage: the table of coverage, in which it shows where runs launched different kernels.
    """
    chosen = coverage[coverage["other_choice"].eq(True)] if "other_choice" in coverage else coverage[:0]
    elsewhere = {(row.model, row.phase): row.missing for row in chosen.itertuples()}
    flags, causes = [], []
    for _, row in agreement.iterrows():
        found = {"launches": row["launches_spread"] > LAUNCHES, "time": row["gpu_ns_spread"] > TIME}
        reasons = []
        if any(found.values()) and tuple(row[CELL]) in elsewhere:
            missing = elsewhere[tuple(row[CELL])]
            named = f" ({missing})" if isinstance(missing, str) and missing else ""
            reasons.append(f"the runs launched different kernels{named}: deterministic: true makes them the same")
        elif found["launches"]:
            reasons.append(UNKNOWN)
        elif found["time"]:
            reasons.append(_alone(row) or UNKNOWN)
        flags.append(", ".join(name for name, holds in found.items() if holds))
        causes.append("; ".join(reasons))
    return agreement.assign(flag=flags, cause=causes)


def _alone(row: pd.Series) -> str | None:
    """Return the cause if a tool's longer time is explained by launches that run alone; else None."""
    compared = tools.compared_activities()
    beside = {name: row.get(f"{name}_gpu_ns") for name, activity in compared.items() if not activity.ALONE}
    others = [ns for ns in beside.values() if pd.notna(ns)]
    for tool in [name for name, activity in compared.items() if activity.ALONE]:
        launches = row.get(f"{tool}_launches")
        if not others or pd.isna(row.get(f"{tool}_gpu_ns")) or not launches:
            continue
        each = (row[f"{tool}_gpu_ns"] - min(others)) / launches
        if ALONE_NS[0] <= each <= ALONE_NS[1]:
            return (
                f"under {tool} each launch runs alone and takes {each / 1e3:.1f} µs more, beside "
                f"{min(others) / launches / 1e3:.1f} µs: take times from {next(iter(beside))}"
            )
    return None


# Adds the versions that each cell was measured with to the table of cells.


def add_version_columns(
    cells: pd.DataFrame, measured: "Iterable[tuple[str, Mapping[str, str], Sidecar]]"
) -> pd.DataFrame:
    """Return the table of cells with VERSIONS: torch, GPU driver and profilers; empty without the program.

    If the tools of a cell ran with different versions, the column names all versions, each with its tools.

    measured: tool, cell and sidecar of each input of the tables.
    """
    found: dict[tuple[str, ...], dict[str, Mapping[str, str]]] = {}
    for tool, cell, facts in measured:
        found.setdefault(tuple(cell[key] for key in CELL), {})[tool] = tool_versions.versions_of(facts)
    rows = [
        tool_versions.merge_versions(found.get(cell, {})) for cell in cells[CELL].itertuples(index=False, name=None)
    ]
    texts = {name: [row.get(name.removesuffix(VERSION), "") for row in rows] for name in VERSIONS}
    return cells.assign(**{name: pd.array(column, dtype="str") for name, column in texts.items()})


# Compares the kernel tables of all cells with the peaks of the GPU that they ran on.

LEVELS = {"cell": [], "class": ["class"], "range": ["range"], "launch": LAUNCH}
LEADING = ["level", *CELL, *LEVELS["launch"]]


def make_roofline(kernels: pd.DataFrame, peaks: dict[str, float]) -> pd.DataFrame:
    """Return one row per cell, then per class, range, and launch configuration by range.

    Times and counts are per launch in rows of launch configurations, and per step in all others. `counted_share` is the
    share of the GPU time that has counters.
    """
    frames = [
        roofline.bound_groups(kernels, [*CELL, *LEVELS[level]], peaks).assign(level=level)
        for level in ("cell", "class", "range")
    ]
    launches = roofline.bound_launches(kernels, peaks).assign(level="launch")
    launches["counted_share"] = launches["bound"].ne("").astype("float64")
    frames.append(pd.concat([kernels[[*CELL, *LEVELS["launch"]]], launches], axis=1))
    return pd.concat(frames, ignore_index=True).reindex(columns=[*LEADING, "counted_share", *roofline.COLUMNS])


def tabulate_roofline(kernels: str, cells: str, peaks: str, csv: str) -> None:
    """Read the tables and write the CSV; raise DataError if cells ran on another device than the peaks."""
    measured, ran = (
        read_json(f"{peaks}.json", {"device": fact.TEXT})["device"],
        set(schemas.read_table("cells", cells)["device"]),
    )
    if ran != {measured}:
        others = ", ".join(sorted(ran - {measured}))
        raise DataError(
            f"{peaks} was measured on {measured}, but cells ran on {others}: measure the peaks of {others} under "
            "another name, and set the key gpu to that name"
        )
    write_csv(make_roofline(schemas.read_table("kernels", kernels), roofline.read_peaks(peaks)), csv)


# Makes the tables across cells of layers, and of how much of each cell's time has an owning layer.


def tabulate_layers(paths: Sequence[str], coverage: Sequence[str], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables of layers and of coverage; write `layers` and `owners`."""
    write_csv(concatenate_cells(paths, layers.TABLE), outputs["layers"])
    write_csv(concatenate_cells(coverage, layers.OWNER_COVERAGE_TABLE), outputs["owners"])


def concatenate_cells(paths: Sequence[str], table: Table) -> pd.DataFrame:
    """Return the rows of several cells' tables, each with its cell; table: their declaration."""
    frames = [rows.assign(**cell) for cell, rows in cell_tables.read(paths, table)]
    some = [name for name in table.optional if any(name in frame for frame in frames)]
    columns = [*CELL, *table.columns, *some]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


# Makes the tables across cells from every exported cell.

Exported = list[tuple[str, Mapping[str, str], pd.DataFrame, "Sidecar"]]
# Of sidecars of all tools.
OF_TOOL: fact.Needs = {"step_ns": fact.POSITIVE, **steps_per_export.NEEDS}


def read_cells(tool: str, tables: Sequence[str], sidecars: Sequence[str]) -> Exported:
    """Read a tool's exported tables with the cell and sidecar of each."""
    activity = tools.activities()[tool]
    found: Exported = []
    for exported, sidecar in zip(cell_tables.read(tables, activity.TABLE), sidecars, strict=True):
        facts = read_facts(sidecar, {**OF_TOOL, **activity.FACTS})
        cell_tables.check_sidecars(sidecar, facts)
        found.append((tool, *exported, facts))
    return found


def _measured(
    timed: cell_tables.Timed, exported: Exported, counted: Mapping[str, Sequence[str]]
) -> "list[tuple[str, Mapping[str, str], Sidecar]]":
    """Return tool, cell and sidecar of all inputs; counted: sidecars of tools without a table here, by tool."""
    found = [(tools.BASELINE, cell, facts) for cell, _, facts in timed]
    found += [(tool, cell, facts) for tool, cell, _, facts in exported]
    return found + [
        (tool, cell_tables.cell_of(path), read_facts(path)) for tool, paths in counted.items() for path in paths
    ]


def tabulate_cells(inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read what each tool exported (inputs: tool and tool_sidecar to paths) and write the tables."""
    timed = cell_tables.read_baseline_steps(inputs[tools.BASELINE], inputs[f"{tools.BASELINE}_sidecar"])
    exported = [
        entry
        for tool in tools.activities()
        for entry in read_cells(tool, inputs.get(tool, []), inputs.get(f"{tool}_sidecar", []))
    ]
    alone = {tool for tool, activity in tools.activities().items() if activity.ALONE}
    # Of what was made elsewhere, no step without a profiler is known that one under it could be slower than.
    walls = [
        (tool, cell, facts["step_ns"])
        for tool, cell, _, facts in exported
        if tool not in alone and "imported" not in facts
    ]
    cells, activity = cell_tables.add_tool_columns(cell_tables.cells(timed), exported), cell_tables.activity(exported)
    counted = {tool: inputs.get(f"{tool}{tools.COUNTED}", []) for tool in tools.that(tools.COUNT)}
    cells = add_version_columns(cells, _measured(timed, exported, counted))
    write_csv(cells, outputs["cells"])
    write_csv(activity, outputs["activity"])
    write_csv(concatenate_cells(inputs.get("repetition", []), repetition.TABLE), outputs["repetition"])
    write_csv(cell_tables.kernels(cell_tables.read(inputs.get("kernels", []), kernel_table.TABLE)), outputs["kernels"])
    own_ranges = cell_tables.read(inputs.get("user_ranges", []), user_ranges.TABLE)
    write_csv(user_ranges.append_user_ranges(cell_tables.ranges(exported), own_ranges), outputs["ranges"])
    processes = read_imbalance(inputs.get("ranks", []))
    traced = cell_tables.read(inputs.get("steps", []), nsys_steps.TABLE)
    write_csv(cell_tables.steps(cells, traced, processes), outputs["steps"])
    paths = inputs.get("coverage", [])
    compared = [
        (cell, Path(path).name.split(".")[2], table)
        for path, (cell, table) in zip(paths, cell_tables.read(paths, kernel_table.COVERAGE_TABLE), strict=True)
    ]
    covered = cell_tables.coverages(compared)
    write_csv(covered, outputs["coverage"])
    write_csv(explain_disagreements(cell_tables.agreement(cells, activity, walls), covered), outputs["agreement"])


# Makes the table of percentiles across cells: of the times of steps, and of the tokens that they generate.


def make_latency(timed: cell_tables.Timed) -> pd.DataFrame:
    """Return the percentiles of the steps of each cell, and of the tokens that it generates.

    timed: the unprofiled baselines.
    """
    tables = [
        list_percentiles(times, of).assign(**cell)
        for cell, steps, _ in timed
        for of, times in _list_times(steps).items()
    ]
    return pd.concat(tables, ignore_index=True)[LATENCY_COLUMNS] if tables else LATENCY_TABLE.empty()


def _list_times(steps: pd.DataFrame) -> dict[str, list[np.ndarray]]:
    """Return the times in ns of steps and tokens, one array per process; of steps in steady state alone."""
    if not len(steps):
        return {}
    settled, tokens = process_repeats.processes(steps), settle_tokens(steps)
    first = [own[:, :1].ravel() for own in tokens]
    further = [own[:, 1:].ravel() for own in tokens]
    of_tokens = {of: [times[~np.isnan(times)] for times in own] for of, own in ((FIRST_TOKEN, first), (TOKEN, further))}
    return {STEP: settled} | {of: times for of, times in of_tokens.items() if all(map(len, times))}


def tabulate_latency(time: Sequence[str], sidecars: Sequence[str], csv: str) -> None:
    """Read the unprofiled baselines of all cells, in the order of their sidecars; write the table."""
    write_csv(make_latency(cell_tables.read_baseline_steps(time, sidecars)), csv)


# Makes the tables across cells on several GPUs of collective operations, and of which process comes late to them.

TABLES = {
    "collectives": (collective_tables.CALL_TABLE, collective_tables.COLLECTIVE_COLUMNS),
    "skew": (collective_tables.TABLE, collective_tables.COLUMNS),
}


def tabulate_collectives(paths: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables, and write those across cells; paths: of each cell's table, by the table's name."""
    for name, (table, columns) in TABLES.items():
        joined = concatenate_cells(paths[name], table)
        write_csv(joined[[*CELL, *columns]], outputs[name])


# Makes the tables across cells of ncu's counters: occupancy, memory chart, pipe utilisation and warp states.


def tabulate_counters(paths: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables, and write those across cells; paths: of each cell's table, by the table's name."""
    for name, table in CELL_COUNTERS_TABLES.items():
        write_csv(concatenate_cells(paths[name], table), outputs[name])


# Makes the tables across cells of predicted gains and of host time.


def tabulate_replays(changes: Sequence[str], host: Sequence[str], outputs: Mapping[str, str]) -> None:
    """Read the cells' tables of both; write `changes` and `host`."""
    write_csv(concatenate_cells(changes, GAINS), outputs["changes"])
    write_csv(concatenate_cells(host, TAX), outputs["host"])
