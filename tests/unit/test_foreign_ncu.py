"""Pages of ncu made elsewhere: a recording printed in every form gives the launches and metrics of the original."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.foreign_reports import ncu_import, ncu_text
from profzoo.io.scripts import read_json
from profzoo.tools.ncu import export, raw_page
from tests import slow

IDENTITY = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
            "Device", "CC"]  # fmt: skip
METRICS = ["gpu__time_duration.sum", "launch__registers_per_thread", "launch__shared_mem_per_block_static",
           "launch__shared_mem_per_block_dynamic", "launch__waves_per_multiprocessor",
           "device__attribute_display_name"]  # fmt: skip
Page = list[list[str]]


@pytest.fixture(scope="module")
def page(recording) -> Page:
    """The recorded raw page: heading, units, and a row a launch, with fewer columns."""
    rows = list(csv.reader(Path(recording("ncu/launch.raw.mangled.csv")).read_text().splitlines()))
    kept = [name for name in (*IDENTITY, *METRICS) if name in rows[0]]
    return [[row[rows[0].index(name)] for name in kept] for row in rows]


def text(rows: Sequence[Sequence[str]], quoting: int = csv.QUOTE_ALL, end: str = "\n") -> str:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting, lineterminator=end).writerows(rows)
    return file.getvalue()


def imported(paths: Sequence[Path], folder: Path, traced: str | None = None) -> tuple[pd.DataFrame, dict, list[str]]:
    """The exported launches of these files, the sidecar, and what was said."""
    folder.mkdir(exist_ok=True)
    said: list[str] = []
    made = {"pages": folder / "pages", "details": folder / "details.csv", "sidecar": folder / "rep.json"}
    names = {name: str(path) for name, path in made.items()}
    ncu_import.main([str(path) for path in paths], "run7", traced, names, said.append)
    csv_file, sidecar = folder / "ncu.csv", folder / "ncu.csv.json"
    export.main(names["pages"], names["sidecar"], None, "all", [], False, str(csv_file), str(sidecar), said.append)
    return pd.read_csv(csv_file), read_json(sidecar), said


def written(content: str | bytes, path: Path) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture(scope="module")
def expected(page, tmp_path_factory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("raw")
    return imported([written(text(page), folder / "page.csv")], folder / "out")[0]


def test_the_raw_page_gives_what_the_exporter_makes_of_the_recording(recording, expected, tmp_path) -> None:
    own, _, _ = export._launches([recording(f"ncu/launch.raw.{kind}.csv") for kind in ("mangled", "demangled")], None)
    assert len(own) == len(expected) == 468
    kept = [name for name in (*METRICS, "grid_x", "block_x", "smem_dynamic_bytes", "launches") if name in own]
    pd.testing.assert_frame_equal(own[kept].reset_index(drop=True), expected[kept], check_dtype=False)
    assert own["mangled"].tolist() == expected["mangled"].tolist()


def long_form(page: Page) -> Page:
    """A row per launch and metric, as ncu prints metrics without a page."""
    heading, units, *rows = page
    at = len([name for name in IDENTITY if name in heading])
    made = [[*heading[:at], "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
    for row in rows:
        made += [
            [*row[:at], "Command line profiler metrics", heading[place], units[place], row[place]]
            for place in range(at, len(heading))
        ]
    return made


def scaled(page: Page) -> Page:
    """Times in microseconds, with thousands separated, as without --print-units base."""
    heading, units, *rows = page
    at = heading.index("gpu__time_duration.sum")
    changed = [[*row[:at], f"{float(row[at].replace(',', '')) / 1000:,.3f}", *row[at + 1 :]] for row in rows]
    return [heading, [*units[:at], "usecond", *units[at + 1 :]], *changed]


BEFORE = "epoch 1, loss 2.3\nID of the run: 7\n==PROF== Connected to process 882 (/usr/bin/python3.12)\n"
FORMS: dict[str, Callable[[Page], str | bytes]] = {
    "program output around it": lambda page: f"{BEFORE}{text(page)}==PROF== Disconnected from process 882\ndone, 3\n",
    "byte-order mark": lambda page: b"\xef\xbb\xbf" + text(page).encode(),
    "UTF-16": lambda page: text(page).encode("utf-16"),
    "CRLF": lambda page: text(page, end="\r\n"),
    "unquoted": lambda page: text(page, csv.QUOTE_MINIMAL),
    "no line end": lambda page: text(page).rstrip("\n"),
    "microseconds": lambda page: text(scaled(page)),
    "long form": lambda page: text(long_form(page)),
    "long form in microseconds": lambda page: text(long_form(scaled(page))),
}  # fmt: skip


@pytest.mark.parametrize("form", slow.only(FORMS, "program output around it", "UTF-16", "long form in microseconds"))
def test_each_form_gives_the_same_launches(page, expected, tmp_path, form) -> None:
    content = FORMS[form](page)
    table, sidecar, _ = imported([written(content, tmp_path / "page.csv")], tmp_path / "out")
    pd.testing.assert_frame_equal(table[list(expected)], expected, check_dtype=False)
    assert sidecar["imported"]["coverage"] == [] and sidecar["device"] == "NVIDIA H200"


SIZES = {
    "metrics": ("launch__grid_dim_x,launch__grid_dim_y,launch__grid_dim_z,launch__block_dim_x,launch__block_dim_y,"
                "launch__block_dim_z", "8,2,1,128,1,1", (8, 128)),
    "brackets": ("Grid Size,Block Size", '"[8,2,1]","[128,1,1]"', (8, 128)),
    "none": ("Kernel Time", "2021-Jan-01 10:00:00", (0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("form", SIZES)
def test_sizes_of_grid_and_block_in_each_form(tmp_path, form) -> None:
    names, values, sizes = SIZES[form]
    units = "," * (names.count(",") + 4)
    content = f"ID,Kernel Name,{names},CC,gpu__time_duration.sum\n{units}ns\n0,f,{values},9.0,5\n"
    table, _, said = imported([written(content, tmp_path / "page.csv")], tmp_path / "out")
    assert (table["grid_x"].item(), table["block_x"].item()) == sizes
    assert any("lack sizes of grid and block" in line for line in said) == (form == "none")


def test_metrics_of_the_same_launches_in_two_files_stand_side_by_side(page, expected, tmp_path) -> None:
    at = page[0].index("launch__registers_per_thread")
    identity = len([name for name in IDENTITY if name in page[0]])
    one = [[*row[:at]] for row in page]
    other = [[*row[:identity], *row[at:]] for row in page]
    paths = [written(text(rows), tmp_path / name) for rows, name in ((one, "one.csv"), (other, "other.csv"))]
    table, sidecar, _ = imported(paths, tmp_path / "out")
    pd.testing.assert_frame_equal(table[list(expected)], expected, check_dtype=False)
    assert len(sidecar["imported"]["files"]) == 2


def test_shared_memory_that_was_rounded_is_left_out_and_told(page, tmp_path) -> None:
    name = "launch__shared_mem_per_block_dynamic"
    at = page[0].index(name)
    rows = [[*row[:at], f"{float(row[at].replace(',', '')) / 1000:.2f}", *row[at + 1 :]] for row in page[2:]]
    content = [page[0], [*page[1][:at], "Kbyte/block", *page[1][at + 1 :]], *rows]
    table, sidecar, said = imported([written(text(content), tmp_path / "page.csv")], tmp_path / "out")
    assert table["smem_dynamic_bytes"].isna().all() and name not in table
    assert any(f"the metric {name} is left out: it is in Kbyte/block" in line for line in said)
    assert sidecar["imported"]["coverage"]


@pytest.mark.parametrize("unit", ["", "furlong"])
def test_times_in_no_known_unit_are_left_out(tmp_path, unit) -> None:
    rows = f"0,f,gpu__time_duration.sum,{unit},41.28\n0,f,dram__bytes.sum,n/a,n/a\n0,f,launch__sm_count,SM,132\n"
    path = written(f"ID,Kernel Name,Metric Name,Metric Unit,Metric Value\n{rows}", tmp_path / "page.csv")
    with pytest.raises(DataError, match="no launch has a duration"):
        imported([path], tmp_path / "out")
    read = ncu_import.read_launches(path, ncu_text.find_tables(path))
    assert any("gpu__time_duration.sum is left out: it is" in line for line in read.left_out)
    assert read.table["launch__sm_count"].tolist() == ["132"] and "dram__bytes.sum" not in read.table


def test_a_details_page_gives_metrics_by_ncus_own_names_and_advice(recording, tmp_path) -> None:
    rows = list(csv.reader(Path(recording("ncu/launch.details.csv")).read_text().splitlines()))
    heading = rows[0]
    # The recording has launch statistics alone.
    times = [[*row[:11], "GPU Speed Of Light Throughput", "Duration", "us", "2.50", "", "", "", "", ""]
             for row in rows[1:] if row[heading.index("Metric Name")] == "Registers Per Thread"]  # fmt: skip
    path = written(text([heading, *rows[1:], *times]), tmp_path / "details.csv")
    table, _, _ = imported([path], tmp_path / "out")
    assert set(table["gpu__time_duration.sum"]) == {2500}
    assert table["launch__registers_per_thread"].iloc[0] == 166
    advice = raw_page.read_details(tmp_path / "out" / "details.csv")
    assert advice["Rule Name"].eq("LaunchConfiguration").any()


REFUSED = {
    "holds no table of ncu's": "step 1\nstep 2\n",
    "no launch has a duration": '"ID","Kernel Name","Grid Size","Block Size","CC"\n"","","","",""\n"0","f","(1, 1, 1)","(1, 1, 1)","9.0"\n',
    "a number of another locale": '"ID","Kernel Name","Grid Size","Block Size","CC","gpu__time_duration.sum"\n'
    '"","","","","","ns"\n"0","f","(1, 1, 1)","(1, 1, 1)","9.0","1.234.567"\n',
    "a heading and no launch": '"ID","Kernel Name","CC"\n"","",""\n',
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, why) -> None:
    with pytest.raises(DataError, match=why) as error:
        imported([written(REFUSED[why], tmp_path / "page.csv")], tmp_path / "out")
    assert "\n" not in str(error.value) and str(tmp_path / "page.csv") in str(error.value)


def test_kernels_are_told_by_any_demanglers_name() -> None:
    mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
    traced = {mangled: "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
              "std::array<char *, (unsigned long)1>>(int, T2, T3)"}  # fmt: skip
    printed = [
        "void at::vectorized_elementwise_kernel<4, at::FillFunctor<float>, std::array<char *, 1>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
        "(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
        mangled, "vectorized_elementwise_kernel",
    ]  # fmt: skip
    assert set(ncu_import.match_names(printed, traced).values()) == {mangled}
    assert len(ncu_import.match_names(printed, traced)) == 4
    assert ncu_import.match_names(["other_kernel"], traced) == {}


def test_shared_memory_that_a_page_lacks_is_that_of_the_trace(recording, page, tmp_path) -> None:
    path = Path(recording("ncu/launch.raw.demangled.csv"))
    filled, sidecar, _ = imported([path], tmp_path / "filled", str(recording("nsys/train.sqlite")))
    known = filled["smem_static_bytes"].notna()
    # The page of mangled names has them, of the same launches.
    for kind in ("static", "dynamic"):
        place = page[0].index(f"launch__shared_mem_per_block_{kind}")
        own = pd.Series([float(row[place].replace(",", "")) for row in page[2:]])
        assert known.sum() == 292 and (filled.loc[known, f"smem_{kind}_bytes"] == own[known]).all()
    assert any("292 of 468 launches have no shared memory" in line for line in sidecar["imported"]["coverage"])


PROCESSES = [["0", "11", "k1"], ["1", "11", "k2"], ["0", "12", "k1"], ["1", "12", "k3"]]


def of_processes(order: Sequence[int], columns: Sequence[str] = ("ID", "Process ID")) -> Page:
    """A raw page of two processes with two launches each, of 1,000 to 4,000 ns, in an order."""
    heading = [*columns, "Kernel Name", "Block Size", "Grid Size", "gpu__time_duration.sum"]
    units = [*[""] * (len(heading) - 1), "ns"]
    rows = [[*PROCESSES[at][: len(columns)], PROCESSES[at][2], "(32, 1, 1)", "(1, 1, 1)", str(1000 * (at + 1))]
            for at in order]  # fmt: skip
    return [heading, units, *rows]


BOTH, ALONE = ("ID", "Process ID"), ("ID",)


@pytest.mark.parametrize(
    ("form", "order", "columns"),
    [
        # Rows of one metric each of equal launches with equal numbers, one behind the other, are told apart by nothing:
        # not those of the long form by their ID alone, in the order 0, 2, 1, 3.
        ("raw", (0, 1, 2, 3), ALONE), ("raw", (0, 2, 1, 3), BOTH), ("raw", (0, 2, 1, 3), ALONE),
        ("long", (0, 1, 2, 3), BOTH), ("long", (0, 2, 1, 3), BOTH), ("long", (2, 3, 0, 1), ALONE),
        ("two headings", (0, 2, 1, 3), ALONE), ("two headings", (2, 3, 0, 1), BOTH),
    ],
)  # fmt: skip
def test_launches_of_two_processes_are_all_read(tmp_path, columns, order, form) -> None:
    page = of_processes(order, columns)
    printed = text(page)
    if form == "long":
        heading, units, *rows = page
        printed = text([[*heading[:-1], "Section Name", "Metric Name", "Metric Unit", "Metric Value"],
                        *([*row[:-1], "s", name, unit, value] for row in rows
                          for name, unit, value in ((heading[-1], units[-1], row[-1]), ("launch__thread_count", "thread", "32")))])  # fmt: skip
    elif form == "two headings":
        printed = text(page[:4]) + text([page[0], page[1], *page[4:]])
    launches, sidecar, _ = imported([written(printed, tmp_path / "a.csv")], tmp_path / "out")
    found = sorted(zip(launches["gpu__time_duration.sum"], launches["kernel"], strict=True))
    assert found == [(1000, "k1"), (2000, "k2"), (3000, "k1"), (4000, "k3")] and sidecar["step_ns"] == 10_000


@pytest.mark.parametrize(
    ("value", "cycles", "words"),
    [("-5", "1000", "lasts -5 ns"), ("3200000000", "1000000", "lasts 3,200,000,000 ns and 1,000,000 cycles of a GPU"),
     ("1", "1000000", "lasts 1 ns and 1,000,000 cycles")],
)  # fmt: skip
def test_a_duration_that_cannot_be_is_named_and_left_out(tmp_path, value, cycles, words) -> None:
    heading, units, *rows = of_processes((0, 1, 2, 3))
    page = [[*heading, "gpc__cycles_elapsed.max"], [*units, "cycle"], *([*row, str(int(row[-1]) * 2)] for row in rows)]
    page[3][-2:] = [value, cycles]
    launches, sidecar, said = imported([written(text(page), tmp_path / "a.csv")], tmp_path / "out")
    assert sorted(launches["gpu__time_duration.sum"]) == [1000, 3000, 4000] and sidecar["step_ns"] == 8000
    assert any(
        f"1 of 4 launches has times that cannot be and is left out: launch 2 (k2) {words}" in line for line in said
    )
