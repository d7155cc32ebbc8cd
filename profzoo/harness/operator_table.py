"""Writes torch.profiler's own table of operators, in ns and bytes, and keeps the cycles before the last one."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.profiler import profile

# Columns of the table, and torch's names for the same quantities; torch gives times in microseconds.
TIMES = {
    "self_cpu_ns": "self_cpu_time_total",
    "cpu_ns": "cpu_time_total",
    "self_device_ns": "self_device_time_total",
    "device_ns": "device_time_total",
}
MEMORY = {
    "self_cpu_memory_bytes": "self_cpu_memory_usage",
    "cpu_memory_bytes": "cpu_memory_usage",
    "self_device_memory_bytes": "self_device_memory_usage",
    "device_memory_bytes": "device_memory_usage",
}
COLUMNS = ("device", "name", "shapes", "stack", "count", *TIMES, *MEMORY, "flops")
# Number of Python frames that distinguish operators if stacks are recorded.
STACK_DEPTH = 5
# Files of an earlier cycle, which is counted from 0, in the folder of further files.
OPERATORS, TRACE = "cycle-{}.operators.csv", "cycle-{}.trace.json.gz"


def read_rows(profiler: profile, options: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of COLUMNS for the cycle that a profiler has just ended; options: of the recorder."""
    averages = profiler.key_averages(
        group_by_input_shape=options["shapes"], group_by_stack_n=STACK_DEPTH * options["stacks"]
    )
    return [
        [event.device_type.name, event.key, event.input_shapes or "", "|".join(event.stack or []), event.count]
        + [round(getattr(event, field) * 1000) for field in TIMES.values()]
        + [getattr(event, field) for field in (*MEMORY.values(), "flops")]
        for event in averages
    ]


def write_rows(rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Write rows of COLUMNS as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def keep_cycle(number: int, rows: Sequence[Sequence[Any]], trace: Path, folder: Path) -> None:
    """Write the table of an ended cycle to the folder, and move its trace there, before the next one replaces both."""
    write_rows(rows, folder / OPERATORS.format(number))
    trace.rename(folder / TRACE.format(number))
