"""Sums a cell's launches by the ranges that the program opened itself: NVTX by nsys, record_function by torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.launches import differing_steps, joined_step
from profzoo.launches.joined_step import KERNEL, OWNER, UNALIGNED, Joined
from profzoo.range_names import STEP
from profzoo.tables import layer_sums, roofline, user_ranges
from profzoo.tables.layer_sums import ALIGNED, Others
from profzoo.tables.layers import COUNTED, HELD
from profzoo.tables.steps_per_export import NEEDS as OF_SIDECAR
from profzoo.tables.steps_per_export import count_profiled_steps
from profzoo.tables.user_ranges import COLUMNS, NVTX, OUTSIDE, RECORD_FUNCTION
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys import launches_by_step
from profzoo.tools.nsys import user_ranges as nsys_ranges
from profzoo.tools.nsys.user_ranges import TracedRanges
from profzoo.tools.torch import owners
from profzoo.tools.torch import user_ranges as torch_ranges
from profzoo.tools.torch.user_ranges import COLUMN

NODE = ["range"]
SUMS = ["launches", "total_ns"]


@dataclass(frozen=True)
class OfTorch:
    """Files of torch.profiler; empty where it was not chosen. sidecar: of its trace."""

    launches: str = ""
    ranges: str = ""
    sidecar: str = ""


def main(torch: OfTorch, others: Others, csv: str) -> None:
    """Read what each tool saw of the cell's own ranges; write one table, without rows where it has none."""
    peaks = roofline.read_peaks(others.peaks) if others.peaks else {}
    parts = []
    whole_run = bool(others.nsys) and read_facts(others.sidecar, OF_SIDECAR).get("capture") == "run"
    if others.nsys and (traced := nsys_ranges.read_user_ranges(others.nsys, whole_run)):
        parts.append(_of_nvtx(traced, others, peaks))
    if torch.ranges and len(paths := reading.read(torch.ranges, torch_ranges.TABLE)):
        nsys = launches_by_step.read_step_launches(others.nsys, whole_run) if others.nsys else None
        parts.append(_of_record_function(torch, paths, nsys if nsys is not None and len(nsys) else None, others, peaks))
    table = pd.concat(parts, ignore_index=True) if parts else user_ranges.TABLE.empty()
    write_csv(table[COLUMNS], csv)


def _of_nvtx(traced: TracedRanges, others: Others, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return the rows of NVTX ranges, with GPU times of all steps by nsys."""
    paths, own, counted = traced.found.tabulate_paths(), None, None
    if len(traced.launches):
        rows = pd.DataFrame({"range": traced.launches["range"], "launches": 1.0, "total_ns": traced.launches["ns"]})
        own = _by_range(rows) / traced.steps
        if others.census and len(traced.by_step):
            launches = traced.by_step.drop(columns="user_range")
            owned = _as_owners(launches.assign(kind=KERNEL), traced.by_step["user_range"])
            counted = _count_work(layer_sums.join_tools(others, owned, launches), paths, peaks)
    clock = "cpu" if own is None else "gpu"
    return user_ranges.add_up(paths, traced.steps, own, counted).assign(api=NVTX, tool=nsys_ranges.TOOL, clock=clock)


def _of_record_function(
    torch: OfTorch, paths: pd.DataFrame, nsys: pd.DataFrame | None, others: Others, peaks: Mapping[str, float]
) -> pd.DataFrame:
    """Return the rows of ranges of record_function, with GPU times by nsys where it traced kernels of the cell.

    nsys: launches by step; None without any.
    """
    steps = count_profiled_steps(read_facts(torch.sidecar, OF_SIDECAR))
    sums, kept, kinds = [], [], set[str]()
    for part in reading.parts(torch.launches, owners.TABLE):
        rows = part[part["kind"].isin([KERNEL, "operator"]) & part[STEP].notna()]
        kinds |= {*rows["kind"].unique()}
        sums.append(_by_range(rows.assign(range=rows[COLUMN], launches=1.0, total_ns=rows["ns"])))
        if nsys is not None or others.census:
            kept.append(_as_owners(rows[ALIGNED], rows[COLUMN]))
    own, tool, counted = _by_range(pd.concat(sums).reset_index()) / steps, torch_ranges.TOOL, None
    on_gpu = KERNEL in kinds
    owned = pd.concat(kept, ignore_index=True) if kept else None
    if owned is not None and on_gpu and nsys is not None:
        differ = differing_steps.traced_steps_differ(nsys)
        join = differing_steps.join_differing_steps if differ else joined_step.join_nsys_launches
        joined, tool = join(nsys, owned), nsys_ranges.TOOL
        rows = joined.launches.assign(range=joined.launches["module"], launches=1.0, total_ns=joined.launches["ns"])
        own = _by_range(rows) / joined.steps
    if owned is not None and on_gpu and others.census:
        counted = _count_work(layer_sums.join_tools(others, owned, nsys), paths, peaks)
    table = user_ranges.add_up(paths, steps, own, counted)
    return table.assign(api=RECORD_FUNCTION, tool=tool, clock="gpu" if on_gpu else "cpu")


def _by_range(launches: pd.DataFrame) -> pd.DataFrame:
    return launches.groupby(NODE, sort=False)[SUMS].sum()


def _as_owners(launches: pd.DataFrame, ranges: pd.Series) -> pd.DataFrame:
    """Return launches whose range stands in the place of the owning module, by which tools' launches are joined."""
    return launches.assign(**dict.fromkeys(OWNER, "")).assign(module=ranges)


def _count_work(joined: Joined, paths: pd.DataFrame, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return COUNTED of each range, of all launches made in it and in the ranges within."""
    parents = user_ranges.tree_parents(paths) | {UNALIGNED: user_ranges.STEP}
    chains = {name: user_ranges.list_chain(name or OUTSIDE, parents) for name in joined.launches["module"].unique()}
    found = []
    for depth in range(max(map(len, chains.values()), default=0)):
        at = joined.launches["module"].map(lambda name, depth=depth: chains[name][depth : depth + 1])
        own = joined.launches.assign(range=at.str[0])
        own = own[own["range"].notna()]
        rows = joined_step.totals(joined.of(own), [*NODE, *CONFIGURATION])
        held = roofline.bound_groups(rows, NODE, peaks)[[*NODE, *HELD]]
        found.append(roofline.sums(rows, NODE).merge(held, on=NODE)[[*NODE, *COUNTED]])
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=[*NODE, *COUNTED])
