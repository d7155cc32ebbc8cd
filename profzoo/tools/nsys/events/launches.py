"""Finds in which range and step each launch of an nsys trace was made, and unpacks its launch configuration."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profzoo.io.common_columns import IN_STEPS, OF_STEPS
from profzoo.range_names import LAUNCHING
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.export_columns import PACKED
from profzoo.tools.nsys.events.trace import PACKS, Source, open_trace, read_ranges, read_window_steps

PLACE, COUNT = "place", "count"
CONFIGURATION = [name for group in PACKED for name, _, _ in group if name != "mangled"]


def unpack_configurations(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Unpack the PACKS columns to launch configurations, by column.

    >>> grid = {"grid_y": 3, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}
    >>> packed = 0
    >>> for name, _, bits in PACKED[1]:
    ...     packed = packed << bits | grid[name]
    >>> columns = unpack_configurations(pd.DataFrame({"pack0": [0], "pack1": [packed], "pack2": [0]}))
    >>> {name: int(columns[name][0]) for name in grid} == grid
    True
    """
    columns = {}
    for name_of_pack, group in zip(PACKS, PACKED, strict=True):
        rest = table[name_of_pack].to_numpy()
        for name, _, bits in reversed(group):
            columns[name], rest = rest & ((1 << bits) - 1), rest >> bits
    return columns


def find_ranges(launches: pd.DataFrame, parts: pd.DataFrame) -> np.ndarray:
    """Return, per launch, 1 + the index in LAUNCHING of the range open at the launching call; 0 if none was open."""
    codes = np.append(parts["name"].map(LAUNCHING.index).to_numpy(dtype=np.int8) + 1, 0)
    # An index of -1 finds the last element, which means no range.
    return codes[_open_at(launches["launched"].to_numpy(), launches["process"].to_numpy(), parts)]


def is_outside_steps(launches: pd.DataFrame, steps: pd.DataFrame) -> np.ndarray:
    """Return, per launch, whether it was made outside all of these steps."""
    return step_positions(launches, steps) < 0


def step_positions(launches: pd.DataFrame, steps: pd.DataFrame) -> np.ndarray:
    """Return, per launch, the position of the step in which it was made; -1 if in none."""
    return _open_at(launch_times(launches), launches["process"].to_numpy(), steps)


def launch_times(launches: pd.DataFrame) -> np.ndarray:
    """Return the time of each launching call, in ns, or the kernel's start if the call was not traced."""
    launched = launches["launched"].to_numpy()
    return np.where(launched < 0, -1 - launched, launched)


def _open_at(moments: np.ndarray, process: np.ndarray, ranges: pd.DataFrame) -> np.ndarray:
    """Return, per moment (ns) of a process, the position of the range that was open; -1 if none was."""
    found = np.full(len(moments), -1)
    for one, at in ranges.groupby("process").indices.items():
        mine = np.flatnonzero(process == one)
        starts, ends = ranges["start"].to_numpy(dtype=np.int64)[at], ranges["end"].to_numpy(dtype=np.int64)[at]
        found[mine] = np.append(at, -1)[intervals.find_open(moments[mine], starts, ends)]
    return found


def count_steps(launches: pd.DataFrame, steps: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame | None:
    """Return IN_STEPS and OF_STEPS of each group of launches; None if all steps launch the same.

    Of several processes, the first one with the most steps counts.

    Args:
        launches: rows of Trace.launches. steps: of trace.read_window_steps. by: columns of a group, which
            tell launch configurations apart.
    """
    if steps.empty:
        return None
    mine = steps[steps["process"] == steps["process"].mode()[0]].reset_index(drop=True)
    placed = launches.assign(**{PLACE: step_positions(launches, mine)})
    counts = placed[placed[PLACE] >= 0].groupby([*by, PLACE]).size().rename(COUNT).reset_index()
    held = counts.groupby(list(by))[COUNT].agg(["min", "max", "size"])
    if (held["min"].eq(held["max"]) & held["size"].eq(len(mine))).all():
        return None
    return held["size"].rename(IN_STEPS).to_frame().assign(**{OF_STEPS: len(mine)})


# Lists the launches of an nsys export step by step, in the order in which the CPU made them.

COLUMNS = ["process", "step", "start_ns", "ns", "kernel", "mangled", "function", "range", "stream", *CONFIGURATION]


def read_step_launches(source: Source, whole_run: bool = False, with_calls: bool = False) -> pd.DataFrame:
    """Return one row per kernel launch in the steps of `read_window_steps`, by process and then by time.

    Columns: `step`, from 0 in each process; `start_ns` and `ns` on the GPU; names of the kernel; the `range` that was
    open when the kernel was launched; `stream`; and the launch configuration. A CUDA graph launches its kernels at one
    moment; these are in the order in which they began. Graphs that were traced as a whole are left out.

    with_calls: whether to add the `correlation` of the launching call, which is unique within a process.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        trace.check_streams()
        launches = trace.launches[trace.launches["graph"] < 0]
        steps = read_window_steps(trace, whole_run).sort_values(["process", "start"], ignore_index=True)
        places = step_positions(launches, steps)
        codes = find_ranges(launches, read_ranges(trace, LAUNCHING))
        kernels = trace.kernel_names
    names = launches.reset_index(drop=True).rename(columns={"start": "start_ns"})
    table = names.assign(**unpack_configurations(names), place=places, made=launch_times(names))
    table["range"] = np.array(["", *LAUNCHING])[codes]
    order = ["process", "made", "start_ns", "stream", *PACKS]
    table = table[table["place"] >= 0].sort_values(order, ignore_index=True)
    table["step"] = table["place"].map(steps.groupby("process").cumcount()).astype("int64")
    of_kernel = pd.DataFrame.from_dict(kernels, orient="index", columns=["mangled", "kernel", "function"], dtype="str")
    return table.drop(columns="mangled").join(of_kernel, on=table["mangled"].rename("number"))[
        [*COLUMNS, *(["correlation"] if with_calls else [])]
    ]
