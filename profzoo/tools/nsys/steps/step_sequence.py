"""Reads the launches of a step from an nsys export (SQLite), if all steps of its window launch the same kernels."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, GPU, Column
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv, write_json
from profzoo.range_names import LAUNCHING
from profzoo.tools.nsys.events import launches as nsys_launches
from profzoo.tools.nsys.events.export_columns import PACKED
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.tools.nsys.events.trace import Source, explain_no_steps, open_trace, read_ranges, read_window_steps

# Declares the columns of the table of a step's launches, which step_sequence.py makes from a trace.

# The order of packed configurations of nsys, without registers, because the kernel determines these.
KEYS = ["mangled", *(name for group in PACKED for name, _, _ in group if name not in ("mangled", "registers"))]


def _numbered(table: pd.DataFrame) -> str | None:
    if list(table["id"]) != list(range(len(table))):
        return f"launches are not those from 0 to {len(table) - 1}: rows are missing"
    each = table.groupby("step").size()
    return None if each.nunique() == 1 else "steps do not have as many launches each: rows are missing"


TABLE = Table(
    columns={
        "id": Column(
            COUNT, "Place of the launch in the steps of the trace, counted from 0 in the order of launching.",
            tool="nsys"),
        "step": Column(COUNT, "Number of the step within the window, counted from 0.", tool="nsys"),
        **shared(
            "kernel", "function", "range", "mangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
        **shared("smem_static_bytes", "smem_dynamic_bytes", kind=COUNT),
        **shared("registers"),
        "ns": Column(AMOUNT, "Median GPU time of the launch over the steps.", "ns", "nsys", GPU),
        "min_ns": Column(AMOUNT, "Shortest GPU time of the launch over the steps.", "ns", "nsys", GPU),
        "max_ns": Column(AMOUNT, "Longest GPU time of the launch over the steps.", "ns", "nsys", GPU),
        "steps": Column(COUNT, "Steps that the times are of.", "count", "nsys"),
    },
    key=["id"],
    holds=_numbered,
    ranges={"ns": ("min_ns", "max_ns")},
)  # fmt: skip
COLUMNS = [*TABLE.columns]
OTHERWISE = "so the trace does not show which launches ncu will see"
CURE = "set ncu.census to ncu"


class UntoldError(DataError):
    """An undamaged trace does not show which launches ncu would see in a step; ncu can still record them itself."""

    def __init__(self, why: str, cure: str = CURE) -> None:
        """Keep the reason; why: what is wrong with the trace; cure: what a user can do."""
        super().__init__(f"{why}: {cure}")
        self.why = why


def read_step_launches(source: Source, steps: int, whole_run: bool = False) -> pd.DataFrame:
    """Return the launches of `steps` equal steps, one row per launch, in the order of the launching calls.

    `ns` is the median time of the launch over all steps of the trace; `min_ns` and `max_ns` are the shortest and the
    longest. The column `steps` is the number of these steps. Of several processes, the one with the most steps counts.

    Args:
        source: nsys export (SQLite).
        steps: number of steps to return, as in the window under ncu.
        whole_run: the trace holds more than the window.

    Raises:
        UntoldError: there is no step or no launch, or steps do not all launch the same kernels with the same grids,
            blocks and shared memory in the same order.
        DataError: the file is not an export of nsys.
    """
    if why := explain_no_steps(source, whole_run):
        raise UntoldError(f"{source} {why}", f"or {CURE}")
    with open_trace(source) as trace:
        found = read_window_steps(trace, whole_run)
        found = found[found["process"] == found["process"].mode()[0]].reset_index(drop=True)
        launches = trace.launches
        launches = launches[launches["process"] == found["process"][0]].reset_index(drop=True)
        launches["step"] = nsys_launches.step_positions(launches, found)
        codes = nsys_launches.find_ranges(launches, read_ranges(trace, LAUNCHING))
        launches["range"] = np.array(["", *LAUNCHING])[codes]
        names = trace.kernel_names
    _check(source, launches, whole_run)
    inside = launches.assign(moment=nsys_launches.launch_times(launches))[launches["step"] >= 0]
    # A CUDA graph launches all its kernels at one moment, and the order in which parallel kernels begin is random.
    inside = inside.sort_values(["step", "moment", "node", "start"], kind="stable")
    first = _same(source, inside, len(found), names)
    times = inside["ns"].to_numpy().reshape(len(found), len(first))
    columns = nsys_launches.unpack_configurations(first)
    shown = [names[mangled] for mangled in columns["mangled"]]
    columns["mangled"], columns["kernel"], columns["function"] = (np.array(one) for one in zip(*shown, strict=True))
    columns |= {"range": first["range"].to_numpy(), "steps": np.full(len(first), len(found))}
    columns |= {"ns": np.median(times, axis=0), "min_ns": times.min(axis=0), "max_ns": times.max(axis=0)}
    table = pd.concat([pd.DataFrame(columns).assign(step=step) for step in range(steps)], ignore_index=True)
    return table.assign(id=table.index)[COLUMNS]


def _check(source: Source, launches: pd.DataFrame, whole_run: bool) -> None:
    """Check that the steps have launches, that these are kernels, and that a trace of the window has no others.

    Raises:
        UntoldError: a condition does not hold.
    """
    inside = launches["step"] >= 0
    if not inside.any():
        raise UntoldError(f"{source} holds no launch in a step of the window", "trace cuda and nvtx (nsys.traces)")
    if not whole_run and not inside.all():
        raise UntoldError(f"{source}: {(~inside).sum()} launches of the window are outside its steps, {OTHERWISE}")
    if (launches.loc[inside, "graph"] >= 0).any():
        raise UntoldError(
            f"{source} has CUDA graphs as one launch each, {OTHERWISE}",
            f"{CURE}, or trace their kernels (nsys.cuda_graph: node)",
        )


def _same(source: Source, launches: pd.DataFrame, steps: int, names: Mapping[int, tuple[str, str, str]]) -> Any:
    """Return the launches of the first step if all steps launch the same; launches: rows in order.

    Raises:
        UntoldError: a step launches other kernels, or another number of them.
    """
    counts = np.bincount(launches["step"], minlength=steps)
    starts = np.concatenate([[0], np.cumsum(counts)])
    packed = launches[PACKS].to_numpy()
    first = packed[: counts[0]]
    for step in range(1, steps):
        own = packed[starts[step] : starts[step + 1]]
        shorter = min(len(own), len(first))
        other = np.flatnonzero((own[:shorter] != first[:shorter]).any(axis=1))
        if len(own) == len(first) and not len(other):
            continue
        at = int(other[0]) if len(other) else shorter
        row = launches.iloc[[starts[step] + at]] if at < len(own) else launches.iloc[[at]]
        kernel = names.get(int(nsys_launches.unpack_configurations(row)["mangled"][0]), ("", "", ""))[2]
        raise UntoldError(
            f"{source}: step {step + 1} of {steps} launches other kernels than step 1, from its launch {at + 1} on "
            f"({kernel or 'a CUDA graph'}), {OTHERWISE}",
            f"{CURE}, or make all steps launch the same (deterministic: true)",
        )
    return launches.iloc[: counts[0]]


def main(
    sqlite: str,
    report_sidecar: str,
    steps: int,
    csv: str,
    sidecar: str,
    otherwise: bool,
    say: Callable[[str], object] = print,
) -> None:
    """Read the export and its sidecar, write the launches of `steps` steps, and whether the trace shows them.

    otherwise: ncu can record the launches instead. If the trace does not show them, this is then no error: the CSV has
    no rows, and the sidecar gives the reason as `why`.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    try:
        with open_trace(sqlite) as trace:
            table = read_step_launches(trace, steps, facts["capture"] == "run")
    except UntoldError as error:
        if not otherwise:
            raise
        say(f"{csv}: {error.why}: ncu records the launches itself")
        write_csv(pd.DataFrame(columns=COLUMNS), csv)
        write_json({"told": False, "why": error.why}, sidecar)
        return
    say(f"{csv}: {len(table) // steps} launches per step, the same in {table['steps'].iloc[0]} steps")
    write_csv(table, csv)
    write_json({"told": True, "steps": int(table["steps"].iloc[0])}, sidecar)
