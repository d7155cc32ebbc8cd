"""Lines, spills, opcodes and the course over time of kernels of known behaviour, by ncu's pages, through snakemake itself.

The run of snakemake takes about two minutes: ncu lists the launches, and profiles them with three section sets.
"""

import re
from pathlib import Path

import pandas as pd
import pytest

from profzoo.tools.ncu import raw_page
from tests.gpu.programs import spills
from tests.gpu.running import run_snakemake

TARGETS = ("ncu-source.source.csv", "ncu-instances.instances.csv", "ncu-timeline.instances.png",
           "ncu-details.source.csv", "ncu.checked.csv")  # fmt: skip
EXECUTED = "smsp__inst_executed.sum"
LOCAL = {"local_loads": "smsp__sass_inst_executed_op_local_ld.sum",
         "local_stores": "smsp__sass_inst_executed_op_local_st.sum"}  # fmt: skip
# Two parts in a hundred, which is more than samples are apart.
NEAR = 0.02


def run(*words: str) -> str:
    return run_snakemake(*words)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of the cell, in a folder of its own."""
    folder = tmp_path_factory.mktemp("results")
    metrics = ", ".join(["gpu__time_duration.sum", EXECUTED, *LOCAL.values()])
    sets = f"ncu={{sets: {{checked: {{metrics: [{metrics}], launches: distinct, replay: kernel}}}}}}"
    settings = ["models={spills: {module: tests.gpu.programs.spills}}", f"pathvars={{results: {folder}}}", sets]
    run(*(f"{folder}/spills/train.{target}" for target in TARGETS), "--config", *settings)
    return folder / "spills"


@pytest.fixture(scope="module")
def source(results: Path) -> pd.DataFrame:
    return pd.read_csv(results / "train.ncu-source.source.csv")


@pytest.fixture(scope="module")
def counted(results: Path) -> pd.DataFrame:
    """The hardware's own counters of the kernels, by function."""
    table = pd.read_csv(results / "train.ncu.checked.csv").drop_duplicates("function").set_index("function")
    print(table[[EXECUTED, *LOCAL.values()]].to_string())
    return table


def near(value: float) -> object:
    return pytest.approx(value, rel=NEAR)


def of(source: pd.DataFrame, function: str, level: str) -> pd.DataFrame:
    found = source[source["function"].eq(function) & source["level"].eq(level)]
    assert len(found), source["function"].unique()
    return found


def line(source: pd.DataFrame, function: str, mark: str) -> pd.Series:
    (found,) = (row for _, row in of(source, function, "line").iterrows() if row["line"] == spills.line_of(mark))
    return found


def test_a_line_executes_its_load_once_per_turn_and_warp(source: pd.DataFrame) -> None:
    row = line(source, "spills", "load")
    assert row["source"].endswith("// load") and row["file"] == str(spills.CUDA_FILE)
    own = of(source, "spills", "instruction")
    loads = own[own["opcode"].eq("LDG") & own["line"].eq(row["line"])]
    assert loads["inst_executed"].sum() == near(spills.STEPS * spills.WARPS)
    assert loads["thread_inst_executed"].sum() == near(spills.STEPS * spills.BLOCKS * spills.THREADS)


def test_triton_kernels_have_lines_too(source: pd.DataFrame) -> None:
    own = source[source["function"].eq("adds")]
    if own.empty:
        pytest.skip("Triton compiled nothing here; the log of the profiling job says why")
    from tests.gpu.programs import triton_lines

    loads = own[own["opcode"].eq("LDG") & own["line"].eq(triton_lines.line_of_load())]
    threads = triton_lines.PROGRAMS * triton_lines.LANES
    assert loads["thread_inst_executed_true"].sum() == near(triton_lines.TURNS * threads)
    assert loads["file"].str.endswith("triton_lines.py").all() and loads["source"].str.endswith("# load").all()


def test_local_memory_is_at_the_line_that_uses_it(source: pd.DataFrame, counted: pd.DataFrame) -> None:
    row = line(source, "spills", "keep")
    for name, metric in LOCAL.items():
        assert row[name] == near(spills.STEPS * spills.WARPS)
        assert of(source, "spills", "line")[name].sum() == near(counted.loc["spills", metric])
    assert row.get("l2_sectors_local", 1) > 0


def test_a_kernel_of_too_few_registers_spills_at_its_line(source: pd.DataFrame, counted: pd.DataFrame) -> None:
    row, every = line(source, "tight", "spill"), of(source, "tight", "line")
    for name, metric in LOCAL.items():
        # More than a dozen values are spilled by each of its 32 warps, none of them at another line.
        assert row[name] == every[name].sum() == near(counted.loc["tight", metric]) and row[name] > 12 * 32


@pytest.mark.parametrize("function", ["spills", "tight"])
def test_instructions_add_up_to_what_the_hardware_counted(
    source: pd.DataFrame, counted: pd.DataFrame, function: str
) -> None:
    own = of(source, function, "instruction")
    assert own["inst_executed"].sum() == near(counted.loc[function, EXECUTED])
    states = [name for name in own if name.startswith("stall_") and not name.endswith("_not_issued")]
    assert own[states].sum().sum() == near(own["samples"].sum()) and own["samples"].sum() > 0


def test_where_a_kernel_has_no_lines_its_instructions_are_told(source: pd.DataFrame) -> None:
    others = source[~source["function"].isin(spills.KERNELS)]
    assert {"instruction"} <= set(others["level"]) and others["inst_executed"].sum() > 0
    assert source["place"].max() <= 10 and source.groupby("place")["function"].nunique().max() == 1


def test_opcodes_are_those_of_the_lines(results: Path, counted: pd.DataFrame) -> None:
    table = pd.read_csv(results / "train.ncu-instances.instances.csv")
    mix = table[table["metric"].eq("sass__inst_executed_per_opcode") & table["function"].eq("spills")]
    by_opcode = mix.set_index("instance")["value"]
    assert by_opcode.sum() == near(counted.loc["spills", EXECUTED])
    assert by_opcode["LDG"] == near(spills.STEPS * spills.WARPS)


def test_a_kernel_reads_dram_in_the_first_half_of_its_time_alone(results: Path) -> None:
    table = pd.read_csv(results / "train.ncu-instances.instances.csv")
    own = table[table["kind"].eq("time") & table["function"].eq("phases")]
    print(own.groupby("metric")["value"].agg(["size", "mean", "max"]).to_string())
    print(own["time_ns"].describe().to_string())
    reads = own[own["metric"].str.contains(r"dram.*read.*pct_of_peak_sustained_elapsed")]
    assert len(reads), sorted(own["metric"].unique())
    most = NEAR * 2 * spills.EACH_NS
    # Before the kernel, ncu restores memory.
    reads = reads[reads["metric"].eq(reads["metric"].iloc[0]) & reads["time_ns"].gt(-most)]
    busy = reads.loc[reads["value"].gt(reads["value"].max() / 2), "time_ns"]
    assert busy.min() == pytest.approx(0, abs=most) and busy.max() == pytest.approx(spills.EACH_NS, abs=most)
    later = reads[reads["time_ns"].between(spills.EACH_NS + most, 2 * spills.EACH_NS)]
    assert later["value"].mean() < NEAR * reads["value"].max()
    assert (results / "train.ncu-timeline.instances.png").stat().st_size > 10_000


def test_the_details_page_of_the_set_has_its_rules(results: Path) -> None:
    page = raw_page.read_details(results / "train.ncu-details.source.csv")
    assert {"spills", "phases"} <= set(page["Kernel Name"].str.split("(").str[0])
    assert page["Section Name"].isin(["Source Counters", "SourceCounters"]).any()


def test_links_are_told_where_the_gpu_has_them(results: Path) -> None:
    table = pd.read_csv(results / "train.ncu.checked.csv")
    found = {family for family in raw_page.FAMILIES for name in table if name.startswith(family)}
    print(found, table.filter(regex="^(nvlink|c2clink|numa)__").iloc[0].to_dict())
    for family in found & {"nvlink__", "c2clink__"}:
        assert table[[name for name in raw_page.FAMILIES[family] if name in table]].iloc[0].astype(float).gt(0).any()


def test_metrics_are_listed_for_this_gpu(results: Path) -> None:
    lines = run("metrics", "--config", "match=dram").splitlines()
    at = lines.index("* dram__bytes_read  (byte)")
    assert any("roofline" in text for text in lines[at : at + 6])
    listed = [text for text in lines if re.match(r"[* ] \S+__\S+|\s{6}\S", text)]
    assert len(listed) > 20 and max(len(text) for text in listed if "__" not in text) <= 80
    assert any("of the GPU of this machine with dram in name or description" in " ".join(lines[n : n + 2])
               for n in range(len(lines)))  # fmt: skip
