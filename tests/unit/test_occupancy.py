"""occupancy: against ncu's own numbers for recorded launches, and by hand."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from profzoo.tables import cell_counters as occupancy_table
from profzoo.tables.cell_counters import METRICS
from profzoo.tools.ncu import occupancy
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.occupancy import Resources
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

RECORDED = Path(__file__).parents[1] / "data/ncu/occupancy.csv.gz"
LIMITS = ("limit_registers", "limit_shared", "limit_warps", "limit_blocks")


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    """Every launch of five recorded cells on an H100 and an H200, one row per distinct use of resources."""
    return pd.read_csv(RECORDED)


def resources(row: pd.Series) -> Resources:
    return Resources(
        threads=int(row["launch__block_size"]),
        registers=int(row["launch__registers_per_thread"]),
        shared_bytes=int(row["launch__shared_mem_per_block_allocated"]),
        reserved_bytes=int(row["launch__shared_mem_per_block_driver"]),
        capacity_bytes=int(row["launch__shared_mem_config_size"]),
        most_warps=64,
        most_blocks=int(row["launch__occupancy_limit_blocks"]),
        most_by_barriers=int(row["launch__occupancy_limit_barriers"]),
    )


def test_limits_and_occupancy_are_those_of_ncu_for_every_launch(recorded: pd.DataFrame) -> None:
    assert recorded["launches"].sum() == 2342
    for _, row in recorded.iterrows():
        given = resources(row)
        limits = list(occupancy.limit_blocks(given).values())[:4]
        assert limits == [row[METRICS[name]] for name in LIMITS], row.to_dict()
        assert occupancy.resident_warps(given) == row["sm__maximum_warps_avg_per_active_cycle"]
        assert occupancy.occupancy_pct(given) == pytest.approx(row["sm__maximum_warps_per_active_cycle_pct"], abs=0.006)


def test_the_next_step_is_the_first_that_fits_more(recorded: pd.DataFrame) -> None:
    for _, row in recorded[::3].iterrows():
        given = resources(row)
        now = occupancy.resident_warps(given)
        fewer = occupancy.next_registers(given)
        steps = range(given.registers - 1, 0, -1)
        fitting = [count for count in steps if occupancy.resident_warps(replace(given, registers=count)) > now]
        assert fewer == (fitting[0] if fitting else None)
        less = occupancy.next_shared_bytes(given)
        sizes = range((given.shared_bytes - 1) // 128 * 128, 1023, -128)
        smaller = [size for size in sizes if occupancy.resident_warps(replace(given, shared_bytes=size)) > now]
        assert less == (smaller[0] if smaller else None)


def test_the_number_of_blocks_limits_small_blocks(recorded: pd.DataFrame) -> None:
    """Barriers limit nothing in these kernels, although ncu has as many blocks for them as for the SM."""
    small = recorded[recorded["launch__block_size"] == 32]
    found = {occupancy.name_limiters(resources(row)): resources(row) for _, row in small.iterrows()}
    # In some the driver configured just enough shared memory for so many blocks.
    assert set(found) == {"blocks", "shared memory + blocks"}
    assert occupancy.best_threads(found["blocks"]) == 64
    assert occupancy.name_limiters(replace(found["blocks"], most_by_barriers=8)) == "barriers"


def launches(**others: list[float]) -> pd.DataFrame:
    """Three launches of two configurations: limited by registers (two of them), and by nothing."""
    same = {"mangled": ["a", "a", "b"], "kernel": ["gemm", "gemm", "copy"], "function": ["gemm", "gemm", "copy"]}
    ones = {key: [1, 1, 1] for key in KEYS if key != "mangled"}
    of_metrics = {
        "threads": [128, 128, 1024], "registers": [166, 166, 32], "shared_bytes": [17_920, 17_920, 1024],
        "reserved_bytes": [1024] * 3, "capacity_bytes": [135_168, 135_168, 8192], "limit_registers": [3, 3, 2],
        "limit_shared": [7, 7, 8], "limit_warps": [16, 16, 2], "limit_blocks": [32] * 3,
        "theoretical_pct": [18.75, 18.75, 100.0],
    }  # fmt: skip
    metrics = {METRICS[name]: values for name, values in of_metrics.items()} | {GPU_TIME: [300, 100, 50]}
    metrics |= {"launch__occupancy_limit_barriers": [32] * 3, "sm__maximum_warps_avg_per_active_cycle": [12, 12, 64]}
    return pd.DataFrame({**same, **ones, "id": [0, 1, 2], "launches": [2, 2, 1], "range": "", **metrics, **others})


def test_the_table_has_a_row_per_configuration_with_limiter_and_next_step() -> None:
    achieved = {"sm__warps_active.avg.pct_of_peak_sustained_active": [10.0, 20.0, 90.0]}
    achieved |= {"sm__cycles_active.avg": [300.0, 100.0, 50.0]}
    table = occupancy_table.make_occupancy([launches(**achieved)], None, {"gemm": "gemm", "copy": "copy"}, 1)
    assert table["function"].tolist() == ["gemm", "copy"]
    first, second = table.to_dict("records")
    assert (first["launches"], first["total_ns"], first["limiter"]) == (2, 400, "registers")
    assert (first["registers_next"], first["registers_next_pct"]) == (128, 25.0)
    # Weighted by the cycles in which an SM had warps.
    assert first["achieved_pct"] == pytest.approx(12.5)
    assert pd.isna(first["shared_next_bytes"])
    assert second["limiter"] == "" and pd.isna(second["registers_next"])
    assert occupancy_table.count_disagreements(table) == 0


def test_where_ncu_has_another_occupancy_nothing_is_said_about_the_limiter() -> None:
    clustered = {METRICS["theoretical_pct"]: [12.5, 12.5, 100.0], occupancy_table.WARPS: [8, 8, 64]}
    table = occupancy_table.make_occupancy([launches(**clustered)], None, {}, 1)
    assert occupancy_table.count_disagreements(table) == 1
    assert table.loc[0, "limiter"] == "" and pd.isna(table.loc[0, "registers_next"])
    # Without metrics of occupancy the table is empty.
    table = occupancy_table.make_occupancy([launches().drop(columns=METRICS["capacity_bytes"])], None, {}, 1)
    assert table.empty and list(table) == occupancy_table.COLUMNS
