"""Holds sampled GPU metrics against what the same trace says otherwise: times of kernels, and bytes of copies."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from profzoo.tools.nsys.export_columns import UNKNOWN, sql_for_numbers
from profzoo.tools.nsys.trace import read_integers

COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
# CUPTI's kinds of copies that read and that write the GPU's memory: to the host, to the GPU, on it, between GPUs.
FROM_GPU, TO_GPU = (2, 8, 10), (1, 8, 10)
# In place of the number of a GPU: none.
NONE = -2
# A process, as in the export, and CUDA's number of a GPU in it.
Place: TypeAlias = tuple[int, int]
# Percentage points by which SMs may be active beyond the time with traced work: nsys keeps whole percent, and the
# driver runs short work of its own.
MORE_ACTIVE = 5
# Of known bytes, DRAM moves at least this part; but L2 may hold so many bytes in each step, and a share below so much
# of the most that DRAM can do is 0 in whole percent.
LEAST_PART, HELD_BY_L2, ROUNDED = 0.8, 128 << 20, 0.005
# Part of a step that samples should cover.
LEAST_SAMPLED = 0.9


def read_copies(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame | None:
    """Return one row per traced copy, or None where no copies are traced, or not their bytes.

    Columns: `process`, `start` and `end` in ns, `bytes`, and `from_gpu` and `to_gpu`: CUDA's number of the device whose
    memory it read, and wrote; UNKNOWN where the export does not tell it, and NONE for memory of the host.
    """
    if COPIES not in tables:
        return None
    names = {"globalPid": "process", "start": "start", "end": "end", "bytes": "bytes", "copyKind": "kind",
             "srcDeviceId": "from_gpu", "dstDeviceId": "to_gpu", "deviceId": "gpu"}  # fmt: skip
    rows = database.execute(f"SELECT {', '.join(sql_for_numbers(database, COPIES, [*names]).values())} FROM {COPIES}")
    copies = pd.DataFrame(read_integers(rows).reshape(-1, len(names)), columns=[*names.values()])
    if (copies["bytes"] == UNKNOWN).any():
        return None
    for side, kinds in (("from_gpu", FROM_GPU), ("to_gpu", TO_GPU)):
        # Exports tell both devices of copies between two GPUs, and of other copies one.
        told = copies[side].where(copies[side] != UNKNOWN, copies["gpu"])
        copies[side] = told.where(copies["kind"].isin(kinds), NONE)
    return copies


def count_copied_bytes(
    spans: pd.DataFrame, copies: pd.DataFrame | None, places: Iterable[Place]
) -> Mapping[str, Sequence[float]]:
    """Return the bytes that traced copies read from and wrote to a GPU's memory during each step, by column.

    A copy that meets several steps counts in each by its time there. The bytes are missing without copies.

    spans: rows of read_step_spans. copies: from read_copies. places: processes with CUDA's numbers of the GPU in them.
    """
    columns = {"copied_from_bytes": "from_gpu", "copied_to_bytes": "to_gpu"}
    if copies is None:
        return {name: [np.nan] * len(spans) for name in columns}
    length = (copies["end"] - copies["start"]).clip(lower=1)
    found = {}
    for name, side in columns.items():
        mine = pd.MultiIndex.from_frame(copies[["process", side]]).isin(list(places))
        found[name] = [
            float((copies["bytes"] * _inside(copies, start, end) / length)[mine].sum())
            for start, end in spans[["start", "end"]].to_numpy(dtype=np.int64).tolist()
        ]
    return found


def _inside(copies: pd.DataFrame, start: int, end: int) -> pd.Series:
    """Return the ns of each copy that lie between two times."""
    return (copies["end"].clip(upper=end) - copies["start"].clip(lower=start)).clip(lower=0)


def find_contradictions(steps: pd.DataFrame, peak_rates: Mapping[int, float]) -> list[str]:
    """Return one line about each statement of the samples that the rest of the trace contradicts.

    steps: the table of gpu_metric_tables, one row per GPU and step. peak_rates: bytes per second of DRAM, by GPU.
    """
    found = []
    for gpu, mine in steps.groupby("gpu"):
        time = mine["step_ns"].sum()
        sampled_steps = mine[mine["sm_active_mean_pct"].notna()]
        active, busy = _mean(sampled_steps, "sm_active_mean_pct"), 100 * _mean(sampled_steps, "busy_share")
        if active > busy + MORE_ACTIVE:
            found.append(
                f"GPU {gpu}: SMs were active for {active:.0f} % of the steps, but the traced program used the GPU for "
                f"only {busy:.0f} %: another program used it, or its clock differs from the trace's"
            )
        if (covered := _mean(mine, "sampled_share")) < LEAST_SAMPLED:
            found.append(f"GPU {gpu}: samples cover {covered:.0%} of the steps ({time / 1e6:.1f} ms): nsys lost others")
        for moved, known in (("dram_read_bytes", "copied_from_bytes"), ("dram_write_bytes", "copied_to_bytes")):
            told = mine[mine[moved].notna() & mine[known].notna()]
            rounded = ROUNDED * peak_rates.get(int(str(gpu)), 0) * told["step_ns"].sum() / 1e9
            sampled, copied = told[moved].sum(), told[known].sum()
            if sampled < LEAST_PART * (copied - HELD_BY_L2 * len(told) - rounded):
                found.append(
                    f"GPU {gpu}: {moved} says {sampled:.4g} bytes, but traced copies alone moved {copied:.4g}: the "
                    "sampled bandwidth of DRAM is too low"
                )
    return found


def _mean(steps: pd.DataFrame, column: str) -> float:
    """Return the mean of a column over time; NaN without steps."""
    return float(np.average(steps[column], weights=steps["step_ns"])) if len(steps) else np.nan
