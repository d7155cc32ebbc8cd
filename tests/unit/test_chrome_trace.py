"""io/chrome: traces whose texts torch.profiler left unescaped, of every kind of name, and sound ones as they are."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from profzoo.errors import DataError
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import peak_memory
from profzoo.harness.step.step_loop import StepParts
from profzoo.harness.variants import cuda_graph
from profzoo.io import chrome_trace
from profzoo.tools.torch import trace as torch_trace

NAMES = (
    'a"b', '"', '""', '","x":"', '", "name": "', '","cat":"kernel', '", "cat": "kernel', "\\", "tail\\", '\\"', 'a\\"b',
    "a\\nb", "\\u0041", "two\nlines", "tab\t", "\x00\x01\x1f", "ünï → 漢字 🚀", '{"a": [1, "b"]}', '"}, {"ph": "X"', '[",', '"]',
    '", "pid": 5, "tid": 6,', 'x", "pid": 7, "tid": 7, ', 'x", "pid": 7, "tid": 7, "ts": 1.0, "dur": 2.0, "y": "',
    '", "args": {"External id": 99}, "z": "', "'", "plain", "", '/"/', 'profzoo:module:a"b:Linear', "a: b", '":', '" : "',
)  # fmt: skip


def written(name: str, number: int, **given: str) -> str:
    """An event as the profiler's writer lays it out, with the name as it is; times and IDs of its number."""
    arguments = "".join(f', "{key}": {value}' for key, value in given.items())
    return (
        f'\n  {{\n    "ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 7, "tid": 7,\n'
        f'    "ts": {number}.125, "dur": 2.000,\n    "args": {{\n      "External id": {number}{arguments}\n    }}\n  }}'
    )


def trace_of(events: list[str]) -> str:
    """A trace as the profiler writes it."""
    return (
        '\n  {\n    "schemaVersion": 1,\n  "displayTimeUnit": "ms",\n  "traceEvents": ['
        f'{",".join(events)}\n  ],\n  "traceName": "t.json"\n}}\n'
    )


def read(text: str, folder: Path) -> tuple[list[Any], int]:
    """The events of a trace's text, and how many were mended."""
    (folder / "t.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with chrome_trace.open_trace(folder / "t.json") as file:
        events = chrome_trace.Events(file)
        return list(events), events.mended


def event(name: str, number: int) -> dict[str, Any]:
    """What the event stands for."""
    times = {"ts": number + 0.125, "dur": 2.0}
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 7, "tid": 7, **times,
            "args": {"External id": number}}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_an_unescaped_name_is_read_as_it_was_given(name: str, tmp_path: Path) -> None:
    """Between sound events, which stay as they are, as the only one, and as the last."""
    text = trace_of([written("before", 1), written(name, 2), written("behind", 3)])
    # What is a sound text of JSON as it stands means that.
    meant = {"a\\nb": "a\nb", "\\u0041": "A", '\\"': '"', 'a\\"b': 'a"b'}.get(name, name)
    assert read(text, tmp_path)[0] == [event("before", 1), event(meant, 2), event("behind", 3)]
    for only in ([written(name, 2)], [written("before", 1), written(name, 2)]):
        assert read(trace_of(only), tmp_path)[0][-1] == event(meant, 2)


def test_names_made_of_what_json_is_made_of_are_read_as_they_were_given(tmp_path: Path) -> None:
    """Five hundred of pieces drawn at random; without backslashes, which JSON may take for its own."""
    draw = random.Random(37)
    pieces = [*'",:{}[] \n\ta7é', '", "', '": "', '"pid": 7', '"name": "', "},"]
    names = ["".join(draw.choices(pieces, k=draw.randint(0, 9))) for _ in range(500)]
    found, mended = read(trace_of([written(name, number) for number, name in enumerate(names)]), tmp_path)
    assert found == [event(name, number) for number, name in enumerate(names)]
    assert mended == sum('"' in name for name in names)


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 4])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_sound_trace_is_read_as_json_has_it(indent: int | None, ascii_only: bool, tmp_path: Path) -> None:
    """In whatever layout, the writer's own among them, and with keys and values that this one never writes."""
    like = [{"pid": 1, "tid": 2, "ts": 3, "dur": 4}, '", "pid": 1, "tid": 2,\n    "ts": 1, "dur": 1,']
    odd = {"args": {"nested": like}}
    events = [{**event(name, number), **(odd if number % 3 == 0 else {})} for number, name in enumerate(NAMES)]
    text = json.dumps({"traceEvents": events, "traceName": 'a"b'}, indent=indent, ensure_ascii=ascii_only)
    assert read(text, tmp_path) == (events, 0)
    laid_out = trace_of([written(json.dumps(name, ensure_ascii=ascii_only)[1:-1], at) for at, name in enumerate(NAMES)])
    assert read(laid_out, tmp_path) == ([event(name, at) for at, name in enumerate(NAMES)], 0)


def test_sound_events_of_the_writers_layout_keep_what_looks_like_an_end(tmp_path: Path) -> None:
    """Arguments that hold what ends a name elsewhere, behind a name that is escaped or of another thread's kind."""
    like = json.dumps([{"x": "y", "pid": 1, "tid": 2, "ts": 3, "dur": 4}])
    of_stream = written("c", 2, more=like).replace('"tid": 7', '"tid": "stream 7"')
    text = trace_of([written('a\\"b', 1, more=like), of_stream])
    assert read(text, tmp_path) == (json.loads(text)["traceEvents"], 0)


def test_arguments_are_mended_as_well(tmp_path: Path) -> None:
    stack = written(
        "f", 1, **{"Call stack": '"a"b\x01c.py(1): f;main.py(2): g"', "Concrete Inputs": '["x"y", "", "1"]'}
    )
    named = '\n  {\n    "name": "thread_name", "ph": "M", "ts": 1, "pid": 1, "tid": 2,\n    "args": {\n      "name": "a"b"\n    }\n  }'
    found, mended = read(trace_of([stack, named, written('g"', 2, **{"k": '"v"w"'})]), tmp_path)
    assert mended == 3
    right = {"Call stack": 'a"b\x01c.py(1): f;main.py(2): g', "Concrete Inputs": ['x"y', "", "1"]}
    assert found[0]["args"] == {"External id": 1, **right}
    assert found[1]["args"] == {"name": 'a"b'} and found[2]["name"] == 'g"' and found[2]["args"]["k"] == 'v"w'


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_chunks_end_anywhere(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = trace_of([written(name, number) for number, name in enumerate(NAMES)])
    whole = read(text, tmp_path)
    monkeypatch.setattr(chrome_trace, "CHUNK", size)
    assert read(text, tmp_path) == whole


def test_the_profilers_own_trace_of_such_ranges(tmp_path: Path) -> None:
    """As this torch writes it: backslashes are slashes, newlines gone, and what is not ASCII may be `unknown`."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        for name in NAMES:
            with record_function(name):
                torch.ones(2)
    profiler.export_chrome_trace(str(tmp_path / "t.json.gz"))
    events = chrome_trace.read_events(tmp_path / "t.json.gz")
    ranges = [one["name"] for one in events if one.get("cat") == "user_annotation"]
    kept = [name.partition("\x00")[0].replace("\\", "/").replace("\n", "") for name in NAMES]
    assert len(ranges) == len(NAMES)
    assert all(one in (right, "unknown") for one, right in zip(ranges, kept, strict=True))
    assert set(ranges) >= {'a"b', '"', '","x":"', '{"a": [1, "b"]}', "/", "tail/", 'profzoo:module:a"b:Linear'}


def test_the_tools_reader_says_that_it_mended(tmp_path: Path) -> None:
    path, lines = tmp_path / "t.json", []
    path.write_text(trace_of([written('profzoo:"step"', 1), written("profzoo:step", 4)]))
    trace = torch_trace.read_trace(path, lines.append)
    assert [trace.texts[name] for name in trace.ranges["name"]] == ['profzoo:"step"', "profzoo:step"]
    assert lines == [f"{path}: torch.profiler left texts of 1 events unescaped, which are read by its layout"]


def test_a_plain_trace_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [event("profzoo:step", 1)]})
    plain, marked = text.encode(), text.encode("utf-8-sig")
    for name, content in (
        ("a.json", plain),
        ("b.json.gz", plain),
        ("c.json", gzip.compress(plain)),
        ("d.json", marked),
    ):
        (tmp_path / name).write_bytes(content)
        assert len(torch_trace.read_trace(tmp_path / name).ranges["start"]) == 1


def test_only_what_a_new_trace_would_not_hold_again_is_to_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    sound = trace_of([written("a", 1), written("b", 2)])

    def said(content: bytes | None) -> str:
        """What the reader of the tool refuses a trace with."""
        path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
        with pytest.raises(DataError) as refused:
            torch_trace.read_trace(path)
        return str(refused.value)

    for cut in range(40, len(sound) - 2, 17):
        assert "delete it" in said(sound[:cut].encode()), sound[:cut]
    packed = gzip.compress(sound.encode())
    for damaged in (b"", packed[:-9], packed[:60] + b"x" * 9 + packed[69:]):
        assert "delete it" in said(damaged)
    # What is whole, and not as it is read, the next one would be as well.
    for odd in ("two", "-2"):
        found = said(sound.replace('"dur": 2.000', f'"dur": {odd}').encode())
        assert "delete" not in found and "in another trace as well" in found
    assert "delete" not in said(None)


def test_what_is_no_trace_is_escaped_no_further() -> None:
    with pytest.raises(ValueError, match="has no end"):
        chrome_trace.escape_texts('{"a": "b')


def test_memory_is_taken_stock_of_whatever_ranges_are_called() -> None:
    """Of a step whose own range has a quote in its name."""

    def step(batch: torch.Tensor) -> torch.Tensor:
        with record_function('layer "1"'):
            return batch * 2

    named = StepParts(lambda batch, device: batch, step, step, None, Ranges())
    rows = peak_memory.measure_memory(torch.ones(1000), named, torch.nn.Identity(), torch.device("cpu"))
    assert [row["range"] for row in rows if not row["module"]] == ["step", "transfer"]
    assert max(row["peak_bytes"] for row in rows) >= 4000


def test_a_capture_is_put_beside_an_unescaped_trace(tmp_path: Path) -> None:
    """Which is then JSON for every reader."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(trace_of([written('a"b', 5)]).encode()))

    def capture() -> None:
        with record_function('c"d'):
            torch.ones(2)

    cuda_graph.attach_capture(path, capture, shapes=False)
    with gzip.open(path, "rt") as file:
        whole = json.load(file)
    names = [one["name"] for one in whole["traceEvents"]]
    assert names[-1] == 'a"b' and 'c"d' in names and whole["traceName"] == "t.json"


def test_numbers_of_cplusplus_are_read_beside_texts_that_hold_them(tmp_path: Path) -> None:
    """libkineto writes numbers as C++ prints them, and names unescaped."""
    layout = '{\n    "ph": "X", "cat": "kernel", "name": "NAME", "pid": 0, "tid": 7,\n    "ts": 1.5, "dur": 2.0,\n'
    layout += '    "args": {\n      "warps per SM": NUMBER, "text": "a, nan, -inf", "inf": 3\n    }\n  }'
    rows = [("nan", "inf"), ("mm", "-inf"), ('a"b', "nan"), ('say ": nan,"', "inf"), ("mm", "-nan"), ("mm", "1.5")]
    pieces = [layout.replace("NAME", name).replace("NUMBER", number) for name, number in rows]
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [\n  ' + ",\n  ".join(pieces) + "\n  ]\n}")
    found = chrome_trace.read_events(path)
    assert [event["name"] for event in found] == [name for name, _ in rows]
    assert [repr(event["args"]["warps per SM"]) for event in found] == ["inf", "-inf", "nan", "inf", "nan", "1.5"]
    assert {(event["args"]["text"], event["args"]["inf"]) for event in found} == {("a, nan, -inf", 3)}
    with chrome_trace.open_trace(path) as file:
        events = chrome_trace.Events(file)
        assert len(list(events)) == len(rows) and events.mended == 2
