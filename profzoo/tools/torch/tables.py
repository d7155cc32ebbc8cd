"""Makes torch.profiler's table tidy and adds the kernels of its trace, each with the range it was launched in."""

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo.io.columns import COUNT, CPU, GPU, TEXT, WHOLE, Column, select
from profzoo.io.csv_tables import Table
from profzoo.range_names import DOMAIN, LAUNCHING, MODULE
from profzoo.tools.torch.trace import DEVICE_KINDS, Trace, find_ranges, launch_times

if TYPE_CHECKING:
    from profzoo.cell.cell_types import ProfilerSettings

TIMES = ("self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns")
MEMORY = ("self_cpu_memory_bytes", "cpu_memory_bytes", "self_device_memory_bytes", "device_memory_bytes")
# Columns may be empty, because options or the device may not measure them. Freed memory is negative.
TABLE = Table(
    columns={
        "kind": Column(
            TEXT, "`operator`, `range`, `runtime` (a call of CUDA), `kernel`, `memcpy` or `memset`.", tool="torch"),
        "name": Column(TEXT, "Name of the operator, range, call, kernel or copy.", tool="torch"),
        "range": Column(
            TEXT, "Part of the step that was open at the launch; empty for what is not a launch.", tool="torch"),
        "count": Column(COUNT, "Calls or launches in the window.", "count", "torch"),
        "self_cpu_ns": Column(
            WHOLE.or_missing, "Host time in the window, without what the operator calls.", "ns", "torch", CPU),
        "cpu_ns": Column(
            WHOLE.or_missing, "Host time in the window, with what the operator calls.", "ns", "torch", CPU),
        "self_device_ns": Column(
            WHOLE.or_missing, "GPU time in the window, without what the operator calls.", "ns", "torch", GPU),
        "device_ns": Column(
            WHOLE.or_missing, "GPU time in the window, with what the operator calls; of a range, of its launches.",
            "ns", "torch", GPU),
        "self_cpu_memory_bytes": Column(
            WHOLE.or_missing, "Host memory taken less given back, without what the operator calls.", "byte", "torch"),
        "cpu_memory_bytes": Column(
            WHOLE.or_missing, "Host memory taken less given back, with what the operator calls.", "byte", "torch"),
        "self_device_memory_bytes": Column(
            WHOLE.or_missing, "GPU memory taken less given back, without what the operator calls.", "byte", "torch"),
        "device_memory_bytes": Column(
            WHOLE.or_missing, "GPU memory taken less given back, with what the operator calls.", "byte", "torch"),
        "flops": Column(
            WHOLE.or_missing, "Operations that torch.profiler estimates for the operator in the window.",
            "flop", "torch"),
        "shapes": Column(TEXT, "Shapes of the inputs, where they were recorded.", tool="torch"),
        "stack": Column(TEXT, "Python stack of the call, where it was recorded.", tool="torch"),
    },
)  # fmt: skip
COLUMNS = [*TABLE.columns]
# The recorder's own, which harness/observers/recorders.py writes.
OPERATORS = Table(
    columns={
        "device": Column(TEXT, "Device that torch.profiler's table has the row for.", tool="torch"),
        **select(TABLE.columns, "name", "shapes", "stack", "count"),
        **select(
            TABLE.columns, "self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns", "self_cpu_memory_bytes",
            "cpu_memory_bytes", "self_device_memory_bytes", "device_memory_bytes", "flops", kind=WHOLE),
    },
    again="another version made it, or it is damaged: delete it and the trace, and the next run collects both again",
)  # fmt: skip
RUNTIME = re.compile(r"cuda[A-Z]|cu[A-Z]|hip[A-Z]")


def tidy_operators(
    operators: pd.DataFrame, trace: Trace, profiler: "ProfilerSettings", gpu: bool, lacking: bool = False
) -> pd.DataFrame:
    """Return one row per operator, range, runtime call, kernel, memcpy or memset, sorted by kind and time.

    Args:
        operators: torch.profiler's table as the recorder writes it.
        trace: trace of the same cycle.
        profiler: options of the profiler; columns that they did not measure are left empty.
        gpu: whether the cell ran on a GPU.
        lacking: steps are missing from the trace because the profiler lost their kernels. Operators then have no time
            on the device, because that would lack the lost kernels too.

    `cpu_ns` and `device_ns` include nested operators; the columns `self_` do not. `range` is the part of the step that
    was open on any thread when the launch was made. The `device_ns` of a range is the time of its launches.
    """
    launches = device_events(trace)
    table = pd.concat([_operators(operators), _grouped(launches)], ignore_index=True).reindex(columns=COLUMNS)
    is_range = table["kind"] == "range"
    by_range = launches.groupby("range", observed=True)["device_ns"].sum()
    table.loc[is_range, "device_ns"] = table.loc[is_range, "name"].map(by_range.to_dict()).fillna(0).astype("int64")
    table.loc[is_range, "self_device_ns"] = pd.NA
    if lacking:
        table.loc[table["kind"].isin(["operator", "runtime"]), ["self_device_ns", "device_ns"]] = pd.NA
    if not gpu:
        table[[name for name in COLUMNS if "device" in name]] = pd.NA
    if not profiler["memory"]:
        table[list(MEMORY)] = pd.NA
    table["flops"] = table["flops"].where(table["flops"] > 0)
    integers = ["count", *TIMES, *MEMORY, "flops"]
    table[integers] = table[integers].astype("Int64")
    order = table[["self_device_ns", "device_ns", "self_cpu_ns"]].fillna(0)
    return (
        table.assign(_device=order["self_device_ns"], _cpu=order["self_cpu_ns"])
        .sort_values(["kind", "_device", "_cpu", "name"], ascending=[True, False, False, True])[COLUMNS]
        .reset_index(drop=True)
    )


def device_events(trace: Trace) -> pd.DataFrame:
    """Return kernels, copies and memsets of a trace: kind, name, device_ns, start_ns, and launching range."""
    launches = trace.launches
    return pd.DataFrame(
        {
            "kind": pd.Categorical.from_codes(launches["kind"], list(DEVICE_KINDS.values())),
            "name": pd.Categorical.from_codes(launches["name"], trace.texts),
            "start_ns": launches["start"],
            "device_ns": launches["ns"].astype("int64"),
            "range": pd.Categorical.from_codes(find_ranges(launch_times(trace), trace), ["", *LAUNCHING]),
        }
    )


def _operators(raw: pd.DataFrame) -> pd.DataFrame:
    # Ranges of modules are left out; the table of owners has the launches within them.
    others = ("ProfilerStep", f"{DOMAIN}:{MODULE}:")
    host = raw[(raw["device"] == "CPU") & ~raw["name"].str.startswith(others)]
    table = pd.DataFrame({"name": host["name"].str.removeprefix(f"{DOMAIN}:"), "count": host["count"]})
    ours = host["name"].str.startswith(f"{DOMAIN}:")
    runtime = host["name"].str.match(RUNTIME)
    table["kind"] = np.select([ours, runtime], ["range", "runtime"], "operator")
    table[[*TIMES, *MEMORY]] = host[[*TIMES, *MEMORY]]
    return table.assign(range="", flops=host["flops"], shapes=host["shapes"], stack=host["stack"])


def _grouped(launches: pd.DataFrame) -> pd.DataFrame:
    grouped = launches.groupby(["kind", "name", "range"], sort=False, observed=True)["device_ns"].agg(["size", "sum"])
    grouped = grouped.reset_index().astype(dict.fromkeys(("kind", "name", "range"), "str"))
    grouped = grouped.rename(columns={"size": "count", "sum": "device_ns"})
    return grouped.assign(self_device_ns=grouped["device_ns"])
