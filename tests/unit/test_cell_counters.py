"""cell_counters: memory chart, pipes and warp states of a cell and its classes, with answers worked out by hand."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profzoo.config import configuration
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tables import cell_counters
from profzoo.tools.ncu import quantities
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.quantities import LINKS, STATES, charts_of_set
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(T1::Params)"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)"
DRAM, SECTORS = "dram__bytes_{}.sum", "dram__sectors_{}.sum"
FROM_L2 = "l1tex__m_xbar2l1tex_read_bytes.sum"
PEAK = ".pct_of_peak_sustained_elapsed"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
LATENCY, ISSUED = "smsp__average_warp_latency_per_inst_issued.ratio", "smsp__inst_issued.sum"
FMA = "sm__{}_fma{}.avg.pct_of_peak_sustained_active"


def census() -> pd.DataFrame:
    """A window of two steps: four products of 30 us, and two copies of 10 us."""
    rows = {"mangled": ["g"] * 4 + ["c"] * 2, "kernel": [GEMM] * 4 + [COPY] * 2, "launches": [4] * 4 + [2] * 2}
    same = {key: 1 for key in KEYS if key != "mangled"}
    times = [30_000.0] * 4 + [10_000.0] * 2
    return pd.DataFrame({**rows, "id": range(6), "range": "forward", "function": "f", GPU_TIME: times}).assign(**same)


def counted(**metrics: tuple[float, float]) -> pd.DataFrame:
    """Every launch, with what a product and a copy counted of each metric."""
    return census().assign(**{name: [gemm] * 4 + [copy] * 2 for name, (gemm, copy) in metrics.items()})


def sampled(**metrics: tuple[float, float]) -> pd.DataFrame:
    """One launch of each kernel, which stands for the others."""
    return counted(**metrics).iloc[[0, 4]].assign(launch=[0, 4], multiplicity=[4.0, 2.0]).reset_index(drop=True)


def tables(table: pd.DataFrame, steps: float = 2) -> dict[str, pd.DataFrame]:
    return cell_counters.make_tables([table], census(), steps)[0]


def of(table: pd.DataFrame, **row: str) -> pd.Series:
    """The one row with these values."""
    (found,) = table[(table[list(row)] == list(row.values())).all(axis=1)].index
    return table.loc[found]


BOTH = pytest.mark.parametrize("profiled", [counted, sampled])


@BOTH
def test_bytes_of_links_are_sums_per_step_with_rates_and_shares(profiled: Callable[..., pd.DataFrame]) -> None:
    links = {DRAM.format("read"): (1000, 400), DRAM.format("write"): (500, 400), FROM_L2: (3000, 800)}
    links |= {DRAM.format("read") + PEAK: (10, 40), SECTORS.format("read"): (31, 13)}
    found = tables(profiled(**links))["memory_chart"]
    cell = of(found, level="cell", link="dram_read")
    # Four products and two copies in two steps: (4 * 1000 + 2 * 400) / 2.
    assert cell["bytes"] == pytest.approx(2400)
    assert cell["launches"] == 3 and cell["total_ns"] == pytest.approx(70_000)
    assert cell["bytes_per_s"] == pytest.approx(2400 / 70e-6)
    # By time: (4 * 30 * 10 + 2 * 10 * 40) / 140.
    assert cell["peak_pct"] == pytest.approx(2000 / 140)
    assert cell["otherwise_bytes"] == pytest.approx((4 * 31 + 2 * 13) / 2 * 32)
    assert of(found, level="class", **{"class": "gemm"}, link="l2_read")["bytes"] == pytest.approx(6000)
    assert of(found, level="cell", link="dram")["bytes"] == pytest.approx(2400 + (4 * 500 + 2 * 400) / 2)
    assert "host_read" not in set(found["link"])
    # Classes add up to the cell.
    for link in ("dram_read", "dram_write", "dram", "l2_read"):
        sums = found[found["link"] == link].groupby("level")[["bytes", "launches", "total_ns"]].sum()
        assert sums.loc["cell"].tolist() == pytest.approx(sums.loc["class"].tolist())
    # An interval only where one launch stands for others.
    assert pd.notna(cell["bytes_low"]) == (profiled is sampled)


def test_launches_that_nothing_was_counted_of_add_nothing() -> None:
    """As with a budget: the longest kernels are counted, and the others may do anything."""
    counts = {DRAM.format("read"): (1000, 400), DRAM.format("read") + PEAK: (10, 40)}
    counts |= {FMA.format("pipe", "_cycles_active"): (50, 10), STALLED.format("barrier"): (1, 2), ISSUED: (1, 1)}
    some, every = tables(sampled(**counts).iloc[:1]), tables(counted(**counts))
    found = some["memory_chart"]
    assert set(found["class"]) == {"", "gemm"}
    cell, gemm = of(found, level="cell", link="dram_read"), of(found, level="class", link="dram_read")
    # Four products in two steps; the copies, a seventh of the time, were not counted.
    assert cell["bytes"] == gemm["bytes"] == pytest.approx(4 * 1000 / 2)
    assert cell["launches"] == 3 and gemm["launches"] == 2
    assert cell["bytes_per_s"] == gemm["bytes_per_s"] == pytest.approx(2000 / 60e-6)
    assert cell["bytes_low"] <= cell["bytes"] <= cell["bytes_high"] < 4000
    for name in ("memory_chart", "pipes", "warp_states"):
        shares = dict(zip(some[name]["level"], some[name]["counted_share"], strict=True))
        assert shares == pytest.approx({"cell": 120 / 140, "class": 1})
        assert set(every[name]["counted_share"]) == {1.0}


def test_a_launch_without_a_value_adds_nothing_either() -> None:
    """Of four products ncu has no value (n/a) in one, and another counter in all."""
    links = {DRAM.format("read"): (1000, 400), FROM_L2: (3000, 800), FMA.format("pipe", "_cycles_active"): (50, 10)}
    table = counted(**links)
    for name in (DRAM.format("read"), FMA.format("pipe", "_cycles_active")):
        table[name] = table[name].astype("float64").where(table.index != 0)
    found = tables(table)
    cell = of(found["memory_chart"], level="cell", link="dram_read")
    assert cell["bytes"] == pytest.approx((3 * 1000 + 2 * 400) / 2)
    assert cell["counted_share"] == pytest.approx(110 / 140)
    assert cell["bytes_per_s"] == pytest.approx(1900 / 55e-6)
    gemm = of(found["memory_chart"], level="class", link="dram_read", **{"class": "gemm"})
    assert gemm["bytes"] == pytest.approx(1500) and gemm["counted_share"] == pytest.approx(0.75)
    whole = of(found["memory_chart"], level="cell", link="l2_read")
    assert whole["bytes"] == pytest.approx(6800) and whole["counted_share"] == 1
    assert set(found["pipes"]["counted_share"].round(4)) == {0.7857, 0.75, 1.0}


def test_hit_rates_stand_at_the_links_into_their_cache() -> None:
    hits = {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": (10, 30), "l1tex__t_sector_hit_rate.pct": (60, 20)}
    hits |= {FROM_L2: (100, 300), "lts__t_sector_hit_rate.pct": (90, 50), "lts__t_sectors.sum": (3, 1)}
    found = tables(counted(**hits))["memory_chart"]
    # By sectors: (4 * 10 * 60 + 2 * 30 * 20) / 100.
    load = of(found, level="cell", link="global_load")
    assert load["hit_pct"] == pytest.approx(36) and load["bytes"] == pytest.approx((4 * 10 + 2 * 30) / 2 * 32)
    assert of(found, level="cell", link="l2_read")["hit_pct"] == pytest.approx((12 * 90 + 2 * 50) / 14)


@BOTH
def test_pipes_are_weighted_by_active_cycles_which_go_before_instructions(profiled: Callable) -> None:
    both = {FMA.format("pipe", "_cycles_active"): (50, 10), FMA.format("inst_executed_pipe", ""): (5, 1)}
    lsu = {"sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": (2, 80)}
    found = tables(profiled(**both, **lsu, **{"sm__cycles_active.avg": (300, 100)}))["pipes"]
    fma, lsu_row = (of(found, level="cell", pipe=pipe) for pipe in ("FMA", "LSU"))
    assert fma["counted"] == "cycles" and fma["busy_pct"] == pytest.approx((1200 * 50 + 200 * 10) / 1400)
    assert lsu_row["counted"] == "instructions"
    assert found[found["level"] == "class"].groupby("class")["pipe"].first().to_dict() == {"gemm": "FMA", "copy": "LSU"}


@BOTH
def test_warp_states_add_up_to_all_cycles(profiled: Callable[..., pd.DataFrame]) -> None:
    states = dict.fromkeys(STATES, (1.0, 2.0))
    whole = {LATENCY: (float(len(STATES)), 2.0 * len(STATES)), ISSUED: (100, 300)}
    found = tables(profiled(**{STALLED.format(name): value for name, value in states.items()}, **whole))["warp_states"]
    cell = found[found["level"] == "cell"]
    assert cell["share"].sum() == pytest.approx(1)
    # By instructions: (400 * 1 + 600 * 2) / 1000.
    assert of(cell, state="barrier")["cycles"] == pytest.approx(1.6)
    assert cell["cycles"].sum() == pytest.approx(cell["warp_cycles"].iloc[0])
    assert cell_counters.UNKNOWN not in set(found["state"])
    # Cycles in no collected state are unknown.
    few = {STALLED.format("barrier"): (1, 1), STALLED.format("selected"): (1, 1), LATENCY: (8, 8)}
    found = tables(counted(**few, **{ISSUED: (1, 1)}))["warp_states"]
    unknown = of(found, level="cell", state=cell_counters.UNKNOWN)
    assert unknown["cycles"] == pytest.approx(6) and unknown["share"] == pytest.approx(0.75)


def test_a_table_of_warp_states_without_one_of_them_is_refused(tmp_path: Path) -> None:
    found = tables(counted(**{STALLED.format(name): (1, 1) for name in STATES}))["warp_states"]
    write_csv(found, tmp_path / "whole.csv")
    assert len(reading.read(tmp_path / "whole.csv", cell_counters.WARP_STATES_TABLE)) == 3 * len(STATES)
    write_csv(found.iloc[1:], tmp_path / "less.csv")
    with pytest.raises(DataError, match="shares of cell"):
        reading.read(tmp_path / "less.csv", cell_counters.WARP_STATES_TABLE)


def test_without_times_there_are_no_sums_and_nothing_fails() -> None:
    """As of a report that was made elsewhere with other metrics."""
    table = counted(**{DRAM.format("read"): (1, 1)}).drop(columns=GPU_TIME)
    found, notes = cell_counters.make_tables([table], None, 1)
    assert all(one.empty for one in found.values()) and notes == [cell_counters.NOT_ALL]
    assert all(one.empty for one in cell_counters.make_tables([], None, 1)[0].values())
    # A set with some launches, which stand for no others; and one of nothing.
    found, notes = cell_counters.make_tables([counted(**{DRAM.format("read"): (1, 1)}).iloc[:3]], None, 2)
    assert found["memory_chart"].empty and notes == [cell_counters.NOT_ALL]
    found, notes = cell_counters.make_tables([counted()], census(), 2)
    assert all(one.empty for one in found.values()) and notes == []


def test_the_first_set_that_has_a_metric_counts() -> None:
    first = counted(**{DRAM.format("read"): (1, 1)})
    second = counted(**{DRAM.format("read"): (9, 9), DRAM.format("write"): (2, 2)})
    found = cell_counters.make_tables([first, second], census(), 1)[0]["memory_chart"]
    assert of(found, level="cell", link="dram_read")["bytes"] == 6
    assert of(found, level="cell", link="dram_write")["bytes"] == 12


@pytest.mark.parametrize(
    ("chosen", "charts"),
    [
        ({"set": "full"}, ["occupancy", "memory_chart", "pipes", "warp_states"]),
        ({"set": "detailed"}, ["occupancy", "memory_chart", "pipes"]),
        ({"set": "basic"}, ["occupancy"]),
        ({"sections": ["ComputeWorkloadAnalysis"]}, ["occupancy", "pipes"]),
        ({"metrics": [STALLED.format("barrier")]}, ["occupancy", "warp_states"]),
    ],
)
def test_which_charts_a_section_set_collects(chosen: dict, charts: list[str]) -> None:
    assert charts_of_set(chosen) == charts


def test_every_shipped_set_says_what_it_collects() -> None:
    shipped = configuration.normalise_config({})["ncu"]["sets"]
    found = {name: charts_of_set(one) for name, one in shipped.items()}
    assert found["charts"] == found["full"] == list(quantities.CHARTS)
    assert found["launch"] == ["occupancy"] and found["survey"] == ["occupancy", "memory_chart"]
    assert all(chart in found[name] for chart, name in quantities.SET_OF.items())
    # Links without a direction are those of which both directions have links.
    for name, link in LINKS.items():
        ends = {link.source, link.target}
        sources = {one.source for one in LINKS.values() if {one.source, one.target} == ends and not one.total}
        assert not link.total or sources == ends, name
