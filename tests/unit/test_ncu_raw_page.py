"""ncu's raw page: units, numbers and names, by hand and on recordings of an H200."""

import csv
import random
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import estimates, export_schema, raw_page
from profzoo.tools.ncu.raw_page import ValueFormatError


@pytest.fixture(scope="module")
def census(recording) -> tuple[pd.DataFrame, dict[str, str]]:
    """The 468 launches of one training step."""
    raw, units = raw_page.read_raw(recording("ncu/launch.raw.mangled.csv"))
    names, _ = raw_page.read_raw(recording("ncu/launch.raw.demangled.csv"))
    return raw_page.tidy_launches(raw, units, names, None)


def test_launches_of_a_recorded_step(census, recording, tmp_path: Path) -> None:
    table, units = census
    assert len(table) == 468 and table["id"].tolist() == list(range(468))
    assert units["gpu__time_duration.sum"] == "ns" and table["gpu__time_duration.sum"].dtype == "Int64"
    assert 4_000_000 < table["gpu__time_duration.sum"].sum() < 10_000_000
    first = table.iloc[0]
    assert [first[f"{size}_{axis}"] for size in ("grid", "block") for axis in "xyz"] == [1, 784, 1, 128, 1, 1]
    assert (first["smem_static_bytes"], first["smem_dynamic_bytes"]) == (0, 16896)
    counts = table["range"].value_counts().to_dict()
    assert counts == {"backward": 242, "forward": 204, "optimizer": 20, "loss": 2}
    once = table.drop_duplicates(raw_page.CONFIGURATION)
    assert len(once) == 186 and once["launches"].sum() == len(table)
    # Launches of a distinct set come from the census.
    page = recording("ncu/launch.raw.mangled.csv")
    raw, units = raw_page.read_raw(page)
    some = raw.iloc[[0, 300, 5]].reset_index(drop=True)
    tidy, _ = raw_page.tidy_launches(some, units, raw, raw_page.count_configurations(table))
    assert tidy["launches"].tolist() == table.loc[[0, 300, 5], "launches"].tolist()
    # Lines of the profiler are skipped.
    lines = page.read_text().splitlines(keepends=True)
    noisy = tmp_path / "noisy.csv"
    noisy.write_text("==PROF== Connected\n" + "".join(lines[:3]) + "==WARNING== odd\n" + "".join(lines[3:5]))
    assert len(raw_page.read_raw(noisy)[0]) == 3
    # Properties of the GPU are left out, and there is no link of any kind.
    assert not [name for name in table if name.startswith(("device__attribute_", *raw_page.FAMILIES))]
    # Ranges of another domain are not ours.
    assert set(raw_page.read_ranges(raw_page.read_raw(recording("ncu/defaultdomain.raw.csv"))[0])) == {""}


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
    raw, units = raw_page.read_raw(page(path, columns))
    table, kept = raw_page.tidy_launches(raw, units, raw, None)
    write_csv(table, path)
    return pd.read_csv(path, keep_default_na=False, na_values=[""]), kept


def printed(value: Decimal) -> str:
    """As ncu prints a number: groups of three digits, plain decimals."""
    return f"{value:,f}"


MISSING = ["n/a", "N/A", "(!) n/a", "nan", "-nan", "(!) nan", "inf", "-inf", "no data", ""]


@pytest.mark.parametrize("missing", MISSING)
def test_a_value_that_is_none_is_missing_and_spares_the_column(tmp_path: Path, missing: str) -> None:
    table, _ = exported(tmp_path / "p.csv", {"a__b.sum": ("byte", ["1,234,567", missing, "12"]),
                                             "c__d.pct": ("%", [missing, "1,234.5", "0.25"])})  # fmt: skip
    assert table["a__b.sum"].tolist()[::2] == [1_234_567, 12] and table["c__d.pct"].tolist()[1:] == [1234.5, 0.25]
    assert pd.isna(table.loc[1, "a__b.sum"]) and pd.isna(table.loc[0, "c__d.pct"])


# By base unit and factor, whatever version and page of ncu.
UNITS = {
    ("ns", 1): "ns nsecond NS nanosecond",
    ("ns", 10**3): "us usecond Us \u00b5s \u03bcs microseconds",
    ("ns", 10**6): "ms msecond millisecond milliseconds",
    ("ns", 10**9): "s second sec seconds",
    ("byte", 1): "byte B bytes Bytes",
    ("byte", 10**3): "Kbyte KB kB",
    ("byte", 10**6): "Mbyte MB",
    ("byte", 10**9): "Gbyte GB GBYTE",
    ("byte", 10**12): "Tbyte TB",
    ("byte", 10**18): "Ebyte",
    ("byte", 2**10): "KiB Kibyte",
    ("byte", 2**20): "MiB mib",
    ("byte", 2**30): "GiB Gibytes",
    ("byte", 2**40): "TiB",
    ("byte/block", 1): "byte/block bytes/block",
    ("byte/block", 10**3): "Kbyte/block KB/block",
    ("byte/s", 10**6): "Mbyte/s byte/us Kbyte/msecond",
    ("byte/s", 10**9): "Gbyte/second GB/s",
    ("byte/s", 2**30): "GiB/s",
    ("byte/cycle", 10**3): "Kbyte/cycle",
    ("hz", 1): "hz Hz",
    ("hz", 10**9): "Ghz GHz",
    ("cycle", 10**3): "Kcycle Kcycles",
    ("cycle/s", 10**6): "cycle/us",
    ("cycle/s", 10**9): "cycle/nsecond Gcycle/s",
    ("inst", 10**6): "Minst Minsts",
    ("inst/cycle", 10**3): "Kinst/cycles",
    ("flop/s", 10**9): "GFLOP/s",
    ("flop", 10**12): "TFLOP",
    ("%", 1): "% pct percent",
}
ITS_OWN = "register/thread SM sector/request pass cluster warp zebra byte/fortnight"


@pytest.mark.parametrize(("base", "units"), [*UNITS.items(), *(((unit, 1), unit) for unit in ITS_OWN.split())])
def test_units_and_what_they_are_multiples_of(base: tuple[str, int], units: str) -> None:
    assert {unit: raw_page.base_unit(unit) for unit in units.split()} == dict.fromkeys(units.split(), base)
    assert raw_page.base_unit("") == ("", 1)


UNKNOWN = "Kfoo ksecond Mfurlong/s Mb Gb/s kb byte/Kblock Kbyte/Kfoo Kifoo decaseconds byte/Kfoo"


@pytest.mark.parametrize("unit", UNKNOWN.split())
def test_units_that_may_be_multiples_are_refused(unit: str) -> None:
    with pytest.raises(ValueFormatError, match="may be a multiple of a unit"):
        raw_page.base_unit(unit)


@pytest.mark.parametrize("unit", ["us", "Gbyte/second", "KiB", "%"])
def test_a_column_is_scaled_to_its_base_unit_exactly(tmp_path: Path, unit: str) -> None:
    values = ["4.35", "1,234.56", "0", "-7"]
    table, units = exported(tmp_path / "p.csv", {"a__b.sum": (unit, values)})
    base, factor = raw_page.base_unit(unit)
    assert units["a__b.sum"] == base
    exact = [float(Decimal(value.replace(",", "")) * factor) for value in values]
    assert table["a__b.sum"].tolist() == pytest.approx(exact, rel=1e-15)


REFUSED = [("Kfoo", "1", "is in 'Kfoo'.*--print-units base"), ("byte", "many", "holds 'many', which is not a number")]
FOREIGN = ["12,34", "0,123", "1.234,5", "1,23,456", "1,2345", "1 234", "0,5", "1.2.3", "1,234,"]
REFUSED += [("", value, f"holds '{re.escape(value)}'.*LC_ALL=C") for value in FOREIGN]


@pytest.mark.parametrize(("unit", "value", "said"), REFUSED)
def test_a_column_that_cannot_be_read_is_named(tmp_path: Path, unit: str, value: str, said: str) -> None:
    path = page(tmp_path / "p.csv", {"a__b.sum": (unit, ["1", value])})
    with pytest.raises(DataError, match=rf"p\.csv: column a__b\.sum,? .*{said}"):
        raw_page.read_raw(path)


def test_launches_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = page(tmp_path / "p.csv", {"a__b.sum": ("byte", [str(number) for number in range(12)])})
    heading, units, *rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([heading, units, *reversed(rows)]))
    raw, kept = raw_page.read_raw(path)
    assert raw["ID"].tolist() == [str(number) for number in range(12)] and raw.index.tolist() == [*range(12)]
    table, _ = raw_page.tidy_launches(raw, kept, raw.iloc[::-1], None)
    assert table["a__b.sum"].tolist() == table["id"].tolist() == [*range(12)]
    # A page of several tables is refused.
    path.write_text(path.read_text() * 2)
    with pytest.raises(DataError, match=r"p\.csv: row 13 has launch 'ID'"):
        raw_page.read_raw(path)
    with pytest.raises(DataError, match=r"lts__t_bytes\.sum holds '1,234', which is not a number"):
        estimates.derive_quantities(pd.DataFrame({"lts__t_bytes.sum": ["1,234", "5"]}))


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
            raw_page.read_raw(path)


SCALED = {"": 1, "byte": 1, "Kbyte": 1000, "Mbyte": 10**6, "us": 1000, "ms": 10**6, "%": 1, "Gbyte/second": 10**9,
          "Kbyte/block": 1000, "ns": 1, "inst": 1}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_any_page_is_exported_exactly(tmp_path: Path, seed: int) -> None:
    """Whole numbers and decimals of any size, in units that ncu scales by, some of them missing."""
    draw = random.Random(seed)

    def value(digits: int) -> Decimal | None:
        size = 10 ** draw.randrange(1, 16)
        return None if draw.random() < 0.1 else Decimal(draw.randrange(-size, size)).scaleb(-digits)

    columns: dict[str, tuple[str, list[str]]] = {}
    exact: dict[str, list[Decimal | None]] = {}
    for number in range(12):
        name, (unit, factor), digits = f"m__{number}.sum", draw.choice([*SCALED.items()]), draw.choice([0, 0, 2, 6])
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


@pytest.mark.parametrize("text", ["", "==WARNING== No kernels were profiled.\n", '"ID","CC"\n"",""\n'])
def test_no_launch_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"empty\.csv holds no launch"):
        raw_page.read_raw(path)


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
    assert raw_page.function_name(kernel) == name


def test_range_replay_has_a_row_for_each_part_of_the_window(recording: Callable) -> None:
    raw, units = raw_page.read_raw(recording("ncu/ranges.raw.csv"), ranges=True)
    table, kept = raw_page.tidy_ranges(raw, units)
    # The recording holds three steps of warm-up before it.
    assert list(table["range"]) == ["forward", "loss", "backward", "optimizer"] and (table["step"] == 0).all()
    assert table["dram__bytes_read.sum"].tolist() == [141_550_080, 74_752, 871_993_088, 74_699_264]
    assert kept["dram__bytes_read.sum"] == "byte" and "gpu__time_duration.sum" in kept
    assert not [name for name in table.columns if name.startswith(("launch__", "device__"))]
    # Without ranges it is the whole window.
    column = next(name for name in raw.columns if "Push/Pop_Range" in name)
    table, _ = raw_page.tidy_ranges(raw.iloc[:1].assign(**{column: ""}), units)
    assert table["range"].tolist() == ["window"]


LINKS = [
    ({"nvlink__enabled_mask": "262143", "nvlink__bandwidth": "25,000,000,000"}, {"nvlink__"}, 25_000_000_000),
    ({"c2clink__present": "1", "device__attribute_numa_config": "1"}, {"c2clink__", "numa__"}, None),
    # A unit that is not known spoils no table.
    ({"nvlink__enabled_mask": "1", "nvlink__bandwidth": "25.0 of 50"}, {"nvlink__"}, "25.0 of 50"),
]


@pytest.mark.parametrize(("changed", "kept", "bandwidth"), LINKS)
def test_columns_about_links_are_kept_where_the_gpu_has_such_a_link(
    recording: Callable, tmp_path: Path, changed: Mapping[str, str], kept: set[str], bandwidth: object
) -> None:
    with recording("ncu/launch.raw.mangled.csv").open(newline="") as file:
        heading, units, *body = csv.reader(file)
    units[heading.index("nvlink__bandwidth")] = "byte/second"
    rows = [[changed.get(name, value) for name, value in zip(heading, row, strict=True)] for row in body]
    with (tmp_path / "page.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([heading, units, *rows])
    raw, found = raw_page.read_raw(tmp_path / "page.csv")
    table, units = raw_page.tidy_launches(raw, found, raw, None)
    assert {family for family in raw_page.FAMILIES for name in table if name.startswith(family)} == kept
    assert bandwidth is None or set(table["nvlink__bandwidth"]) == {bandwidth}
    if isinstance(bandwidth, int):
        assert units["nvlink__bandwidth"] == "byte/s"
        # The table that a reader declares has these columns, and each has a meaning.
        table.head(2).to_csv(tmp_path / "table.csv", index=False)
        assert "nvlink__max_count" in csv_tables.read(tmp_path / "table.csv", export_schema.TABLE)
        assert "NVLink" in export_schema.TABLE.describe("nvlink__count_physical").means


def column(*cells: str) -> pd.Series:
    return pd.Series(list(cells), dtype="str")


FOREIGN_NUMBERS = [
    ("1.234", "1.234"),
    ("1.234 2.345", "1.234"),
    # Other numbers of the page are English.
    ("1.234 7.25", None),
    ("1.234 7,250 n", None),
    ("1.234.567 7.25", "1.234.567"),
    ("9.234.567 2.345 n", "2.345"),
    ("1234 12", None),
    ("", None),
]


@pytest.mark.parametrize(("printed", "found"), FOREIGN_NUMBERS)
def test_numbers_of_other_locales(printed: str, found: str | None) -> None:
    assert raw_page.find_foreign_number(printed.split()) == found


def test_values_in_base_units() -> None:
    found, unit = raw_page.normalize_column("a", column("1,234.5", "n/a", "2", "(!) nan", "-inf", ""), "Kbyte")
    assert (found.tolist(), unit) == (["1234500.0", "", "2000", "", "", ""], "byte")
    found, unit = raw_page.normalize_column("a", column("1,234.50", "7"), "byte")
    assert (found.tolist(), unit) == (["1234.50", "7"], "byte")
    found, unit = raw_page.normalize_column("a", column("yes", "7", "n/a"), "")
    assert (found.tolist(), unit) == (["yes", "7", "n/a"], "")
    for unit in ("12", "n/a"):
        with pytest.raises(ValueFormatError, match=f"^is in '{unit}', which is not a unit"):
            raw_page.normalize_column("a", column("1"), unit)
    # A list of numbers is text, whatever it looks like.
    found, _ = raw_page.normalize_column("launch__tpc_enabled", column("1, 2", "3"), "")
    assert found.tolist() == ["1, 2", "3"]


@pytest.mark.parametrize(
    ("cells", "kind", "found"),
    [
        (["1", "", "2,000"], "Int64", [1, None, 2000]),
        (["1.0", "3"], "Int64", [1, 3]),
        (["1.5", "3"], "float64", [1.5, 3.0]),
        ([str(2**63 - 1)], "Int64", [2**63 - 1]),
        ([f"-{2**63 - 1}"], "Int64", [1 - 2**63]),
        ([str(2**63)], "float64", [2.0**63]),
        ([str(2**63 + 5), "1"], "float64", [2.0**63, 1.0]),
        (["", ""], "float64", [None, None]),
        (["1", "x"], "str", ["1", "x"]),
        (["x", "1", ""], "str", ["x", "1", ""]),
    ],
)
def test_columns_as_numbers(cells: list[str], kind: str, found: list) -> None:
    numbers = raw_page.parse_numbers(column(*cells))
    assert str(numbers.dtype) == kind and numbers.astype(object).where(numbers.notna(), None).tolist() == found
