"""What torch.profiler lost of a trace: named and left out; impossible times: refused; and a job that lost some: repeated."""

import gzip
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.tools.torch import export, losses, owners, tables
from profzoo.tools.torch import trace as torch_trace
from tests import slow
from tests.conftest import DATA
from tests.unit.collected import collected
from tests.unit.test_torch_trace import called

YEAR_US = 365 * 86400 * 1e6
Events = list[dict[str, Any]]


def step(at: float, kernels: int, first: int, lost: int = 0, call: str = "cudaLaunchKernel") -> Events:
    """A step of 1000 us at a time, in us, that launches kernels by calls of these numbers, and lost its first ones.

    Each call takes 1 us, each kernel 2 us; they begin 10 us apart, the kernel 5 us behind its call.
    """
    events = [{"ph": "X", "cat": "user_annotation", "name": "profzoo:step", "tid": 1, "ts": at, "dur": 1000.0}]
    for place in range(kernels):
        linked = {"args": {"correlation": first + place}}
        begins = at + 10 * (place + 1)
        events.append({"ph": "X", "cat": "cuda_runtime", "name": call, "tid": 1, "ts": begins, "dur": 1.0, **linked})
        if place >= lost:
            sized = {"args": {**linked["args"], "device": 0, "context": 1, "stream": 7}}
            events.append({"ph": "X", "cat": "kernel", "name": f"k{place}", "ts": begins + 5, "dur": 2.0, **sized})
    return events


def several(*steps: tuple[int, int]) -> Events:
    """Steps one after the other, each of so many launches of which so many kernels are lost."""
    return [one for place, (count, lost) in enumerate(steps) for one in step(2000.0 * place, count, 100 * place, lost)]


def found(events: Events) -> losses.Losses:
    return losses.find_losses(torch_trace.make_trace(events))


def test_steps_that_lack_kernels_are_named() -> None:
    lacking = found(several((36, 32), (36, 0), (36, 0)))
    assert lacking.told() == ["step 1 of 3: 32 of 36 launch calls have no kernel"]
    expected = ["step 1 of 3: 5 of 5 launch calls have no kernel", "step 2 of 3: 2 of 5 launch calls have no kernel"]
    assert found(several((5, 5), (5, 2), (5, 0))).told() == expected


def test_steps_that_launch_different_kernels_lack_nothing() -> None:
    lacking = found(several((36, 0), (4, 0), (50, 0), (0, 0)))
    assert lacking.steps == 4 and not lacking.lacking and not lacking.told()


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernelExC_v11060",
        "cuLaunchKernelEx",
        "cudaLaunchCooperativeKernel_v9000",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipLaunchCooperativeKernel",
    ],
)
def test_all_calls_that_have_kernels_run_count(call: str) -> None:
    assert not found(step(0, 4, 0, lost=4, call="cudaMemcpyAsync")).lacking
    assert found(step(0, 4, 0, lost=1, call=call)).told() == ["step 1 of 1: 1 of 4 launch calls have no kernel"]


def test_a_call_of_the_runtime_and_the_drivers_within_are_one() -> None:
    events = several((3, 1))
    inner = [{**one, "cat": "cuda_driver", "name": "cuLaunchKernel", "ts": one["ts"] + 0.25, "dur": 0.5}
             for one in events if one.get("cat") == "cuda_runtime"]  # fmt: skip
    for both in ([*events, *inner], [*inner, *events]):
        assert found(both).told() == ["step 1 of 1: 1 of 3 launch calls have no kernel"]


@pytest.mark.parametrize(
    ("api", "launch"),
    [
        ("cuda", "LaunchKernel"),
        ("cu", "LaunchKernelEx"),
        *(("hip", f"{name}Kernel") for name in ("Launch", "ExtLaunch", "ModuleLaunch", "ExtModuleLaunch")),
    ],
)
def test_what_is_captured_runs_later(api: str, launch: str) -> None:
    """By whatever thread, between the calls that begin and end the capture, and there alone."""
    calls = [{"ph": "X", "cat": "cuda_runtime", "name": name, "tid": 1, "ts": at, "dur": 1.0, "args": {"correlation": 900 + at}}
             for name, at in ((f"{api}StreamBeginCapture_v10000", 15), (f"{api}StreamEndCapture_v10000", 35))]  # fmt: skip
    events = [{**one, "tid": 2} if one.get("cat") == "cuda_runtime" else one
              for one in step(0, 4, 0, lost=3, call=f"{api}{launch}")]  # fmt: skip
    # Of launches at 10, 20, 30 and 40 us the second and the third are captured.
    assert found([*events, *calls]).told() == ["step 1 of 1: 1 of 2 launch calls have no kernel"]
    captured = owners.find_captures(torch_trace.make_trace([*events, *calls]))
    assert [len(operators) for _, _, operators in captured] == [2]


def test_a_trace_without_steps_lacks_kernels_as_a_whole() -> None:
    events = [one for one in several((4, 1)) if one["cat"] != "user_annotation"]
    assert found(events).told() == ["1 of 4 launch calls have no kernel"]


def test_what_is_outside_of_steps_is_of_no_step() -> None:
    apart = [one for one in step(9000.0, 3, 500, lost=3) if one["cat"] != "user_annotation"]
    assert not found([*several((4, 0)), *apart]).told()


def replays(*kernels: Sequence[str]) -> Events:
    """Steps that each replay a graph once, of which these kernels are there."""
    events = []
    for place, names in enumerate(kernels):
        events += step(2000.0 * place, 1, place, lost=1, call="cudaGraphLaunch_v10000")
        args = {"correlation": place, "device": 0, "context": 1, "stream": 7}
        events += [
            {"ph": "X", "cat": "kernel", "name": name, "ts": 2000.0 * place + 20 + 5 * at, "dur": 2.0, "args": args}
            for at, name in enumerate(names)
        ]
    return events


@pytest.mark.parametrize(
    ("kernels", "lacking"),
    [
        (("c", "abc", "abc"), {0: "a graph's first replay lacks kernels"}),
        (("", "bc", "abc"), {0: "1 of 1 launch calls have no kernel", 1: "a graph's first replay lacks kernels"}),
        # Two graphs that are each replayed more than once, and one of other kernels.
        (("c", "abc", "c", "abc"), {}),
        (("d", "abc", "abc"), {}),
        # What is lost later is not the session's beginning.
        (("abc", "c", "abc"), {}),
        (("abc", "abc", "abc"), {}),
    ],
)
def test_a_replay_that_the_session_began_in_lacks_kernels(kernels: Sequence[str], lacking: dict[int, str]) -> None:
    assert found(replays(*kernels)).lacking == lacking


def test_where_steps_meet_each_has_what_it_begins_with() -> None:
    """What begins as a step ends is of the next; a launch without a call is of the step that it runs in."""
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": "profzoo:step", "tid": 1, "ts": at, "dur": 10.0}
        for at in (0, 10, 20)
    ]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{at}", "tid": 1, "ts": at, "dur": 1.0}
        for at in (9.999, 10, 19.999, 20)
    ]
    alone = [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": at, "dur": 1.0, "args": {"correlation": at}}
        for at in (5, 15, 25)
    ]
    kept = losses.drop_steps(torch_trace.make_trace([*steps, *events, *alone]), [1])
    assert [kept.texts[name] for name in kept.operators["name"]] == ["op9.999", "op20"]
    assert kept.launches["start"].tolist() == [5000, 25_000] and kept.ranges["start"].tolist() == [0, 20_000]


def long(index: int, **given: float) -> Events:
    """Two steps of 30 launches, one of whose kernels is otherwise."""
    events = several((30, 0), (30, 0))
    kernels = [one for one in events if one["cat"] == "kernel"]
    kernels[index].update(given)
    return events


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], None), (several((30, 0), (30, 0)), None),
        (long(3, dur=YEAR_US), r"launch 4 of 60 \(k3\) lasts 31,536,000\.000 s, in a trace of 0\.003 s"),
        # A trace of 3000 us, and a second behind it.
        (long(59, dur=1_003_000.0), None), (long(59, dur=1_003_000.001), r"launch 60 .* lasts 1\.003 s, in .*"),
        # From 45 us on, 10 us apart: those of 55 to 135 us end before 145; and two of 55 and 65, at 57 and 67, of which
        # less than a us is none; and other streams.
        (long(3, dur=100.0), r"launch 4 of 60 \(k3\) runs over 9 that follow it in its stream, 0\.000100 s"),
        (long(3, dur=23.0), None), (long(3, dur=23.001), r"launch 4 .* runs over 2 that follow it in its stream, .*"),
        (long(3, dur=500.0, args={"correlation": 3, "device": 0, "context": 1, "stream": 8}), None),
        (long(3, ts=0.0, dur=0.0), r"launch 4 of 60 \(k3\) begins and ends at 0"),
        # Launched at 2020 us: clocks may differ by 1 ms.
        (long(31, ts=-1000.0), r"launch 32 of 60 \(k1\) begins 3\.020 ms before it is launched"),
        (long(31, ts=1020.0), None), (long(31, ts=1019.999), r"launch 32 .* begins 1\.000 ms before it is launched"),
    ],
)  # fmt: skip
def test_times_that_cannot_be_are_told(events: Events, words: str | None) -> None:
    said = losses.find_impossible(torch_trace.make_trace(events))
    assert said is None if words is None else re.fullmatch(words, said or "")


def test_branches_of_a_graph_run_side_by_side() -> None:
    events = replays("abcdefghijklmnop", "abcdefghijklmnop")
    next(one for one in events if one["cat"] == "kernel")["dur"] = 500.0
    assert losses.find_impossible(torch_trace.make_trace(events)) is None


@pytest.mark.parametrize("times", [{"dur": 236 * YEAR_US}, {"ts": 200 * YEAR_US}, {"ts": -200 * YEAR_US}])
def test_times_that_do_not_add_up_in_64_bits_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(DataError, match="which cannot be"):
        torch_trace.make_trace(long(0, **times))


def recorded(lost: Callable[[int], int]) -> Events:
    """The recording of three steps of 36 launches, each without the first kernels, so many of the step by its number."""
    with gzip.open(DATA / "torch/train.trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    kernels = sorted((one for one in events if one.get("cat") == "kernel"), key=lambda one: one["ts"])
    assert len(kernels) == 108
    gone = {id(one) for place, one in enumerate(kernels) if place % 36 < lost(place // 36)}
    return [one for one in events if id(one) not in gone]


def exported(folder: Path, recording: Callable, events: Events, **facts: Any) -> tuple[dict[str, Path], list[str]]:
    """What is exported of a trace of a GPU, and what is said."""
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    cell = {"profiler": {"memory": False}, "window": 3}
    (folder / "s.json").write_text(json.dumps({"cell": cell, "device_type": "cuda", **facts}))
    made, lines = {name: folder / f"{name}.csv" for name in ("csv", "launches", "modules", "ranges", "dtypes")}, []
    files = str(recording("torch/train.torch-operators.csv")), str(folder / "t.json"), str(folder / "s.json")
    export.main(*files, {name: str(path) for name, path in made.items()}, lines.append)
    return made, lines


def test_a_step_that_lacks_kernels_is_in_no_table(tmp_path: Path, recording: Callable) -> None:
    left = ["step 1 of 3: 32 of 36 launch calls have no kernel"]
    events = recorded(lambda step: 32 if step == 0 else 0)
    made, lines = exported(tmp_path, recording, events, traced_steps=2, left_out=left)
    assert lines == [f"{made['csv']}: without {left[0]}"]
    table = reading.read(made["csv"], tables.TABLE)
    kernels = table[table["kind"] == "kernel"]
    # Of two whole steps, where the table was of 4 + 36 + 36.
    assert kernels["count"].sum() == 72
    assert table.loc[table["kind"] == "operator", "device_ns"].isna().all()
    launches = reading.read(made["launches"], owners.TABLE)
    assert launches[launches["kind"] == "kernel"].groupby("step").size().to_dict() == {0: 36, 1: 36}
    assert launches.loc[launches["kind"] == "kernel", "ns"].sum() == kernels["device_ns"].sum()
    whole, _ = exported(tmp_path, recording, recorded(lambda step: 0))
    means = reading.read(whole["launches"], owners.TABLE).groupby("step")["ns"].sum()
    # The two steps are those of the whole trace that are left, to the last ns.
    assert launches.groupby("step")["ns"].sum().tolist() == means.tolist()[1:]


@pytest.mark.parametrize(
    ("lost", "facts", "words"),
    [
        (lambda step: 1, {}, r"lost kernels, step 1 of 3: 1 of 36 .*step 3 of 3: 1 of 36 .*: raise torch\.window"),
        (lambda step: 32 * (step == 0), {}, "but its sidecar does not say so: delete it, and the next run collects"),
        (lambda step: 32 * (step < 2), {"traced_steps": 2}, "its sidecar does not say so"),
    ],
)
def test_a_table_without_a_whole_step_or_without_its_number_is_refused(
    tmp_path: Path, recording: Callable, lost: Callable[[int], int], facts: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        exported(tmp_path, recording, recorded(lost), **facts)


def test_of_a_trace_made_elsewhere_all_steps_stay_where_none_is_whole(tmp_path: Path, recording: Callable) -> None:
    made, _ = exported(tmp_path, recording, recorded(lambda step: 1), imported={"coverage": ["every step lacks"]})
    kernels = reading.read(made["launches"], owners.TABLE).query("kind == 'kernel'")
    assert kernels.groupby("step").size().tolist() == [35] * 3


# A program that leaves the first of some traces at first, and then the second, and so on.
PROGRAM = """
import json, shutil, sys
from pathlib import Path
kept, traces = Path(sys.argv[1]), sys.argv[2:-3]
count = len(list(kept.glob("ran-*")))
(kept / f"ran-{count}").touch()
shutil.copy(traces[count], sys.argv[-2])
Path(sys.argv[-1]).write_text(json.dumps({"device_type": sys.argv[-3]}))
print("run", count)
"""


def job(folder: Path, capsys: pytest.CaptureFixture[str], *traces: Events, device: str = "cuda") -> dict[str, Any]:
    """What the sidecar of a job of torch says whose program leaves these traces, one after the other."""
    paths = [folder / f"given-{place}.json" for place in range(len(traces))]
    for path, events in zip(paths, traces, strict=True):
        path.write_text(json.dumps({"traceEvents": events}))
    left = [str(folder / "trace"), str(folder / "s.json")]
    words = [sys.executable, "-c", PROGRAM, str(folder), *map(str, paths), device, *left]
    assert collected(folder, *words, tool="torch", leaves=("trace",)) == 0, capsys.readouterr().err
    said = json.loads((folder / "s.json").read_text())
    runs = len(list(folder.glob("ran-*")))
    return {**said, "runs": runs, "err": capsys.readouterr().err, "left": json.loads((folder / "trace").read_text())}


LOSSY, WHOLE = several((36, 32), (36, 0), (36, 0)), several((36, 0), (36, 0), (36, 0))
WHY = "step 1 of 3: 32 of 36 launch calls have no kernel"


def test_a_job_whose_trace_lost_kernels_runs_once_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = job(tmp_path, capsys, LOSSY, WHOLE)
    assert said["runs"] == 2 and said["repeated"] == WHY and f"is run again: {WHY}" in said["err"]
    assert said["left"] == {"traceEvents": WHOLE} and "traced_steps" not in said and "lost" not in said
    # The log is that of the run whose trace it is.
    assert (tmp_path / "log").read_text().endswith("run 1\n")


def test_a_job_that_loses_kernels_twice_says_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = job(tmp_path, capsys, LOSSY, several((36, 7), (36, 0), (36, 0)), WHOLE)
    assert said["runs"] == 2 and said["repeated"] == WHY and said["traced_steps"] == 2
    assert said["left_out"] == [said["lost"]] == ["step 1 of 3: 7 of 36 launch calls have no kernel"]


@pytest.mark.parametrize("years", slow.first([236, 1]))
def test_a_job_with_impossible_times_runs_once_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], years: int
) -> None:
    said = job(tmp_path, capsys, long(3, dur=years * YEAR_US), WHOLE)
    assert said["runs"] == 2 and f"lasts {years * 31_536_000:,}" in said["repeated"]


@pytest.mark.parametrize(("events", "device"), slow.first([(several((36, 0), (4, 0)), "cuda"), (LOSSY, "cpu")]))
def test_other_jobs_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], events: Events, device: str) -> None:
    said = job(tmp_path, capsys, events, device=device)
    assert said["runs"] == 1 and not {"repeated", "lost", "traced_steps", "left_out"} & set(said)


def test_a_capture_holds_what_is_launched_between_its_calls_and_not_with_them() -> None:
    marks = [called(10, 900, "cudaStreamBeginCapture_v10000"), called(30, 901, "cudaStreamEndCapture_v10000")]
    # Of launches at 10, 20, 30 and 40 us that of 20 is captured.
    assert found([*step(0, 4, 0, lost=4), *marks]).told() == ["step 1 of 1: 3 of 3 launch calls have no kernel"]
