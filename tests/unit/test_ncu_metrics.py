"""The list of ncu's metrics: what is found, what is marked, how narrow it is, and what is said where ncu is not there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo import schema
from profzoo.errors import DataError
from profzoo.tools.ncu import metric_list, metric_query
from profzoo.tools.ncu.metric_query import Metric, query_metrics, query_sets, read_metrics

# As ncu 2024.1.1 printed them, a few of 5,170.
PRINTED = """"Metric name","Metric type","Metric unit","Metric description","gh100"
"dram__bytes_read","Counter","byte","# of bytes read from DRAM","1"
"gpu__dram_throughput","Throughput","%","GPU DRAM throughput","1"
"gpu__compute_memory_access_throughput","Throughput","%","Throughput within caches and DRAM","1"
"lts__t_bytes","Counter","byte","# of bytes requested for all operations","1"
"""
LISTED = "dram__bytes_read.sum\n -dram__bytes_read.sum\ngroup:memory__dram_table\ngpu__dram_throughput.avg\n"
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
    found, where = query_metrics(None)
    assert len(found) == 4 and where == "gh100 (there is no GPU here)"
    assert query_metrics("gh100")[1] == "gh100"
    with pytest.raises(DataError, match=r"no metrics of x, but says: Invalid chip x; it knows gh100, tu102"):
        query_metrics("x")


def test_sets_are_expanded_by_ncu_and_named_metrics_are_known_anyway(ncu: Path) -> None:
    assert query_sets(SETS) == {"dram__bytes_read": ["sol"], "gpu__dram_throughput": ["sol"], "lts__t_bytes": ["mine"]}


def test_the_list_ends_with_what_it_is_of(ncu: Path) -> None:
    lines = metric_list.main("dram", None, SETS)
    assert lines[0] == "* dram__bytes_read  (byte)" and "      sets: sol" in lines
    told = " ".join(lines)
    assert "3 metrics of gh100 (there is no GPU here) with dram in name or description" in told
    assert "collect 2 (*)" in told and max(map(len, lines)) <= 80
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


@pytest.mark.skipif(shutil.which("ncu") is None, reason="no ncu on PATH")
def test_the_real_ncu_lists_metrics_that_the_shipped_sets_collect() -> None:
    shipped = schema.load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]
    found, _ = query_metrics(metric_query.CHIP)
    roofline = query_sets({"roofline": shipped["roofline"]})
    assert found["dram__bytes_read"].unit == "byte" and found["dram__bytes_read"].description
    assert {"dram__bytes_read", "gpu__time_duration"} <= set(roofline) and set(roofline) <= set(found)
