"""Converts a report of Nsight Systems made elsewhere to what profzoo's own job leaves: an export and its sidecar."""

import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import nsys_copy, nsys_facts, nsys_stats_import, sidecars
from profzoo.foreign_reports import steps as trace_steps
from profzoo.foreign_reports.step_parts import find_parts
from profzoo.foreign_reports.step_times import gpu_step_ns, in_steps
from profzoo.foreign_reports.torch_categories import KERNEL
from profzoo.io.scripts import write_json
from profzoo.range_names import STEP, WINDOW
from profzoo.tools.nsys import TOOL, timeline
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys.export_columns import existing_columns, sql_for_numbers
from profzoo.tools.nsys.trace import PROCESS, PUSH_POP, RANGE_TEXT, START_END, open_export, read_window_steps

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
    with tempfile.TemporaryDirectory() as folder:
        source, form = _export(path, Path(folder))
        with nsys_copy.open_copy(str(source), outputs["sqlite"]) as database:
            on_gpu = nsys_copy.has_kernels(database)
            if not on_gpu and nsys_copy.calls_cuda(database):
                raise DataError(f"{path} holds no kernel: trace with --trace=cuda,nvtx, and export all tables")
            facts = nsys_facts.read_facts(database)
            ranges, activity = _ranges(database), _activity(database)
            found = _processes(path, ranges, activity, step) if on_gpu else _on_cpu(path, ranges, step)
            for one in found:
                if not one.steps.own:
                    nsys_copy.add_ranges(database, one.process, _own_ranges(one))
    first = max(found, key=lambda one: (one.busy_ns, len(one.wall_ns)))
    told = _sidecar(path, model, form, first, facts, outputs["sqlite"])
    told["imported"]["coverage"] = _coverage(found, activity)
    write_json(told, outputs["sidecar"])
    say(f"{path}: {len(first.wall_ns):,} step(s) from {first.steps.found_by}")
    for line in told["imported"]["coverage"]:
        say(f"{path}: {line}")


def _own_ranges(found: ProcessSteps) -> list[tuple[str, int, int]]:
    """Return the ranges that profzoo reads of a process: the window's beginning, its steps, and their parts."""
    spans = [(STEP, int(start), int(end)) for start, end in found.steps.spans]
    parts = [(row.name, int(row.start), int(row.end)) for row in found.parts.itertuples()]
    begin = spans[0][1]
    return [(WINDOW, begin, begin), *spans, *parts]


def _export(path: str, folder: Path) -> tuple[Path, str]:
    """Return the SQLite export of a file and what the file is, in words."""
    with Path(path).open("rb") as file:
        begin = file.read(len(SQLITE))
    if begin == SQLITE:
        return Path(path), "SQLite export of Nsight Systems"
    if not path.endswith(REPORTS):
        target = folder / "trace.sqlite"
        nsys_stats_import.write_trace(path, str(target))
        return target, "trace of the GPU of nsys stats as CSV"
    if not shutil.which("nsys"):
        raise DataError(
            f"{path} is a report, which only nsys reads, and nsys is not on PATH: where it is, type "
            f"`nsys export --type sqlite {path}`, and import the .sqlite"
        )
    target = folder / "export.sqlite"
    words = ["nsys", "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target), path]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if answer.returncode or not target.exists():
        last = (answer.stderr or answer.stdout).strip().splitlines()[-1:] or ["it says nothing"]
        raise DataError(
            f"{path} cannot be exported by this nsys: {last[0][:200]}: take the nsys that wrote it, or newer"
        )
    return target, "report of Nsight Systems"


def _ranges(database: sqlite3.Connection) -> pd.DataFrame:
    """Return the closed ranges of NVTX: name, start, ns, process, thread."""
    text = RANGE_TEXT if "textId" in existing_columns(database, nsys_copy.RANGES) else "text"
    thread = sql_for_numbers(database, nsys_copy.RANGES, ["globalTid"])["globalTid"]
    rows = database.execute(
        f"SELECT {text}, start, end - start, {thread} & {PROCESS}, {thread} FROM {nsys_copy.RANGES} "
        f"WHERE eventType IN (?, ?) AND end >= start AND {text} IS NOT NULL",
        (PUSH_POP, START_END),
    ).fetchall()
    frame = pd.DataFrame(rows, columns=["name", "start", "ns", "process", "thread"])
    return frame.astype({"name": "str", "start": "int64", "ns": "int64", "process": "int64", "thread": "int64"})


def _activity(database: sqlite3.Connection) -> pd.DataFrame:
    """Return what the GPU did: start, end, process, category, name, `made` (by a call or its start), `called`."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    launched = nsys_launches.read_launches(database, tables, placed=True)
    names = {number: known[1] for number, known in nsys_launches.kernel_names(database, tables).items()}
    numbers = nsys_launches.unpack_configurations(launched)["mangled"]
    kernels = pd.DataFrame(
        {
            "start": launched["start"],
            "end": launched["start"] + launched["ns"],
            "process": launched["process"],
            "category": KERNEL,
            "name": [names.get(number, "CUDA graph") for number in numbers.tolist()],
            "made": nsys_launches.launch_times(launched),
            "called": launched["launched"].to_numpy() >= 0,
        }
    )
    everything = timeline.activity(database, tables)
    copies = everything[~everything["kernel"]]
    calls = timeline.calls(database, tables) if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables else everything[:0]
    outer = calls.sort_values("start").drop_duplicates(["process", "correlation"]) if len(calls) else calls
    joined = copies.merge(
        outer[["process", "correlation", "start"]], on=["process", "correlation"], how="left", suffixes=("", "_call")
    )
    made = joined["start_call"].fillna(joined["start"]).astype("int64")
    others = joined[["start", "end", "process"]].assign(
        category="copy", name="copy", made=made, called=joined["start_call"].notna()
    )
    return pd.concat([kernels, others], ignore_index=True)


def _processes(path: str, ranges: pd.DataFrame, activity: pd.DataFrame, asked: str | None) -> list[ProcessSteps]:
    """Return the steps of each process that ran kernels."""
    found = []
    for process, own in activity.groupby("process"):
        kernels = own[own["category"] == KERNEL]
        if kernels.empty:
            continue
        mine = ranges[ranges["process"] == process]
        begins = [int(own["made"].min()), *([int(mine["start"].min())] if len(mine) else [])]
        ends = [int(own["end"].max()), *([int((mine["start"] + mine["ns"]).max())] if len(mine) else [])]
        sequence = own[own["called"]] if own["called"].any() else own
        sequence = sequence.sort_values(["made", "start"], kind="stable")[["name", "category", "made"]]
        work = own["made"].to_numpy(dtype=np.int64)
        try:
            steps = trace_steps.find_steps(mine, sequence, (min(begins), max(ends) + 1), work, asked)
        except LookupError as error:
            raise DataError(f"{path} has no ranges called {asked!r}, which were to be its steps: {error}") from None
        gpu_ns = gpu_step_ns(steps.spans, work, own["end"].to_numpy(dtype=np.int64))
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
        none = pd.DataFrame(columns=["name", "category", "made"])
        try:
            steps = trace_steps.find_steps(mine, none, span, mine["start"].to_numpy(dtype=np.int64), asked)
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
    with open_export(written) as (database, tables):
        kept = read_window_steps(database, tables, not whole)
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
    kernels = activity[activity["category"] == KERNEL]
    total, lines = max(int((kernels["end"] - kernels["start"]).sum()), 1), []
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
