"""Pages of ncu: numbers, names of functions, ranges, and what of a recorded page becomes a table."""

from collections.abc import Callable

import pandas as pd
import pytest

from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import tables as nsys_tables

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
        (["9,007,199,254,740,993", ""], [9007199254740993]),
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
