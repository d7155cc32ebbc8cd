"""Tidying of ncu's raw page, on recordings of an H200."""

import csv
import random
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu import raw_page as ncu_tables


@pytest.fixture(scope="module")
def census(recording) -> tuple[pd.DataFrame, dict[str, str]]:
    """The 468 launches of one training step."""
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    names, _ = ncu_tables.read_raw(recording("ncu/launch.raw.demangled.csv"))
    return ncu_tables.tidy_launches(raw, units, names, None)


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
    assert set(ncu_tables.read_ranges(raw)) == {""}


def test_launches_count_each_configuration(census) -> None:
    table, _ = census
    once = table.drop_duplicates(ncu_tables.CONFIGURATION)
    assert len(once) == 186
    assert once["launches"].sum() == len(table)


def test_launches_of_a_distinct_set_come_from_the_census(census, recording) -> None:
    table, _ = census
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    some = raw.iloc[[0, 300, 5]].reset_index(drop=True)
    tidy, _ = ncu_tables.tidy_launches(some, units, raw, ncu_tables.count_configurations(table))
    assert tidy["launches"].tolist() == table.loc[[0, 300, 5], "launches"].tolist()


LEADING = {"ID": "0", "Kernel Name": "_Z1kv", "Stream": "7", "Grid Size": "(1, 1, 1)", "Block Size": "(32, 1, 1)"}


def page(path: Path, columns: Mapping[str, tuple[str, Sequence[str]]]) -> Path:
    """A raw page of metrics, each with its unit and what is printed of each launch."""
    count = len(next(iter(columns.values()))[1])
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([*LEADING, "CC", *columns])
        writer.writerow([""] * (len(LEADING) + 1) + [unit for unit, _ in columns.values()])
        for row in range(count):
            fixed = [str(row), *list(LEADING.values())[1:], "9.0"]
            writer.writerow([*fixed, *(values[row] for _, values in columns.values())])
    return path


def exported(path: Path, columns: Mapping[str, tuple[str, Sequence[str]]]) -> tuple[pd.DataFrame, dict[str, str]]:
    """The page as it is exported, to a CSV and read again."""
    raw, units = ncu_tables.read_raw(page(path, columns))
    table, kept = ncu_tables.tidy_launches(raw, units, raw, None)
    write_csv(table, path)
    return pd.read_csv(path, keep_default_na=False, na_values=[""]), kept


def printed(value: Decimal) -> str:
    """As ncu prints a number: groups of three digits, plain decimals."""
    return f"{value:,f}"


@pytest.mark.parametrize("missing", ["n/a", "N/A", "(!) n/a", "nan", "-nan", "(!) nan", "inf", "-inf", "no data", ""])
def test_a_value_that_is_none_is_missing_and_spares_the_column(tmp_path: Path, missing: str) -> None:
    table, _ = exported(tmp_path / "p.csv", {"a__b.sum": ("byte", ["1,234,567", missing, "12"]),
                                             "c__d.pct": ("%", [missing, "1,234.5", "0.25"])})  # fmt: skip
    assert table["a__b.sum"].tolist()[::2] == [1_234_567, 12] and table["c__d.pct"].tolist()[1:] == [1234.5, 0.25]
    assert pd.isna(table.loc[1, "a__b.sum"]) and pd.isna(table.loc[0, "c__d.pct"])


def test_quantities_are_derived_beside_missing_values(tmp_path: Path) -> None:
    metrics_of = {"dram__bytes_read.sum": ("Kbyte", ["1,234.5", "n/a"]), "dram__bytes_write.sum": ("byte", ["2", "3"])}
    table, _ = exported(tmp_path / "p.csv", metrics_of)
    derived = derived_metrics.derive_quantities(table)["dram_bytes"]
    assert derived[0] == 1_234_502 and pd.isna(derived[1])


def test_text_is_no_quantity() -> None:
    with pytest.raises(DataError, match=r"lts__t_bytes\.sum holds '1,234', which is no number"):
        derived_metrics.derive_quantities(pd.DataFrame({"lts__t_bytes.sum": ["1,234", "5"]}))


def test_text_stays_text(tmp_path: Path) -> None:
    texts = {"launch__func_cache_config": ("", ["CachePreferNone", "n/a"]), "launch__tpc_enabled": ("", ["all", "0,1,2"]),
             "launch__kernel_name": ("", ["", ""])}  # fmt: skip
    table, _ = exported(tmp_path / "p.csv", texts | {"a__b.sum": ("", ["1", "2"])})
    assert table["launch__func_cache_config"].tolist() == ["CachePreferNone", "n/a"]
    assert table["launch__tpc_enabled"].tolist() == ["all", "0,1,2"] and table["launch__kernel_name"].isna().all()


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("ns", "ns", 1), ("nsecond", "ns", 1), ("us", "ns", 1000), ("usecond", "ns", 1000), ("ms", "ns", 10**6),
        ("msecond", "ns", 10**6), ("s", "ns", 10**9), ("second", "ns", 10**9),
        ("byte", "byte", 1), ("Kbyte", "byte", 1000), ("Mbyte", "byte", 10**6), ("Gbyte", "byte", 10**9),
        ("Tbyte", "byte", 10**12), ("Kbyte/block", "byte/block", 1000), ("byte/block", "byte/block", 1),
        ("Gbyte/second", "byte/s", 10**9), ("Tbyte/s", "byte/s", 10**12), ("byte/s", "byte/s", 1),
        ("Ghz", "hz", 10**9), ("hz", "hz", 1), ("cycle/nsecond", "cycle/s", 10**9), ("cycle/us", "cycle/s", 10**6),
        ("Minst", "inst", 10**6), ("inst/cycle", "inst/cycle", 1), ("Kbyte/cycle", "byte/cycle", 1000),
        ("%", "%", 1), ("register/thread", "register/thread", 1), ("SM", "SM", 1), ("sector/request", "sector/request", 1),
        ("pass", "pass", 1), ("cluster", "cluster", 1), ("warp", "warp", 1), ("", "", 1),
        # As versions and pages differ in them.
        ("KiB", "byte", 1024), ("MiB", "byte", 2**20), ("GiB", "byte", 2**30), ("TiB", "byte", 2**40),
        ("B", "byte", 1), ("KB", "byte", 1000), ("kB", "byte", 1000), ("MB", "byte", 10**6), ("GB", "byte", 10**9),
        ("TB", "byte", 10**12), ("GB/s", "byte/s", 10**9), ("GiB/s", "byte/s", 2**30), ("KB/block", "byte/block", 1000),
        ("KiB/block", "byte/block", 1024), ("mib", "byte", 2**20), ("GBYTE", "byte", 10**9),
        ("Kibyte", "byte", 1024), ("Mibyte/s", "byte/s", 2**20), ("Bytes", "byte", 1), ("bytes/block", "byte/block", 1),
        ("GHz", "hz", 10**9), ("MHz", "hz", 10**6), ("Hz", "hz", 1), ("KHz", "hz", 1000),
        ("NS", "ns", 1), ("Us", "ns", 1000), ("\u00b5s", "ns", 1000), ("\u03bcs", "ns", 1000), ("sec", "ns", 10**9),
        ("nanosecond", "ns", 1), ("microseconds", "ns", 1000), ("millisecond", "ns", 10**6), ("seconds", "ns", 10**9),
        ("Kcycle", "cycle", 1000), ("Gcycle/s", "cycle/s", 10**9), ("Kcycles", "cycle", 1000), ("cycles", "cycle", 1),
        ("Minsts", "inst", 10**6), ("Ksector", "sector", 1000), ("GFLOP/s", "flop/s", 10**9), ("TFLOP", "flop", 10**12),
        ("pct", "%", 1), ("percent", "%", 1),
    ],
)  # fmt: skip
def test_units_are_scaled_to_base_exactly(tmp_path: Path, unit: str, base: str, factor: int) -> None:
    values = ["4.35", "1,234.56", "0", "-7"]
    table, units = exported(tmp_path / "p.csv", {"a__b.sum": (unit, values)})
    assert units.get("a__b.sum", "") == base
    exact = [float(Decimal(value.replace(",", "")) * factor) for value in values]
    assert table["a__b.sum"].tolist() == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize(
    "unit", ["Kfoo", "ksecond", "Mfurlong/s", "byte/fortnight", "Kbyte/Kfoo", "Kifoo", "Gb/s", "kb"]
)
def test_a_unit_that_may_be_scaled_and_is_not_known_is_refused(tmp_path: Path, unit: str) -> None:
    if unit == "byte/fortnight":  # What does not look scaled is as ncu has it.
        assert exported(tmp_path / "p.csv", {"a__b.sum": (unit, ["1"])})[1] == {"a__b.sum": unit}
        return
    path = page(tmp_path / "p.csv", {"a__b.sum": (unit, ["1"])})
    with pytest.raises(DataError, match=rf"p\.csv: column a__b\.sum is in '{unit}'.*--print-units base"):
        ncu_tables.read_raw(path)


@pytest.mark.parametrize(
    "value", ["12,34", "0,123", "1.234,5", "1,23,456", "1,2345", "1 234", "0,5", "1.2.3", "1,234,"]
)
def test_a_number_of_another_locale_is_refused(tmp_path: Path, value: str) -> None:
    path = page(tmp_path / "p.csv", {"a__b.sum": ("", ["1", value])})
    with pytest.raises(DataError, match=rf"p\.csv: column a__b\.sum holds '{re.escape(value)}'.*LC_ALL=C"):
        ncu_tables.read_raw(path)


def test_a_word_where_a_number_has_a_unit_is_refused(tmp_path: Path) -> None:
    path = page(tmp_path / "p.csv", {"a__b.sum": ("byte", ["1", "many"])})
    with pytest.raises(DataError, match=r"p\.csv: column a__b\.sum, in byte, holds 'many', which is no number"):
        ncu_tables.read_raw(path)


def test_launches_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = page(tmp_path / "p.csv", {"a__b.sum": ("byte", [str(number) for number in range(12)])})
    heading, units, *rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([heading, units, *reversed(rows)]))
    raw, kept = ncu_tables.read_raw(path)
    assert raw["ID"].tolist() == [str(number) for number in range(12)] and raw.index.tolist() == [*range(12)]
    table, _ = ncu_tables.tidy_launches(raw, kept, raw.iloc[::-1], None)
    assert table["a__b.sum"].tolist() == table["id"].tolist() == [*range(12)]


def test_a_page_of_several_tables_is_refused(tmp_path: Path) -> None:
    path = page(tmp_path / "p.csv", {"a__b.sum": ("byte", ["1", "2"])})
    path.write_text(path.read_text() * 2)
    with pytest.raises(DataError, match=r"p\.csv: row 3 has launch 'ID'"):
        ncu_tables.read_raw(path)


def test_shared_memory_that_was_rounded_is_refused(tmp_path: Path) -> None:
    static, dynamic = ncu.SHARED_MEMORY
    given = {static: ("byte/block", ["1,024"]), dynamic: ("byte/block", ["16,896"])}
    table, _ = exported(tmp_path / "p.csv", given)
    assert table.loc[0, ["smem_static_bytes", "smem_dynamic_bytes"]].tolist() == [1024, 16896]
    for unit in ("bytes/block", "B/block"):
        table, _ = exported(tmp_path / "p.csv", given | {dynamic: (unit, ["16,896"])})
        assert table.loc[0, "smem_dynamic_bytes"] == 16896
    for unit in ("Kbyte/block", "KiB/block"):
        path = page(tmp_path / "p.csv", given | {dynamic: (unit, ["16.90"])})
        with pytest.raises(DataError, match=rf"p\.csv: column {dynamic} is in {unit}, to which it was rounded"):
            ncu_tables.read_raw(path)


UNITS = {"": 1, "byte": 1, "Kbyte": 1000, "Mbyte": 10**6, "us": 1000, "ms": 10**6, "%": 1, "Gbyte/second": 10**9,
         "Kbyte/block": 1000, "ns": 1, "inst": 1}  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_any_page_is_exported_exactly(tmp_path: Path, seed: int) -> None:
    """Whole numbers and decimals of any size, in units that ncu scales by, some of them missing."""
    draw = random.Random(seed)

    def value(digits: int) -> Decimal | None:
        size = 10 ** draw.randrange(1, 16)
        return None if draw.random() < 0.1 else Decimal(draw.randrange(-size, size)).scaleb(-digits)

    columns: dict[str, tuple[str, list[str]]] = {}
    exact: dict[str, list[Decimal | None]] = {}
    for number in range(12):
        name, (unit, factor), digits = f"m__{number}.sum", draw.choice([*UNITS.items()]), draw.choice([0, 0, 2, 6])
        values = [value(digits) for _ in range(30)]
        columns[name] = unit, ["n/a" if one is None else printed(one) for one in values]
        exact[name] = [None if one is None else one * factor for one in values]
    exported(tmp_path / "p.csv", columns)
    table = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    for name, values in exact.items():
        # Whole numbers are not rounded to what a float holds.
        whole = all(one == one.to_integral_value() and abs(one) < 2**63 for one in values if one is not None)
        for text, one in zip(table[name], values, strict=True):
            assert text == ("" if one is None else str(int(one)) if whole else repr(float(one))), name


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
    raw, units = ncu_tables.read_raw(recording("ncu/ranges.raw.csv"), ranges=True)
    table, kept = ncu_tables.tidy_ranges(raw, units)
    # The recording holds three steps of warm-up before it.
    assert list(table["range"]) == ["forward", "loss", "backward", "optimizer"] and (table["step"] == 0).all()
    assert table["dram__bytes_read.sum"].tolist() == [141_550_080, 74_752, 871_993_088, 74_699_264]
    assert kept["dram__bytes_read.sum"] == "byte" and "gpu__time_duration.sum" in kept
    assert not [name for name in table.columns if name.startswith(("launch__", "device__"))]


def test_range_replay_of_the_whole_window(recording: Callable) -> None:
    raw, units = ncu_tables.read_raw(recording("ncu/ranges.raw.csv"), ranges=True)
    column = next(name for name in raw.columns if "Push/Pop_Range" in name)
    table, _ = ncu_tables.tidy_ranges(raw.iloc[:1].assign(**{column: ""}), units)
    assert table["range"].tolist() == ["window"]
