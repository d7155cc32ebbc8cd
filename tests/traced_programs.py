"""Writes what tools leave of programs whose every time is known, row by row.

Exports of Nsight Systems have the layout of the recording of an H200. A program of another's is written as a trace of
torch.profiler too.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo.range_names import make_nvtx_name

# As nsys packs a process and its main thread into numbers.
PROCESS = 281_474_976_710_656 + (1234 << 24)
THREAD = PROCESS + 1234
# Tables of other settings, as NVIDIA documents them for nsys 2025.3.
FURTHER = {
    "OSRT_API": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER, "
    "callchainId INTEGER NOT NULL",
    "GPU_METRICS": "timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL",
    "TARGET_INFO_GPU_METRICS": "typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL, "
    "metricId INTEGER NOT NULL, metricName TEXT NOT NULL",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
}
KERNEL, COPY, SET, CALL = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"))
TO_DEVICE, TO_HOST, WITHIN = 1, 2, 8
PAGEABLE, PINNED, DEVICE = 0, 1, 2


class Traced:
    """A program as nsys traced it. Each operation has a launching call of 2 us that ended 1 us before it began."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._texts: dict[str, int] = {}
        self._launched = 0

    def add(self, table: str, **row: Any) -> None:
        """Add a row; columns that the table requires and the row lacks are 0."""
        self.rows.setdefault(table, []).append(row)

    def text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts) + 1)

    def step(self, start: int, end: int) -> None:
        """Add a step of the window."""
        self.range(make_nvtx_name("step"), start, end)

    def range(self, name: str, start: int, end: int, thread: int = THREAD, kind: int = 59) -> None:
        """Add an NVTX range."""
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, text=name, globalTid=thread, domainId=0)

    def call(self, name: str, start: int, end: int, correlation: int = 0, thread: int = THREAD) -> None:
        """Add a call of CUDA."""
        self.add(CALL, start=start, end=end, globalTid=thread, correlationId=correlation, nameId=self.text(name))

    def kernel(self, start: int, end: int, stream: int = 7, name: str = "gemm", launched: int | None = None) -> None:
        """Add a kernel; launched: when its call began."""
        number = self.text(name)
        names = dict.fromkeys(("demangledName", "shortName", "mangledName"), number)
        sizes = dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 1)
        self._operate(KERNEL, "cudaLaunchKernel_v7000", start, end, stream, launched, **names, **sizes)

    def copy(
        self,
        start: int,
        end: int,
        stream: int,
        size: int,
        kind: int,
        source: int,
        target: int,
        launched: int | None = None,
    ) -> None:
        moved = {"bytes": size, "copyKind": kind, "srcKind": source, "dstKind": target}
        self._operate(COPY, "cudaMemcpyAsync_v3020", start, end, stream, launched, **moved)

    def memset(self, start: int, end: int, stream: int, size: int) -> None:
        self._operate(SET, "cudaMemsetAsync_v3020", start, end, stream, None, bytes=size)

    def _operate(
        self, table: str, call: str, start: int, end: int, stream: int, launched: int | None, **row: Any
    ) -> None:
        self._launched += 1
        began = start - 3000 if launched is None else launched
        self.call(call, began, began + 2000, self._launched)
        place = {"start": start, "end": end, "streamId": stream, "globalPid": PROCESS, "contextId": 1}
        self.add(table, **place, correlationId=self._launched, **row)

    def write(self, path: Path, layout: Path) -> Path:
        """Write the export; layout: a recorded export, whose tables it has as they were created."""
        with closing(sqlite3.connect(layout)) as recorded:
            created = dict(recorded.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        created |= {name: f"CREATE TABLE {name} ({columns})" for name, columns in FURTHER.items()}
        with closing(sqlite3.connect(path)) as database:
            for table in dict.fromkeys(["StringIds", "NVTX_EVENTS", *self.rows]):
                database.execute(created[table])
                _insert(database, table, self.rows.get(table, []))
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, text) for text, n in self._texts.items()])
            database.commit()
        return path


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = [(name, required) for _, name, _, required, *_ in database.execute(f"PRAGMA table_info({table})")]
    filled = [[row.get(name, 0 if required else None) for name, required in columns] for row in rows]
    assert not (unknown := {name for row in rows for name in row} - {name for name, _ in columns}), unknown
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", filled)


@dataclass
class Launch:
    """A kernel, how long it runs, and by whom it is launched; times in us. It begins 250 us after its call.

    lost: the trace has the call alone. called: the trace has the kernel's call.
    """

    name: str
    at: float
    us: float = 500
    thread: int = 1
    process: str = "100"
    gpu: str = "0"
    stream: int = 7
    correlation: int = 0
    call: str = "cudaLaunchKernel"
    lost: bool = False
    called: bool = True
    about: Mapping[str, Any] = field(default_factory=dict)


class Foreign:
    """A program that knows nothing of profzoo, as torch.profiler or nsys trace it; times in us."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, float, float, int, str]] = []
        self.launches: list[Launch] = []

    def range(self, name: str, start: float, end: float, thread: int = 1, process: str = "100") -> None:
        self.ranges.append((name, start, end, thread, process))

    def launch(self, name: str, at: float, **given: Any) -> None:
        """Launch a kernel, from the middle of an operator of its name."""
        self.launches.append(Launch(name, at, **{"correlation": len(self.launches) + 1, **given}))

    def events(self) -> list[dict[str, Any]]:
        """Return the events of a trace of torch.profiler."""
        found = [_event("user_annotation", name, process, thread, start, end - start)
                 for name, start, end, thread, process in self.ranges]  # fmt: skip
        for one in self.launches:
            place, linked = (one.process, one.thread), {"correlation": one.correlation}
            if one.called:
                found.append(_event("cpu_op", f"aten::{one.name}", *place, one.at - 50, 200))
                found.append(_event("cuda_runtime", one.call, *place, one.at, 2, linked))
            if not one.lost:
                sized = {"stream": one.stream, "device": 0, "grid": [1, 1, 1], "block": [32, 1, 1], **one.about}
                about = {**(linked if one.called else {}), **sized}
                found.append(_event("kernel", one.name, one.gpu, one.stream, one.at + 250, one.us, about))
        return found

    def as_torch(self, path: Path) -> Path:
        """Write a trace of torch.profiler."""
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events()}))
        return path

    def as_nsys(self, path: Path, layout: Path) -> Path:
        """Write an export of nsys; layout: as of Traced.write."""
        traced = Traced()
        for name, start, end, thread, _ in self.ranges:
            traced.range(name, round(start * 1000), round(end * 1000), PROCESS + thread)
        for one in self.launches:
            begins = round(one.at * 1000) + 250_000
            traced.kernel(begins, begins + round(one.us * 1000), one.stream, one.name, round(one.at * 1000))
            traced.rows[CALL][-1]["globalTid"] = PROCESS + one.thread
        return traced.write(path, layout)


def _event(
    category: str, name: str, process: str, thread: int, start: float, us: float, about: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    event = {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start, "dur": us}
    return event | ({"args": dict(about)} if about else {})
