"""Makes torch.profiler's table tidy and adds the kernels of its trace, each with the range it was launched in."""

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.range_names import DOMAIN, PARTS
from profzoo.reading import kinds
from profzoo.reading.tables import Table

TIMES = ("self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns")
MEMORY = ("self_cpu_memory_bytes", "cpu_memory_bytes", "self_device_memory_bytes", "device_memory_bytes")
COLUMNS = ["kind", "name", "range", "count", *TIMES, *MEMORY, "flops", "shapes", "stack"]
TEXTS = ("kind", "name", "range", "shapes", "stack")
# What options or the device leave unmeasured is empty; memory may be given back.
TABLE = Table(
    columns={name: kinds.TEXT if name in TEXTS else kinds.maybe(kinds.WHOLE) for name in COLUMNS}
    | {"count": kinds.COUNT}
)
# The recorder's own, which harness/recorders.py writes.
OPERATORS = Table(
    columns={
        **dict.fromkeys(["device", "name", "shapes", "stack"], kinds.TEXT),
        "count": kinds.COUNT,
        **dict.fromkeys([*TIMES, *MEMORY, "flops"], kinds.WHOLE),
    },
    again="another version made it, or it is damaged: delete it and the trace, and the next run collects both again",
)
DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
CALLS = ("cuda_runtime", "cuda_driver")
READ = {*DEVICE_KINDS, *CALLS, "user_annotation"}
AGAIN = "delete it, and the next run collects it again"
# Microseconds of more than a century, of which the nanoseconds fit 64 bits.
BEYOND = 2**53
RUNTIME = re.compile(r"cuda[A-Z]|cu[A-Z]")


def read_trace(path: str | Path) -> list[dict[str, Any]]:
    """The events of a Chrome trace.

    Raises:
        DataError: the file is none, is cut off, or has events without what they are read for.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    except KeyError as error:
        raise DataError(f"{path} is no trace of torch.profiler, as it has no {error}: {AGAIN}") from error
    except (OSError, EOFError, zlib.error, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is no trace of torch.profiler, or damaged: {error}: {AGAIN}") from error
    wrong = next((number for number, event in enumerate(events) if not _sound(event)), None)
    if wrong is not None:
        raise DataError(f"{path} is damaged: event {wrong} is {json.dumps(events[wrong])[:80]}: {AGAIN}")
    return events


def _sound(event: Any) -> bool:
    """Whether an event is an object and, where it is read, has name, times and what it belongs to."""
    if not isinstance(event, dict):
        return False
    category, arguments = event.get("cat", ""), event.get("args", {})
    if not isinstance(category, str) or category not in READ:
        return isinstance(category, str)
    times = [event.get("ts"), event.get("dur")]
    known = isinstance(event.get("name"), str) and all(_number(time, int | float) for time in times)
    correlation = arguments.get("correlation", -1) if isinstance(arguments, dict) else None
    linked = _number(correlation, int) and ("args" in event or category not in DEVICE_KINDS)
    return known and event["dur"] >= 0 and linked


def _number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and abs(value) < BEYOND


def tidy(operators: pd.DataFrame, trace: list[dict[str, Any]], profiler: Mapping[str, Any], gpu: bool) -> pd.DataFrame:
    """A row an operator, range, runtime call, kernel, memcpy or memset, by kind and then by time.

    Args:
        operators: torch.profiler's table as the recorder leaves it.
        trace: events of the same cycle.
        profiler: its options; what they left unmeasured is left empty.
        gpu: whether the cell ran on a GPU.

    `cpu_ns` and `device_ns` include what an operator calls, `self_` ones do not. `range` is the part of the step that
    was open when the launch was made, on whatever thread; the `device_ns` of a range is that of its launches.
    """
    launches = device_events(trace)
    table = pd.concat([_operators(operators), _grouped(launches)], ignore_index=True).reindex(columns=COLUMNS)
    is_range = table["kind"] == "range"
    by_range = launches.groupby("range")["device_ns"].sum()
    table.loc[is_range, "device_ns"] = table.loc[is_range, "name"].map(by_range).fillna(0).astype("int64")
    table.loc[is_range, "self_device_ns"] = pd.NA
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


def device_events(trace: list[dict[str, Any]]) -> pd.DataFrame:
    """Kernels, copies and memsets of a trace: kind, name, device_ns, start_ns, and the range they were launched in."""
    chosen = [event for event in trace if event.get("cat") in DEVICE_KINDS]
    frame = pd.DataFrame(
        {
            "kind": [DEVICE_KINDS[event["cat"]] for event in chosen],
            "name": [event["name"] for event in chosen],
            "start_ns": [round(event["ts"] * 1000) for event in chosen],
            "device_ns": [round(event["dur"] * 1000) for event in chosen],
            "correlation": [event["args"].get("correlation", -1) for event in chosen],
        }
    )
    calls: dict[int, float] = {}
    for event in trace:
        if event.get("cat") in CALLS and "correlation" in event.get("args", {}):
            # A runtime call may share its ID with the driver's that it makes.
            correlation = event["args"]["correlation"]
            calls[correlation] = min(event["ts"], calls.get(correlation, event["ts"]))
    launched = frame["correlation"].map(calls).astype("float64").fillna(-1).to_numpy()
    return frame.assign(range=_ranges(launched, trace)).drop(columns="correlation")


def _ranges(launched: np.ndarray, trace: list[dict[str, Any]]) -> np.ndarray:
    parts = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"].removeprefix(f"{DOMAIN}:"))
        for event in trace
        if event.get("cat") == "user_annotation" and event["name"].removeprefix(f"{DOMAIN}:") in PARTS
    )
    if not parts:
        return np.array([""] * len(launched), dtype=object)
    starts, ends, names = (np.array(column) for column in zip(*parts, strict=True))
    last = np.searchsorted(starts, launched, side="right") - 1
    return np.where((last >= 0) & (launched < ends[last]), names[last], "")


def _operators(raw: pd.DataFrame) -> pd.DataFrame:
    host = raw[(raw["device"] == "CPU") & ~raw["name"].str.startswith("ProfilerStep")]
    table = pd.DataFrame({"name": host["name"].str.removeprefix(f"{DOMAIN}:"), "count": host["count"]})
    ours = host["name"].str.startswith(f"{DOMAIN}:")
    runtime = host["name"].str.match(RUNTIME)
    table["kind"] = np.select([ours, runtime], ["range", "runtime"], "operator")
    table[[*TIMES, *MEMORY]] = host[[*TIMES, *MEMORY]]
    return table.assign(range="", flops=host["flops"], shapes=host["shapes"], stack=host["stack"])


def _grouped(launches: pd.DataFrame) -> pd.DataFrame:
    grouped = launches.groupby(["kind", "name", "range"], sort=False)["device_ns"].agg(["size", "sum"]).reset_index()
    grouped = grouped.rename(columns={"size": "count", "sum": "device_ns"})
    return grouped.assign(self_device_ns=grouped["device_ns"])
