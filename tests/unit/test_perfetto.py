"""The trace of nsys for Perfetto, read back as Perfetto reads it: rows, slices, arrows and counters."""

import gzip
import itertools
import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from profzoo.range_names import make_nvtx_name
from profzoo.tools.nsys.pictures import perfetto
from profzoo.tools.nsys.pictures.perfetto import Track, open_writer
from tests.traced_programs import DEVICE, PINNED, PROCESS, THREAD, TO_DEVICE, Traced


class Picture:
    """What Perfetto shows of a trace, in ns."""

    def __init__(self, path: Path) -> None:
        text = gzip.decompress(path.read_bytes()).decode()
        # Exact numbers: 0.001 us is 1 ns.
        whole = json.loads(text, parse_float=Fraction)
        assert list(whole) == ["traceEvents"]
        self.events: list[dict[str, Any]] = whole["traceEvents"]
        self.names: dict[tuple[int, int], str] = {}
        self.processes: dict[int, str] = {}
        # By process and row: name, start, end, arguments; in the order of the file.
        self.rows: dict[tuple[int, int], list[tuple[str, int, int, Mapping[str, Any]]]] = defaultdict(list)
        self.counters: list[tuple[str, str, int, float]] = []
        begun: dict[int, tuple[str, int]] = {}
        # The slice in which each arrow begins, and in which it ends: name and start.
        self.arrows: list[tuple[tuple[str, int], tuple[str, int]]] = []
        for event in self.events:
            place = (event["pid"], event["tid"])
            if event["ph"] == "M" and event["name"] == "thread_name":
                assert place not in self.names
                self.names[place] = event["args"]["name"]
            elif event["ph"] == "M" and event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["ph"] == "X":
                start, end = ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])
                self.rows[place].append((event["name"], start, end, event.get("args", {})))
            elif event["ph"] == "C":
                self.counters.append((self.processes[place[0]], event["name"], ns(event["ts"]), event["args"]["value"]))
            elif event["ph"] in "sf":
                name, start, _, _ = self.rows[place][-1]
                # An arrow is at the slice that encloses it, in the order of the file.
                assert ns(event["ts"]) == start
                if event["ph"] == "s":
                    assert event["id"] not in begun
                    begun[event["id"]] = (name, start)
                else:
                    assert event["bp"] == "e"
                    self.arrows.append((begun[event["id"]], (name, start)))
        assert set(self.rows) == set(self.names) and {process for process, _ in self.rows} <= set(self.processes)

    def of(self, process: str, row: str) -> list[tuple[str, int, int, Mapping[str, Any]]]:
        """The slices of a row by its names."""
        (place,) = (key for key, name in self.names.items() if (self.processes[key[0]], name) == (process, row))
        return self.rows[place]


def ns(us: Fraction | int) -> int:
    """A time of the trace in ns, which it has to be a whole number of."""
    time = Fraction(us) * 1000
    assert time.denominator == 1
    return int(time)


def check_rows(picture: Picture) -> None:
    """Slices of a row come by start, and lie within one another or apart: Perfetto drops all others."""
    for slices in picture.rows.values():
        open_ends: list[int] = []
        before = None
        for name, start, end, _ in slices:
            assert before is None or start >= before, name
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], name
            open_ends.append(end)
            before = start


@pytest.fixture
def layout(recording: Callable[[str], Path]) -> Path:
    """A recorded export."""
    return recording("nsys/train.sqlite")


def made(folder: Path, export: Path) -> Picture:
    """The picture of an export."""
    perfetto.main(str(export), str(folder / "t.nsys.trace.json.gz"))
    picture = Picture(folder / "t.nsys.trace.json.gz")
    check_rows(picture)
    return picture


def test_all_of_a_small_program(tmp_path: Path, layout: Path) -> None:
    program = Traced()
    program.step(0, 100_000)
    program.range("mine", 1000, 90_001)
    program.range("handed over", 500, 50_000, kind=60)
    program.kernel(20_000, 30_000, 7, "gemm", launched=5000)
    # The driver's call within the runtime's has the same correlation.
    program.call("cuLaunchKernel", 5500, 6500, 1)
    program.copy(25_000, 45_000, 20, 400_000, TO_DEVICE, PINNED, DEVICE, launched=8000)
    program.add("OSRT_API", start=60_000, end=70_000, globalTid=THREAD + 9, nameId=program.text("pthread_cond_wait"))
    program.add("ThreadNames", nameId=program.text("worker"), priority=0, globalTid=THREAD + 9)
    program.add("TARGET_INFO_GPU_METRICS", typeId=256, sourceId=1, typeName="H100", metricId=3, metricName="SMs Active")
    for when, value in ((10_000, 0), (20_000, 75)):
        program.add("GPU_METRICS", timestamp=when, typeId=256, metricId=3, value=value)
    picture = made(tmp_path, program.write(tmp_path / "t.sqlite", layout))
    host, gpu = "process 1234", "GPU 0 of process 1234"
    assert picture.of(host, "thread 1234: ranges") == [
        (make_nvtx_name("step"), 0, 100_000, {}), ("mine", 1000, 90_001, {})]  # fmt: skip
    assert picture.of(host, "thread 1234: ranges (start and end)") == [("handed over", 500, 50_000, {})]
    assert [row[:3] for row in picture.of(host, "thread 1234: CUDA calls")] == [
        ("cudaLaunchKernel", 5000, 7000), ("cuLaunchKernel", 5500, 6500), ("cudaMemcpyAsync", 8000, 10_000)]  # fmt: skip
    assert picture.of(host, "thread 1243 (worker): system calls") == [("pthread_cond_wait", 60_000, 70_000, {})]
    assert picture.of(gpu, "stream 7") == [("gemm", 20_000, 30_000, {})]
    moved = {"bytes": 400_000, "from": "pinned", "to": "device", "GB/s": 20}
    assert picture.of(gpu, "stream 20") == [("copy host to device", 25_000, 45_000, moved)]
    assert sorted(picture.arrows) == [
        (("cudaLaunchKernel", 5000), ("gemm", 20_000)),
        (("cudaMemcpyAsync", 8000), ("copy host to device", 25_000)),
    ]
    expected = [("metrics of GPU 0", "SMs Active", 10_000, 0), ("metrics of GPU 0", "SMs Active", 20_000, 75)]
    assert picture.counters == expected
    assert len(set(picture.names)) == len({row for _, row in picture.names})
    assert 0 not in {row for _, row in picture.names}


def test_kernels_of_one_graph_launch_each_have_an_arrow(tmp_path: Path, layout: Path) -> None:
    program = Traced()
    program.call("cudaGraphLaunch_v10000", 100, 200, 77)
    names = dict.fromkeys(("demangledName", "shortName", "mangledName"), program.text("k"))
    # Two branches: kernels of one stream that run at the same time stand side by side.
    for start, end in ((300, 400), (350, 380), (410, 500)):
        program.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, streamId=7, correlationId=77, globalPid=PROCESS, **names
        )
    picture = made(tmp_path, program.write(tmp_path / "t.sqlite", layout))
    assert picture.arrows == [(("cudaGraphLaunch", 100), ("k", start)) for start in (300, 350, 410)]
    assert [row[1] for row in picture.of("GPU 0 of process 1234", "stream 7")] == [300, 410]
    assert [row[1] for row in picture.of("GPU 0 of process 1234", "stream 7 (2)")] == [350]


@pytest.mark.parametrize("nested", [False, True])
def test_slices_in_any_order_of_ends_lose_none(tmp_path: Path, nested: bool) -> None:
    dice = random.Random(3)
    slices = sorted(((start := dice.randint(-50, 300), start + dice.randint(0, 60)) for _ in range(200)),
                    key=lambda one: (one[0], -one[1]))  # fmt: skip
    with open_writer(tmp_path / "t.gz") as writer:
        writer.name_process(5, "p", 0)
        track = Track(5, "row", nested)
        for place, (start, end) in enumerate(slices):
            writer.add_slice(track, f'"{place}"\n', start, end)
    picture = Picture(tmp_path / "t.gz")
    check_rows(picture)
    found = [row for rows in picture.rows.values() for row in rows]
    assert sorted(found) == sorted((f'"{place}"\n', *one, {}) for place, one in enumerate(slices))
    if not nested:
        for rows in picture.rows.values():
            assert all(before[2] <= after[1] for before, after in itertools.pairwise(rows))


def told(folder: Path, program: Traced, layout: Path, dropped: str = "") -> list[str]:
    """What is said of a program's trace; dropped: a column of OSRT_API that its export lacks."""
    export = program.write(folder / "t.sqlite", layout)
    if dropped:
        with closing(sqlite3.connect(export)) as database:
            database.execute(f"ALTER TABLE OSRT_API DROP COLUMN {dropped}")
            database.commit()
    lines: list[str] = []
    perfetto.main(str(export), str(folder / "t.gz"), lambda line: lines.append(str(line)))
    export.unlink()
    return [line.removeprefix(f"{folder / 't.gz'}: ") for line in lines]


def test_what_an_export_lacks_is_said_in_a_line(tmp_path: Path, layout: Path) -> None:
    program = Traced()
    program.kernel(5000, 6000)
    program.range("open", 1000, 0)
    program.add("GPU_METRICS", timestamp=1, typeId=256, metricId=3, value=1)
    program.add("OSRT_API", start=1, end=2, globalTid=THREAD, nameId=program.text("poll"))
    assert told(tmp_path, program, layout, "nameId") == [
        "1 ranges were never closed and are left out",
        "calls of OSRT_API are left out, because it has no column nameId",
        "GPU metrics are left out, because TARGET_INFO_GPU_METRICS has no column metricId",
    ]
    assert Picture(tmp_path / "t.gz").counters == []
    assert told(tmp_path, Traced(), layout) == ["the trace is empty: it holds neither calls nor ranges nor kernels"]
    assert Picture(tmp_path / "t.gz").events == []
