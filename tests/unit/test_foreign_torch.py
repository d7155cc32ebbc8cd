"""Traces of torch.profiler made elsewhere: recordings written in every form give the tables of the original."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.foreign_reports import torch_import
from profzoo.foreign_reports.torch_events import read_foreign_trace
from profzoo.foreign_reports.torch_steps import divide_trace
from profzoo.io.scripts import read_json
from profzoo.tools.torch import export
from tests.conftest import DATA

RECORDED = DATA / "torch/train.trace.json.gz"
OUTPUTS = {"operators": "torch-operators.csv", "trace": "trace.json.gz", "sidecar": "trace.json.gz.json"}
TABLES = {
    "csv": "torch.csv",
    "launches": "torch.launches.csv",
    "modules": "torch.modules.csv",
    "ranges": "torch.ranges.csv",
    "dtypes": "torch.dtypes.csv",
}
# What torch 1.x called the categories of events.
FORMER = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memcpy": "Memcpy",
          "gpu_memset": "Memset", "fwdbwd": "forward_backward"}  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    with gzip.open(RECORDED) as file:
        return json.load(file)


def imported(trace: Path, folder: Path, step: str | None = None) -> tuple[dict[str, pd.DataFrame], dict, list[str]]:
    """Tables that are made of a trace, its sidecar, and what was said of it."""
    folder.mkdir(exist_ok=True)
    said: list[str] = []
    made = {name: str(folder / f"imported.{end}") for name, end in OUTPUTS.items()}
    torch_import.main(str(trace), "run7", step, made, said.append)
    tables = {name: str(folder / f"imported.{end}") for name, end in TABLES.items()}
    export.main(made["operators"], made["trace"], made["sidecar"], tables, said.append)
    read = {name: pd.read_csv(path, keep_default_na=False) for name, path in tables.items()}
    return read, read_json(made["sidecar"]), said


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    return imported(RECORDED, tmp_path_factory.mktemp("recorded"))[0]


def written(content: Any, path: Path) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
    else:
        path.write_text(json.dumps(content))
    return path


def changed(whole: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, Any]:
    """The trace with its events changed; None for one that is left out."""
    events = [change(json.loads(json.dumps(event))) for event in whole["traceEvents"]]
    return {**whole, "traceEvents": [event for event in events if event is not None]}


def test_launches_and_modules_are_those_of_the_trace_itself(expected, recording, tmp_path) -> None:
    sidecar = tmp_path / "sidecar.json"
    sidecar.write_text(json.dumps({"cell": {"profiler": {"memory": False}}, "device_type": "cuda"}))
    made = {name: str(tmp_path / end) for name, end in TABLES.items()}
    export.main(recording("torch/train.torch-operators.csv"), str(RECORDED), str(sidecar), made)
    for name in ("launches", "modules"):
        pd.testing.assert_frame_equal(pd.read_csv(made[name], keep_default_na=False), expected[name])
    # The trace tells of no FLOPs.
    key = ["kind", "name", "range", "shapes"]
    own = pd.read_csv(made["csv"], keep_default_na=False).sort_values(key, ignore_index=True)
    ours = expected["csv"].sort_values(key, ignore_index=True)
    same = ["count", "device_ns", "self_device_ns"]
    pd.testing.assert_frame_equal(own[key + same], ours[key + same])
    times = ["self_cpu_ns", "cpu_ns"]
    given, found = (table[times].replace("", 0).astype(float) for table in (own, ours))
    # Durations have three digits of a microsecond, and are rounded once more.
    pd.testing.assert_frame_equal(given, found, atol=20)


def former(event: dict[str, Any]) -> dict[str, Any]:
    if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep"):
        return event | {"cat": "Operator"}
    return event | {"cat": FORMER.get(event.get("cat"), event.get("cat"))} if "cat" in event else event


def lying(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args", {})
    return (
        event | {"args": arguments | {"External id": arguments["correlation"]}} if "correlation" in arguments else event
    )


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "plain": lambda whole: whole,
    "list": lambda whole: whole["traceEvents"],
    "torch 1": lambda whole: changed(whole, former),
    "flows missing": lambda whole: changed(whole, lambda event: None if event.get("cat") == "ac2g" else event),
    "External id is the correlation": lambda whole: changed(whole, lying),
    "no External id": lambda whole: changed(
        whole, lambda event: event | {"args": {k: v for k, v in event.get("args", {}).items() if k != "External id"}}
        if event.get("ph") == "X" else event
    ),
    "reversed": lambda whole: {**whole, "traceEvents": whole["traceEvents"][::-1]},
    "texts for numbers": lambda whole: changed(
        whole, lambda event: event | {"ts": str(event["ts"]), "dur": str(event["dur"])}
        if event.get("ph") == "X" else event
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_tables(whole, expected, tmp_path, form) -> None:
    path = written(FORMS[form](whole), tmp_path / ("trace.json" if form != "torch 1" else "trace.json.gz"))
    tables, sidecar, _ = imported(path, tmp_path / "out")
    for name in TABLES:
        pd.testing.assert_frame_equal(tables[name], expected[name])
    assert sidecar["steps"] == 3 and sidecar["imported"]["coverage"] == []


def renamed(event: dict[str, Any]) -> dict[str, Any] | None:
    """An event of a program that knows nothing of profzoo."""
    return None if str(event.get("name")).startswith("profzoo:") else event


def test_steps_of_profiler_step_hold_the_same_launches(whole, expected, tmp_path) -> None:
    tables, sidecar, said = imported(written(changed(whole, renamed), tmp_path / "t.json"), tmp_path / "out")
    assert sidecar["steps"] == 3 and sidecar["imported"]["steps_from"] == "ProfilerStep"
    assert "3 step(s) from ProfilerStep" in said[0]
    own, ours = (table["launches"].query("kind == 'kernel'") for table in (expected, tables))
    assert own.groupby("step")["ns"].sum().to_dict() == ours.groupby("step")["ns"].sum().to_dict()
    assert own["operator"].tolist() == ours["operator"].tolist()
    # Autograd's own time, and torch's range of the optimizer, tell parts.
    counts = ours.groupby("range")["name"].count()
    # The gradient that the pass begins with is filled before its first node.
    assert counts["backward"] == 60 and counts["optimizer"] == 21


def test_hip_launches_without_grids_have_those_of_their_calls(whole, expected, tmp_path) -> None:
    grids = {event["args"]["correlation"]: event["args"]["grid"] for event in whole["traceEvents"]
             if event.get("cat") == "kernel"}  # fmt: skip

    def hip(event: dict[str, Any]) -> dict[str, Any]:
        arguments = event.get("args", {})
        if event.get("cat") == "kernel":
            kept = {key: value for key, value in arguments.items() if key not in ("grid", "block", "context")}
            return event | {"args": kept}
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            grid = grids.get(arguments.get("correlation"))
            name = re.sub("^cu(da)?", "hip", event["name"])
            return event | {"name": name, "args": arguments | ({"grid": grid} if grid else {})}
        return event

    tables, _, _ = imported(written(changed(whole, hip), tmp_path / "t.json"), tmp_path / "out")
    own, ours = expected["launches"], tables["launches"]
    pd.testing.assert_frame_equal(own[["operator", "ns", "grid_x"]], ours[["operator", "ns", "grid_x"]])
    assert set(ours.loc[ours["kind"] == "kernel", "block_x"]) == {""}
    runtime = tables["csv"].query("kind == 'runtime'")["name"]
    assert len(runtime) and runtime.str.startswith("hip").all()


def test_gpu_only_trace_has_no_operators_and_says_so(whole, expected, tmp_path) -> None:
    kept = {"kernel", "gpu_memcpy", "gpu_memset"}
    content = changed(whole, lambda event: event if event.get("cat") in kept else None)
    tables, _, said = imported(written(content, tmp_path / "t.json"), tmp_path / "out")
    own, ours = expected["launches"], tables["launches"]
    assert sorted(own["ns"]) == sorted(ours["ns"]) and set(ours["operator"]) == {""}
    assert set(ours["step"]) == {0, 1, 2} and "repetition: the same 42 launches" in said[0]
    assert any("126 of 126 launches" in line and "without an operator" in line for line in said)


def test_cpu_only_trace_is_of_a_cpu(whole, tmp_path) -> None:
    host = {"cpu_op", "user_annotation", "fwdbwd"}
    content = changed(whole, lambda event: event if event.get("cat") in host else None)
    tables, sidecar, _ = imported(written(content, tmp_path / "t.json"), tmp_path / "out")
    assert (sidecar["device"], sidecar["device_type"], sidecar["imported"]["gpu_ns"]) == ("CPU", "cpu", None)
    assert set(tables["launches"]["kind"]) == {"operator"}


def test_launches_before_the_trace_and_lost_kernels_are_told(whole, tmp_path) -> None:
    first = min(event["ts"] for event in whole["traceEvents"] if event.get("cat") == "cuda_runtime")
    stray = {"ph": "X", "cat": "kernel", "name": "before", "pid": 0, "tid": 7, "ts": first, "dur": 5,
             "args": {"device": 0, "context": 1, "stream": 7, "correlation": 999999}}  # fmt: skip
    last = max((event for event in whole["traceEvents"] if event.get("cat") == "kernel"), key=lambda event: event["ts"])
    content = {**whole, "traceEvents": [event for event in whole["traceEvents"] if event is not last] + [stray]}
    content = changed(content, renamed)
    tables, sidecar, said = imported(written(content, tmp_path / "t.json"), tmp_path / "out")
    assert "before" not in set(tables["launches"]["name"])
    assert any("1 of 126 launches" in line and "are in no step and are left out" in line for line in said)
    assert sidecar["traced_steps"] == 2 and any("1 of 3 steps lack kernels" in line for line in said)


def test_times_since_1970_are_exact_and_date_the_trace(whole, expected, tmp_path) -> None:
    def later(event: dict[str, Any]) -> dict[str, Any]:
        return (
            event | {"ts": 1_694_040_009_743_542 + round(event["ts"] - 4_374_064_000_000)} if "ts" in event else event
        )

    content = changed(whole, later)
    del content["baseTimeNanoseconds"]
    tables, sidecar, _ = imported(written(content, tmp_path / "t.json"), tmp_path / "out")
    assert sidecar["started"].startswith("2023-09-06T22:4")
    assert tables["launches"]["operator"].tolist() == expected["launches"]["operator"].tolist()


REFUSED = {
    "holds no operator and no kernel": {"traceEvents": [{"ph": "X", "cat": "python_function", "ts": 1, "dur": 2}]},
    "has no list of events": {"nodes": []},
    "holds work of MTIA": {"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "pid": 1, "tid": 1},
        {"ph": "X", "cat": "mtia_runtime", "name": "launch", "ts": 1, "dur": 2, "pid": 1, "tid": 1},
    ]},
    "1 calls that launch kernels and no kernel": {"traceEvents": [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]},
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, why) -> None:
    with pytest.raises(DataError, match=why) as error:
        imported(written(REFUSED[why], tmp_path / "t.json"), tmp_path / "out")
    assert "\n" not in str(error.value) and str(tmp_path / "t.json") in str(error.value)


def test_a_cut_off_trace_is_refused(tmp_path) -> None:
    path = tmp_path / "cut.json.gz"
    path.write_bytes(RECORDED.read_bytes()[:20_000])
    with pytest.raises(DataError, match="cut off or damaged"):
        read_foreign_trace(path)


def test_ranges_that_the_user_names_are_steps(whole, tmp_path) -> None:
    path = written(whole, tmp_path / "t.json")
    found = read_foreign_trace(path)
    assert len(divide_trace(found, str(path), "profzoo:backward").steps.spans) == 3
    with pytest.raises(DataError, match=r"no ranges called 'my step'.*it has ProfilerStep"):
        divide_trace(found, str(path), "my step")
