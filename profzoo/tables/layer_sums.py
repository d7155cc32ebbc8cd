"""Sums a cell's launches by layer, operator and kernel, from torch, nsys and ncu."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import as_list, write_csv
from profzoo.launches import differing_steps, joined_step
from profzoo.launches.joined_step import OWNER, Joined
from profzoo.op_costs.operators import COLUMNS as NEEDS
from profzoo.tables import layer_kernels, layers, owner_coverage
from profzoo.tables.roofline import read_peaks
from profzoo.tables.step_counts import StepRows, count_launches, step_rows_of_nsys, step_rows_of_torch
from profzoo.tables.steps_per_export import NEEDS as OF_SIDECAR
from profzoo.tables.steps_per_export import count_profiled_steps
from profzoo.tools.ncu import export_schema
from profzoo.tools.nsys import launches_by_step
from profzoo.tools.torch import owners

ALIGNED = ["step", "order", "kind", "name", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
           "smem_bytes", "ns"]  # fmt: skip


@dataclass(frozen=True)
class Others:
    """Files of other tools than torch; empty for tools that were not chosen.

    census: all launches of ncu's window, and its number of steps. sets: ncu's tables, in the order in which they count.
    nsys: its export, with the sidecar of its report. peaks: the GPU's measured peaks.
    """

    census: str = ""
    steps: int = 1
    sets: Sequence[str] = ()
    nsys: str = ""
    sidecar: str = ""
    peaks: str = ""


def name_others(given: Mapping[str, Any], steps: int) -> Others:
    """Return the files of other tools among a script's inputs; steps: of the window that ncu looked at."""
    return Others(
        census=given.get("census", ""),
        steps=steps,
        sets=as_list(given.get("sets", [])),
        nsys=given.get("trace_database", ""),
        sidecar=given.get("trace_database_sidecar", ""),
        peaks=given.get("peaks", ""),
    )


def main(launches: str, modules: str, sidecar: str, others: Others, outputs: Mapping[str, str]) -> None:
    """Read owners, modules and the other tools' files; write `layers`, `operators`, `kernels`, `coverage`.

    sidecar: of torch's trace.
    """
    steps = count_profiled_steps(read_facts(sidecar, OF_SIDECAR))
    peaks = read_peaks(others.peaks) if others.peaks else {}
    nsys = _traced(others)
    found = (
        _of_torch(launches, steps) if nsys is None and not others.census else _of_tools(launches, steps, others, nsys)
    )
    called, seen = found.called, found.counted or Joined(pd.DataFrame(), steps)
    operators = layers.operators(called, seen, peaks)
    tree = layers.layers(called, reading.read(modules, owners.MODULES), steps, seen, peaks)
    kernels = layer_kernels.make_layer_kernels(found.kernels, peaks)
    if differ := found.differ:
        operators, tree = differ.add_to_rows(operators, OWNER), differ.add_to_tree(tree)
        kernels = differ.add_to_rows(kernels, joined_step.GROUPS)
    for name, table in (("operators", operators), ("layers", tree), ("kernels", kernels)):
        write_csv(table, outputs[name])
    write_csv(owner_coverage.make_owner_coverage(called, found.timed), outputs["coverage"])


@dataclass(frozen=True)
class _Sums:
    """What tables are made of: sums by owner, and kernels by owner, per step.

    timed, counted: launches of other tools with times, and those with counters; None without other tools. differ: what
    each step launched, where steps differ.
    """

    called: pd.DataFrame
    kernels: pd.DataFrame
    timed: Joined | None = None
    counted: Joined | None = None
    differ: StepRows | None = None


def _of_tools(launches: str, steps: int, others: Others, nsys: pd.DataFrame | None) -> _Sums:
    """Return sums by owner with the times of other tools; where the steps of nsys differ, of all of these steps."""
    own = pd.concat(_parts(launches), ignore_index=True)
    by_torch = layers.sum_by_owner([own], steps)
    copies = layers.sum_by_owner([joined_step.select_copies(own)], steps)
    if nsys is None or not differing_steps.traced_steps_differ(nsys):
        joined = join_tools(others, own, nsys)
        called = layers.apply_other_times(by_torch, joined, copies)
        return _Sums(called, joined_step.kernels(joined), joined, joined)
    timed = differing_steps.join_differing_steps(nsys, own)
    counted = differing_steps.own_counted_step(join_tools(others, own, nsys), own) if others.census else timed
    kernels = joined_step.kernels(timed)
    if counted is not timed:
        kernels = differing_steps.add_counters(kernels, joined_step.kernels(counted))
    called = layers.apply_other_times(by_torch, timed, copies)
    return _Sums(called, kernels, timed, counted, step_rows_of_nsys(timed.launches, timed.steps))


def _traced(others: Others) -> pd.DataFrame | None:
    """Return the launches that nsys traced, step by step; None without a trace, and on a CPU."""
    if not others.nsys:
        return None
    facts = read_facts(others.sidecar, OF_SIDECAR)
    traced = launches_by_step.read_step_launches(others.nsys, facts.get("capture") == "run")
    return traced if len(traced) else None


def join_tools(others: Others, own: pd.DataFrame, nsys: pd.DataFrame | None) -> Joined:
    """Return the launches of ncu's window, else of a step of nsys; own: rows of the table of owners."""
    if not others.census:
        assert nsys is not None
        return joined_step.join_nsys_launches(nsys, own)
    sets = [reading.read(path, export_schema.TABLE) for path in others.sets]
    return joined_step.join_ncu_launches(export_schema.read_census(others.census), others.steps, sets, own, nsys)


def _of_torch(launches: str, steps: int) -> _Sums:
    """Return sums by owner and kernels from torch alone, read in parts, as launches may not fit into memory."""
    called, kernels, counts = [], [], []
    for part in _parts(launches):
        called.append(layers.sum_by_owner([part], 1))
        kernels.append(joined_step.sum_torch_launches(part, steps))
        counts.append(count_launches(part))
    rows = pd.concat(kernels, ignore_index=True)
    sums = rows.groupby(joined_step.GROUPS, sort=False, dropna=False, observed=True)[["launches", "total_ns"]].sum()
    found = sums.reset_index().reindex(columns=rows.columns)
    found["mean_ns"] = found["total_ns"] / found["launches"]
    return _Sums(layers.mean_over_steps(called, steps), found, differ=step_rows_of_torch(counts, steps))


def _parts(path: str) -> Iterator[pd.DataFrame]:
    """Read the needed columns of the table of owners in parts that fit into memory."""
    return (part[[*ALIGNED, *OWNER, *NEEDS]] for part in reading.parts(path, owners.TABLE))
