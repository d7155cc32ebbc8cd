"""The report's page, whatever kernels and files are called."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from profzoo.io.scripts import write_csv
from profzoo.kernels import short_names
from profzoo.report import inside_kernels, page, process_section, step_bars
from profzoo.verdicts import verdicts, wait_table
from tests import slow
from tests.faults import mutations as faults
from tests.unit.compared import compared
from tests.unit.test_wait_costs import line

NAMES = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b &lt; c", "'; drop", "void f<int, &g>(T1*)",
    "null", "</details></table>",
]  # fmt: skip
CELL = {
    "model": "unet", "phase": "train", "device": "a GPU", "date": "2026-11-22", "workload": "trimmed",
    "precision": "fp32", "parameters": 1, "batch": 2, "steps": 20, "step_ns": 1e6, "step_median_ns": 1e6,
    "items_per_s": 2000.0, "peak_memory_bytes": 1, "peak_rss_bytes": 1, "loss": 0.5,
}  # fmt: skip


class Seen(HTMLParser):
    """What a browser makes of the page: its text, its elements, and where its links lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.elements, self.links = "", [], []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        given = dict(attrs)
        assert not [name for name in given if name.startswith("on")]
        if tag == "a":
            self.links.append(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(results: Path, names: list[str], **more: pd.DataFrame) -> str:
    """The page of one cell with kernels of these names; more: tables of a comparison."""
    rows = {"model": "unet", "phase": "train", "tool": "nsys", "kind": "kernel", "range": "forward"}
    activity = pd.DataFrame([{**rows, "name": name, "launches_per_step": 1.0, "ns_per_step": 1e3, "share": 0.1}
                             for name in names])  # fmt: skip
    judged = {"model": "unet", "phase": "train", "level": "kernel", "rank": 1, "verdict": "memory-bound", "by": "ncu"}
    told = pd.DataFrame([{**judged, "function": name, "next_step": name} for name in names])
    tables = {
        "cells": pd.DataFrame([CELL]),
        "activity": activity,
        "verdicts": told.reindex(columns=verdicts.COLUMNS),
        "steps": pd.DataFrame(columns=["model", "phase", "busy_share", "launches"]),
        "agreement": pd.DataFrame(columns=["model", "phase"]),
        "ranks": pd.DataFrame(columns=["model", "phase"]),
        **more,
    }
    return page.render_page(tables, [{"torch": "2", "cuda": None}], [], ["nsys"], results)


def test_names_of_kernels_are_text(tmp_path: Path) -> None:
    plain, odd = Seen(rendered(tmp_path, ["f"] * len(NAMES))), Seen(rendered(tmp_path, NAMES))
    assert odd.elements == plain.elements
    for name in NAMES:
        assert odd.text.count(name) >= 2


@pytest.mark.parametrize("name", slow.first([name for name in faults.NAMES if name], 3))
def test_any_name_is_text(tmp_path: Path, name: str) -> None:
    plain, odd = Seen(rendered(tmp_path, ["f"])), Seen(rendered(tmp_path, [name]))
    assert odd.elements == plain.elements
    assert odd.text.count(name) >= 2


@pytest.mark.parametrize("name", slow.first(NAMES, 2))
def test_lines_that_wait_are_shown_as_they_are_written(tmp_path: Path, name: str) -> None:
    lines = [line(text=name, calls=1_062), line(line=90, operation=name, range="")]
    table = wait_table.tabulate_waits({("unet", "train"): lines}, {})
    seen, without = Seen(rendered(tmp_path, ["f"], waits=table)), Seen(rendered(tmp_path, ["f"], waits=table[:0]))
    assert "train.py:84" in seen.text and "1,062" in seen.text and seen.text.count(name) >= 2
    assert (
        "Lines of the program at which a step waits" in seen.text
        and "Lines of the program at which" not in without.text
    )
    assert seen.elements.count("script") == without.elements.count("script")


def test_how_steps_differ_is_one_sentence_of_the_cell(tmp_path: Path) -> None:
    table = pd.DataFrame([{"model": "unet", "phase": "train", "says": "the 4 traced steps launch differently"}])
    other = table.assign(model="lstm")
    seen, without = (Seen(rendered(tmp_path, ["f"], repetition=rows)) for rows in (table, other))
    assert seen.text.count("The 4 traced steps launch differently.") == 1
    assert "launch differently" not in without.text and without.text == Seen(rendered(tmp_path, ["f"])).text


@pytest.mark.parametrize("name", slow.first(["a#b", "c?d", "e%41f", 'g"h', "i j", "k<l>&m", "ü"], 3))
def test_links_lead_to_files_of_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "unet"
    folder.mkdir()
    (folder / f"train.{name}.csv").write_text("")
    (folder / "train.folder").mkdir()
    (folder / "train.gone").symlink_to(folder / "nowhere")
    seen = Seen(rendered(tmp_path, ["f"]))
    own = [link for link in seen.links if link.startswith("unet/")]
    assert [re.sub(r"[#?].*", "", link) for link in own] == own
    assert [unquote(link) for link in own] == [f"unet/train.{name}.csv"]
    assert f"train.{name}.csv" in seen.text


def test_cells_whose_clocks_moved_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "SM clocks varied" not in Seen(rendered(tmp_path, ["f"])).text
    monkeypatch.setitem(CELL, "clocks", "power cap in 40% of samples")
    text = Seen(rendered(tmp_path, ["f"])).text
    assert "SM clocks varied or were throttled in 1 of 1 cells" in text
    assert "unet train: power cap in 40% of samples" in text and text.count("power cap in 40%") == 2


def test_a_comparison_is_shown_where_there_is_one(tmp_path: Path) -> None:
    table, seen = compared([("lstm", "inference"), ("unet", "train")])
    table = table.assign(differs=["driver 1 -> <2>", "precision fp32 -> bf16"])
    shown = Seen(rendered(tmp_path, ["f"], compare=table, compare_parts=seen))
    text = " ".join(shown.text.split())
    assert (
        "bf16 against plain: 5 processes each, times per step, alternating. " in text
        and "driver 1 -> <2> (lstm inference)" in text
    )
    # What differs is said before any number.
    assert text.index("Differences besides the times") < text.index(f"{1 / table['ratio'].iloc[0]:.3f}×")
    (largest, *_) = seen[(seen["model"] == "unet") & (seen["level"] == "kernel")].to_dict("records")
    (short,) = short_names.shorten_names([largest["name"]]).values()
    assert f"{largest['delta_share']:+.1%}" in text and short in text
    without = Seen(rendered(tmp_path, ["f"]))
    assert "against" not in without.text and "#comparison" not in without.links
    assert shown.elements.count("table") == without.elements.count("table") + 2


def test_a_comparison_has_a_page_of_its_own(tmp_path: Path) -> None:
    table, _ = compared([("unet", "train")])
    write_csv(table, tmp_path / "compare.csv")
    (tmp_path / "comparison.svg").write_text('<svg id="a"><use href="#a"/></svg>')
    html = tmp_path / "compare.html"
    page.write_comparison_page(
        {"compare": str(tmp_path / "compare.csv")}, [str(tmp_path / "comparison.svg")], str(html)
    )
    seen = Seen(html.read_text())
    assert seen.elements.count("svg") == seen.elements.count("table") == 1 and "nan" not in seen.text
    assert "▶ faster" in seen.text or "◀ slower" in seen.text or "■ equivalent" in seen.text


def test_the_strip_of_a_cell_on_the_cpu_is_of_its_ranges() -> None:
    times = {"backward": 60, "forward": 37, "optimizer": 2.7, "transfer": 0.3}
    rows = [
        {"model": "unet", "phase": "train", "clock": "cpu", "range": name, "ns_per_step": ns}
        for name, ns in times.items()
    ]
    ranges = pd.DataFrame([*rows, {**rows[0], "phase": "inference", "clock": "gpu"}])
    tables = {"steps": pd.DataFrame({"model": [], "phase": []}), "ranges": ranges}
    strip = step_bars.step_parts(tables, "unet", "train")
    # In the order of a step, and what is too little to be seen is left out.
    assert step_bars.describe_parts(strip) == "forward 37 %, backward 60 %, optimizer 3 %"
    # On a GPU what nsys traced tells more, and the CPU's ranges would mislead.
    assert step_bars.step_parts(tables, "unet", "inference") == []
    assert step_bars.step_parts({"steps": tables["steps"]}, "unet", "train") == []


def test_what_to_type_within_advice_is_code(tmp_path: Path) -> None:
    html = rendered(tmp_path, ["run it within `with network.no_sync():`"])
    assert ">run it within <code>with network.no_sync():</code></td>" in html


def test_a_table_of_source_lines_is_summed_up_for_its_cell(tmp_path: Path) -> None:
    said = "f<T>: 56% of its warp samples are at a.cu:12, where warps wait most for long scoreboard"
    inside = pd.DataFrame([{"model": "unet", "phase": phase, "says": says} for phase, says in
                           (("train", said), ("inference", "of another cell"))])  # fmt: skip
    seen = Seen(rendered(tmp_path, ["f"], inside=inside))
    assert "Where the most expensive kernels wait and spill" in seen.text and f"{said}." in seen.text
    assert "of another cell" not in seen.text
    assert "expensive kernels" not in Seen(rendered(tmp_path, ["f"])).text


def test_sentences_are_read_of_each_table_once(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    row = {"place": 1, "id": 0, "function": "f", "mangled": "f", "level": "line", "file": "/x/a.cu", "line": 12, "source": "y",
           "offset_bytes": None, "sass": "", "opcode": "", "samples": 5, "share": 1.0}  # fmt: skip
    paths = [tmp_path / "unet" / f"train.ncu-source.{name}.csv" for name in ("full", "source")]
    for path in paths:
        pd.DataFrame([row]).to_csv(path, index=False)
    told = inside_kernels.read_sentences(map(str, paths))
    assert told.values.tolist() == [["unet", "train", "f: 100% of its warp samples are at a.cu:12"]]
    assert list(inside_kernels.read_sentences([])) == list(inside_kernels.COLUMNS)


def test_processes_that_come_late_are_told_with_their_operations(tmp_path: Path) -> None:
    late = {"host": "n", "clock": "host", "clock_error_ns": "", "operations": 2, "step": 0}
    skew = [
        {**late, "rank": 0, "range": "backward", "late_ns": 0, "waiting_ns": 3e6, "last": 0},
        {**late, "rank": 1, "range": "data", "late_ns": 4e6, "waiting_ns": 0, "last": 0, "operations": 0},
        {**late, "rank": 1, "range": "backward", "late_ns": -1e6, "waiting_ns": 0, "last": 2},
    ]
    sent = {"collective": "all_reduce", "dtype": "Float", "bytes": 64 << 20, "group_size": 2, "hosts": 1, "count": 6}
    sent |= dict.fromkeys(("transfer_ns", "transfer_min_ns", "transfer_max_ns"), 5e5) | {"waiting_ns": 1.5e6}
    sent |= {"algorithm_bytes_per_s": 1.34e11, "bus_bytes_per_s": 1.34e11, "probe_bus_bytes_per_s": 2.68e11}
    sent |= {"probe_share": 0.5, "link": "NV18"}
    tables = {"skew": skew, "collectives": [sent]}
    for name, (ending, table) in process_section.FILES.items():
        (tmp_path / "unet").mkdir(exist_ok=True)
        write_csv(pd.DataFrame(tables[name])[list(table.columns)], tmp_path / "unet" / f"train.{ending}")
    read = process_section.read_tables([str(path) for path in sorted((tmp_path / "unet").iterdir())])
    text = " ".join(Seen(rendered(tmp_path, ["f"], **read)).text.split())
    assert "1n2 of 23 msdata (4 ms)0 ns" in text and "0n0 of 20 ns3 ms" in text
    assert "Collective operations, over NV18" in text
    assert "all-reduce67 MB6500 µs1.5 ms134.00 GB/s268.00 GB/s50%" in text
    assert "took less time in all" not in text
    sizes = [{**sent, "bytes": 1 << power} for power in range(process_section.MOST + 2)]
    many = rendered(tmp_path, ["f"], collectives=pd.DataFrame(sizes).assign(model="unet", phase="train"))
    assert "2 more, which took less time in all, are in train.torch-collectives.csv." in Seen(many).text
    # A cell of one process has none of it.
    assert "Collective operations" not in Seen(rendered(tmp_path, ["f"])).text
