"""Makes torch.profiler's table of operators from the events of a foreign trace."""

import numpy as np
import pandas as pd

from profzoo.foreign_reports import torch_categories as categories
from profzoo.foreign_reports.host_nesting import enclosing_events, find_parents, sort_events
from profzoo.foreign_reports.torch_canonical import own_ranges, split_kept
from profzoo.foreign_reports.torch_steps import DividedTrace
from profzoo.tools.torch import tables as torch_tables

# Of steps that ProfilerStep numbers, one row is made, as torch does.
STEP_NUMBER = r"^(ProfilerStep)#\d+$"


def tabulate_operators(divided: DividedTrace, kept: set[int]) -> pd.DataFrame:
    """Return the table as the recorder leaves it: a row per name and shapes of inputs, times in ns, sorted by time.

    Memory and FLOPs, which a trace does not tell, are 0, as of a profiler that was not asked for them.

    kept: places in the file of events in steps.
    """
    parts = [divided.operators, divided.ranges, divided.calls]
    host = pd.concat([part[split_kept(part, kept)] for part in parts if len(part)] or [divided.operators])
    # On a thread of their own, so that they change no other's own time.
    made = own_ranges(divided)
    nowhere = {"index": -1, "category": categories.RANGE, "process": "", "thread": "", "external": -1, "shapes": ""}
    host = pd.concat([host, made.drop(columns="found_by").assign(**nowhere)] if len(made) else [host])
    host = sort_events(host.reset_index(drop=True))
    host = host[~_repeats_parent(host, find_parents(host))].reset_index(drop=True)
    parents = find_parents(host)
    inner = parents >= 0
    ns = host["ns"].to_numpy(dtype=np.int64)
    called = np.bincount(parents[inner], weights=ns[inner], minlength=len(host)).astype(np.int64)
    device = _device_ns(divided, host, parents, kept)
    table = pd.DataFrame(
        {
            "device": "CPU",
            "name": host["name"].str.replace(STEP_NUMBER, r"\1*", regex=True),
            "shapes": host["shapes"].fillna("").astype("str"),
            "stack": "",
            "count": 1,
            "self_cpu_ns": np.maximum(ns - called, 0),
            "cpu_ns": ns,
            "self_device_ns": device[0],
            "device_ns": device[1],
        }
    )
    grouped = table.groupby(["device", "name", "shapes", "stack"], sort=False).sum().reset_index()
    grouped = grouped.assign(**dict.fromkeys([*torch_tables.MEMORY, "flops"], 0))
    ordered = grouped.sort_values(["cpu_ns", "name"], ascending=[False, True], ignore_index=True)
    return ordered[list(torch_tables.OPERATORS.columns)]


def _repeats_parent(host: pd.DataFrame, parents: np.ndarray) -> np.ndarray:
    """Return which events are the only ones in another of the same name, which torch counts as one with that."""
    inside = np.bincount(parents[parents >= 0], minlength=len(host))
    names, above = host["name"].to_numpy(), np.maximum(parents, 0)
    return np.asarray((parents >= 0) & (names == names[above]) & (inside[above] == 1))


def _device_ns(
    divided: DividedTrace, host: pd.DataFrame, parents: np.ndarray, kept: set[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the GPU time of what each host event launched itself, and with what it encloses."""
    own = np.zeros(len(host), dtype=np.int64)
    chosen = split_kept(divided.launches, kept) & (divided.owners.call_of_launch >= 0)
    calls = divided.calls.iloc[divided.owners.call_of_launch[chosen]].reset_index(drop=True)
    # The call itself is the innermost event at its beginning; its time on the device counts for what encloses it.
    at = enclosing_events(host, parents, calls)
    is_call = host["category"].isin(categories.CALLS).to_numpy()
    while (inside := (at >= 0) & is_call[at]).any():
        at = np.where(inside, parents[at], at)
    known = at >= 0
    np.add.at(own, at[known], divided.launches["ns"].to_numpy()[chosen][known])
    whole = own.copy()
    # Each comes behind what encloses it.
    for place in range(len(host) - 1, -1, -1):
        if parents[place] >= 0:
            whole[parents[place]] += whole[place]
    return own, whole
