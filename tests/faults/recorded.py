"""Small files of every kind that is read, made of the recordings of real tools by the exports themselves."""

import csv
import gzip
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.catalog import csv_files
from profzoo.io import csv_tables as reading
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv, write_json
from profzoo.kernels import kernel_classes
from profzoo.launches import joined_step
from profzoo.tables import across_cells, cell_tables, kernel_table, layers
from profzoo.tools.ncu import export as ncu_export
from profzoo.tools.ncu import export_schema
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.sample import tables as sample_tables
from profzoo.tools.time.tables import TABLE as TIME
from profzoo.tools.torch import owners
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import trace as torch_trace
from profzoo.what_if import tables as replay

DATA = Path(__file__).parents[1] / "data"
LAUNCHES = 6
PEAKS = {"dram": 4.1e12, "l2": 9123456789012.25, "fp32": 5e13, "bf16": 8e14}
FACTS: dict[str, Any] = {
    "cell": {"model": "m", "phase": "train", "window": 10, "steps": 13, "workload": "trimmed", "precision": "fp32",
             "profiler": {"memory": True}},
    "capture": "window", "device": "NVIDIA H200", "device_type": "cuda", "started": "2026-11-20T01:00:00", "steps": 2,
    "parameters": 3, "batch": 8, "items": 16, "step_ns": 5e6, "window_wall_ns": 10**9, "loss": 2.5, "peak_rss_bytes": 1,
    "peak_memory_bytes": 2**40, "torch": "2.11", "cuda": "13.0", "power_is": "instant", "gaps": [], "wall_s": 61.5,
    "command": ["ncu", "--csv"], "ranks": [{"device_uuid": "GPU-1"}], "warnings": [],
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of file. name: of one; read: what a reader makes of it; table: what is declared of it, if it is a CSV."""

    name: str
    content: bytes
    read: Callable[[Path], Any]
    table: Table | None = None
    beside: Mapping[str, bytes] = field(default_factory=dict)


def unpacked(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.gz").read_bytes())


def page(name: str, launches: int = LAUNCHES) -> bytes:
    """The first launches of a recorded page, with some of its columns."""
    heading, *rows = csv.reader(unpacked(name).decode().splitlines())
    cc = heading.index("CC")
    kept = [
        at for at, column in enumerate(heading) if at <= cc or at % 25 == 0 or column.startswith(("gpu__", "launch__"))
    ]
    text = "".join(
        ",".join('"' + row[at].replace('"', '""') + '"' for at in kept) + "\n"
        for row in [heading, *rows[: launches + 1]]
    )
    return text.encode()


def database(folder: Path, launches: int = LAUNCHES) -> bytes:
    """The recorded trace with its first launches alone, in small pages."""
    path = folder / "small.sqlite"
    (folder / "train.sqlite").write_bytes(unpacked("nsys/train.sqlite"))
    with closing(sqlite3.connect(path)) as small:
        small.execute("PRAGMA page_size = 512")
        small.execute("ATTACH ? AS whole", (str(folder / "train.sqlite"),))
        some = f"WHERE correlationId IN (SELECT correlationId FROM whole.CUPTI_ACTIVITY_KIND_KERNEL LIMIT {launches})"
        names = "SELECT {} FROM CUPTI_ACTIVITY_KIND_KERNEL"
        known = " UNION ".join(names.format(name) for name in ("mangledName", "demangledName", "shortName"))
        calls = "SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        rows = {
            "CUPTI_ACTIVITY_KIND_KERNEL": some,
            "CUPTI_ACTIVITY_KIND_RUNTIME": some,
            "NVTX_EVENTS": "LIMIT 30",
            "StringIds": f"WHERE id IN ({known} UNION {calls} UNION SELECT textId FROM NVTX_EVENTS)",
        }
        for table, which in rows.items():
            (made,) = small.execute("SELECT sql FROM whole.sqlite_master WHERE name = ?", (table,)).fetchone()
            small.execute(made)
            small.execute(f"INSERT INTO {table} SELECT * FROM whole.{table} {which}")
        small.commit()
    return path.read_bytes()


def trace(launches: int = LAUNCHES) -> bytes:
    """The recorded trace's first launches with their calls, and its ranges."""
    events = json.loads(unpacked("torch/train.trace.json"))["traceEvents"]
    kernels = [event for event in events if event.get("cat") in torch_trace.DEVICE_KINDS][:launches]
    ids = {event["args"]["correlation"] for event in kernels}
    calls = [event for event in events if event.get("cat") in torch_trace.CALLS]
    calls = [event for event in calls if event.get("args", {}).get("correlation") in ids]
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    return json.dumps({"traceEvents": [*kernels, *calls, *ranges[:12], *events[:3]]}).encode()


def frames(folder: Path) -> dict[str, tuple[pd.DataFrame, Table]]:
    """Tables by name, a few rows each, with what is declared of them."""
    (folder / "t.sqlite").write_bytes(database(folder))
    for kind in ("mangled", "demangled"):
        (folder / f"{kind}.csv").write_bytes(page(f"ncu/launch.raw.{kind}.csv"))
    nsys = nsys_tables.summarise(folder / "t.sqlite")
    steps = nsys_steps.where_time_goes(folder / "train.sqlite")
    both = [str(folder / f"{kind}.csv") for kind in ("mangled", "demangled")]
    every = ncu_export.tabulate_report({1: both}, FACTS, None, "all").table
    (folder / "torch.csv").write_bytes(unpacked("torch/train.torch-operators.csv"))
    operators = reading.read(folder / "torch.csv", torch_tables.OPERATORS).iloc[:15]
    events = torch_trace.make_trace(json.loads(trace())["traceEvents"])
    torch = torch_tables.tidy_operators(operators, events, {"memory": True}, gpu=True)
    names = pd.concat([nsys["kernel"], every["kernel"]]).unique()
    joined = kernel_table.join(nsys, 10, [every], kernel_classes.classify_all(names))
    compared = kernel_table.compare_coverage(nsys, every, every)
    samples = {"time_ns": range(5 * 10**9, 5 * 10**9 + 12 * 10**7, 10**7), "gpu_uuid": "GPU-1", "power_is": "instant"}
    raw = pd.DataFrame(samples).assign(**{name: 7 for name in sample_tables.SAMPLES.columns if name not in samples})
    raw["memory_clock_mhz"] = None
    timed = pd.DataFrame({"step": [0, 1], "wall_ns": [5, 6], "gpu_ns": [4, 5], "items": 8, "peak_memory_bytes": 9})
    cell = {"model": "m", "phase": "train"}
    cells = cell_tables.cells([(cell, timed, FACTS)])
    entries = [("nsys", cell, nsys, FACTS), ("torch", cell, torch, FACTS)]
    activity = cell_tables.activity(entries)
    kernels = cell_tables.kernels([(cell, joined)])
    ranks = pd.DataFrame(columns=["model", "phase", "rank", "waiting_ns"])
    across = {
        "cells": cells,
        "activity": activity.iloc[:15],
        "kernels": kernels,
        "ranges": cell_tables.ranges(entries),
        "steps": cell_tables.steps(cells, [(cell, steps)], ranks),
        "agreement": cell_tables.agreement(cells, activity, [("nsys", cell, 6e6)]).assign(flag="", cause="a, b"),
        "coverage": cell_tables.coverages([(cell, "survey", compared)]),
        "roofline": across_cells.make_roofline(kernels, PEAKS),
        "peaks": pd.DataFrame({"peak": PEAKS, "rate": PEAKS, "unit": "byte/s", "how": "a copy, of 1 MiB"})
        .assign(peak=list(PEAKS), rate=list(PEAKS.values()))
        .reset_index(drop=True),
    }
    return {
        "nsys": (nsys, nsys_tables.TABLE),
        "nsys-steps": (steps, nsys_steps.TABLE),
        "ncu": (every, export_schema.TABLE),
        "census": (every, export_schema.CENSUS),
        "torch": (torch, torch_tables.TABLE),
        "torch-operators": (operators, torch_tables.OPERATORS),
        "cell-kernels": (joined, kernel_table.TABLE),
        "cell-coverage": (compared, kernel_table.COVERAGE_TABLE),
        "sample-raw": (raw, sample_tables.SAMPLES),
        "sample": (sample_tables.select_window(raw, 5 * 10**9, 10**9), sample_tables.TABLE),
        "time": (timed, TIME),
        **of_owners(),
        **of_replays(folder / "train.sqlite"),
        **{name: (frame, csv_files.TABLES[name]) for name, frame in across.items()},
    }


def of_replays(trace: Path) -> dict[str, tuple[pd.DataFrame, Table]]:
    """The tables of replayed steps and of the CPU's time, by name."""
    changes, host, _ = replay.make_tables(trace, 2e7)
    cell = {"model": "m", "phase": "train"}
    return {
        "cell-replay": (changes, replay.GAINS),
        "cell-host": (host, replay.TAX),
        "replay": (changes.assign(**cell), csv_files.TABLES["replay"]),
        "host": (host.assign(**cell), csv_files.TABLES["host"]),
    }


def of_owners() -> dict[str, tuple[pd.DataFrame, Table]]:
    """The tables of launches and modules by owner, and what is made of them, by name."""
    trained = torch_trace.read_trace(DATA / "torch/unet.train.trace.json.gz")
    launches = owners.tabulate_launches(trained).iloc[:15].assign(module="down.0", type="Conv2d")
    modules = pd.DataFrame({"module": ["down.0"], "type": "Conv2d", "inputs": "[[1, 2]]", "calls": 3, "repeated": 0})
    called, none = layers.sum_by_owner([launches], 1), joined_step.Joined(launches, 1)
    tree = layers.layers(called, modules, 1, none, {})
    covered = layers.make_owner_coverage(called, None)
    kernels = layers.make_layer_kernels(joined_step.sum_torch_launches(launches, 1), {})
    cell = {"model": "m", "phase": "train"}
    return {
        "torch-launches": (launches, owners.TABLE),
        "torch-modules": (modules, owners.MODULES),
        "cell-operators": (layers.operators_table(called, none, {}), layers.OPERATORS_TABLE),
        "cell-layers": (tree, layers.TABLE),
        "cell-layer-kernels": (kernels, layers.LAYER_KERNELS_TABLE),
        "cell-owners": (covered, layers.OWNER_COVERAGE_TABLE),
        "layers": (tree.assign(**cell), csv_files.TABLES["layers"]),
        "owners": (covered.assign(**cell), csv_files.TABLES["owners"]),
    }


def csv_kinds(folder: Path) -> list[Kind]:
    """Every CSV of the workflow."""
    found = []
    for name, (frame, table) in frames(folder).items():
        write_csv(frame, folder / f"{name}.csv")
        read = export_schema.read_census if name == "census" else lambda path, table=table: reading.read(path, table)
        found.append(Kind(f"{name}.csv", (folder / f"{name}.csv").read_bytes(), read, table))
    return found


def pages(path: Path) -> pd.DataFrame:
    """The launches on a page, held against the undamaged page by other names beside it."""
    other = path.with_name("demangled" if path.name == "mangled.csv" else "mangled").with_suffix(".csv")
    both = [str(path), str(other)] if path.name == "mangled.csv" else [str(other), str(path)]
    return ncu_export.tabulate_report({1: both}, FACTS, None, "all").table


def details_page() -> bytes:
    """Some rows of the recorded details page, with advice among them."""
    heading, *lines = unpacked("ncu/launch.details.csv").decode().splitlines(keepends=True)
    return "".join([heading, *[line for line in lines if '"OPT"' in line][:5], *lines[:15]]).encode()


def sidecar(folder: Path) -> bytes:
    write_json(FACTS, folder / "x.json")
    return (folder / "x.json").read_bytes()


def mangled(folder: Path) -> list[Kind]:
    """ncu's raw pages, each beside the other."""
    both = {f"{kind}.csv": page(f"ncu/launch.raw.{kind}.csv") for kind in ("mangled", "demangled")}
    return [Kind(name, content, pages, beside=both) for name, content in both.items()]
