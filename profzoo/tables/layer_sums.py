"""Sums a cell's launches by layer, operator and kernel, from torch, nsys and ncu."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import as_list, write_csv
from profzoo.launches import joined_step
from profzoo.launches.joined_step import OWNER, Joined
from profzoo.op_costs.operators import COLUMNS as NEEDS
from profzoo.tables import layer_kernels, layers, owner_coverage
from profzoo.tables.roofline import read_peaks
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
    if nsys is None and not others.census:
        called, rows = _of_torch(launches, steps)
        joined, seen = None, Joined(pd.DataFrame(), steps)
    else:
        own = pd.concat(_parts(launches), ignore_index=True)
        joined = seen = join_tools(others, own, nsys)
        copies = layers.sum_by_owner([joined_step.select_copies(own)], steps)
        called, rows = (
            layers.apply_other_times(layers.sum_by_owner([own], steps), joined, copies),
            joined_step.kernels(joined),
        )
    write_csv(layers.operators(called, seen, peaks), outputs["operators"])
    known = reading.read(modules, owners.MODULES)
    write_csv(layers.layers(called, known, steps, seen, peaks), outputs["layers"])
    write_csv(layer_kernels.make_layer_kernels(rows, peaks), outputs["kernels"])
    write_csv(owner_coverage.make_owner_coverage(called, joined), outputs["coverage"])


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


def _of_torch(launches: str, steps: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return sums by owner and kernels from torch alone, read in parts, as launches may not fit into memory."""
    called, kernels = [], []
    for part in _parts(launches):
        called.append(layers.sum_by_owner([part], 1))
        kernels.append(joined_step.sum_torch_launches(part, steps))
    rows = pd.concat(kernels, ignore_index=True)
    sums = rows.groupby(joined_step.GROUPS, sort=False, dropna=False, observed=True)[["launches", "total_ns"]].sum()
    found = sums.reset_index().reindex(columns=rows.columns)
    found["mean_ns"] = found["total_ns"] / found["launches"]
    return layers.mean_over_steps(called, steps), found


def _parts(path: str) -> Iterator[pd.DataFrame]:
    """Read the needed columns of the table of owners in parts that fit into memory."""
    return (part[[*ALIGNED, *OWNER, *NEEDS]] for part in reading.parts(path, owners.TABLE))
