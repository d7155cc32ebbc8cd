"""A program's own ranges `step`, `backward`, `data` and `window` are not taken for the project's, whoever records them."""

import contextlib
import gzip
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from profzoo.harness.ranges import Ranges
from profzoo.range_names import GRAPH, LAUNCHING, PARTS, STEP, WINDOW
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import command as nsys
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys import trace as nsys_trace
from profzoo.tools.torch import host_calls, owners
from profzoo.tools.torch import trace as torch_trace
from tests import owned, slow
from tests.conftest import DATA
from tests.real_nsys import trace_program
from tests.unit.test_nsys_tables import ONE, export, kernel
from tests.unit.test_nsys_versions import assert_same, read_by_all
from tests.workflow.test_nsys import pytestmark as needs_nsys

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


@pytest.mark.parametrize("capture", slow.first(["window", "run"]))
@pytest.mark.parametrize("domain", slow.first([DEFAULT, FIRST]))
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
    known, whole = read_by_all(path), capture == "run"
    before = nsys_steps.where_time_goes(path, whole), nsys_trace.count_traced_steps(path, whole)
    add_theirs(path, spans, domain)
    assert_same(read_by_all(path), known)
    assert nsys_trace.count_traced_steps(path, whole) == before[1] == (10, False)
    pd.testing.assert_frame_equal(nsys_steps.where_time_goes(path, whole), before[0], check_exact=True)


PROGRAM = """
import time, nvtx
from profzoo.harness.ranges import Ranges
ranges = Ranges()
with nvtx.annotate("window"):
    ranges.open("window")
    for _ in range(3):
        with ranges("step"), nvtx.annotate("step"), ranges("backward"), nvtx.annotate("backward"), nvtx.annotate("data"):
            time.sleep(0.001)
    ranges.close()
"""


@needs_nsys[0]
@needs_nsys[1]
@pytest.mark.parametrize(
    "capture", slow.first([[], ["--capture-range-end=stop", *nsys.NVTX_CAPTURE]]), ids=["run", "window"]
)
def test_a_real_nsys_tells_a_programs_ranges_from_ours(tmp_path: Path, capture: list[str]) -> None:
    program = tmp_path / "p.py"
    program.write_text(PROGRAM)
    path = trace_program(program, tmp_path, capture)
    with closing(sqlite3.connect(path)) as database:
        written = [
            name for (name,) in database.execute(
                "SELECT coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id WHERE eventType = 59"
            )
        ]  # fmt: skip
    assert {name: written.count(name) for name in ("step", "backward", "data")} == {"step": 3, "backward": 3, "data": 3}
    assert nsys_trace.count_traced_steps(path, whole_run=True) == (3, True)
    with nsys_trace.open_export(path) as (database, tables):
        found = nsys_trace.read_ranges(database, tables, (STEP, WINDOW, *LAUNCHING))
    assert found["name"].value_counts().to_dict() == {"step": 3, "backward": 3, "window": 1}
    (row,) = nsys_steps.where_time_goes(path).to_dict("records")
    assert row["steps"] == 2 and 0 < row["cpu_backward_ns"] <= row["wall_ns"] and row["cpu_data_ns"] == 0


class Marks(nn.Module):
    """A network with ranges of its own around its forward pass, and in the midst of its backward one."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        """names: of its ranges."""
        super().__init__()
        self.network, self.names = network, names

    def forward(self, flow: Tensor) -> Tensor:
        """Whatever the network makes of it."""
        with contextlib.ExitStack() as stack:
            for name in self.names:
                stack.enter_context(record_function(name))
            output = self.network(flow)
        output.register_hook(self.within_backward)
        return output

    def within_backward(self, gradient: Tensor) -> None:
        """Open the same ranges where the gradient comes by."""
        for name in self.names:
            with record_function(name):
                pass


def test_a_real_torch_profiler_tells_a_programs_ranges_from_ours() -> None:
    found = {}
    for names in ((), THEIRS):
        events = owned.of_steps(list(owned.steps(Marks(nn.Linear(19, 4), names), count=4, accumulate=1)))
        theirs = [one for one in events if one.get("cat") == "user_annotation" and one["name"] in THEIRS]
        assert len(theirs) == 3 * 2 * len(names)
        trace = torch_trace.make_trace(events)
        table = owners.tabulate_operators(trace)
        found[bool(names)] = table.groupby(["step", "range", "name"], observed=True).size()
        opened = trace.ranges["start"][[trace.texts[name] in THEIRS for name in trace.ranges["name"]]]
        # Where theirs begin, one of ours is open: forward, or backward.
        if names:
            parts = [LAUNCHING[code - 1] for code in host_calls.find_ranges(opened, trace)]
            assert sorted(set(parts)) == ["backward", "forward"] and len(parts) == 3 * 2 * len(THEIRS)
            assert sorted(set(host_calls.find_steps(opened, trace))) == [0, 1, 2]
    pd.testing.assert_series_equal(found[True], found[False])


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


def test_ncus_recorded_pages_are_the_same_with_a_programs_ranges(tmp_path: Path) -> None:
    """Of launches, and of whole ranges."""
    theirs = "".join(f'  ""<default domain>:{name}:none:none:none:none:ASCII:{name}""' for name in THEIRS)
    for name in ("launch.raw.mangled", "ranges.raw"):
        text = gzip.decompress((DATA / f"ncu/{name}.csv.gz").read_bytes()).decode()
        assert text.count('""profzoo:') > 20
        pages = []
        for place, (ours, more) in enumerate([("profzoo:", ""), ("profzoo:profzoo_", theirs)]):
            (path := tmp_path / f"{name}.{place}.csv").write_text(
                re.sub(r'""profzoo:(\w+):([^"]*)""', rf'""{ours}\1:\2""{more}', text)
            )
            pages.append(ncu_tables.read_raw(path, ranges=name == "ranges.raw"))
        if name == "ranges.raw":
            first, second = (ncu_tables.tidy_ranges(*page)[0] for page in pages)
            assert list(first["range"]) == ["forward", "loss", "backward", "optimizer"]
        else:
            first, second = (ncu_tables.tidy_launches(*page, page[0], None)[0] for page in pages)
            assert first["range"].value_counts().to_dict() == {
                "backward": 242,
                "forward": 204,
                "optimizer": 20,
                "loss": 2,
            }
        pd.testing.assert_frame_equal(first, second)
