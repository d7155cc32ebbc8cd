"""A program's own ranges `step`, `backward`, `data` and `window` are not taken for the project's, whoever records them."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor

from profzoo.harness.ranges import Ranges
from profzoo.range_names import GRAPH, PARTS, STEP, WINDOW
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.steps import steps as nsys_steps
from tests import owned
from tests.unit.test_export_columns import assert_same, read_by_all, read_once
from tests.unit.test_nsys_tables import ONE, export, kernel

# Names that a program may well give to ranges of its own.
THEIRS = (STEP, WINDOW, *PARTS, GRAPH)
# As NVTX knows the default domain, and as a program numbers its first one.
DEFAULT, FIRST = 0, 1


def add_theirs(
    path: Path, spans: list[tuple[int, int, int, str]], domain: int = DEFAULT, strings: bool = False
) -> None:
    """Add a program's own ranges (start, end, thread, name) to an export, by text or by the number of a string."""
    with closing(sqlite3.connect(path)) as database:
        numbers = {name: 2**20 + place for place, name in enumerate(sorted({name for *_, name in spans}))}
        if strings:
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, name) for name, n in numbers.items()])
        rows = [(*span, None if strings else name, numbers[name] if strings else None, domain) for *span, name in spans]
        columns = "start, end, globalTid, text, textId, eventType, domainId"
        database.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, 59, ?)", rows)
        database.commit()


@pytest.mark.parametrize("strings", [False, True], ids=["texts", "strings"])
def test_extra_steps_leave_the_time_of_a_step_as_it_is(tmp_path: Path, strings: bool) -> None:
    """One `step` of the program's in each of ten steps of 24 ms made 19 of 11.8 ms of them."""
    ms = 1_000_000
    steps = [(24 * ms * place, 24 * ms * (place + 1), ONE + 1, "step") for place in range(10)]
    kernels = [kernel(start + 2 * ms, start + 9 * ms, place, ONE) for place, (start, *_) in enumerate(steps)]
    launched = [(start + ms, place, ONE + 1) for place, (start, *_) in enumerate(steps)]
    parts = [(start, start + 12 * ms, ONE + 1, "backward") for start, *_ in steps]
    path = export(tmp_path / "a.sqlite", kernels, launched, steps + parts)
    # In each step its own, of 0.4 ms, and a `backward` that ends within ours, before what launches the kernel.
    theirs = [(start + ms // 10, start + ms // 2, ONE + 1, name) for start, *_ in steps for name in THEIRS]
    add_theirs(path, theirs, strings=strings)
    (row,) = nsys_steps.where_time_goes(path).to_dict("records")
    assert (row["steps"], row["wall_ns"], row["busy_ns"]) == (9, 24 * ms, 7 * ms)
    assert (row["cpu_backward_ns"], row["cpu_data_ns"]) == (12 * ms, 0)
    table = nsys_tables.summarise(path)
    assert table[["range", "launches", "total_ns"]].to_numpy().tolist() == [["backward", 10, 70 * ms]]


@pytest.mark.slow
@pytest.mark.parametrize(("capture", "domain"), [("window", DEFAULT), ("run", FIRST)])
def test_no_reader_of_nsys_sees_a_programs_ranges(
    tmp_path: Path, recording: Callable, capture: str, domain: int
) -> None:
    """In the recording, at whose ranges nsys did not name the domain, and around all launches of each step."""
    path = Path(shutil.copy(recording("nsys/train.sqlite"), tmp_path / "t.sqlite"))
    with closing(sqlite3.connect(path)) as database:
        ours = database.execute("SELECT start, end, globalTid, text FROM NVTX_EVENTS ORDER BY start").fetchall()
    spans = []
    for start, end, thread, text in ours:
        third = (end - start) // 3
        spans += [(start + third, end - third, thread, name) for name in THEIRS]
        # On the thread of autograd too, and around all of it.
        spans += [(start - 5, end + 5, thread + 1, text.removeprefix("profzoo_"))]
    # One of another program's windows, which opens in the middle of the trace.
    spans.append((ours[20][0], ours[-1][1], ours[0][2], WINDOW))
    known, whole = read_once(recording("nsys/train.sqlite"))[0], capture == "run"
    before = nsys_steps.where_time_goes(path, whole), nsys_trace.count_traced_steps(path, whole)
    add_theirs(path, spans, domain)
    assert_same(read_by_all(path), known)
    assert nsys_trace.count_traced_steps(path, whole) == before[1] == (10, False)
    pd.testing.assert_frame_equal(nsys_steps.where_time_goes(path, whole), before[0], check_exact=True)


def test_our_ranges_under_torch_go_by_names_of_their_own() -> None:
    ranges = Ranges()
    ranges.watch(torch_ranges=True, torch_modules=False)

    def opens(_: Tensor) -> None:
        with ranges(STEP), ranges("forward"):
            pass

    events = owned.of_forward(opens, torch.ones(1))
    assert [e["name"] for e in events if e.get("cat") == "user_annotation"] == ["profzoo:step", "profzoo:forward"]


RANGE = '"{0}:{1}:none:none:RGB:0xff:REGISTERED:{1}"'


@pytest.mark.parametrize("named", ["profzoo_{}", "{}"], ids=["now", "before"])
@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (["ours:window", "ours:step", "ours:forward"], "forward"),
        (["ours:window", "ours:step", "ours:forward", "<default domain>:backward"], "forward"),
        (["<default domain>:step", "ours:step", "other:data", "<default domain>:optimizer"], ""),
        (["ours:step", "ours:backward", "other:profzoo_forward", "<default domain>:window"], "backward"),
    ],
)
def test_ncu_tells_a_programs_ranges_from_ours(stack: list[str], part: str, named: str) -> None:
    """As ncu prints the ranges that are open at a launch; it always names the domain."""
    printed = []
    for one in stack:
        domain, _, name = one.partition(":")
        ours = domain == "ours"
        printed.append(RANGE.format("profzoo" if ours else domain, named.format(name) if ours else name))
    raw = pd.DataFrame({"thread Domain:Push/Pop_Range:PL_Type": ["882  " + "  ".join(printed) + " "]})
    assert ncu_tables.read_ranges(raw).tolist() == [part]
