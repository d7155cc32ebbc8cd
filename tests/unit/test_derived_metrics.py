"""metrics: each quantity by whatever names GPUs and versions of ncu have for its metrics."""

import pandas as pd
import pytest

from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.quantity import Kind

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
    assert derived_metrics.derive_quantities(pd.DataFrame({name: [value] for name, value in counted.items()}))[
        quantity
    ].tolist() == [pytest.approx(expected)]


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
    assert derived_metrics.metrics_to_ask(given, capability) == expected


def test_every_quantity_says_how_it_comes_to_a_mean() -> None:
    """By the end of its first metric's name, as NVIDIA has them: sums add up, ratios and percentages do not."""
    for name, quantity in derived_metrics.QUANTITIES.items():
        first = next(iter(quantity.sums[0].factors))
        expected = {
            "sum": {Kind.SUM},
            "pct_of_peak_sustained_elapsed": {Kind.OF_TIME},
            "pct_of_peak_sustained_active": {Kind.RATIO},
            "ratio": {Kind.RATIO},
            "pct": {Kind.RATIO},
        }.get(first.rpartition(".")[2], {Kind.OF_LAUNCH, Kind.RATIO})
        assert quantity.kind in expected, name
        assert bool(quantity.per) == (quantity.kind is Kind.RATIO), name
