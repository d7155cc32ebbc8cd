"""Writes into an export of nsys what it samples of a GPU and what it traces of memory, in the tables of real exports.

The statements are those that nsys 2024.6 (schema 3.16) and 2025.3 (3.20) write; the second has `rawTimestamp` as well.
"""

import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from profzoo.tools.nsys.events import intervals

# The typeId of GPU 0 in exports: its lowest byte is the number of the GPU.
KIND = 281479271677952
METRICS = """CREATE TABLE GPU_METRICS (
    {raw}timestamp                   INTEGER,
    typeId                      INTEGER   NOT NULL,
    metricId                    INTEGER   NOT NULL,
    value                       INTEGER   NOT NULL
);
CREATE TABLE TARGET_INFO_GPU_METRICS (
    typeId                      INTEGER   NOT NULL,
    sourceId                    INTEGER   NOT NULL,
    typeName                    TEXT      NOT NULL,
    metricId                    INTEGER   NOT NULL,
    metricName                  TEXT      NOT NULL
);"""
MEMORY = """CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (
    start                       INTEGER   NOT NULL,
    globalPid                   INTEGER   NOT NULL,
    deviceId                    INTEGER   NOT NULL,
    contextId                   INTEGER   NOT NULL,
    address                     INTEGER   NOT NULL,
    pc                          INTEGER   NOT NULL,
    bytes                       INTEGER   NOT NULL,
    memKind                     INTEGER   NOT NULL,
    memoryOperationType         INTEGER   NOT NULL,
    name                        TEXT,
    correlationId               INTEGER,
    streamId                    INTEGER,
    localMemoryPoolAddress      INTEGER,
    localMemoryPoolReleaseThreshold   INTEGER,
    localMemoryPoolSize         INTEGER,
    localMemoryPoolUtilizedSize   INTEGER,
    importedMemoryPoolAddress   INTEGER,
    importedMemoryPoolProcessId   INTEGER
);"""
# A sample of an allocation or free: time in ns, address, bytes, number of the kind of memory, whether it is freed.
Event = tuple[int, int, int, int, bool]
PINNED, DEVICE = 1, 2


def copy_trace(source: Path, target: Path) -> Path:
    """Copy an export, so that a test may add to it."""
    shutil.copyfile(source, target)
    return target


def sampled_share(spans: np.ndarray, times: np.ndarray, every: int) -> np.ndarray:
    """Return the part of each interval [time, time + every) that spans (n, 2) cover, in whole percent, as nsys has it."""
    covered = [intervals.total(intervals.intersect(spans, np.array([[at, at + every]]))) for at in times]
    return np.round(100 * np.array(covered) / every).astype(int)


def add_metrics(
    path: Path, times: Iterable[int], metrics: Mapping[str, Iterable[int]], raw: bool = True, gpu: int = 0
) -> None:
    """Add samples of a GPU at times in ns, and by the metric's name in the export, its values.

    raw: as nsys 2025 writes them. gpu: its number; the samples of GPU 0 come first.
    """
    kind = KIND + gpu
    with closing(sqlite3.connect(path)) as database:
        if not gpu:
            database.executescript(METRICS.format(raw="rawTimestamp INTEGER NOT NULL, " if raw else ""))
        for number, (name, values) in enumerate(metrics.items()):
            database.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, '', ?, ?)", (kind, kind, number, name))
            rows = [(int(at), kind, number, int(value)) for at, value in zip(times, values, strict=True)]
            marks = ", ".join("?" * (4 + raw))
            database.executemany(f"INSERT INTO GPU_METRICS VALUES ({marks})", [row[:1] * raw + row for row in rows])
        database.commit()


def add_memory(path: Path, process: int, events: Iterable[Event]) -> None:
    """Add allocations and frees of a process (`globalPid`)."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(MEMORY)
        rows = [(at, process, 0, 1, address, 0, size, kind, int(freed)) for at, address, size, kind, freed in events]
        database.executemany(
            f"INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ({'?, ' * 9}{', '.join(['NULL'] * 9)})", rows
        )
        database.commit()
