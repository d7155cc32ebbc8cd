"""What profzoo reads of pages that a real ncu prints of NVIDIA's own reports: tests/tools/install-ncu.sh sets both up."""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest

from profzoo.cell import schema
from profzoo.machine.external_programs import ask_program
from profzoo.tools.ncu import instances, raw_page, source_lines
from profzoo.tools.ncu.command import section_options
from profzoo.tools.ncu.instances import print_page
from profzoo.tools.ncu.quantities import MEMORY, PIPES, QUANTITIES, WARP_STATES, Kind
from profzoo.tools.ncu.source_lines import adds_up, name_column, read_lines
from tests import nvperf, slow

FOLDER = os.environ.get("PROFZOO_NCU", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="PROFZOO_NCU names no folder of ncu; tests/tools/install-ncu.sh")
# Of programs of 2^20 elements in blocks of whole warps.
WARPS = 2**20 // 32
SETS = schema.load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]
ONE = pd.DataFrame({"place": [1], "id": [0], "function": ["f"], "mangled": ["f"]})


def reports() -> list[str]:
    return sorted(map(str, Path(FOLDER, "examples").rglob("*.ncu-rep"))) if FOLDER else []


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PATH", f"{FOLDER}/bin{os.pathsep}{os.environ['PATH']}")
    yield


def raw(report: str) -> dict[str, str]:
    """Return the metrics of the report's launch."""
    heading, _, row = csv.reader(io.StringIO(print_page(report, ["--page", "raw", "--print-units", "base"])))
    return dict(zip(heading, row, strict=True))


def number(text: str) -> float:
    return float(text.replace(",", ""))


def named(name: str) -> str:
    (found,) = [path for path in reports() if Path(path).stem == name]
    return found


@pytest.mark.parametrize("report", slow.first(reports()), ids=lambda path: Path(path).stem)
def test_lines_and_instructions_add_up_to_what_ncu_itself_has(report: str) -> None:
    table, notes = source_lines.tabulate_report(report, ONE)
    assert notes == []
    lines, own = (table[table["level"].eq(level)] for level in ("line", "instruction"))
    printed = read_lines(print_page(report, [*source_lines.PAGE, "cuda,sass"], 0), report)
    assert lines["line"].tolist() == [line.number for line in printed] and len(printed) >= 5
    compared = 0
    for line, (_, row) in zip(printed, lines.iterrows(), strict=True):
        for label, text in line.values.items():
            name = name_column(label)
            if adds_up(name) and text.isdecimal():
                assert row[name] == int(text), (line.number, label)
                compared += 1
    assert compared > 40 * len(printed)
    whole = raw(report)
    assert own["samples"].sum() == number(whole["smsp__pcsamp_sample_count"])
    assert own["inst_executed"].sum() == number(whole["smsp__inst_executed.sum"])
    # A warp of each sample is in one state.
    states = [name for name in own if name.startswith("stall_") and not name.endswith("_not_issued")]
    assert own[states].sum().sum() == own["samples"].sum() and len(states) >= 18


def test_a_program_of_known_size_executes_what_it_must_at_its_lines() -> None:
    table, _ = source_lines.tabulate_report(named("addConstDouble3"), ONE)
    own = table.query("level == 'instruction' and inst_executed > 0")
    loads, stores = own[own["opcode"].eq("LDG")], own[own["opcode"].eq("STG")]
    # Its three doubles are read at line 55 and written at line 59, each by every warp.
    assert set(loads["line"]) == {55} and loads["inst_executed"].tolist() == [WARPS] * 3
    assert set(stores["line"]) == {59} and stores["inst_executed"].tolist() == [WARPS] * 3
    lines = table.query("level == 'line'").set_index("line")
    assert lines.loc[55, "source"] == "double3 a = d_in[index];" and lines.loc[55, "file"].endswith(".cu")
    # 24 bytes apart, the accesses of a warp touch three times as many sectors as they need.
    assert lines.loc[55, "l2_sectors_global"] == 3 * lines.loc[55, "l2_sectors_global_ideal"] == 9 * WARPS * 8
    assert lines[["local_loads", "local_stores"]].sum().sum() == 0


@pytest.mark.parametrize("report", slow.first(reports()), ids=lambda path: Path(path).stem)
def test_opcodes_and_samples_over_time_add_up_to_the_launch(report: str) -> None:
    table = instances.tabulate_report(report, ONE)
    whole = raw(report)
    mix = table.query("metric == 'sass__inst_executed_per_opcode'")
    assert mix["value"].sum() == number(whole["smsp__inst_executed.sum"]) and mix["instance"].is_unique
    # Blocks are counted as they start, and wavefronts of L1 as they pass.
    sampled = table.query("kind == 'time'").groupby("metric")["value"].sum()
    assert sampled["FE_B.TriageAC.gr__ctas_launched_queue_sync.sum"] == number(whole["launch__grid_size"])
    wavefronts = "SM_A.TriageAC.l1tex__data_pipe_lsu_wavefronts.avg"
    assert sampled[wavefronts] == pytest.approx(number(whole[wavefronts]), rel=0.001)
    # Blocks start within the kernel.
    took = number(whole["gpu__time_duration.sum"])
    begun = table[table["metric"].str.contains("ctas_launched") & table["value"].gt(0)]["time_ns"]
    assert -0.02 * took < begun.min() < begun.max() < 1.1 * took


def test_the_details_page_has_rules_with_speedups(tmp_path: Path) -> None:
    page = tmp_path / "details.csv"
    page.write_text(print_page(named("addConstDouble3"), ["--page", "details"]))
    advice = raw_page.read_details(page).query("`Rule Type` == 'OPT'")
    assert len(advice) >= 3 and advice[raw_page.SPEEDUP].max() > 10
    assert advice["Rule Description"].str.contains("uncoalesced global accesses").any()


def exact(product: Sequence[str]) -> bool:
    """Whether metrics are in proportion to what a ratio is of in every launch, and not only where launches are alike."""
    return len(product) == 1 or product == ("smsp__issue_active.avg.per_cycle_active", "smsp__cycles_active.avg")


@pytest.mark.parametrize("name", slow.first([name for name, own in SETS.items() if "set" not in own]))
def test_a_set_collects_what_its_ratios_are_weighted_by(name: str) -> None:
    """Else a mean over launches of other kernels is weighted by time, and may be off by a factor of two."""
    listed = ask_program(["ncu", "--list-metrics", *section_options(SETS[name])], 60).stdout.split()
    collected = {one.lstrip("-") for one in listed} | {*SETS[name].get("metrics", [])}
    ratios = {
        what: one
        for known in (QUANTITIES, MEMORY, PIPES, WARP_STATES)
        for what, one in known.items()
        if one.kind is Kind.RATIO and any({*part.factors} <= collected for part in one.sums)
    }
    unweighted = [what for what, one in ratios.items()
                  if not any({*product} <= collected for product in one.per if exact(product))]  # fmt: skip
    assert not unweighted


@pytest.mark.parametrize("chip", slow.first(["GH100", "GA100", "AD102"]))
@pytest.mark.parametrize(
    ("name", "weight"), slow.first([("stalls", "smsp__inst_issued.sum"), ("survey", "sm__cycles_active.avg")])
)
def test_a_weight_costs_no_pass(name: str, weight: str, chip: str) -> None:
    """Its counter is one that the ratio needs anyway, so that recorded costs of the set stay those of the set."""
    listed = ask_program(["ncu", "--list-metrics", *section_options(SETS[name])], 60).stdout.split()
    collected = {one for one in listed if "__" in one and ":" not in one and "-" not in one} | {*SETS[name]["metrics"]}
    counters = nvperf.raw_counters(sorted(collected), chip)
    others = collected - {weight}
    assert weight in collected and counters[weight] <= set.union(*(counters[one] for one in others))
    assert nvperf.count_passes(sorted(collected), chip) == nvperf.count_passes(sorted(others), chip) > 0
