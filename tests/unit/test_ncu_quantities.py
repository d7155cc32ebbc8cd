"""Quantities by whatever names GPUs and versions of ncu have for their metrics, and what they are relative to."""

import pandas as pd
import pytest

from profzoo.tools.ncu import estimates, quantities
from profzoo.tools.ncu.quantities import Kind, Sum

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TENSOR = "sm__ops_path_tensor_src_{}.sum"
LOADS = "smsp__sass_data_bytes_mem_global_op_{}.sum"
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
OP_READ, OP_WRITE = "dram__bytes_op_read.sum", "dram__bytes_op_write.sum"


@pytest.mark.parametrize(
    ("quantity", "counted", "expected"),
    [
        ("dram_bytes", {READ: 5, WRITE: 2}, 7),
        # Compute capability 12.
        ("dram_bytes", {OP_READ: 5, OP_WRITE: 2}, 7),
        ("dram_bytes", {"dram__bytes.sum": 9}, 9),
        ("ncu_ns", {"gpu__time_duration.avg": 8}, 8),
        ("l2_bytes", {"lts__t_sectors.sum": 3}, 96),
        ("l1_bytes", {"l1tex__t_sectors.sum": 3}, 96),
        ("fp64_flop", {SASS.format("dadd"): 1, SASS.format("dmul"): 10, SASS.format("dfma"): 100}, 211),
        ("fp16_flop", {SASS.format("hadd"): 1, SASS.format("hmul"): 10, SASS.format("hfma"): 100}, 211),
        ("fp32_flop", {SASS.format("fadd"): 1, SASS.format("fmul"): 10, SASS.format("ffma"): 100}, 211),
        # Of two numbers at once from compute capability 10 on: 2 * 3 + 2 * 5 + 4 * 7 more.
        (
            "fp32_flop",
            {SASS.format(name): count for name, count in
             {"fadd": 1, "fmul": 10, "ffma": 100, "fadd2": 3, "fmul2": 5, "ffma2": 7}.items()},
            211 + 44,
        ),
        ("tensor_fp16_flop", {TENSOR.format("fp16"): 9}, 9),
        ("tensor_fp16_flop", {TENSOR.format("fp16_dst_fp16"): 3, TENSOR.format("fp16_dst_fp32"): 4}, 7),
        ("tensor_fp64_flop", {TENSOR.format("fp64_dst_fp64"): 5}, 5),
        ("load_needed_sectors", {LOADS.format("ld"): 64, LOADS.format("ldgsts"): 32}, 3),
        ("load_needed_sectors", {LOADS.format("ld"): 64}, 2),
        ("store_needed_sectors", {LOADS.format("st"): 64}, 2),
        ("local_sectors", {f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum": 4 for way in ("ld", "st")}, 8),
        ("l2_pct", {"lts__t_sectors.avg.pct_of_peak_sustained_elapsed": 40}, 40),
        ("stall_math_cycles", {"smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio": 3}, 3),
        ("tensor_bf16_flop", {TENSOR.format("bf16_dst_fp32"): 9}, 9),
        ("tensor_tf32_flop", {TENSOR.format("tf32_dst_fp32"): 9}, 9),
        ("dram_pct", {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 40}, 40),
        ("issue_pct", {"smsp__inst_executed.avg.pct_of_peak_sustained_elapsed": 40}, 40),
        ("bank_conflicts", {f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{way}.sum": 4 for way in ("ld", "st")}, 8),
        ("warp_cycles", {"smsp__average_warps_active_per_issue_active.ratio": 11}, 11),
        ("stall_shared_cycles", {f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio": 2
                                 for why in ("short_scoreboard", "mio_throttle")}, 4),
        ("stall_barrier_cycles", {"smsp__average_warp_latency_issue_stalled_barrier.ratio": 2}, 2),
    ],
)  # fmt: skip
def test_a_quantity_is_told_by_any_of_its_names(quantity: str, counted: dict[str, float], expected: float) -> None:
    found = estimates.derive_quantities(pd.DataFrame({name: [value] for name, value in counted.items()}))
    assert found[quantity].tolist() == [pytest.approx(expected)]
    # They are numbers wherever they were collected, and one of each tells that there is the metric.
    assert set(counted) <= quantities.NUMBERS and all(quantities.has_metric(name, list(counted)) for name in counted)


def test_a_sum_is_derived_only_where_all_its_metrics_are_there() -> None:
    adds = {SASS.format(f"f{name}"): [1.0, 1.0] for name in ("add", "mul")}
    assert "fp32_flop" not in estimates.derive_quantities(pd.DataFrame(adds))
    derived = estimates.derive_quantities(pd.DataFrame({**adds, SASS.format("ffma"): [100.0, None]}))["fp32_flop"]
    assert derived[0] == 202 and pd.isna(derived[1])
    parts = {TENSOR.format("fp16_dst_fp16"): [3], TENSOR.format("fp16_dst_fp32"): [4], TENSOR.format("fp16"): [9]}
    assert estimates.derive_quantities(pd.DataFrame(parts))["tensor_fp16_flop"].tolist() == [9]


@pytest.mark.parametrize(
    ("capability", "given", "expected"),
    [
        (9.0, [READ, WRITE], [READ, WRITE]),
        (12.0, [READ, WRITE], [OP_READ, OP_WRITE]),
        (12.1, [OP_READ, WRITE], [OP_READ, OP_WRITE]),
        (8.6, [OP_READ], [READ, WRITE]),
        (12.0, ["dram__bytes.sum"], ["dram__bytes.sum"]),
        (9.0, [SASS.format("fadd")], [SASS.format("fadd")]),
        (10.0, [SASS.format("fadd")], [SASS.format(f"f{name}") for name in ("add", "mul", "fma", "add2", "mul2", "fma2")]),
        (10.0, [SASS.format("hadd")], [SASS.format("hadd")]),
        (8.0, [TENSOR.format("fp16")], [TENSOR.format("fp16_dst_fp16"), TENSOR.format("fp16_dst_fp32")]),
        (9.0, [TENSOR.format("fp16")], [TENSOR.format("fp16")]),
        # What is not known to be there is asked for by both names: ncu leaves out what the GPU has not.
        (10.3, [TENSOR.format("fp64")], [TENSOR.format("fp64"), TENSOR.format("fp64_dst_fp64")]),
        (7.5, [TENSOR.format("bf16_dst_fp32"), "lts__t_bytes.sum"], ["lts__t_bytes.sum"]),
        (7.5, [LOADS.format("ld"), LOADS.format("ldgsts")], [LOADS.format("ld")]),
        (8.0, [LOADS.format("ldgsts")], [LOADS.format("ld"), LOADS.format("ldgsts")]),
        (12.0, ["own__metric.sum", "regex:dram__bytes_read"], ["own__metric.sum", "regex:dram__bytes_read"]),
    ],
)  # fmt: skip
def test_ncu_is_asked_by_the_names_of_the_gpu(capability: float, given: list[str], expected: list[str]) -> None:
    assert estimates.metrics_to_ask(given, capability) == expected


def test_every_quantity_says_how_it_comes_to_a_mean() -> None:
    """By the end of its first metric's name, as NVIDIA has them: sums add up, ratios and percentages do not."""
    for name, quantity in estimates.QUANTITIES.items():
        first = next(iter(quantity.sums[0].factors))
        known = {"sum": {Kind.SUM}, "pct_of_peak_sustained_elapsed": {Kind.OF_TIME}}
        known |= {end: {Kind.RATIO} for end in ("pct_of_peak_sustained_active", "ratio", "pct")}
        expected = known.get(first.rpartition(".")[2], {Kind.OF_LAUNCH, Kind.RATIO})
        assert quantity.kind in expected, name
        assert bool(quantity.per) == (quantity.kind is Kind.RATIO), name


@pytest.mark.parametrize(
    ("given", "capability", "expected"),
    [
        ("dram__bytes_read.sum", 11.9, ["dram__bytes_read.sum"]),
        ("dram__bytes_op_read.sum", 12.0, ["dram__bytes_op_read.sum"]),
        (SASS.format("fadd2"), 9.9, []),
        (SASS.format("fadd"), 9.9, [SASS.format("fadd")]),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 7.9, []),
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 8.0, ["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]),
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", 8.0, ["sm__ops_path_tensor_src_tf32_dst_fp32.sum"]),
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", 7.5, []),
        ("sm__ops_path_tensor_src_fp64_dst_fp64.sum", 8.0, ["sm__ops_path_tensor_src_fp64_dst_fp64.sum"]),
        ("smsp__sass_data_bytes_mem_global_op_st.sum", 0.5, ["smsp__sass_data_bytes_mem_global_op_st.sum"]),
    ],
)
def test_metrics_by_compute_capability(given: str, capability: float, expected: list[str]) -> None:
    found = quantities.metrics_to_ask([given], capability)
    assert [name for name in found if name in {given, *expected}] == expected


def test_metrics_that_columns_tell() -> None:
    read, write = "dram__bytes_op_read.sum", "dram__bytes_op_write.sum"
    assert quantities.has_metric("dram__bytes_read.sum", [read, write, "x"])
    assert quantities.has_metric("x__y", ["z", "x__y.sum"])
    assert not quantities.has_metric("dram__bytes_read.sum", [read, "x"])
    assert not quantities.has_metric("own.sum", [read, write])


def test_what_gpus_have() -> None:
    """From one compute capability on, below another; without either nothing is known."""
    one = Sum({"x": 1}, since=8, before=9)
    assert [one.on(capability) for capability in (7.9, 8.0, 8.9, 9.0)] == [False, True, True, False] and one.limited
    assert not Sum({"x": 1}).limited and Sum({"x": 1}, since=8).limited and Sum({"x": 1}, before=9).limited
    assert Sum({"x": 1}).on(0.0) and Sum({"x": 1}).on(0.5)


def test_what_adds_up_and_what_is_of_a_launch() -> None:
    assert quantities.OF_LAUNCH == ["waves", "multiprocessors", "registers"]
    kinds = {name: quantity.kind for name, quantity in quantities.QUANTITIES.items()}
    assert kinds["dram_bytes"] is Kind.SUM and "dram_bytes" in quantities.ADDITIVE
    assert kinds["l2_hit_pct"] is Kind.RATIO and "l2_hit_pct" not in quantities.ADDITIVE
    assert kinds["l2_pct"] is Kind.OF_TIME and "l2_pct" not in quantities.ADDITIVE


def test_shares_by_what_values_are_relative_to() -> None:
    """Hits by sectors; percentages of time by that; what is of a launch by one; without sectors, hits by time."""
    table = pd.DataFrame({
        "lts__t_sector_hit_rate.pct": [50.0, None], "lts__t_sectors.sum": [10.0, 30.0],
        "launch__waves_per_multiprocessor": [2.0, 4.0],
        "lts__t_sectors.avg.pct_of_peak_sustained_elapsed": [20.0, 40.0],
    })  # fmt: skip
    times = pd.Series([100.0, 300.0])
    parts, weights = estimates.split_into_sums(table, estimates.derive_quantities(table), times)
    assert weights.to_dict("list") == {"l2_pct": [100, 300], "l2_hit_pct": [10, 0], "waves": [1, 1]}
    assert parts.to_dict("list") == {"l2_pct": [2000, 12000], "l2_hit_pct": [500, 0], "waves": [2, 4]}
    fewer = table.drop(columns="lts__t_sectors.sum")
    weights = estimates.split_into_sums(fewer, estimates.derive_quantities(fewer), times)[1]
    assert weights["l2_hit_pct"].tolist() == [100, 0]


def test_shares_by_a_product_of_metrics() -> None:
    """Cycles of warps by instructions: as many as are issued by cycle, times time or cycles; nothing where one lacks."""
    table = pd.DataFrame({
        "smsp__average_warp_latency_per_inst_issued.ratio": [6.0, 8.0, 9.0],
        "smsp__issue_active.avg.per_cycle_active": [0.5, 0.25, None],
    })  # fmt: skip
    weights = estimates.split_into_sums(table, estimates.derive_quantities(table), pd.Series([100.0, 300.0, 7.0]))[1][
        "warp_cycles"
    ]
    assert weights[:2].tolist() == [50, 75] and not weights[2] > 0
    more = table.assign(**{"sm__cycles_active.avg": [10.0, 20.0, 30.0]})
    assert estimates.split_into_sums(more, estimates.derive_quantities(more), pd.Series([100.0, 300.0, 7.0]))[1]["warp_cycles"][:2].tolist() == [
        5, 5
    ]  # fmt: skip
