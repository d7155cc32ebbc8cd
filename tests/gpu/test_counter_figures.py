"""Counters of kernels whose bytes, pipes, states and occupancy are known, through snakemake, and comparisons of them."""

from pathlib import Path

import pandas as pd
import pytest

from profzoo.compare import counter_changes
from profzoo.compare.counter_changes import CHANGED
from profzoo.io import csv_tables as reading
from profzoo.tables import cell_counters
from profzoo.tables.cell_counters import TABLES
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.files import chart_file
from tests.gpu import known_counters
from tests.gpu.running import run_snakemake

pytestmark = pytest.mark.skipif(
    not known_counters.CAN_COMPILE, reason="this torch loads no CUDA kernels that a program compiles"
)
N, MARGIN = known_counters.COPIED, 0.02
MODULES = {"known": "known_counters", "again": "known_counters", "doubled": "doubled_copy"}


def make(folder: Path, models: list[str], chosen: str, names: list[str]) -> None:
    """Let snakemake make files of these models' training with a section set."""
    given = ", ".join(f"{name}: {{module: tests.gpu.{MODULES[name]}}}" for name in models)
    settings = [f"models={{{given}}}", f"pathvars={{results: {folder}}}", "tool=ncu", f"ncu={{set: {chosen}}}"]
    targets = [f"{folder}/{model}/{name}" for model in models for name in names]
    run_snakemake(*targets, "--config", *settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one cell with all charts."""
    results = tmp_path_factory.mktemp("results")
    tables = [chart_file(name).format(phase="train") for name in TABLES]
    make(results, ["known"], "charts", ["train.ncu.csv", *tables])
    return results


@pytest.fixture(scope="module")
def launches(folder: Path) -> pd.DataFrame:
    """Launches under ncu as its table has them."""
    table = reading.read(folder / "known/train.ncu.csv", export_schema.TABLE)
    known = [name for name in known_counters.SOURCES if name not in set(table["function"])]
    assert not known, f"ncu profiled no launch of {known}"
    return table


def tables_of(launches: pd.DataFrame, function: str) -> dict[str, pd.DataFrame]:
    """The tables of one kernel alone."""
    rows = launches[launches["function"] == function].head(1)
    alone = rows.assign(id=0, launches=1).drop(columns=["multiplicity", "launch"], errors="ignore")
    found, notes = cell_counters.make_tables([alone.reset_index(drop=True)], None, 1)
    print(function, *notes, *(table.T.to_string() for table in found.values()), sep="\n")
    return found


def value(table: pd.DataFrame, column: str, **row: str) -> float:
    (found,) = table.loc[(table[list(row)] == list(row.values())).all(axis=1), column]
    return float(found)


def test_bytes_of_a_copy_through_every_level(launches: pd.DataFrame) -> None:
    chart = tables_of(launches, "vector_copy")["memory_chart"]
    for link in ("global_load", "global_store", "l2_read", "dram_read"):
        assert value(chart, "bytes", level="cell", link=link) == pytest.approx(N, rel=0.02), link
    assert value(chart, "bytes", level="cell", link="l2_write") == pytest.approx(N, rel=0.05)
    # Some of what was written stays in L2.
    both = sum(value(chart, "bytes", level="cell", link=link) for link in ("dram_read", "dram_write"))
    assert both == pytest.approx(2 * N, rel=0.02)
    assert value(chart, "hit_pct", level="cell", link="global_load") < 5
    assert (
        50
        < value(chart, "peak_pct", level="cell", link="dram_read")
        + value(chart, "peak_pct", level="cell", link="dram_write")
        <= 105
    )


def test_counters_of_other_units_agree(launches: pd.DataFrame) -> None:
    chart = tables_of(launches, "vector_copy")["memory_chart"]
    rows = chart[chart["level"] == "cell"].set_index("link")
    for link, within in (("l2_read", 0.02), ("l2_write", 0.05), ("l2", 0.02)):
        assert rows.loc[link, "otherwise_bytes"] == pytest.approx(rows.loc[link, "bytes"], rel=within), link
    # L2 is filled with at least what DRAM gives.
    assert rows.loc["dram_read", "otherwise_bytes"] > 0.98 * rows.loc["dram_read", "bytes"]


def test_multiplications_keep_the_fma_pipe_busy(launches: pd.DataFrame) -> None:
    pipes = tables_of(launches, "multiply_add")["pipes"]
    busiest = pipes[pipes["level"] == "cell"].iloc[0]
    assert busiest["pipe"] == "FMA" and busiest["busy_pct"] > 70


def test_a_chase_of_pointers_waits_for_memory(launches: pd.DataFrame) -> None:
    states = tables_of(launches, "pointer_chase")["warp_states"]
    first = states[states["level"] == "cell"].iloc[0]
    assert first["state"] == "long_scoreboard" and first["share"] > 0.8


@pytest.mark.parametrize("function", known_counters.SOURCES)
def test_states_add_up_to_the_cycles_that_a_metric_of_its_own_has(launches: pd.DataFrame, function: str) -> None:
    states = tables_of(launches, function)["warp_states"]
    rows = states[(states["level"] == "cell") & (states["state"] != "unknown")]
    assert rows["cycles"].sum() == pytest.approx(rows["warp_cycles"].iloc[0], rel=0.02)


def test_limiters_of_occupancy_are_those_that_were_planted(launches: pd.DataFrame) -> None:
    shared = tables_of(launches, "much_shared")["occupancy"].iloc[0]
    assert shared["limiter"] == "shared memory" and shared["theoretical_pct"] < 100
    assert shared["shared_next_pct"] > shared["theoretical_pct"]
    blocks = tables_of(launches, "small_blocks")["occupancy"].iloc[0]
    # The driver may configure just enough shared memory for so many blocks.
    assert "blocks" in blocks["limiter"] and blocks["theoretical_pct"] == 50
    assert blocks["threads_best"] == 64 and blocks["threads_best_pct"] == 100


def test_the_calculation_is_that_of_ncu_for_every_launch(folder: Path) -> None:
    table = reading.read(folder / "known/train.occupancy.csv", cell_counters.TABLE)
    assert len(table) >= len(known_counters.SOURCES)
    assert cell_counters.count_disagreements(table) == 0


def test_the_cells_tables_add_up(folder: Path, launches: pd.DataFrame) -> None:
    chart = reading.read(folder / "known/train.memory-chart.csv", TABLES["memory_chart"])
    for link, metric in (("dram_read", "dram__bytes_read.sum"), ("l2", "lts__t_bytes.sum")):
        mine = chart[chart["link"] == link]
        whole = (launches[metric] * launches["multiplicity"]).sum()
        assert mine.loc[mine["level"] == "cell", "bytes"].sum() == pytest.approx(whole, rel=0.02)
        assert mine.loc[mine["level"] == "class", "bytes"].sum() == pytest.approx(whole, rel=0.02)


def test_a_comparison_finds_the_doubled_copy_and_nothing_in_the_same_program(folder: Path) -> None:
    make(folder, ["again", "doubled"], "survey", ["train.ncu.csv"])
    cells = {name: counter_changes.read_counted_cell(folder / name / "train.ncu.csv") for name in MODULES}
    assert None not in cells.values()
    found = {}
    for name in ("again", "doubled"):
        rows = counter_changes.compare_counters(cells["known"], cells[name], MARGIN)
        found[name] = rows.assign(outcome=counter_changes.decide_changes(rows))
    changed = {name: rows[rows["outcome"] == CHANGED] for name, rows in found.items()}
    for rows in changed.values():
        print(rows.to_string())
    assert len(changed["again"]) <= 0.05 * len(found["again"])
    kernels = found["doubled"][found["doubled"]["level"] == "kernel"]
    # The largest change comes first.
    first = kernels[kernels["quantity"] == "dram_bytes"].iloc[0]
    assert "vector_copy" in first["name"] and first["outcome"] == CHANGED
    assert first["delta"] == pytest.approx(2 * N, rel=0.02)
    others = kernels[~kernels["name"].str.contains("vector_copy")]
    assert (others["outcome"] == CHANGED).sum() <= 0.05 * len(others)
