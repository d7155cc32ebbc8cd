"""ncu_tables, nsys_tables and torch_tables: names, numbers and damaged files, beyond the recordings' own tests."""

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import trace as torch_trace
from tests.conftest import DATA

LAMBDA = "at::native::f(at::T &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)]"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (["1,234", "5"], [1234, 5]),
        (["1,234,567.5", "2"], [1234567.5, 2.0]),
        (["9,007,199,254,740,993", "1"], [9007199254740993, 1]),
        (["-3", "0"], [-3, 0]),
        (["1e+20", "2"], [1e20, 2.0]),
        (["n/a", "1,000"], ["n/a", "1,000"]),
        (["CachePreferNone", ""], ["CachePreferNone", ""]),
        (
            ["9,007,199,254,740,993", ""],
            [9007199254740993],
        ),
    ],
)
def test_numbers(text: list[str], numbers: list) -> None:
    assert ncu_tables.parse_numbers(pd.Series(text, dtype="str")).dropna().tolist() == numbers


def test_empty_numbers_stay_empty() -> None:
    column = ncu_tables.parse_numbers(pd.Series(["1,234", ""], dtype="str"))
    assert str(column.dtype) == "Int64" and column[0] == 1234 and column.isna()[1]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (f"void at::native::elementwise_kernel<128, 2, {LAMBDA}>(int, T3)", "elementwise_kernel"),
        ("void (anonymous namespace)::k<int>(T1)", "k"),
        ("void k<(anonymous namespace)::A>(int)", "k"),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float>(T13)", "kernel"),
        ("cutlass__5x_cudnn::Kernel<cutlass_tensorop<1>>(T1::Params)", "Kernel"),
        ("void a::b<int, (int)3>::c<float>(T1)", "c"),
        ("void k<A<B<C<1>>>, std::array<char *, (unsigned long)2>>(int)", "k"),
        ("_ZN2at6native1kEv", "_ZN2at6native1kEv"),
        ("k(int) [clone .kd]", "k"),
        (
            "void k<(bool)(1 > 0)>(int)", "k",
        ),
    ],
)  # fmt: skip
def test_function_name(kernel: str, name: str) -> None:
    assert ncu_tables.function_name(kernel) == name


def test_function_names_are_nsyss_own(recording: Callable) -> None:
    table = nsys_tables.summarise(recording("nsys/train.sqlite")).drop_duplicates("kernel")
    assert table["kernel"].map(ncu_tables.function_name).tolist() == table["function"].tolist() and len(table) == 61


def test_shared_memory_that_was_not_collected_is_empty(recording: Callable) -> None:
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    table, _ = ncu_tables.tidy_launches(raw.drop(columns=[*ncu_tables.SHARED_MEMORY.values()]), units, raw, None)
    assert table[[*ncu_tables.SHARED_MEMORY]].isna().all(axis=None) and table["launches"].notna().all()


def test_constants_are_dropped_with_their_units(recording: Callable) -> None:
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    table, kept = ncu_tables.tidy_launches(raw, units, raw, None)
    constants = [name for name in raw if ncu_tables.CONSTANT.match(name)]
    assert len(constants) > 100 and not set(constants) & (set(table) | set(kept))
    assert list(table.columns[: len(ncu_tables.LEADING)]) == ncu_tables.LEADING and set(kept) <= set(table)


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ('"profzoo:step:none:none:none:none:none:none","profzoo:forward:none:none:none:none:none:none"', "forward"),
        ('"profzoo:step:none:none:none:none:none:none"', ""),
        ('"other:forward:none:none:none:none:none:none"', ""),
        ('"profzoo:forward:none","profzoo:loss:none"', "loss"),
        ("", ""),
    ],
)
def test_the_innermost_range_counts(stack: str, name: str) -> None:
    raw = pd.DataFrame({"thread Domain:Push/Pop_Range:PL_Type": [stack]})
    assert ncu_tables.read_ranges(raw).tolist() == [name] == ncu_tables.read_ranges(raw.assign(more=1)).tolist()


def test_kernels_agree_with_nsys_one_by_one(recording: Callable) -> None:
    theirs = pd.read_csv(DATA / "nsys/cuda_gpu_kern_sum.csv").set_index("Name")
    ours = nsys_tables.summarise(recording("nsys/train.sqlite")).groupby("kernel")[["launches", "total_ns"]].sum()
    assert (2 * ours["launches"]).to_dict() == theirs["Instances"].to_dict()  # Of twenty steps; ours of ten.
    ratio = 2 * ours["total_ns"] / theirs["Total Time (ns)"].reindex(ours.index)
    assert ratio.between(0.9, 1.1).all()


def test_statistics_are_those_of_the_launches(recording: Callable) -> None:
    path = recording("nsys/train.sqlite")
    row = nsys_tables.summarise(path).drop_duplicates("mangled", keep=False).iloc[0]
    query = ("SELECT end - start FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = mangledName WHERE value = ?",
             (row["mangled"],))  # fmt: skip
    with closing(sqlite3.connect(path)) as database:
        ns = pd.Series([ns for (ns,) in database.execute(*query)])
    assert (row["launches"], row["total_ns"], row["min_ns"], row["max_ns"]) == (len(ns), ns.sum(), ns.min(), ns.max())
    assert (row["median_ns"], row["std_ns"]) == (ns.median(), pytest.approx(ns.std(ddof=0)))


@pytest.mark.parametrize("kind", [nsys_tables.summarise, nsys_steps.where_time_goes])
def test_an_export_that_is_cut_off_is_named(tmp_path: Path, recording: Callable, kind: Callable) -> None:
    path = tmp_path / "cut.sqlite"
    path.write_bytes(recording("nsys/train.sqlite").read_bytes()[:200_000])
    with pytest.raises(DataError, match=r"cut\.sqlite"):
        kind(path)


def test_an_export_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.sqlite"):
        nsys_tables.summarise(tmp_path / "none.sqlite")


@pytest.mark.parametrize("folder", ["with space", "a#b", "a?b", "a%20b"])
def test_any_folder_will_do(tmp_path: Path, recording: Callable, folder: str) -> None:
    (tmp_path / folder).mkdir()
    path = shutil.copy(recording("nsys/train.sqlite"), tmp_path / folder)
    assert nsys_tables.summarise(path)["launches"].sum() == 4750


WHOLE = gzip.compress(json.dumps({"traceEvents": [{"name": str(index)} for index in range(999)]}).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain text",
        gzip.compress(b"{"),
        gzip.compress(b"{}"),
        WHOLE[: len(WHOLE) // 2],
        gzip.compress(b"[1]"),
    ],
    ids=["empty", "text", "half", "no events", "cut", "list"],
)
def test_damaged_traces_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.json\.gz is (no trace|damaged).*: delete it"):
        torch_trace.read_trace(path)


def event(category: str, name: str, start: float, duration: float, correlation: int | None = None) -> dict:
    """An event of a trace, times in microseconds."""
    arguments = {} if correlation is None else {"correlation": correlation}
    return {"cat": category, "name": name, "ts": start, "dur": duration, "args": arguments}


@pytest.mark.parametrize(
    ("launched", "name"),
    [(10.0, "forward"), (19.5, "forward"), (20.0, ""), (25.0, ""), (30.0, "backward"), (5.0, ""), (None, "")],
)
def test_range_of_a_launch(launched: float | None, name: str) -> None:
    trace = [
        event("user_annotation", "profzoo:step", 0, 100),
        event("user_annotation", "profzoo:forward", 10, 10),
        event("user_annotation", "profzoo:backward", 30, 10),
        event("gpu_user_annotation", "profzoo:backward", 0, 100),
        event("kernel", "k", 200, 1.5, 7),
        event("gpu_memset", "m", 300, 2, 8),
    ]
    if launched is not None:
        trace.append(event("cuda_runtime", "cudaLaunchKernel", launched, 1, 7))
    found = torch_tables.device_events(torch_trace.make_trace(trace))
    assert found["range"].tolist() == [name, ""] and found["device_ns"].tolist() == [1500, 2000]
    assert found["kind"].tolist() == ["kernel", "memset"]


def test_a_trace_without_events_has_no_launches() -> None:
    assert torch_tables.device_events(torch_trace.make_trace([])).empty
