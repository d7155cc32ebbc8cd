"""The report's page, whatever kernels and files are called."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from profzoo import formatting
from profzoo.harness.step import peak_memory
from profzoo.io.scripts import write_csv
from profzoo.kernels import short_names
from profzoo.report import cell_section, overview, packed_blocks, page, value_formats
from profzoo.verdicts.causes import verdict_table, verdicts
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
        self.feed(packed_blocks.unpack_blocks(html))

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


@pytest.mark.parametrize("whole", slow.first([True, False]))
def test_a_page_of_imported_reports_speaks_of_the_clock_that_they_have(
    tmp_path: Path, whole: bool, plain: Seen
) -> None:
    told = {"imported": "steps: ProfilerStep, as torch.profiler saw them", "timed_under": "torch.profiler",
            "whole": whole, "phase": "imported", "steps": 1 if whole else 3}  # fmt: skip
    cells = pd.DataFrame([{**CELL, **told}])
    # What stands under nsys is the same trace.
    agreement = pd.DataFrame([{"model": "unet", "phase": "imported", "torch_launches": 5.0, "nsys_launches": 5.0}])
    text = Seen(rendered(tmp_path, ["f"], cells=cells, agreement=agreement)).text
    said = " ".join(text.split())
    assert "1 report that was made elsewhere. All times are those under torch.profiler, which makes steps lon" in said
    assert "with its time per step as the tool of its report timed it" in said
    assert "measured without a profiler" not in said and "time per step without a profiler" not in said
    assert "Agreement of the tools" not in said and "Not collected:" not in said
    assert (overview.WHOLE in said) == whole and ("3 steps" in said) == (not whole)
    # Of cells that were measured here nothing changes.
    measured = " ".join(plain.text.split())
    assert "1 cells (model × phase), measured without a profiler and under nsys. All times are per step." in measured


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(rendered(tmp_path_factory.mktemp("plain"), ["f"]))


def test_names_of_kernels_are_text(tmp_path: Path) -> None:
    names = [*NAMES, *(name for name in faults.NAMES if name)]
    same, odd = Seen(rendered(tmp_path, ["f"] * len(names))), Seen(rendered(tmp_path, names))
    assert odd.elements == same.elements
    assert all(odd.text.count(name) >= 2 for name in names)


def test_sentences_about_a_cell_are_shown_in_it_alone(tmp_path: Path, plain: Seen) -> None:
    said = "f<T>: 56% of its warp samples are at a.cu:12, where warps wait most for long scoreboard"
    differ = "the 4 traced steps launch differently"
    advice = "run it within `with network.no_sync():`"
    cell, other = (
        {"model": "unet", "phase": "train"},
        {"model": "unet", "phase": "inference", "says": "of another cell"},
    )
    tables = {"inside": [{**cell, "says": said}, other], "repetition": [{**cell, "says": differ}, other]}
    html = rendered(tmp_path, ["f", advice], **{name: pd.DataFrame(rows) for name, rows in tables.items()})
    seen = Seen(html)
    assert "Where the most expensive kernels wait and spill" in seen.text and f"{said}." in seen.text
    assert seen.text.count("The 4 traced steps launch differently.") == 1 and "of another cell" not in seen.text
    assert "expensive kernels" not in plain.text and "launch differently" not in plain.text
    # What to type is code.
    assert ">run it within <code>with network.no_sync():</code></td>" in html


def test_lines_that_wait_are_shown_as_they_are_written(tmp_path: Path, plain: Seen) -> None:
    lines = [one for name in NAMES for one in (line(text=name, calls=1_062), line(line=90, operation=name, range=""))]
    table = verdict_table.tabulate_waits({("unet", "train"): lines}, {})
    seen, without = Seen(rendered(tmp_path, ["f"], waits=table)), Seen(rendered(tmp_path, ["f"], waits=table[:0]))
    assert "train.py:84" in seen.text and "1,062" in seen.text
    assert all(seen.text.count(name) >= 2 for name in NAMES)
    assert "Lines of the program at which a step waits" in seen.text
    assert "Lines of the program at which" not in without.text
    assert seen.elements.count("script") == plain.elements.count("script")


def test_links_lead_to_files_of_any_name(tmp_path: Path) -> None:
    folder, names = tmp_path / "unet", ["a#b", "c?d", "e%41f", 'g"h', "i j", "k<l>&m", "ü"]
    folder.mkdir()
    for name in names:
        (folder / f"train.{name}.csv").write_text("")
    (folder / "train.folder").mkdir()
    (folder / "train.gone").symlink_to(folder / "nowhere")
    seen = Seen(rendered(tmp_path, ["f"]))
    own = [link for link in seen.links if link.startswith("unet/")]
    assert [re.sub(r"[#?].*", "", link) for link in own] == own
    assert sorted(unquote(link) for link in own) == sorted(f"unet/train.{name}.csv" for name in names)
    assert all(f"train.{name}.csv" in seen.text for name in names)


def test_cells_whose_clocks_moved_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: Seen) -> None:
    assert "SM clocks varied" not in plain.text
    monkeypatch.setitem(CELL, "clocks", "power cap in 40% of samples")
    text = Seen(rendered(tmp_path, ["f"])).text
    assert "SM clocks varied or were throttled in 1 of 1 cells" in text
    assert "unet train: power cap in 40% of samples" in text and text.count("power cap in 40%") == 2


def test_a_comparison_is_shown_where_there_is_one(tmp_path: Path, plain: Seen) -> None:
    table, seen = compared([("lstm", "inference"), ("unet", "train")])
    table = table.assign(differs=["driver 1 -> <2>", "precision fp32 -> bf16"])
    shown = Seen(rendered(tmp_path, ["f"], compare=table, compare_parts=seen))
    text = " ".join(shown.text.split())
    assert "bf16 against plain: 5 processes each, times per step, alternating. " in text
    assert "driver 1 -> <2> (lstm inference)" in text
    # What differs is said before any number.
    gain = f"{formatting.fixed(1 / table['ratio'].iloc[0], 1, 3)}×"
    assert text.index("Differences besides the times") < text.index(gain)
    (largest, *_) = seen[(seen["model"] == "unet") & (seen["level"] == "kernel")].to_dict("records")
    (short,) = short_names.shorten_names([largest["name"]]).values()
    assert f"{largest['delta_share']:+.1%}" in text and short in text
    assert "against" not in plain.text and "#comparison" not in plain.links
    assert shown.elements.count("table") == plain.elements.count("table") + 2


def test_a_comparison_has_a_page_of_its_own(tmp_path: Path) -> None:
    table, _ = compared([("unet", "train")])
    write_csv(table, tmp_path / "compare.csv")
    (tmp_path / "comparison.svg").write_text('<svg id="a"><use href="#a"/></svg>')
    html = tmp_path / "compare.html"
    compare = {"compare": str(tmp_path / "compare.csv")}
    page.write_comparison_page(compare, [str(tmp_path / "comparison.svg")], str(html))
    seen = Seen(html.read_text())
    assert seen.elements.count("svg") == seen.elements.count("table") == 1 and "nan" not in seen.text
    assert "▶ faster" in seen.text or "◀ slower" in seen.text or "■ equivalent" in seen.text


def test_the_strip_of_a_cell_on_the_cpu_is_of_its_ranges() -> None:
    times = {"backward": 60, "forward": 37, "optimizer": 2.7, "transfer": 0.3}
    row = {"model": "unet", "phase": "train", "clock": "cpu"}
    rows = [{**row, "range": name, "ns_per_step": ns} for name, ns in times.items()]
    ranges = pd.DataFrame([*rows, {**rows[0], "phase": "inference", "clock": "gpu"}])
    tables = {"steps": pd.DataFrame({"model": [], "phase": []}), "ranges": ranges}
    strip = value_formats.step_parts(tables, "unet", "train")
    # In the order of a step, and what is too little to be seen is left out.
    assert value_formats.describe_parts(strip) == "forward 37 %, backward 60 %, optimizer 3 %"
    # On a GPU what nsys traced tells more, and the CPU's ranges would mislead.
    assert value_formats.step_parts(tables, "unet", "inference") == []
    assert value_formats.step_parts({"steps": tables["steps"]}, "unet", "train") == []


def test_sentences_are_read_of_each_table_once(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    row = {"place": 1, "id": 0, "function": "f", "mangled": "f", "level": "line", "file": "/x/a.cu", "line": 12, "source": "y",
           "offset_bytes": None, "sass": "", "opcode": "", "samples": 5, "share": 1.0}  # fmt: skip
    paths = [tmp_path / "unet" / f"train.ncu-source.{name}.csv" for name in ("full", "source")]
    for path in paths:
        pd.DataFrame([row]).to_csv(path, index=False)
    told = page.read_sentences(map(str, paths))
    assert told.values.tolist() == [["unet", "train", "f: 100% of its warp samples are at a.cu:12"]]
    assert list(page.read_sentences([])) == list(page.COLUMNS)


def test_what_holds_memory_is_told_with_what_would_lower_it(tmp_path: Path, plain: Seen) -> None:
    none = dict.fromkeys(peak_memory.COLUMNS, 0) | {"module": "", "remedy": "", "unused_bytes": ""}
    rows = [
        {
            **none,
            "range": "step",
            "peak_bytes": 5e6,
            "weights_bytes": 1e6,
            "activations_bytes": 4e6,
            "unused_bytes": 2e6,
        },
        {**none, "range": "forward", "peak_bytes": 3e6, "activations_bytes": 3e6},
        {**none, "range": "backward", "peak_bytes": 5e6, "activations_bytes": 5e6},
        {**none, "range": "step", "module": "up.0", "peak_bytes": 4e6, "activations_bytes": 4e6},
        {**none, "range": "step", "module": "out", "peak_bytes": 1e6, "weights_bytes": 1e6},
        {**none, "range": "forward", "remedy": "checkpoint", "peak_bytes": 2e6, "activations_bytes": 2e6},
    ]
    path = tmp_path / "unet" / "train.memory-remedies.csv"
    path.parent.mkdir()
    peak_memory.write_rows([row | {"order": order} for order, row in enumerate(rows)], path)
    text = Seen(rendered(tmp_path, ["f"], **cell_section.read_tables([str(path)]))).text
    assert "At most 5 MB in backward: activations 4 MB, weights 1 MB. The allocator holds 2 MB more" in text
    assert "up.04 MB80%activations 4 MB" in text and "checkpoint2 MB60%forward" in text
    # Fewer columns are those of an earlier version.
    shorter = pd.read_csv(path).drop(columns=["module", "remedy", "unused_bytes"]).head(3)
    shorter.to_csv(path, index=False)
    for page_text in (plain.text, Seen(rendered(tmp_path, ["f"], **cell_section.read_tables([str(path)]))).text):
        assert "Memory at the step's peak" not in page_text


def test_processes_that_come_late_are_told_with_their_operations(tmp_path: Path, plain: Seen) -> None:
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
    for name, (ending, table) in ((name, cell_section.FILES[name]) for name in cell_section.PROCESS_FILES):
        (tmp_path / "unet").mkdir(exist_ok=True)
        write_csv(pd.DataFrame(tables[name])[list(table.columns)], tmp_path / "unet" / f"train.{ending}")
    read = cell_section.read_tables([str(path) for path in sorted((tmp_path / "unet").iterdir())])
    text = " ".join(Seen(rendered(tmp_path, ["f"], **read)).text.split())
    assert "1n2 of 23 msdata (4 ms)0 ns" in text and "0n0 of 20 ns3 ms" in text
    assert "Collective operations, over NV18" in text
    assert "all-reduce67 MB6500 µs1.5 ms134.00 GB/s268.00 GB/s50%" in text
    assert "took less time in all" not in text
    sizes = [{**sent, "bytes": 1 << power} for power in range(cell_section.MOST + 2)]
    many = rendered(tmp_path, ["f"], collectives=pd.DataFrame(sizes).assign(model="unet", phase="train"))
    assert "2 more, which took less time in all, are in train.torch-collectives.csv." in Seen(many).text
    # A cell of one process has none of it.
    assert "Collective operations" not in plain.text
