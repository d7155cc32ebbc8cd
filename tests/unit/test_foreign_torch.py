"""Traces of torch.profiler made elsewhere: recordings written in every form give the tables of the original."""

import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.foreign_reports import nsys_of_torch, sidecars, torch_events, torch_import, torch_steps
from profzoo.foreign_reports.torch_events import read_foreign_trace
from profzoo.foreign_reports.torch_steps import divide_trace
from profzoo.io.scripts import read_json
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import export
from tests import slow
from tests.conftest import DATA
from tests.traced_programs import Foreign

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


def as_texts(event: dict[str, Any]) -> dict[str, Any]:
    return event | {"ts": str(event["ts"]), "dur": str(event["dur"])} if event.get("ph") == "X" else event


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "reversed list of torch 1 with texts for numbers, without flows, with lying IDs": lambda whole: changed(
        whole, lambda event: None if event.get("cat") == "ac2g" else as_texts(lying(former(event)))
    )["traceEvents"][::-1],
    "torch 1, without flows": lambda whole: changed(
        whole, lambda event: None if event.get("cat") == "ac2g" else former(event)
    ),
    "External id is the correlation": lambda whole: changed(whole, lying),
    "no External id": lambda whole: changed(
        whole, lambda event: event | {"args": {k: v for k, v in event.get("args", {}).items() if k != "External id"}}
        if event.get("ph") == "X" else event
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", slow.first(FORMS))
def test_each_form_gives_the_same_tables(whole, expected, tmp_path, form) -> None:
    path = written(FORMS[form](whole), tmp_path / ("trace.json.gz" if form.startswith("reversed") else "trace.json"))
    tables, sidecar, _ = imported(path, tmp_path / "out")
    for name in TABLES:
        pd.testing.assert_frame_equal(tables[name], expected[name])
    assert sidecar["steps"] == 3 and sidecar["imported"]["coverage"] == []


def renamed(event: dict[str, Any]) -> dict[str, Any] | None:
    """An event of a program that knows nothing of profzoo."""
    return None if str(event.get("name")).startswith("profzoo:") else event


def test_steps_of_profiler_step_hold_the_same_launches(whole, expected, tmp_path) -> None:
    """Here on HIP, whose kernels have no grid, but their calls have."""
    content = changed(changed(whole, renamed), hip_of(whole))
    tables, sidecar, said = imported(written(content, tmp_path / "t.json"), tmp_path / "out")
    assert sidecar["steps"] == 3 and sidecar["imported"]["steps_from"] == "ProfilerStep"
    assert "3 step(s) from ProfilerStep" in said[0]
    known, ours = expected["launches"], tables["launches"]
    pd.testing.assert_frame_equal(known[["operator", "ns", "grid_x"]], ours[["operator", "ns", "grid_x"]])
    assert set(ours.loc[ours["kind"] == "kernel", "block_x"]) == {""}
    runtime = tables["csv"].query("kind == 'runtime'")["name"]
    assert len(runtime) and runtime.str.startswith("hip").all()
    own, ours = (table["launches"].query("kind == 'kernel'") for table in (expected, tables))
    assert own.groupby("step")["ns"].sum().to_dict() == ours.groupby("step")["ns"].sum().to_dict()
    assert own["operator"].tolist() == ours["operator"].tolist()
    # Autograd's own time, and torch's range of the optimizer, tell parts.
    counts = ours.groupby("range")["name"].count()
    # The gradient that the pass begins with is filled before its first node.
    assert counts["backward"] == 60 and counts["optimizer"] == 21


def hip_of(whole: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
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

    return hip


def test_cpu_only_trace_is_of_a_cpu(tmp_path: Path) -> None:
    host = [event for event in merged(RANKS["prefix"][:1]).events() if event["cat"] in ("cpu_op", "user_annotation")]
    tables, sidecar, _ = imported(written({"traceEvents": host}, tmp_path / "t.json"), tmp_path / "out")
    assert (sidecar["device"], sidecar["device_type"], sidecar["imported"]["gpu_ns"]) == ("CPU", "cpu", None)
    assert set(tables["launches"]["kind"]) == {"operator"}


def test_launches_before_the_trace_and_lost_kernels_are_told(tmp_path: Path) -> None:
    made = merged([("100", "0")])
    made.launches[-1].lost = True
    place = {"device": 0, "context": 1, "stream": 7, "correlation": 999999}
    stray = {"ph": "X", "cat": "kernel", "name": "before", "pid": "0", "tid": 7, "ts": 100, "dur": 5, "args": place}
    content = {"traceEvents": [*made.events(), stray]}
    tables, sidecar, said = imported(written(content, tmp_path / "t.json"), tmp_path / "out")
    assert "before" not in set(tables["launches"]["name"])
    assert any("1 of 9 launches" in line and "are in no step and are left out" in line for line in said)
    assert sidecar["traced_steps"] == 2 and any("1 of 3 steps lack kernels" in line for line in said)


AT = {"ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"nodes": []}, "has no list of events"),
        ([AT | {"cat": "python_function"}], "holds no operator and no kernel"),
        (
            [AT | {"cat": "cpu_op", "name": "aten::add"}, AT | {"cat": "mtia_runtime", "name": "launch"}],
            "holds work of MTIA",
        ),
        ([AT | {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}], "1 calls that launch kernels and no kernel"),
        ([AT | {"name": "gemm_fusion", "args": {"hlo_op": "gemm"}}], "is a trace of JAX, which profzoo does not read"),
        ([AT | {"name": "PjitFunction(step)"}], "is a trace of JAX, which profzoo does not read"),
        ([AT | {"name": "a"}], "only events of other kinds (1 of no category)"),
        ([{"ph": "B", "ts": 1, "name": "aten::mm", "cat": "cpu_op"}], "holds events in two halves (ph B and E), which"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path, content: Any, line: str) -> None:
    path = written(content, tmp_path / "t.json")
    with pytest.raises(DataError, match=re.escape(line)) as error:
        imported(path, tmp_path / "out")
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value) and "None" not in str(error.value)


def test_a_text_or_a_cut_off_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("Hello, world")
    with pytest.raises(DataError, match=r"a.json is not JSON, as torch.profiler writes it: export it again"):
        imported(tmp_path / "a.json", tmp_path / "out")
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


# Names of the processes of two ranks, on the host and of their GPUs, as programs that merge traces write them.
RANKS = {
    "prefix": (("[TP00] 100", "[TP00] 0"), ("[TP01] 100", "[TP01] 0")),
    "ranks behind": (("100 rank0", "0 rank0"), ("200 rank1", "1 rank1")),
    "numbers of their own": (("100", "0"), ("200", "1")),
    "one GPU's name": (("100", "0"), ("200", "0")),
}


def merged(names: Sequence[tuple[str, str]], first: int = 1) -> Foreign:
    """Two ranks at once, three steps each: kernels of 0.5 ms by the first, of 1 ms by the second.

    first: the first correlation of the second rank.
    """
    made = Foreign()
    for rank, (process, gpu) in enumerate(names):
        for step in range(3):
            made.range(f"ProfilerStep#{step}", step * 10_000, step * 10_000 + 9000, process=process)
            for place, name in enumerate(["mm", "relu", "adam"] if rank == 0 else ["sort", "gelu", "sgd"]):
                number = 3 * step + place + (first if rank else 1)
                at = step * 10_000 + 2000 * place + 100 + rank
                made.launch(name, at, us=500 + 500 * rank, process=process, gpu=gpu, correlation=number)
    return made


@pytest.mark.parametrize(("form", "first", "order"), slow.first([
    ("prefix", 1, 1), ("one GPU's name", 100, -1), ("ranks behind", 1, -1), ("numbers of their own", 100, 1)]))  # fmt: skip
def test_ranks_of_a_merged_trace_are_told_apart(tmp_path: Path, form: str, first: int, order: int) -> None:
    """Only the rank that keeps its GPU busier is read, and the other one is named."""
    made = merged(RANKS[form], first)
    made.launches = made.launches[::order]
    tables, sidecar, said = imported(made.as_torch(tmp_path / "t.json"), tmp_path / "out")
    own = tables["launches"].query("kind == 'kernel'")
    assert own.groupby("step")["ns"].sum().tolist() == [3_000_000] * 3
    assert set(zip(own["name"], own["operator"], strict=True)) == {(n, f"aten::{n}") for n in ("sort", "gelu", "sgd")}
    assert sidecar["imported"]["gpu_ns"] == [9_000_000] * 3
    (line,) = [one for one in said if "launches" in one]
    assert "9 of 18 launches (33.3% of GPU time) are of other processes" in line and "each process by itself" in line


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (RANKS["numbers of their own"], r"is of 2 processes \(100, 200\), and 9 launches on 0 have correlations"),
        (RANKS["one GPU's name"], r"is of 2 processes \(100, 200\), and 18 launches on 0 have correlations"),
        ((("100", "0"), ("100", "0")), "is of several processes that are all called 100, as several calls"),
    ],
)
def test_ranks_that_nothing_tells_apart_are_refused(tmp_path: Path, names: tuple, words: str) -> None:
    with pytest.raises(DataError, match=words):
        imported(merged(names).as_torch(tmp_path / "t.json"), tmp_path / "out")


@pytest.mark.parametrize("number", slow.first([None, 1 << 45]))
def test_a_trace_without_calls_or_of_large_numbers_gives_tables_of_nsys_too(tmp_path: Path, number: int | None) -> None:
    made = Foreign()
    for step in range(4):
        for place, name in enumerate(["mm", "relu", "add", "copy"]):
            made.launch(
                name, 1000 * (4 * step + place), called=number is not None, correlation=(number or 0) + 4 * step + place
            )
    tables, _, said = imported(made.as_torch(tmp_path / "t.json"), tmp_path / "out")
    own = tables["launches"].query("kind == 'kernel'")
    assert own["ns"].sum() == 8_000_000 and set(own["step"]) == {0, 1, 2, 3}
    assert "repetition: the same 4 launches" in said[0]
    if number is None:
        assert set(own["operator"]) == {""}
        assert any("16 of 16 launches" in line and "without an operator" in line for line in said)
    written = {name: str(tmp_path / "out" / f"imported.{end}") for name, end in OUTPUTS.items()}
    nsys_of_torch.main(written["trace"], written["sidecar"], str(tmp_path / "a.sqlite"), str(tmp_path / "a.json"))
    found = nsys_tables.summarise(tmp_path / "a.sqlite")
    assert found["launches"].sum() == 16 and found["total_ns"].sum() == 8_000_000


def faulty(path: Path, changed: Callable[[int], bool], **given: float) -> Path:
    """Write the trace of four steps of ten kernels, 0.5 ms each, 0.9 ms from each other; some have other times, in us."""
    made = Foreign()
    for step in range(4):
        made.range(f"ProfilerStep#{step}", step * 10_000, step * 10_000 + 9999)
        for place in range(10):
            made.launch(f"k{place}", step * 10_000 + place * 900)
    events = made.events()
    for place, event in enumerate([one for one in events if one["cat"] == "kernel"]):
        event |= given if changed(place) else {}
    return written({"traceEvents": events}, path)


IMPOSSIBLE = {
    "over two": ({"dur": 2500.0}, r"launch 16 \(k5\) runs over 2 that follow it in its stream, 0\.002500 s"),
    "early": ({"ts": 12_000.0}, r"launch 16 \(k5\) begins 2\.500 ms before it is launched"),
    "no times": ({"ts": 0, "dur": 0}, "1 launches are left out, as each begins and ends at 0, which cannot be"),
    "end before begin": ({"dur": -3.0}, "1 launches are left out, as each ends before it begins, which cannot be"),
}


@pytest.mark.parametrize("case", slow.only(IMPOSSIBLE, "over two"))
def test_a_kernel_whose_times_cannot_be_is_in_no_sum(tmp_path: Path, case: str) -> None:
    given, words = IMPOSSIBLE[case]
    tables, sidecar, said = imported(faulty(tmp_path / "t.json", lambda place: place == 15, **given), tmp_path / "out")
    # Its step lacks it, and is left out as a whole.
    own = tables["launches"].query("kind == 'kernel'")
    assert own.groupby("step")["ns"].sum().tolist() == [5_000_000] * 3 and sidecar["traced_steps"] == 3
    assert any(re.search(words, line) for line in said), said
    assert max(sidecar["imported"]["gpu_ns"]) == 9_999_000


def test_times_of_which_many_cannot_be_are_refused(tmp_path: Path) -> None:
    path = faulty(tmp_path / "t.json", lambda place: place >= 10, ts=3000.0)
    with pytest.raises(
        DataError, match=r"30 of 40 launches have times that cannot be, such as launch 11 \(k0\) begins 7\."
    ):
        imported(path, tmp_path / "out")


@pytest.mark.parametrize(("steps", "call"), slow.first([(3, "hipExtModuleLaunchKernel"), (1, "cudaLaunchKernel")]))
def test_steps_that_all_lack_the_same_kernel_are_read_and_it_is_said(tmp_path: Path, steps: int, call: str) -> None:
    made = Foreign()
    for step in range(steps):
        made.range(f"ProfilerStep#{step}", step * 20_000, step * 20_000 + 19_000)
        for place in range(10):
            made.launch(f"k{place}", step * 20_000 + 1000 * place, call=call, lost=place == 3)
    tables, sidecar, said = imported(made.as_torch(tmp_path / "t.json"), tmp_path / "out")
    own = tables["launches"].query("kind == 'kernel'")
    assert own.groupby("step")["ns"].agg(["size", "sum"]).to_numpy().tolist() == [[9, 4_500_000]] * steps
    (line,) = sidecar["imported"]["coverage"]
    beside = f"{steps} {'is' if steps == 1 else 'are'} missing beside the {9 * steps} that there are"
    assert line.startswith(f"every step lacks kernels: {beside}, so that sums are too low: step 1 of {steps}: 1 of 10")
    assert not any("torch.window" in one for one in said)


@pytest.mark.parametrize("indent", slow.first([1, None, 2]))
def test_numbers_that_libkineto_writes_as_no_json_and_times_since_1970_are_read(tmp_path: Path, indent: Any) -> None:
    """In any layout, as it writes them of kernels without a grid; the written trace has none of them, which no viewer reads."""
    made = merged([("100", "0")])
    for launch in made.launches:
        launch.about = {"warps per SM": "NUMBER"}
    events = [event | {"ts": event["ts"] + 1_694_040_009_743_542} for event in made.events()]
    words = iter(["nan", "-nan", "inf", "-inf"] * 3)
    text = re.sub('"NUMBER"', lambda found: next(words), json.dumps({"traceEvents": events}, indent=indent))
    assert ": -inf" in text and ": nan" in text
    (tmp_path / "t.json").write_text(text)
    tables, sidecar, said = imported(tmp_path / "t.json", tmp_path / "out")
    assert sidecar["started"].startswith("2023-09-06T22:4")
    own = tables["launches"].query("kind == 'kernel'")
    assert own["operator"].tolist() == ["aten::mm", "aten::relu", "aten::adam"] * 3 and set(own["ns"]) == {500_000}
    written = gzip.decompress((tmp_path / "out" / "imported.trace.json.gz").read_bytes())
    json.loads(written, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert not any("unescaped" in line for line in said)


@pytest.mark.parametrize(
    ("moment", "right"),
    [
        # The first event of a thread is open from its start on, and at its end where nothing else is.
        (0, 0), (5, 0), (10, 1), (14, 1), (15, 0), (20, 0), (29, 0), (30, 2), (39, 2), (40, 2), (41, -1), (-1, -1),
    ],
)  # fmt: skip
def test_the_innermost_event_that_is_open_at_a_moment(moment: int, right: int) -> None:
    rows = pd.DataFrame({"start": [0, 10, 30], "ns": [30, 5, 10], "process": "1", "thread": "1"})
    moments = pd.DataFrame({"process": ["1", "1"], "thread": ["1", "2"], "start": [moment, 5]})
    parents = torch_events.find_parents(rows)
    assert parents.tolist() == [-1, 0, -1]
    # Nothing of one thread encloses anything of another.
    assert torch_events.enclosing_events(rows, parents, moments).tolist() == [right, -1]


def test_events_of_a_thread_come_behind_those_that_enclose_them() -> None:
    rows = pd.DataFrame(
        {"start": [5, 0, 0, 0, 5, 5], "ns": [1, 4, 9, 9, 1, 1], "process": "1", "thread": "1",
         "external": [3, 5, 2, 1, 3, 2], "index": [9, 2, 3, 4, 8, 7]}
    )  # fmt: skip
    found = torch_events.sort_events(rows)
    assert found["index"].tolist() == [4, 3, 2, 7, 8, 9]
    assert torch_events.find_parents(found).tolist() == [-1, 0, 1, 1, 3, 4]


def calls(*rows: tuple[int, int, int, int], name: str = "cudaLaunchKernel") -> pd.DataFrame:
    """Calls by correlation, thread, start and ns."""
    table = pd.DataFrame(rows, columns=["correlation", "thread", "start", "ns"], dtype="int64")
    return table.assign(name=name, process="1")


def launches(*rows: tuple[int, int], external: int = -1) -> pd.DataFrame:
    """Launches by correlation and start."""
    table = pd.DataFrame(rows, columns=["correlation", "start"], dtype="int64")
    return table.assign(external=external, ns=1, device="0", stream="7")


def test_a_call_within_another_of_its_correlation_is_a_part_of_it() -> None:
    """Of correlation 5, from 10 to 30, with calls at 12 and 30 in it, and a next one at 31; also on another thread."""
    table = calls((5, 1, 31, 9), (5, 1, 12, 5), (5, 1, 10, 20), (5, 2, 15, 1), (6, 1, 11, 1), (-1, 1, 10, 20),
                  (-1, 1, 12, 1), (5, 1, 30, 0))  # fmt: skip
    found = torch_steps.outer_calls(table).sort_values("place")
    assert found["outer"].tolist() == [0, 2, 2, 3, 4, 5, 6, 2]


@pytest.mark.parametrize(
    ("made", "asked", "right"),
    [
        (calls((5, 1, 10, 20), (6, 1, 40, 5)), launches((6, 50), (5, 20), (7, 60), (-1, 70)), [1, 0, -1, -1]),
        # The call around another is the one that counts.
        (calls((5, 1, 12, 5), (5, 1, 10, 20)), launches((5, 20)), [1]),
        # Numbers that begin again: the last call before the launch, whose clock may be a millisecond behind.
        (calls((5, 1, 10, 1), (5, 1, 5_000_000, 1)), launches((5, 20), (5, 5_000_010), (5, 4_000_000), (5, 3_999_999)),
         [0, 1, 1, 0]),
        # What began before all calls of its number has the first of them.
        (calls((5, 1, 9_000_000, 1), (5, 1, 19_000_000, 1)), launches((5, 10)), [0]),
        (calls((-1, 1, 10, 1)), launches((-1, 20), (5, 20)), [-1, -1]),
        (calls(), launches((5, 20)), [-1]),
        (calls((5, 1, 10, 1)), launches(), []),
    ],
)  # fmt: skip
def test_the_call_of_a_launch(made: pd.DataFrame, asked: pd.DataFrame, right: list[int]) -> None:
    assert torch_steps.call_positions(made, asked).tolist() == right


@pytest.mark.parametrize(
    ("of_launch", "names", "mixed"),
    [
        # Two calls of one number, of which one has both launches; or each its own.
        ([0, 0], ["cudaLaunchKernel"] * 4, 5),
        ([0, 1], ["cudaLaunchKernel"] * 4, None),
        # Graphs launch several kernels.
        ([0, 0], ["cudaGraphLaunch"] * 4, None),
        # One crowded call of two is more than a tenth, and one of ten is not.
        ([2, 2, 3], ["cudaMemcpyAsync"] * 4, 6),
        ([2, 2, 3], ["cudaMemsetAsync"] * 4, 6),
        ([2, 3, -1, -1], ["cuLaunchKernelEx"] * 4, None),
        ([], ["cudaLaunchKernel"] * 4, None),
    ],
)
def test_processes_that_are_mixed_up(of_launch: list[int], names: list[str], mixed: int | None) -> None:
    table = calls((5, 1, 10, 1), (5, 1, 20, 1), (6, 1, 30, 1), (7, 1, 40, 1)).assign(name=names)
    asked = launches(*[(1, 50)] * len(of_launch))
    assert torch_steps.find_mixed(table, asked, np.array(of_launch, dtype=np.int64)) == mixed


@pytest.mark.parametrize(("count", "mixed"), [(9, 0), (10, None), (11, None)])
def test_one_crowded_call_of_ten_mixes_nothing_up(count: int, mixed: int | None) -> None:
    table = calls(*((number, 1, 10 * number, 1) for number in range(count)))
    of_launch = np.array([0, *range(count)])
    assert torch_steps.find_mixed(table, launches(*[(1, 5)] * len(of_launch)), of_launch) == mixed


def operators(*rows: tuple[int, int, int]) -> pd.DataFrame:
    """Operators of one thread by start, ns and number, as of the file."""
    table = pd.DataFrame(rows, columns=["start", "ns", "external"], dtype="int64")
    return table.assign(process="1", thread=1, index=range(len(table)), name="op")


@pytest.mark.parametrize(
    ("made", "asked", "right", "by_number"),
    [
        # Times tell: the inner operator from 20 to 30, and the outer one behind it.
        (calls((5, 1, 25, 1), (6, 1, 35, 1)), launches((5, 50), (6, 60)), [1, 0], 0),
        # The call is on a thread without operators: the launch's number tells.
        (calls((5, 9, 25, 1)), launches((5, 50), external=102), [1], 1),
        # But not where the operator was not open when the call was made.
        (calls((5, 9, 31, 1)), launches((5, 50), external=102), [-1], 0),
        (calls((5, 9, 30, 1)), launches((5, 50), external=102), [1], 1),
        (calls((5, 9, 20, 1)), launches((5, 50), external=102), [1], 1),
        (calls((5, 9, 19, 1)), launches((5, 50), external=102), [-1], 0),
        # Without a call it has begun before the launch.
        (calls((6, 1, 25, 1)), launches((5, 20), external=102), [1], 1),
        (calls((6, 1, 25, 1)), launches((5, 19), external=102), [-1], 0),
        # Numbers that are the correlation lie, as do those that two operators have.
        (calls((102, 9, 25, 1)), launches((102, 50), external=102), [-1], 0),
        (calls((5, 9, 45, 1)), launches((5, 50), external=103), [-1], 0),
        # Where times and numbers do not agree, numbers do not count.
        (calls((5, 1, 35, 1), (6, 9, 25, 1)), launches((5, 50), (6, 60), external=102), [0, 1], 1),
        (calls((5, 1, 25, 1), (6, 9, 25, 1)), launches((5, 50), (6, 60), external=101), [1, -1], 0),
        (calls((5, 1, 25, 1)), launches(), [], 0),
    ],
)
def test_the_operator_of_a_launch(made: pd.DataFrame, asked: pd.DataFrame, right: list, by_number: int) -> None:
    """101 lasts from 10 to 40, 102 within it from 20 to 30, and two are called 103."""
    found = torch_steps.find_owners(operators((10, 30, 101), (20, 10, 102), (41, 9, 103), (60, 9, 103)), made, asked)
    assert (found.of_launches.tolist(), found.by_number) == (right, by_number)
    assert found.parents.tolist() == [-1, 0, -1, -1]


def owned(of_launches: list[int], call_of_launch: list[int], *rows: tuple[int, int, int]) -> torch_steps.LaunchOwners:
    ordered = operators(*rows)
    parents = torch_events.find_parents(ordered)
    return torch_steps.LaunchOwners(
        ordered, parents, np.zeros(0, dtype=np.int64), np.array(call_of_launch), np.array(of_launches), 0
    )


def test_a_step_begins_with_the_outermost_operator_of_its_first_launch() -> None:
    """Within 10 to 40 there are 20 to 30 and, in that, 22 to 25; a launch without operator begins when it is made."""
    owners = owned([2, 1, 0, 3, -1], [0] * 5, (10, 30, 1), (20, 10, 2), (22, 3, 3), (50, 5, 4))
    made = np.array([23, 26, 31, 51, 70])
    assert torch_steps._begin_operators(owners, made).tolist() == [10, 10, 10, 50, 70]
    assert torch_steps._begin_operators(owners, np.array([5, 26, 31, 49, 7])).tolist() == [5, 10, 10, 49, 7]


def test_work_is_that_of_the_gpu_and_on_a_cpu_that_of_operators_alone() -> None:
    owners = owned([2, -1], [1, -1], (10, 30, 1), (20, 10, 2), (22, 3, 3))
    asked = launches((5, 50), (6, 60)).assign(ns=[7, 9])
    found = torch_steps._work(owners, calls((4, 3, 1, 1), (5, 4, 2, 1)), asked, np.array([2, 60]))
    assert (found.made.tolist(), found.ns.tolist(), found.threads.tolist()) == ([2, 60], [7, 9], [4, ""])
    alone = torch_steps._work(owners, calls(), launches(), np.zeros(0))
    # 30 ns without 10, 10 without 3.
    assert (alone.made.tolist(), alone.ns.tolist(), alone.threads.tolist()) == ([10, 20, 22], [20, 7, 3], [1, 1, 1])


@pytest.mark.parametrize(
    ("call_of_launch", "before"),
    [
        # On stream 7 the first with a call began at 30; on stream 8 none has one, so that the first of all counts.
        ([-1, 0, -1, -1, -1], [True, False, False, True, False]),
        ([-1, -1, -1, -1, -1], [False] * 5),
        ([0, 0, 0, 0, 0], [False] * 5),
    ],
)
def test_launches_of_before_the_trace(call_of_launch: list[int], before: list[bool]) -> None:
    asked = launches((1, 29), (2, 30), (3, 31), (4, 29), (5, 30)).assign(stream=["7", "7", "7", "8", "8"])
    assert torch_steps._launched_before(owned([], call_of_launch), asked).tolist() == before


def test_few_launches_whose_times_cannot_be_are_told() -> None:
    one = {2: ("k" * 70, "ends before it begins")}
    assert sidecars.tell_impossible("a", {}, 5) == []
    assert sidecars.tell_impossible("a", one, 3) == [
        f"1 of 3 launches has times that cannot be and is left out: launch 3 ({'k' * 60}) ends before it begins"
    ]
    two = one | {7: ("l", "lasts 3 s")}
    assert sidecars.tell_impossible("a", two, 20) == [
        "2 of 20 launches have times that cannot be and are left out: such as launch 3 "
        f"({'k' * 60}) ends before it begins"
    ]
    with pytest.raises(DataError, match="a: 2 of 19 launches have times that cannot be, such as launch 3"):
        sidecars.tell_impossible("a", two, 19)


def test_the_gpu_of_a_report() -> None:
    """By its number, or where all have one name."""
    for names, used, name in (("AB", 1, "B"), (["A", ""], 1, "A"), ("AA", 7, "A")):
        assert sidecars.device_name(dict(enumerate(names)), used) == name
    for names, used in (("AB", 7), (["", ""], 0)):
        assert sidecars.device_name(dict(enumerate(names)), used) == sidecars.UNKNOWN_GPU


def test_dates_from_2018_to_2100() -> None:
    dates = [sidecars.date_of(at * 10**9 + 5) for at in (1_514_764_799, 1_514_764_800, 4_102_444_800, 4_102_444_801)]
    assert dates == ["", "2018-01-01T00:00:00+00:00", "2100-01-01T00:00:00+00:00", ""]


def test_facts_of_a_report_go_by_the_gpus_clock() -> None:
    steps = sidecars.step_facts("x", np.array([10, 20, 60]), np.array([7, 9, 30]))
    found = sidecars.report_facts("torch", "m", ("H100", "cuda"), steps, [{"file": "a"}])
    assert (found["step_ns"], found["steps"], found["traced_steps"], found["cell"]["window"]) == (9.0, 3, 3, 3)
    assert (found["device"], found["device_type"], found["imported"]["files"]) == ("H100", "cuda", [{"file": "a"}])
    alone = sidecars.step_facts("x", np.array([10, 20]), None)
    assert alone["gpu_ns"] is None and sidecars.report_facts("t", "m", ("c", "cpu"), alone, [])["step_ns"] == 15.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 1), ("[CUDA memcpy Device-to-Host]", 2), ("Memcpy HtoA", 3), ("x AtoH", 4),
        ("Memcpy DtoD (Device -> Device)", 8), ("[CUDA memcpy Host-to-Host]", 9), ("[CUDA memcpy Peer-to-Peer]", 10),
        ("Memcpy", 0), ("xHtoD", 0),
    ],
)  # fmt: skip
def test_kinds_of_copies_are_those_of_cupti(name: str, kind: int) -> None:
    assert nsys_of_torch.copy_kind(name) == kind


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ({"correlation": "12", "stream": "-3", "x": "7"}, {"correlation": 12, "stream": -3, "x": "7"}),
        ({"correlation": 0}, {}),
        ({"correlation": 1}, {"correlation": 1}),
        ({"correlation": -1, "device": True, "context": 1.5, "Sequence number": "a"}, {}),
        ({"grid": "[1, 2, 3]", "block": "[1, 2]"}, {"grid": [1, 2, 3], "block": "[1, 2]"}),
        ({"grid": "1, 2"}, {"grid": "1, 2"}),
        (None, {}),
    ],
)
def test_arguments_of_an_event_without_numbers_that_are_none(given: Any, right: dict) -> None:
    assert torch_import._clean_arguments(given) == right
