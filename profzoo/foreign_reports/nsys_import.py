"""Converts a report of Nsight Systems made elsewhere to what profzoo's own job leaves: an export and its sidecar."""

import functools
import re
import shutil
import sqlite3
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import nsys_stats, sidecars
from profzoo.foreign_reports import steps as trace_steps
from profzoo.foreign_reports.steps import find_parts, gpu_step_ns, in_steps
from profzoo.foreign_reports.torch_events import KERNEL as TORCH_EVENTS_KERNEL
from profzoo.io import file_checks
from profzoo.io.scripts import write_json
from profzoo.range_names import STEP, WINDOW, make_nvtx_name
from profzoo.tools.nsys import TOOL
from profzoo.tools.nsys.events import export_columns
from profzoo.tools.nsys.events import launches as nsys_launches
from profzoo.tools.nsys.events.export_columns import READ, TEXTS, UNKNOWN, existing_columns
from profzoo.tools.nsys.events.trace import (
    CALL_TABLE,
    KERNEL_TABLE,
    PROCESS,
    PUSH_POP,
    Trace,
    find_impossible,
    list_tables,
    open_trace,
    read_window_steps,
)
from profzoo.tools.stream_overlap import KERNEL

# Copies a foreign export of Nsight Systems (SQLite) and adds what profzoo reads: lacking columns, steps and parts.

STRINGS, RANGES = "StringIds", "NVTX_EVENTS"
AGAIN = "export the report again with `nsys export --type sqlite`"
# What stands for a lacking column that is never empty.
INSTEAD = {"streamId": 0, "copyKind": 0, "graphId": 0}
# Either of these names a kernel where the other is lacking.
NAMES = ("demangledName", "shortName")


@contextmanager
def open_copy(source: str, target: str) -> Iterator[sqlite3.Connection]:
    """Copy an export and open the copy for changes, which are kept if the body succeeds.

    Raises:
        DataError: it is not an export of nsys, is damaged, or lacks columns without which nothing is known.
    """
    path = Path(source)
    if why := file_checks.find_flaw(path) if path.suffix == ".sqlite" else None:
        raise DataError(f"{source} is damaged ({' '.join(why.split())}): copy it again, or {AGAIN}")
    shutil.copyfile(source, target)
    try:
        with closing(sqlite3.connect(f"file:{urllib.parse.quote(target)}", uri=True)) as database:
            database.execute("PRAGMA synchronous = OFF")
            # What nsys says of the machine may hold any bytes.
            database.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if STRINGS not in tables:
                raise DataError(f"{source} is not an export of nsys, as it has no table {STRINGS}: {AGAIN}")
            _mend_texts(database)
            _complete(database, tables, source)
            yield database
            database.commit()
    except sqlite3.Error as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{source} is not an export of nsys, or damaged: {why}: {AGAIN}") from error


def _mend_texts(database: sqlite3.Connection) -> None:
    """Replace what is not UTF-8 in texts, such as names of files that nsys copies as they are."""
    for table, columns in TEXTS.items():
        for column in set(columns) & existing_columns(database, table):
            rows = database.execute(f"SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE {column} IS NOT NULL")
            damaged = [(raw.decode(errors="replace"), row) for row, raw in rows if not _is_text(raw)]
            database.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", damaged)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _complete(database: sqlite3.Connection, tables: set[str], source: str) -> None:
    """Add lacking columns that profzoo reads, with what stands for nothing.

    Raises:
        DataError: a column is lacking that nothing stands for.
    """
    if RANGES not in tables:
        database.execute(f"CREATE TABLE {RANGES} (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, "
                         "textId INTEGER, globalTid INTEGER)")  # fmt: skip
    for table, columns in READ.items():
        has = existing_columns(database, table)
        if not has:
            continue
        for name, column in columns.items():
            if name in has or column.missing:
                continue
            other = next((one for one in NAMES if name in NAMES and one in has), None)
            if not (column.null or name in INSTEAD or other):
                raise DataError(f"{source}: its table {table} has no column {name}: {AGAIN}, by nsys 2021 or later")
            database.execute(f"ALTER TABLE {table} ADD COLUMN {name} INTEGER")
            if other or name in INSTEAD:
                database.execute(f"UPDATE {table} SET {name} = {other or INSTEAD[name]}")
        for name in TEXTS.get(table, {}):
            if name not in has:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")
    _name_processes(database, tables)
    if KERNEL_TABLE in tables:
        # Kernels are told apart by mangled names; where there are none, by others.
        if "mangledName" not in existing_columns(database, KERNEL_TABLE):
            database.execute(f"ALTER TABLE {KERNEL_TABLE} ADD COLUMN mangledName INTEGER")
        lacking = "mangledName IS NULL OR mangledName = 0"
        database.execute(f"UPDATE {KERNEL_TABLE} SET mangledName = demangledName WHERE {lacking}")


def _name_processes(database: sqlite3.Connection, tables: set[str]) -> None:
    """Give events without a process that of the trace, where there is only one."""
    if CALL_TABLE not in tables:
        return
    rows = database.execute(f"SELECT DISTINCT globalTid & {PROCESS} FROM {CALL_TABLE} WHERE globalTid IS NOT NULL")
    known = [number for (number,) in rows]
    if len(known) == 1:
        for table, columns in READ.items():
            if "globalPid" in columns and "globalPid" in existing_columns(database, table):
                database.execute(f"UPDATE {table} SET globalPid = ? WHERE globalPid IS NULL", known)


def add_ranges(database: sqlite3.Connection, process: int, ranges: Sequence[tuple[str, int, int]]) -> None:
    """Add ranges of profzoo's to a process: name, such as `step`, start and end in ns."""
    has = existing_columns(database, RANGES)
    columns = ["start", "end", "eventType", "text", "globalTid", *(["textId"] if "textId" in has else [])]
    rows = [
        (start, end, PUSH_POP, make_nvtx_name(name), process, *([None] if "textId" in has else []))
        for name, start, end in ranges
    ]
    # Exports of schema 2 declare columns NOT NULL that say nothing here.
    declared = [(row[1], row[3], row[4]) for row in database.execute(f"PRAGMA table_info({RANGES})")]
    more = [name for name, required, default in declared if required and default is None and name not in columns]
    marks = ", ".join("?" * (len(columns) + len(more)))
    database.executemany(
        f"INSERT INTO {RANGES} ({', '.join([*columns, *more])}) VALUES ({marks})",
        [(*row, *[0] * len(more)) for row in rows],
    )


def has_rows(database: sqlite3.Connection, table: str) -> bool:
    """Whether an export has a table and any row in it."""
    known = existing_columns(database, table)
    return bool(known) and database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


# Reads what an export of Nsight Systems (SQLite) says of itself: version, GPU, driver, date.

DRIVERS = ("NvDriverVersion", "NvidiaDriverVersion", "NVIDIA driver version")


def read_facts(trace: Trace) -> dict[str, Any]:
    """Return `device`, `started`, `driver` and `tool_version`, as far as the export has them."""
    found: dict[str, Any] = {"device": _device(trace), "started": _started(trace)}
    versions = dict(trace.read_rows("META_DATA_EXPORT", "name", "value"))
    if version := versions.get("EXPORT_PRODUCT_VERSION"):
        found["tool_version"] = f"NVIDIA Nsight Systems version {version}"
    system = {str(name).replace(" ", "").lower(): value for name, value in
              trace.read_rows("TARGET_INFO_SYSTEM_ENV", "name", "value")}  # fmt: skip
    driver = next((value for name in DRIVERS if (value := system.get(name.replace(" ", "").lower()))), None)
    # Without a GPU the driver is 0.
    return found | ({"driver": str(driver)} if driver and str(driver) != "0" else {})


def _device(trace: Trace) -> str:
    """Return the name of the GPU that ran most launches."""
    names = dict(trace.read_rows("TARGET_INFO_GPU", "id", "name"))
    found = trace.operations
    used = found.loc[(found["kind"] == KERNEL) & (found["graph"] == UNKNOWN) & (found["gpu"] != UNKNOWN), "gpu"]
    return sidecars.device_name(names, used.value_counts().index[0] if len(used) else None)


def _started(trace: Trace) -> str:
    rows = trace.read_rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "utcEpochNs")
    return sidecars.date_of(rows[0][0]) if rows and isinstance(rows[0][0], int) else ""


SQLITE = b"SQLite format 3\0"
REPORTS = (".nsys-rep", ".qdrep")


@dataclass(frozen=True)
class ProcessSteps:
    """The steps of one process of a trace: wall and GPU time of each in ns, and its share of the trace's GPU time.

    On a CPU there is no GPU time; gpu_ns is None then.
    """

    process: int
    steps: trace_steps.Steps
    parts: pd.DataFrame
    wall_ns: np.ndarray
    gpu_ns: np.ndarray | None
    busy_ns: int


def main(
    path: str, model: str, step: str | None, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read a report or its export; write `sqlite` and `sidecar`, and say what is missing in it.

    step: name of the ranges that are its steps, None to find them.

    Raises:
        DataError: nothing of the file can be used, or its report needs an nsys that is not here.
    """
    with tempfile.TemporaryDirectory() as folder, _naming(path, folder, outputs["sqlite"]):
        source, form = _export(path, Path(folder))
        with open_copy(str(source), outputs["sqlite"]) as database:
            on_gpu = has_rows(database, KERNEL_TABLE)
            # A program that calls CUDA ran on a GPU.
            if not on_gpu and has_rows(database, CALL_TABLE):
                raise DataError(f"{path} holds no kernel: trace with --trace=cuda,nvtx, and export all tables")
            told = _leave_out_impossible(database, path)
            trace = Trace(database, list_tables(database))
            facts, ranges, activity = read_facts(trace), _ranges(trace), _activity(trace)
            found = _processes(path, ranges, activity, step) if on_gpu else _on_cpu(path, ranges, step)
            for one in found:
                if not one.steps.own:
                    add_ranges(database, one.process, _own_ranges(one))
        first = max(found, key=lambda one: (one.busy_ns, len(one.wall_ns)))
        sidecar = _sidecar(path, model, form, first, facts, outputs["sqlite"])
        sidecar["imported"]["coverage"] = [*told, *_coverage(found, activity)]
    write_json(sidecar, outputs["sidecar"])
    say(f"{path}: {len(first.wall_ns):,} step(s) from {first.steps.found_by}")
    for line in sidecar["imported"]["coverage"]:
        say(f"{path}: {line}")


@contextmanager
def _naming(path: str, folder: str, copy: str) -> Iterator[None]:
    """Name the user's file, and what to do with it, in errors about copies of it.

    folder: of unpacked files. copy: the copy that profzoo keeps, which no run records again.
    """
    try:
        yield
    except DataError as error:
        said = re.sub(rf"{re.escape(folder)}/[^\s:]+|{re.escape(copy)}", lambda _: path, str(error))
        for cure in (export_columns.ONCE, export_columns.AGAIN):
            said = said.replace(cure, AGAIN)
        raise DataError(said) from error


def _leave_out_impossible(database: sqlite3.Connection, path: str) -> list[str]:
    """Take operations out of the copy that have times that they cannot have had; return a line about them.

    Raises:
        DataError: they are more than a few.
    """
    wrong, count = find_impossible(Trace(database, list_tables(database)))
    for table, own in wrong.groupby("table"):
        database.executemany(f"DELETE FROM {table} WHERE rowid = ?", [(row,) for row in own["row"].tolist()])
    about = zip(wrong["place"], zip(wrong["name"], wrong["why"], strict=True), strict=True)
    return sidecars.tell_impossible(path, dict(about), count)


def _own_ranges(found: ProcessSteps) -> list[tuple[str, int, int]]:
    """Return the ranges that profzoo reads of a process: the window's beginning, its steps, and their parts."""
    spans = [(STEP, int(start), int(end)) for start, end in found.steps.spans]
    parts = [(row.name, int(row.start), int(row.end)) for row in found.parts.itertuples()]
    begin = spans[0][1]
    return [(WINDOW, begin, begin), *spans, *parts]


def _export(path: str, folder: Path) -> tuple[Path, str]:
    """Return the SQLite export of a file and what the file is, in words."""
    sidecars.refuse_other_tool(path, TOOL)
    if sidecars.read_begin(path).startswith(SQLITE):
        return Path(sidecars.unpack_report(path, folder)), "SQLite export of Nsight Systems"
    if not path.removesuffix(".gz").endswith(REPORTS):
        target = folder / "trace.sqlite"
        nsys_stats.write_trace(path, str(target))
        return target, "trace of the GPU of nsys stats as CSV"
    if not shutil.which("nsys"):
        raise DataError(
            f"{path} is a report, which only nsys reads, and nsys is not on PATH: where it is, type "
            f"`nsys export --type sqlite {path}`, and import the .sqlite"
        )
    target = folder / "export.sqlite"
    report = sidecars.unpack_report(path, folder)
    words = ["nsys", "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target), report]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if answer.returncode or not target.exists():
        last = (answer.stderr or answer.stdout).strip().splitlines()[-1:] or ["it says nothing"]
        raise DataError(
            f"{path} cannot be exported by this nsys: {last[0][:200]}: take the nsys that wrote it, or newer"
        )
    return target, "report of Nsight Systems"


def _ranges(trace: Trace) -> pd.DataFrame:
    """Return the closed ranges of NVTX: name, start, ns, process, thread."""
    closed = trace.ranges[trace.ranges["name"].notna() & (trace.ranges["end"] >= trace.ranges["start"])]
    named = closed.assign(name=closed["name"].astype("str"), ns=closed["end"] - closed["start"])
    return named[["name", "start", "ns", "process", "thread"]].reset_index(drop=True)


def _activity(trace: Trace) -> pd.DataFrame:
    """Return what the GPU did: start, end, process, category, name, `made` (by a call or its start), `called`, thread.

    thread: that of the launching call, 0 where it is not known.
    """
    launches = trace.launches
    names = {number: known[1] for number, known in trace.kernel_names.items()}
    numbers = nsys_launches.unpack_configurations(launches)["mangled"]
    whole = (launches["graph"] >= 0).tolist()
    texts = ["CUDA graph" if graph else names[number] for number, graph in zip(numbers.tolist(), whole, strict=True)]
    others = trace.add_calls(trace.operations[~trace.operations["kernel"]])
    columns = ["start", "end", "process", "correlation", "category", "name", "made", "called", "thread"]
    frames = [
        one.assign(category=kind, name=name, made=nsys_launches.launch_times(one), called=one["launched"] >= 0)[columns]
        for one, kind, name in ((launches, TORCH_EVENTS_KERNEL, texts), (others, "copy", "copy"))
    ]
    return pd.concat(frames, ignore_index=True)


def _processes(path: str, ranges: pd.DataFrame, activity: pd.DataFrame, asked: str | None) -> list[ProcessSteps]:
    """Return the steps of each process that ran kernels."""
    found = []
    for process, own in activity.groupby("process"):
        kernels = own[own["category"] == TORCH_EVENTS_KERNEL]
        if kernels.empty:
            continue
        mine = ranges[ranges["process"] == process]
        begins = [int(own["made"].min()), *([int(mine["start"].min())] if len(mine) else [])]
        ends = [int(own["end"].max()), *([int((mine["start"] + mine["ns"]).max())] if len(mine) else [])]
        sequence = own[own["called"]] if own["called"].any() else own
        sequence = sequence.sort_values(["made", "start"], kind="stable").assign(begin=lambda table: table["made"])
        made, end = (own[name].to_numpy(dtype=np.int64) for name in ("made", "end"))
        work = trace_steps.Work(
            made, end - own["start"].to_numpy(dtype=np.int64), own["thread"].to_numpy(dtype=np.int64)
        )
        try:
            steps = trace_steps.find_steps(mine, sequence, (min(begins), max(ends) + 1), work, asked)
        except LookupError as error:
            raise DataError(f"{path} has no ranges called {asked!r}, which were to be its steps: {error}") from None
        gpu_ns = gpu_step_ns(steps.spans, made, end)
        parts = find_parts(mine, mine, steps.spans)
        busy = int((kernels["end"] - kernels["start"]).sum())
        wall_ns = steps.spans[:, 1] - steps.spans[:, 0]
        found.append(ProcessSteps(int(str(process)), steps, parts, wall_ns, gpu_ns, busy))
    if not found:
        raise DataError(f"{path} holds no kernel: trace the program with --trace=cuda,nvtx")
    return found


def _on_cpu(path: str, ranges: pd.DataFrame, asked: str | None) -> list[ProcessSteps]:
    """Return the steps of each process that marks some, in a trace in which nothing ran on a GPU."""
    found = []
    for process, mine in ranges.groupby("process"):
        span = int(mine["start"].min()), int((mine["start"] + mine["ns"]).max()) + 1
        none = pd.DataFrame(columns=["name", "category", "begin", "made"])
        begins = mine["start"].to_numpy(dtype=np.int64)
        # Nothing but ranges is known of what it ran: each counts alike.
        work = trace_steps.Work(begins, np.ones(len(begins), dtype=np.int64), mine["thread"].to_numpy(dtype=np.int64))
        try:
            steps = trace_steps.find_steps(mine, none, span, work, asked)
        except LookupError:
            continue
        if not steps.whole:
            wall_ns = steps.spans[:, 1] - steps.spans[:, 0]
            found.append(ProcessSteps(int(str(process)), steps, find_parts(mine, mine, steps.spans), wall_ns, None, 0))
    if not found:
        steps_of = f"no ranges called {asked!r}" if asked else "no ranges that mark steps"
        raise DataError(f"{path} holds no kernel, and {steps_of}: trace the program with --trace=cuda,nvtx")
    return found


def _sidecar(
    path: str, model: str, form: str, first: ProcessSteps, facts: Mapping[str, Any], written: str
) -> dict[str, Any]:
    """Return the sidecar, but for what is missing; written: the converted export."""
    whole = first.steps.whole
    with open_trace(written) as trace:
        kept = read_window_steps(trace, not whole)
    starts = set(kept.loc[kept["process"] == first.process, "start"].tolist())
    chosen = np.array([start in starts for start in first.steps.spans[:, 0].tolist()], dtype=bool)
    # Of steps that are all cut off, nothing is better than what there is of them.
    chosen = chosen if chosen.any() else ~chosen
    gpu_ns = None if first.gpu_ns is None else first.gpu_ns[chosen]
    steps = sidecars.step_facts(first.steps.found_by, first.wall_ns[chosen], gpu_ns)
    steps |= {"whole": whole, "ranges_from": sorted(set(first.parts["found_by"]))}
    device = ("cpu", "cpu") if gpu_ns is None else (facts["device"], "cuda")
    told = sidecars.report_facts(TOOL, model, device, steps, [sidecars.file_facts(path, form)])
    return {**told, **facts, "device": device[0], "capture": "window" if whole else "run"}


def _coverage(found: list[ProcessSteps], activity: pd.DataFrame) -> list[str]:
    """Say what the trace lacks, and what is in no step."""
    kernels = activity[activity["category"] == TORCH_EVENTS_KERNEL]
    lines = list(dict.fromkeys(one.steps.passed for one in found if one.steps.passed))
    total = max(int((kernels["end"] - kernels["start"]).sum()), 1)
    if len(found) > 1:
        numbers = ", ".join(str(one.process >> 24 & 0xFFFFFF) for one in found)
        lines.append(f"it is of {len(found)} processes ({numbers}); times of steps are those of the busiest")
    without = kernels[~kernels["called"]]
    if len(without):
        share = int((without["end"] - without["start"]).sum()) / total
        lines.append(
            f"{len(without):,} of {len(kernels):,} launches ({share:.1%} of GPU time) have no launching call: they "
            "count for the range in which they ran"
        )
    outside = [
        kernels[(kernels["process"] == one.process) & ~in_steps(kernels["made"].to_numpy(), one.steps.spans)]
        for one in found
    ]
    launches = sum(map(len, outside))
    if launches:
        share = sum(int((part["end"] - part["start"]).sum()) for part in outside) / total
        lines.append(
            f"{launches:,} of {len(kernels):,} launches ({share:.1%} of GPU time) are in no step and are left out"
        )
    return lines
