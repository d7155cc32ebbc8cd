"""Tidying of ncu's raw page, on recordings of an H200."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from workflow.scripts.lib import ncu_tables
from workflow.scripts.lib.files import DataError


@pytest.fixture(scope="module")
def census(recording) -> tuple[pd.DataFrame, dict[str, str]]:
    """The 468 launches of one training step."""
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    names, _ = ncu_tables.read_raw(recording("ncu/launch.raw.demangled.csv"))
    return ncu_tables.tidy(raw, units, names, None)


def test_units_row_is_taken_off_and_kept(census) -> None:
    table, units = census
    assert len(table) == 468 and table["id"].tolist() == list(range(468))
    assert units["gpu__time_duration.sum"] == "ns"


def test_numbers_have_no_separators(census) -> None:
    table, _ = census
    assert table["gpu__time_duration.sum"].dtype == "Int64"
    assert 4_000_000 < table["gpu__time_duration.sum"].sum() < 10_000_000
    assert table.select_dtypes("number")["launch__thread_count"].max() > 1000


def test_launch_configuration_is_parsed(census) -> None:
    first = census[0].iloc[0]
    assert [first[f"grid_{axis}"] for axis in "xyz"] == [1, 784, 1]
    assert [first[f"block_{axis}"] for axis in "xyz"] == [128, 1, 1]
    assert (first["smem_static_bytes"], first["smem_dynamic_bytes"]) == (0, 16896)


def test_every_launch_has_its_range_and_backward_is_among_them(census) -> None:
    counts = census[0]["range"].value_counts().to_dict()
    assert counts == {"backward": 242, "forward": 204, "optimizer": 20, "loss": 2}


def test_ranges_of_another_domain_are_not_ours(recording) -> None:
    raw, _ = ncu_tables.read_raw(recording("ncu/defaultdomain.raw.csv"))
    assert set(ncu_tables.ranges(raw)) == {""}


def test_launches_count_each_configuration(census) -> None:
    table, _ = census
    once = table.drop_duplicates(ncu_tables.CONFIGURATION)
    assert len(once) == 186
    assert once["launches"].sum() == len(table)


def test_launches_of_a_distinct_set_come_from_the_census(census, recording) -> None:
    table, _ = census
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    some = raw.iloc[[0, 300, 5]].reset_index(drop=True)
    tidy, _ = ncu_tables.tidy(some, units, raw, ncu_tables.configuration_counts(table))
    assert tidy["launches"].tolist() == table.loc[[0, 300, 5], "launches"].tolist()


def test_properties_of_the_gpu_are_left_out(census) -> None:
    assert not [name for name in census[0] if name.startswith("device__attribute_")]


def test_lines_of_the_profiler_are_skipped(recording, tmp_path: Path) -> None:
    lines = recording("ncu/launch.raw.mangled.csv").read_text().splitlines(keepends=True)
    noisy = tmp_path / "noisy.csv"
    noisy.write_text("==PROF== Connected\n" + "".join(lines[:3]) + "==WARNING== odd\n" + "".join(lines[3:5]))
    assert len(ncu_tables.read_raw(noisy)[0]) == 3


@pytest.mark.parametrize("text", ["", "==WARNING== No kernels were profiled.\n", '"ID","CC"\n"",""\n'])
def test_no_launch_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"empty\.csv holds no launch"):
        ncu_tables.read_raw(path)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::Add<float>>(int, T2)", "vectorized_elementwise_kernel"),
        ("void <unnamed>::softmax_warp_forward<float, (int)5>(T1 *)", "softmax_warp_forward"),
        ("void at::native::(anonymous namespace)::batch_norm<float>(int)", "batch_norm"),
        ("sm80_xmma_fprop_f32_cudnn", "sm80_xmma_fprop_f32_cudnn"),
        ("void cudnn::bn_fw<float, std::array<char *, (int)2>>(T1)", "bn_fw"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ],
)  # fmt: skip
def test_function_name(kernel: str, name: str) -> None:
    assert ncu_tables.function_name(kernel) == name


def test_range_replay_has_a_row_for_each_part_of_the_window(recording: Callable) -> None:
    raw, units = ncu_tables.read_raw(recording("ncu/ranges.raw.csv"))
    table, kept = ncu_tables.tidy_ranges(raw, units)
    # The recording holds three steps of warm-up before it.
    assert list(table["range"]) == ["forward", "loss", "backward", "optimizer"] and (table["step"] == 0).all()
    assert table["dram__bytes_read.sum"].tolist() == [141_550_080, 74_752, 871_993_088, 74_699_264]
    assert kept["dram__bytes_read.sum"] == "byte" and "gpu__time_duration.sum" in kept
    assert not [name for name in table.columns if name.startswith(("launch__", "device__"))]


def test_range_replay_of_the_whole_window(recording: Callable) -> None:
    raw, units = ncu_tables.read_raw(recording("ncu/ranges.raw.csv"))
    column = next(name for name in raw.columns if "Push/Pop_Range" in name)
    table, _ = ncu_tables.tidy_ranges(raw.iloc[:1].assign(**{column: ""}), units)
    assert table["range"].tolist() == ["window"]
