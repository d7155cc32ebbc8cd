"""Metrics split into runs of one pass each, and launches joined from these runs."""

from typing import Any

import pandas as pd
import pytest

from profzoo.config import configuration as config
from profzoo.tools.ncu import single_passes

METRICS = config.normalise_config({})["ncu"]["sets"]["survey"]["metrics"]
HMMA, GMMA, DMMA = single_passes.INSTRUCTIONS
TF32, BF16, FP16 = (f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("tf32_dst_fp32", "bf16_dst_fp32", "fp16"))
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


@pytest.mark.parametrize(("precision", "product"), [("fp32", TF32), ("tf32", TF32), ("bf16", BF16), ("fp16", FP16)])
def test_a_shipped_set_is_split_into_three_runs(precision: str, product: str) -> None:
    split = single_passes.split_metrics(METRICS, precision)
    assert split and split.products == [product] and {product, *split.left_out} == {TF32, BF16, FP16}
    assert len(split.arithmetic) == 9 and all("sass" in metric for metric in split.arithmetic)
    assert {*split.first} == {*METRICS, HMMA, GMMA, DMMA} - {*split.arithmetic, TF32, BF16, FP16}
    assert split.first[0] == "gpu__time_duration.sum"


def test_what_cannot_be_split() -> None:
    assert single_passes.split_metrics(METRICS, "fp8") is None
    assert single_passes.split_metrics(["lts__t_bytes.sum"], "fp32") is None
    assert single_passes.split_metrics([FMA], "fp32") is None
    # Without products of tensor cores, nothing asks whether there are any.
    split = single_passes.split_metrics(["lts__t_bytes.sum", FMA], "fp32")
    assert split == single_passes.MetricSplit(["lts__t_bytes.sum"], [FMA], [], [])


def test_further_runs_are_joined_by_the_place_of_their_launches() -> None:
    first = pd.DataFrame({"id": [0, 1, 2, 3], "launch": pd.array([4, 7, None, 9], dtype="Int64")})
    arithmetic = pd.DataFrame({"id": [0, 1, 2], "launch": pd.array([7, 4, None], dtype="Int64"), FMA: [70, 40, 1]})
    products = pd.DataFrame({"launch": pd.array([9], dtype="Int64"), TF32: [90], "lts__t_bytes.sum": [5]})
    joined = single_passes.join_runs(first, [arithmetic, products])
    assert joined[FMA].fillna(-1).tolist() == [40, 70, -1, -1] and joined[TF32].fillna(-1).tolist() == [-1, -1, -1, 90]
    assert list(joined.columns) == ["id", "launch", FMA, TF32] and single_passes.join_runs(first, []).equals(first)


MACHINE = {single_passes.CYCLES: 1000.0, single_passes.SMS: 100}


def completed(**columns: Any) -> tuple[list[list[float]], list[float]]:
    """Products after completion, -1 for unknown ones, and what may be beyond them; 100 SMs were active for 1,000 cycles."""
    whole = {HMMA: 0, GMMA: 0, DMMA: 0, **MACHINE, **columns}
    table, beyond = single_passes.complete_products(pd.DataFrame(whole), [TF32, BF16])
    return table[[TF32, BF16]].fillna(-1).to_numpy().tolist(), beyond.tolist()


def test_products_follow_from_instructions_and_from_other_types() -> None:
    """No instruction; one type; wgmma without a counted product; and a run that profiled other launches."""
    instructions = {HMMA: [0, 9000, 0, 9000], GMMA: [0, 0, 2, 0]}
    assert completed(**instructions, **{TF32: [None, 4096, 0, None]}) == (
        [[0, 0], [4096, 0], [0, -1], [-1, -1]], [0, 0, 0, 0]
    )  # fmt: skip
    # A value that was counted stays, and a number that ncu did not give is not nothing.
    assert completed(**{HMMA: [0], TF32: [5]}) == ([[5, 0]], [0])
    assert completed(**{HMMA: [None], TF32: [0]}) == ([[0, -1]], [0])
    assert completed(**{HMMA: [0], DMMA: [1], TF32: [0]}) == ([[0, -1]], [0])


def test_few_instructions_do_not_bind_a_launch_and_are_bounded() -> None:
    """Of 50,000 instructions that 100 SMs can execute in 1,000 cycles, fewer than 6,000 are few."""
    assert completed(**{HMMA: [5999, 6001], TF32: [0, 0]}) == ([[0, 0], [0, -1]], [5999 * 4096, 0])


def test_without_instructions_nothing_is_completed() -> None:
    table = pd.DataFrame({TF32: [1.0, None]})
    assert single_passes.complete_products(table, [TF32, BF16])[0] is table
    table = table.assign(**{HMMA: 0, GMMA: 0, DMMA: 0, **MACHINE})
    assert single_passes.complete_products(table, [])[0] is table


def test_products_that_a_set_asks_for() -> None:
    words = ["--metrics", FMA, "--then", "--metrics", TF32, "ncu", "--metrics", f"{FMA},{TF32},{BF16}", "--export", "x"]
    assert single_passes.asked_products(words) == [TF32, BF16] and single_passes.asked_products(["ncu"]) == []
