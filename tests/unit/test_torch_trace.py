"""What is read of a trace of torch.profiler: times, sizes, links and steps, at their edges, and damaged files."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profzoo.errors import DataError
from profzoo.tools.torch import owners, tables
from profzoo.tools.torch.trace import (
    BLOCK,
    SIZES,
    TimesError,
    Trace,
    _open_at,
    find_steps,
    launch_times,
    launching_calls,
    look_up,
    make_trace,
    read_trace,
)

WHOLE = gzip.compress(json.dumps({"traceEvents": [{"name": str(index)} for index in range(999)]}).encode())


@pytest.mark.parametrize(
    "content",
    [b"", b"plain text", gzip.compress(b"{"), gzip.compress(b"{}"), WHOLE[: len(WHOLE) // 2], gzip.compress(b"[1]")],
    ids=["empty", "text", "half", "no events", "cut", "list"],
)
def test_damaged_traces_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.json\.gz is (not a trace|damaged).*: delete it"):
        read_trace(path)


Event = dict[str, Any]


def span(name: str, at: float, long: float, thread: int = 1, category: str = "cpu_op", **arguments: Any) -> Event:
    """What lasts, in us."""
    return {"ph": "X", "cat": category, "name": name, "tid": thread, "ts": at, "dur": long, "args": arguments}


def part(name: str, at: float, long: float) -> Event:
    return span(f"profzoo:{name}", at, long, category="user_annotation")


def called(at: float, correlation: int, name: str = "cudaLaunchKernel", operator: int = 0, **more: Any) -> Event:
    linked = {"correlation": correlation, "External id": operator}
    return span(name, at, 0.5, category=more.pop("category", "cuda_runtime"), **linked, **more)


def ran(name: str, at: float, long: float, correlation: int, operator: int = 0, **more: Any) -> Event:
    linked = {"correlation": correlation, "External id": operator}
    return span(name, at, long, 7, more.pop("category", "kernel"), **linked, **more)


def of(*events: Event) -> Trace:
    return make_trace(events)


def test_times_are_rounded_to_whole_ns() -> None:
    trace = of(part("step", 4_432_183_571.983, 0.009), span("a", 1.0006, 1.9996), span("b", 2.9994, 0.0004))
    assert trace.ranges["start"].tolist() == [4_432_183_571_983] and trace.ranges["ns"].tolist() == [9]
    assert trace.operators["start"].tolist() == [1001, 2999] and trace.operators["ns"].tolist() == [2000, 0]
    calls_of = of(called(1.0006, 3)).calls
    assert calls_of["start"].tolist() == [1001] and calls_of["ns"].tolist() == [500]
    launches = of(ran("k", 1.0006, 1.9996, 3)).launches
    assert launches["start"].tolist() == [1001] and launches["ns"].tolist() == [2000]


def test_a_trace_is_read_into_columns() -> None:
    sizes = {"grid": [4, 3, 2], "block": [32, 8, 1], "shared memory": 1024, "stream": 7, "device": 0, "context": 1}
    trace = of(
        ran("k", 10, 2, 5, 9, **sizes),
        ran("c", 20, 2, 6, category="gpu_memcpy", stream=7, device=1, context=1),
        ran("m", 30, 2, 7, category="gpu_memset"),
        ran("memset32_post", 40, 2, 8, grid=[1, 1], stream="7"),
        {"ph": "s", "cat": "fwdbwd", "id": 3, "tid": 1, "ts": 1.5}, {"ph": "f", "cat": "fwdbwd", "id": 3, "tid": 2, "ts": 2.5},
        {"ph": "i", "cat": "fwdbwd", "id": 4, "tid": 1, "ts": 1.5}, {"ph": "s", "cat": "fwdbwd", "id": "4", "tid": 1, "ts": 1},
        span("python", 0, 1, category="python_function"), {"name": "no category"},
    )  # fmt: skip
    columns = {name: column.tolist() for name, column in trace.launches.items()}
    assert columns["kind"] == [0, 1, 2, 2]
    assert [trace.texts[name] for name in columns["name"]] == ["k", "c", "m", "memset32_post"]
    assert columns["correlation"] == [5, 6, 7, 8] and columns["external"] == [9, 0, 0, 0]
    assert [columns[name][0] for name in SIZES] == [4, 3, 2, 32, 8, 1, 1024]
    assert [columns[name][3] for name in SIZES] == [-1] * 7
    # A text is not a stream's number, but tells streams apart.
    assert columns["stream"] == [7, 7, -1, -1] and columns["queue"] == [0, 1, -1, 2]
    assert {name: column.tolist() for name, column in trace.links.items()} == {
        "start": [1500, 2500], "id": [3, 3], "thread": [0, 1], "forward": [1, 0]
    }  # fmt: skip
    assert len(trace.calls["start"]) == len(trace.ranges["start"]) == len(trace.operators["start"]) == 0


def test_operators_stand_by_thread_behind_what_they_ran_in() -> None:
    trace = of(
        span("late", 9, 1), span("inner", 0, 4), span("outer", 0, 8), span("other", 5, 1, thread=2),
        span("named", 6, 1, **{"Sequence number": 12, "Fwd thread id": 2, "External id": 5, "Input Dims": [[2, 3]]}),
    )  # fmt: skip
    operators = trace.operators
    assert [trace.texts[name] for name in operators["name"]] == ["outer", "inner", "named", "late", "other"]
    assert operators["thread"].tolist() == [0, 0, 0, 0, 1]
    assert operators["sequence"].tolist() == [-1, -1, 12, -1, -1] and operators["external"].tolist()[2] == 5
    assert operators["forward_thread"].tolist() == [0, 0, 2, 0, 0] and operators["inputs"].tolist() == [-1] * 5
    assert [trace.texts[shapes] for shapes in operators["shapes"]] == ["", "", "[[2, 3]]", "", ""]


STEPS = (part("step", 100, 50), part("forward", 110, 10), part("backward", 120, 20), part("step", 150, 50))


@pytest.mark.parametrize(
    ("at", "step", "name"),
    [
        (99.999, -1, ""), (100, 0, ""), (109.999, 0, ""), (110, 0, "forward"), (119.999, 0, "forward"),
        (120, 0, "backward"), (139.999, 0, "backward"), (140, 0, ""), (149.999, 0, ""), (150, 1, ""), (199.999, 1, ""),
        (200, -1, ""),
    ],
)  # fmt: skip
def test_a_launch_is_in_what_is_open_when_it_is_made(at: float, step: int, name: str) -> None:
    """From its beginning on, and until just before its end; a program's own ranges are none of these."""
    theirs = [span(name, 0, 300, category="user_annotation") for name in ("step", "forward", "optimizer")]
    trace = of(*theirs, *STEPS, called(at, 3), ran("k", 500, 1, 3))
    assert find_steps(launch_times(trace), trace).tolist() == [step]
    assert tables.device_events(trace)["range"].tolist() == [name]
    table = owners.tabulate_launches(trace)
    assert table["step"].fillna(-1).tolist() == [step] and table["range"].tolist() == [name]
    where = name or ("step" if step >= 0 else "outside")
    assert table["module"].tolist() == [f"({where})"] and table["direction"].tolist() == [where]


def test_a_launch_belongs_to_its_first_call() -> None:
    trace = of(
        called(5, 3, category="cuda_driver", name="cuLaunchKernel"), called(4, 3), called(1, -1), called(2, 8),
        ran("k", 50, 1, 3), ran("none", 60, 1, 99), ran("k", 70, 1, 8),
    )  # fmt: skip
    assert launching_calls(trace).tolist() == [1, -1, 3] and launch_times(trace).tolist() == [4000, -1, 2000]
    assert launching_calls(of(ran("k", 1, 1, 3))).tolist() == [-1]


def test_many_events_are_read_as_few(tmp_path: Path) -> None:
    count = BLOCK + 3
    events = [span("a", 2.0 * place, 1.0) for place in range(count)]
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    operators = read_trace(path).operators
    assert operators["start"].tolist() == [2000 * place for place in range(count)]
    assert set(operators["ns"].tolist()) == {1000} and operators["ns"].dtype.itemsize == 2


@pytest.mark.parametrize(
    ("event", "read"),
    [
        (called(1, 2**53 - 1), True), (called(1, 2**53), False), (called(1, 1 - 2**53), True), (called(1, -(2**53)), False),
        (called(1, True), False), (called(1, 1.0), False), (called(1, 3, operator=2**53), False),
        (span("a", 1, 1, **{"Sequence number": 2**53}), False), (span("a", 1, 1, **{"Fwd thread id": 2**53}), False),
        (span("a", 1, 1, **{"Sequence number": "3"}), False), (span("a", 1, 1, **{"Fwd thread id": 2**53 - 1}), True),
        (span("a", 1, 0), True), (span("a", 1, -0.001), False), (span("a", 2**53, 0), False), (span("a", 0, "1"), False),
        ({**span("a", 1, 1), "name": 3}, False), ({**span("a", 1, 1), "args": []}, False), ([], False),
        ({**span("a", 1, 1), "cat": 3}, False), ({"cat": "python_function"}, True), ({}, True),
        # Calls and operators may have nothing to tell; what ran on the GPU has to.
        ({"cat": "cuda_runtime", "name": "c", "ts": 1, "dur": 1}, True), ({"cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}, True),
        ({"cat": "kernel", "name": "k", "ts": 1, "dur": 1}, False), ({"cat": "gpu_memset", "name": "k", "ts": 1, "dur": 1}, False),
        ({"cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}}, True),
    ],
)  # fmt: skip
def test_which_events_are_sound(event: Any, read: bool) -> None:
    if read:
        of(event)
        return
    with pytest.raises(DataError, match="an event is"):
        of(event)


def test_times_end_where_two_of_them_fit_into_64_bits() -> None:
    """2^62 ns: in us that is 4,611,686,018,427,387.904, to which the nearest float is a whole number."""
    latest = 4_611_686_018_427_388
    assert of(span("a", latest, 0)).operators["start"].tolist() == [latest * 1000]
    assert of(span("a", -latest, 0)).operators["start"].tolist() == [-latest * 1000]
    assert of(span("a", latest - 2, 2)).operators["ns"].tolist() == [2000]
    for at, ns in ((latest + 1, 0), (-latest - 1, 0), (latest - 2, 4)):
        with pytest.raises(TimesError):
            of(span("a", at, ns))


def test_what_an_event_does_not_tell_is_none() -> None:
    kernel = {"cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}}
    launches = of(kernel).launches
    names = ("correlation", "external", "stream", "queue", *SIZES)
    assert [launches[name].tolist() for name in names] == [[-1]] * 11
    bare = {"name": "c", "ts": 1, "dur": 1}
    made = of({"cat": "cuda_driver", **bare}).calls
    assert made["correlation"].tolist() == [-1] and made["external"].tolist() == [-1]
    operators = of({"cat": "cpu_op", **bare}).operators
    expected = [[-1], [-1], [-1], [0]]
    assert [operators[name].tolist() for name in ("sequence", "external", "inputs", "forward_thread")] == expected


@pytest.mark.parametrize(
    ("size", "read"),
    [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, -1), (1 - 2**31, 1 - 2**31), (-(2**31), -1), ("7", -1), (True, -1), (1.0, -1)],
)  # fmt: skip
def test_sizes_of_32_bits_are_read(size: Any, read: int) -> None:
    launches = of(ran("k", 1, 1, 3, grid=[size, 2, 3], block=[1, 1, size], stream=size)).launches
    expected = [[read], [2], [read], [read]]
    assert [launches[name].tolist() for name in ("grid_x", "grid_y", "block_z", "stream")] == expected


def test_three_sizes_are_a_grid() -> None:
    for given in ([1, 2], [1, 2, 3, 4], "abc", None):
        launches = of(ran("k", 1, 1, 3, grid=given)).launches
        assert [launches[name].tolist() for name in SIZES[:3]] == [[-1]] * 3


@pytest.mark.parametrize(
    ("highest", "width"), [(0, 1), (127, 1), (128, 2), (32_767, 2), (32_768, 4), (2**31 - 1, 4), (2**31, 8)]
)
def test_columns_are_as_wide_as_their_numbers(highest: int, width: int) -> None:
    """Of a length in ns, which is told in us; a start is as wide as its sum with any of these."""
    operators = of(span("a", 0.001, highest / 1000), span("b", 0.002, 0)).operators
    assert operators["ns"].dtype.itemsize == width and operators["ns"].tolist() == [highest, 0]
    assert operators["start"].dtype.itemsize == 8
    assert (operators["start"] + operators["ns"]).tolist() == [1 + highest, 2]


@pytest.mark.parametrize(("lowest", "width"), [(-128, 1), (-129, 2), (-32_768, 2), (-32_769, 4)])
def test_columns_are_as_wide_as_their_lowest_number(lowest: int, width: int) -> None:
    correlation = of(called(1, lowest)).calls["correlation"]
    assert correlation.dtype.itemsize == width and correlation.tolist() == [lowest]


def test_only_links_that_lead_from_an_operator_to_another_are_read() -> None:
    def link(**given: Any) -> dict[str, Any]:
        return {"ph": "s", "cat": "fwdbwd", "id": 3, "tid": 1, "ts": 1.5, **given}

    wrong = [link(ph="t"), link(ts="1"), link(id=3.0), link(id=2**53), link(ts=None)]
    assert of(*wrong).links["id"].tolist() == [] and of(link(), *wrong).links["id"].tolist() == [3]


def test_which_event_of_a_file_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for before, number in (("", 0), ('{"name": "a"}, ', 1)):
        path.write_text(f'{{"traceEvents": [{before}{{"name" 3}}]}}')
        with pytest.raises(DataError, match=f"event {number} is not JSON"):
            read_trace(path)
    path.write_text(json.dumps({"traceEvents": [span("a", 0, 1), span("b", 2**52, 2**52)]}))
    with pytest.raises(DataError, match="event 1 lasts"):
        read_trace(path)
    path.write_text(json.dumps({"traceEvents": [span("a", 0, 1), 7]}))
    with pytest.raises(DataError, match="event 1 is 7, which is not read here"):
        read_trace(path)


def test_outside_of_all_ranges_there_is_no_name_and_no_number() -> None:
    times = np.array([4000, 5000, 14_999, 15_000])
    for trace, name, number in ((of(span("a", 1, 1)), [-1] * 4, [-1] * 4), (of(part("loss", 5, 10)), [-1, 1, 1, -1], [-1, 0, 0, -1])):  # fmt: skip
        found_names, found_numbers = _open_at(times, trace, ("forward", "loss"))
        assert found_names.tolist() == name and found_numbers.tolist() == number


def test_a_key_is_looked_up_or_there_is_none() -> None:
    keys, values = np.array([2, 4, 4, 9]), np.array([20, 40, 41, 90])
    wanted = np.array([1, 2, 3, 4, 9, 10])
    assert look_up(wanted, keys, values).tolist() == [-1, 20, -1, 40, 90, -1]
    assert look_up(wanted, keys[:0], values[:0]).tolist() == [-1] * 6
