"""The list of ncu's metrics: what is found, what is marked, how narrow it is, and what is said where ncu is not there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.cell import schema
from profzoo.errors import DataError
from profzoo.tools.ncu import metric_list
from profzoo.tools.ncu.metric_list import Metric, query_metrics, query_sets, read_metrics

FOLDER = os.environ.get("PROFZOO_NCU", "")
# As ncu 2024.1.1 printed them, a few of 5,170.
PRINTED = """"Metric name","Metric type","Metric unit","Metric description","gh100"
"dram__bytes_read","Counter","byte","# of bytes read from DRAM","1"
"gpu__dram_throughput","Throughput","%","GPU DRAM throughput","1"
"gpu__compute_memory_access_throughput","Throughput","%","Throughput within caches and DRAM","1"
"lts__t_bytes","Counter","byte","# of bytes requested for all operations","1"
"""
# Below each name is what is collected, for some GPUs alone or for all.
LISTED = """dram__bytes_read.sum
 -dram__bytes_read.sum
group:memory__dram_table
 -group:memory__dram_table
gpu__dram_throughput.avg
 -arch:70:75:gpu__dram_throughput.avg
 -arch:89:90:gpu__dram_throughput.avg
pmsampling:dramc__throughput.avg
 -arch:90:90:pmsampling:dramc__throughput.avg
fbpa__dram_sectors.sum
 -arch:75:86:fbpa__dram_sectors.sum
breakdown:sm__throughput.avg
 -breakdown:sm__throughput.avg
"""
# An ncu of a machine without a GPU that knows one chip and one section.
FAKE = """#!/bin/sh
case "$*" in
  *--query-metrics-collection*) echo "==ERROR== the argument for option '--query-metrics-collection' is invalid." ;;
  *--list-chips*) echo gh100, tu102 ;;
  *--chips*gh100*) cat "$0.printed" ;;
  *--chips*) echo "==ERROR== Invalid chip x" ;;
  *--list-metrics*SpeedOfLight*) cat "$0.listed" ;;
  *--list-metrics*) echo "==ERROR== Option '--section' did not match any section." ;;
  *) echo "==ERROR== Driver could not be loaded." ;;
esac
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program that answers as ncu does on a machine without a GPU."""
    program = tmp_path / "ncu"
    program.write_text(FAKE)
    program.chmod(0o755)
    Path(f"{program}.printed").write_text(PRINTED)
    Path(f"{program}.listed").write_text(LISTED)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return program


SETS = {"sol": {"sections": ["SpeedOfLight"]}, "mine": {"metrics": ["lts__t_bytes.sum"], "sections": ["Lost"]}}


def test_metrics_are_found_by_all_words_in_name_or_description_those_by_name_first() -> None:
    every = read_metrics(PRINTED)
    names = [one.name for one in metric_list.find_metrics(every, {}, ["DRAM"])]
    assert names == ["dram__bytes_read", "gpu__dram_throughput", "gpu__compute_memory_access_throughput"]
    assert [one.name for one in metric_list.find_metrics(every, {}, ["dram", "caches"])] == names[2:]
    assert metric_list.find_metrics(every, {}, ["zzz"]) == []


def test_without_words_it_is_what_sets_collect_also_what_ncu_does_not_list() -> None:
    sets = {"lts__t_bytes": ["mine"], "launch__grid_size": ["mine", "sol"]}
    found = metric_list.find_metrics(read_metrics(PRINTED), sets, [])
    assert [(one.name, one.sets) for one in found] == [
        ("launch__grid_size", ("mine", "sol")), ("lts__t_bytes", ("mine",))]  # fmt: skip


def test_lines_are_narrow_and_say_unit_meaning_sets_and_columns() -> None:
    long = Metric("dram__bytes_read", "byte", "Bytes " * 40, tuple(f"set{number}" for number in range(30)))
    lines = metric_list.format_metrics([long, Metric("x__y")])
    assert lines[0] == "* dram__bytes_read  (byte)" and lines[-1] == "  x__y"
    assert max(map(len, lines)) <= 80 and len(lines) > 5
    assert any("in kernels.csv: dram_bytes" in line for line in lines)


def test_ncu_is_asked_for_the_chip_of_this_machine_and_else_for_one_that_it_knows(ncu: Path) -> None:
    found, where, capabilities = query_metrics(None)
    assert len(found) == 4 and where == "gh100 (there is no GPU here)" and capabilities == {9.0}
    assert query_metrics("gh100")[1:] == ("gh100", {9.0})
    with pytest.raises(DataError, match=r"no metrics of x, but says: Invalid chip x; it knows gh100, tu102"):
        query_metrics("x")


def test_sets_are_expanded_by_ncu_and_named_metrics_are_known_anyway(ncu: Path) -> None:
    sol = ["dram__bytes_read", "gpu__dram_throughput", "pmsampling:dramc__throughput", "sm__throughput"]
    assert query_sets(SETS, {9.0}) == {**{name: ["sol"] for name in sol}, "lts__t_bytes": ["mine"]}


def test_what_a_section_has_for_other_gpus_is_not_collected_on_this_one(ncu: Path) -> None:
    """As sections of ncu say `arch:75:86:` before a metric that they have for GPUs of these compute capabilities."""
    assert list(query_sets({"sol": SETS["sol"]}, {8.6})) == ["dram__bytes_read", "fbpa__dram_sectors", "sm__throughput"]
    # Of several GPUs each has its own; of an unknown one all may be there.
    every = ["dram__bytes_read", "gpu__dram_throughput", "pmsampling:dramc__throughput", "fbpa__dram_sectors",
             "sm__throughput"]  # fmt: skip
    assert list(query_sets({"sol": SETS["sol"]}, {8.6, 9.0})) == list(query_sets({"sol": SETS["sol"]}, ())) == every


def test_a_set_asks_for_other_names_on_other_gpus(ncu: Path) -> None:
    asked = {"mine": {"metrics": ["dram__bytes_read.sum", "dram__bytes_write.sum"]}}
    assert list(query_sets(asked, {9.0})) == ["dram__bytes_read", "dram__bytes_write"]
    assert list(query_sets(asked, {12.0})) == ["dram__bytes_op_read", "dram__bytes_op_write"]


def test_products_in_8_bits_are_marked_as_what_cells_of_their_precision_collect(ncu: Path) -> None:
    asked = {"mine": {"metrics": ["sm__ops_path_tensor_src_fp16.sum"]}}
    found = query_sets(asked, {9.0})
    assert found["sm__ops_path_tensor_src_fp8"] == ["mine in cells of fp8"]
    assert found["sm__ops_path_tensor_src_int8"] == ["mine in cells of int8"]
    # GPUs of compute capability 8.6 have no products in fp8.
    assert "sm__ops_path_tensor_src_fp8" not in query_sets(asked, {8.6})


def test_chips_have_a_compute_capability() -> None:
    known = {
        "gv100": 7.0,
        "tu116": 7.5,
        "ga100": 8.0,
        "ga102": 8.6,
        "ga10b": 8.7,
        "ad102": 8.9,
        "gh100": 9.0,
        "gb202": 12.0,
    }
    assert {chip: metric_list.capabilities_of(chip) for chip in known} == {chip: {one} for chip, one in known.items()}
    assert metric_list.capabilities_of("xx100") == set()


def test_a_column_of_a_table_is_found_by_its_name_with_endings() -> None:
    every = read_metrics(PRINTED)
    for word in ("dram__bytes_read.sum", "DRAM__bytes_read.avg.pct_of_peak_sustained_elapsed"):
        assert [one.name for one in metric_list.find_metrics(every, {}, [word])] == ["dram__bytes_read"]


def test_the_list_ends_with_what_it_is_of(ncu: Path) -> None:
    lines = metric_list.main("dram", None, SETS)
    assert lines[0] == "* dram__bytes_read  (byte)" and "      sets: sol" in lines
    told = " ".join(lines)
    assert "4 metrics of gh100 (there is no GPU here) with dram in name or description" in told
    assert "collect 3 (*)" in told and max(map(len, lines)) <= 80
    assert "arch:" not in told and "fbpa__dram_sectors" not in told
    assert metric_list.main("zzz", None, SETS)[0].startswith("No metric of gh100")


def test_without_ncu_one_line_says_so(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "profzoo.tools.ncu.metric_list", "--match", "dram", "--sets", "{}"]
    run = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PATH": str(tmp_path)})
    assert run.returncode and re.fullmatch(
        r"profzoo: ncu is not on PATH, so that its metrics cannot be listed: install .*\n", run.stderr
    )


def test_every_metric_that_quantities_are_made_of_is_told_by_its_column() -> None:
    assert metric_list.quantities_of("dram__bytes_read") == ["dram_bytes"]
    assert metric_list.quantities_of("smsp__sass_thread_inst_executed_op_ffma_pred_on") == ["fp32_flop"]


@pytest.mark.slow
@pytest.mark.skipif(
    not (FOLDER or shutil.which("ncu")), reason="no ncu on PATH, and PROFZOO_NCU names no folder of one"
)
def test_the_real_ncu_lists_metrics_that_the_shipped_sets_collect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], *([f"{FOLDER}/bin"] if FOLDER else [])]))
    shipped = schema.load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]
    found, _, capabilities = query_metrics(metric_list.CHIP)
    roofline = query_sets({"roofline": shipped["roofline"]}, capabilities)
    assert found["dram__bytes_read"].unit == "byte" and found["dram__bytes_read"].description
    assert {"dram__bytes_read", "gpu__time_duration"} <= set(roofline) and set(roofline) <= set(found)
    every = query_sets(shipped, capabilities)
    assert not [name for name in every if name.startswith(("arch:", "group:", "breakdown:"))]
    assert "instances" in every["pmsampling:dramc__read_throughput"] and "basic" in every["dram__cycles_active"]
    # Its sections have this for other GPUs.
    assert "FBPA.TriageA.dramc__throughput" not in every
