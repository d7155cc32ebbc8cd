"""First plans of a cell: what its trace alone tells, and nothing where it tells nothing."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.plans import first_plan, plan_table
from profzoo.plans.plan import NOT_POSSIBLE
from profzoo.tables import across_cells, kernel_table
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.verdicts.causes import verdict_table
from profzoo.what_if import tables as what_if
from tests import simulated
from tests.unit.test_what_if import LAUNCH, steps

CELL = {"model": "mobilenetv2", "phase": "train", "window": 10, "steps": 13, "workload": "trimmed", "precision": "fp32"}
RUN = {"parameters": 3, "batch": 8, "steps": 4, "items": 32, "window_wall_ns": 8 * 10**7, "step_ns": 2e7, "loss": 2.5,
       "peak_memory_bytes": 2**30, "peak_rss_bytes": 1, "device": "NVIDIA H200", "started": "2026-11-20T01:00:00"}  # fmt: skip


def given(folder: Path, trace: Path, capture: str = "window", **more: Any) -> list[str]:
    """Paths of the trace, of its sidecar, and of an unprofiled run of 20 ms per step with its sidecar."""
    folder.mkdir(parents=True, exist_ok=True)
    report, time = folder / "train.nsys-rep.json", folder / "train.time.csv"
    write_json({"cell": CELL, "tool": "nsys", "capture": capture, "device_type": "cuda", **RUN}, report)
    write_json({"cell": CELL, "tool": "time", "device_type": "cuda", **RUN, **more}, f"{time}.json")
    write_csv(pd.DataFrame({"step": range(4), "wall_ns": 2 * 10**7, "gpu_ns": 2 * 10**7, "items": 8}), time)
    return [*map(str, (trace, report, time)), f"{time}.json"]


def planned(folder: Path, *files: str, failed: dict[str, dict[str, str]] | None = None) -> pd.DataFrame:
    first_plan.main(*files, str(folder / "train.first-plan.csv"), failed)
    return reading.read(folder / "train.first-plan.csv", first_plan.FIRST_TABLE)


def planned_at_the_end(folder: Path, sqlite: str, report: str, time: str, sidecar: str) -> pd.DataFrame:
    """The table of plans of a run of `time` and nsys, as its jobs make it one after the other."""
    names = ("nsys", "steps", "told", "kernels", "cells", "activity", "ranges", "agreement", "coverage", "repetition",
             "verdicts", "waits", "plans", "changes", "host")  # fmt: skip
    files = {name: str(folder / f"train.{name}.csv") for name in names}
    program = str(folder / "train.program.npz")
    nsys_tables.export_trace(sqlite, report, files["nsys"], files["steps"], files["told"], lambda line: None)
    kernel_table.main(files["nsys"], files["told"], [], None, files["kernels"])
    what_if.main(
        sqlite, report, time, sidecar, {name: files[name] for name in ("changes", "host")} | {"program": program}
    )
    inputs = {"time": time, "time_sidecar": sidecar, "nsys_sidecar": files["told"],
              **{name: files[name] for name in ("nsys", "steps", "kernels")}}  # fmt: skip
    tables = {name: str(folder / f"{name}.csv") for name in ("cells", "steps", "kernels", "ranges", "verdicts")}
    across_cells.tabulate_cells({name: [path] for name, path in inputs.items()}, files | tables)
    cpus = tables["cells"], tables["ranges"], []
    verdict_table.main(tables["steps"], tables["kernels"], None, None, [], [], [sidecar], ([], []), [program], cpus,
                       tables["verdicts"], files["waits"])  # fmt: skip
    del tables["ranges"]
    plan_table.main(tables, None, [sidecar], [program], files["plans"])
    return reading.read(files["plans"], plan_table.PLANS_TABLE)


def test_without_counters_the_first_plans_are_those_of_the_end(tmp_path: Path, recording: Callable) -> None:
    files = given(tmp_path / "mobilenetv2", recording("nsys/train.sqlite"))
    first = planned(tmp_path / "mobilenetv2", *files)
    end = planned_at_the_end(tmp_path / "mobilenetv2", *files)
    assert first["settings"].tolist() == end["settings"].tolist() and first["rank"].is_monotonic_increasing
    told = ["gain", "gain_low", "gain_high", "outlook", "method", "advised", "not_possible", "command"]
    pd.testing.assert_frame_equal(first[told], end[told], rtol=1e-9)
    # The GPU is idle for four fifths of the recorded step.
    best = first.iloc[0]
    assert "graph=true" in best["settings"] and best["gain"] > 2 and best["verdicts"].startswith("launch-bound")


def test_what_failed_in_trials_is_no_first_plan(tmp_path: Path, recording: Callable) -> None:
    files = given(tmp_path / "mobilenetv2", recording("nsys/train.sqlite"))
    failed = {"mobilenetv2 train": {"graph=true": "out of memory"}}
    found = planned(tmp_path / "mobilenetv2", *files, failed=failed).set_index("settings")
    assert (
        found.loc["graph=true", "outlook"] == NOT_POSSIBLE
        and "out of memory" in found.loc["graph=true", "not_possible"]
    )
    assert not found.index[found["gain"].notna()].str.contains("graph=true").any()


def test_of_a_whole_run_its_own_steps_count(tmp_path: Path) -> None:
    path = simulated.record(simulated.simulate(steps([LAUNCH] * 50, 6)), tmp_path / "t.sqlite")
    files = given(tmp_path / "mobilenetv2", path, capture="run")
    traced = first_plan.read_trace(*files)
    assert traced.steps == 6 and traced.launches["launches"].sum() == 6 * 50 and len(traced.programs) == 1


@pytest.mark.parametrize("missing", ["CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"])
def test_a_trace_without_work_or_steps_has_no_plan(
    tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And its job goes on: those that export the trace say what it lacks."""
    path = simulated.record(simulated.simulate(steps([LAUNCH] * 5)), tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"DROP TABLE {missing}")
    found = planned(tmp_path / "mobilenetv2", *given(tmp_path / "mobilenetv2", path))
    assert found.empty and list(found.columns) == [*first_plan.FIRST_TABLE.columns]
    assert ("has no row: " in capsys.readouterr().out) == (missing == "NVTX_EVENTS")
