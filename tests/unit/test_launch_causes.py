"""Causes told apart: each rule fires where it was planted, by counters, names or the trace, and nowhere else."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.verdicts.causes import verdicts
from tests import known_rules
from tests.simulated import Act
from tests.simulated_waits import operator, step_ns, told
from tests.unit.test_gain_models import LAUNCH, judged, simulation, steps
from tests.unit.test_verdicts import kernel_rows
from tests.unit.test_verdicts import made as a_step

RULES = known_rules.load()
OWN = [rule["verdict"] for rule in RULES["rules"] if rule["share"] in RULES["traits"]["causes"]]
# What nothing is wrong with: half of the step in one kernel, whose counters are those of a good one.
GOOD: dict[str, Any] = {
    "load_needed_sectors": 1e6, "load_sectors": 1e6, "load_requests": 2.5e5, "l2_sectors": 1.8e6,
    "store_needed_sectors": 1e6, "store_sectors": 1e6, "store_requests": 2.5e5,
    "bank_conflicts": 0.0, "shared_wavefronts": 1e6,
    "local_sectors": 0.0, "l1_bytes": 1e9, "l2_hit_pct": 70.0, "dram_pct": 50.0, "waves": 7.9, "fp32_flop": 1e9,
    "fp16_flop": 0.0, "tensor_tf32_flop": 1e12, "tensor_bf16_flop": 0.0, "tensor_fp16_flop": 0.0,
    "warp_cycles": 10.0, "stall_memory_cycles": 2.0, "stall_shared_cycles": 1.0, "stall_barrier_cycles": 1.0,
    "stall_math_cycles": 1.0, "kernel": "sm90_xmma_gemm_tf32f32_tn_n_tilesize128x128x32",
}  # fmt: skip
PLANTED: list[tuple[str, dict[str, Any], float]] = [
    # Every eighth float is asked for: of 32 bytes that move, four.
    ("uncoalesced access", {"load_sectors": 8e6, "l2_sectors": 9e6}, 7 / 9),
    ("uncoalesced access", {"store_sectors": 4e6}, 0.6),
    ("bank conflicts", {"bank_conflicts": 5e5}, 0.5),
    ("register spills", {"local_sectors": 1e7}, 0.32),
    ("tail of the last wave", {"waves": 1.2}, 0.4),
    ("L2 thrashing", {"l2_hit_pct": 5.0, "dram_pct": 80.0}, 0.5),
    ("off tensor cores", {"tensor_tf32_flop": 0.0}, 0.5),
    ("double precision", {"kernel": "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16"}, 0.86),
    ("full precision", {"kernel": "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_ffma_aligna4"}, 0.5),
    ("changes of layout", {"kernel": "void cudnn::ops::nchwToNhwcKernel<float, float, float>", "class": "copy"}, 1.0),
    (
        "redundant casts",
        {"kernel": "unrolled_elementwise_kernel<direct_copy, LoadWithCast<1>, StoreWithCast<1>>", "class": "copy"},
        1.0,
    ),
    ("stalled on memory", {"stall_memory_cycles": 6.0}, 0),
    ("stalled on shared memory", {"stall_shared_cycles": 4.0}, 0),
    ("stalled at barriers", {"stall_barrier_cycles": 5.0}, 0),
    ("stalled on arithmetic", {"stall_math_cycles": 3.5}, 0),
]
# What ncu says of kernels that read, or write, as well as can be: nothing by a thread; the same number in all threads of
# a warp; that beside as many that are next to each other; a sum for a block of numbers; a few for tiles that come another
# way.
WELL: list[dict[str, Any]] = [
    {"load_needed_sectors": 0.0, "load_sectors": 0.0, "load_requests": 0.0},
    {"load_needed_sectors": 3e4, "load_sectors": 2.5e5},
    {
        "load_needed_sectors": 1.06e6,
        "load_sectors": 1.5e6,
        "load_requests": 7.5e5,
        "store_sectors": 0.0,
        "l2_sectors": 0.0,
    },
    {"store_needed_sectors": 125.0, "store_sectors": 1e3, "store_requests": 1e3},
    {"load_needed_sectors": 1e3, "load_sectors": 8e3, "load_requests": 250.0, "store_sectors": 0.0, "l2_sectors": 1e7},
]


@pytest.fixture(scope="module")
def judged_cells() -> pd.DataFrame:
    """The verdicts on cells of two kernels each, one of which has what is planted: well ones are those of WELL."""
    cells = {str(number): planted for number, (_, planted, _) in enumerate(PLANTED)}
    cells |= {f"well {number}": planted for number, planted in enumerate(({}, *WELL))}
    rows = [
        kernel_rows(
            **{name: [value, GOOD.get(name, "gemm")] for name, value in (GOOD | planted).items()},
            function=["f", "g"],
            mean_ns=[1e5, 1e5],
        ).assign(model=model)
        for model, planted in cells.items()
    ]
    steps_ = pd.concat([a_step({}).assign(model=model) for model in cells], ignore_index=True)
    return verdicts.tabulate_verdicts(steps_, pd.concat(rows, ignore_index=True), None, {}, {}, {}, RULES)


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=[f"{verdict}" for verdict, _, _ in PLANTED])
def test_a_cause_is_named_where_it_is_planted_and_no_other(judged_cells: pd.DataFrame, number: int) -> None:
    verdict, _, saved = PLANTED[number]
    table = judged_cells[judged_cells["model"] == str(number)]
    named = table[table["verdict"].isin(OWN)]
    assert named["verdict"].tolist() == [verdict] * 2 and named["level"].tolist() == ["cell", "kernel"]
    assert named["function"].tolist()[1] == "f" and named["share"].tolist() == pytest.approx([0.5, 0.5])
    assert named["cured"].tolist() == pytest.approx([saved] * 2)
    assert named["source"].str.len().gt(0).all() and table.iloc[0]["verdict"] == verdict


def test_few_bytes_of_a_sector_are_no_fault_where_no_more_are_needed(judged_cells: pd.DataFrame) -> None:
    well = judged_cells[judged_cells["model"].str.startswith("well")]
    assert well["model"].nunique() == len(WELL) + 1 and not well["verdict"].isin(OWN).any()


def test_what_was_not_counted_has_no_cause() -> None:
    nothing = {name: np.nan for name in GOOD if name != "kernel"}
    rows = kernel_rows(total_ns=[1.0]).assign(kernel="k", **nothing)
    table = verdicts.tabulate_verdicts(a_step({}), rows, None, {}, {}, {}, RULES)
    assert table["verdict"].tolist() == [verdicts.NOTHING]


def test_memory_taken_from_the_driver_within_steps_is_named(tmp_path: Path) -> None:
    """A cudaFree a step, which waits for all that was launched."""
    acts = [LAUNCH] * 20
    plain, _ = simulation(steps(acts), tmp_path)
    table = judged(plain, a_step({}))
    assert "allocator stalls" not in set(table["verdict"])
    busy = plain.host.assign(allocates=plain.host["launches"] & (np.arange(len(plain.host)) % 4 == 0))
    stalled = replace(plain, host=busy.assign(own=np.where(busy["allocates"], 3e5, busy["own"])))
    found = judged(stalled, a_step({})).iloc[0]
    assert (found["verdict"], found["method"], found["evidence"]) == (
        "allocator stalls", "replay", "program.npz: run again",
    )  # fmt: skip
    assert found["gain"] > 1.3 and found["share"] == pytest.approx(1 - 1 / found["gain"])


def test_the_calls_that_allocate_are_told_by_name(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(simulation.__globals__["simulated"].NAMES, "other", "cudaFree_v3020")
    program, _ = simulation(steps([LAUNCH, replace(LAUNCH, kind="other", ns=0)] * 5), tmp_path)
    assert program.host["allocates"].sum() == 5 * 5


def convolutions(step: int, tuned: bool) -> list[Act]:
    """Four convolutions with two other launches each, of shapes of this step, for which six algorithms may be tried.

    One of these has the same configuration for any shape.
    """
    acts = []
    for first in (1000 * (step + 1) + 50 * number for number in range(4)):
        plans = [first, first + 1, 7, *range(first + 2, first + 5)]
        if tuned:
            acts.append(Act("sync", 0, "forward", 6e5, 2e3))
            for number, plan in enumerate(plans, 1):
                acts += [
                    Act("kernel", 0, "forward", 4e3, 4e3, ns=4e4 * number, group=plan),
                    Act("sync", 0, "forward", 2e3, 2e3),
                ] * 2
        acts += [operator(4e4, group=first), operator(1e4, group=first + 40), operator(1e4, group=first + 41)]
    return acts


def test_what_is_tried_for_new_shapes_gains_what_fixed_shapes_do(tmp_path: Path) -> None:
    """All kernels have names of full precision, and nearly all of their time is in what is tried."""
    tries, fixed = (lambda step, tuned=tuned: convolutions(step, tuned) for tuned in (True, False))
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_ffma_aligna4"
    found = told(tries, tmp_path, every_rule=True, kernel=name)
    truth = step_ns(tries) / step_ns(fixed)
    first = found.of_cell.iloc[0]
    assert truth > 35 and first["verdict"] == "tuning for changing shapes"
    assert first["gain"] == pytest.approx(truth, rel=0.02) and first["method"] == "replay"
    # What is left has 3 % of the step, so that nothing else gains more; a tenth is that of a verdict.
    assert found.of_cell["verdict"].tolist() == [first["verdict"]]
    others = found.verdicts[found.verdicts["level"] == "setting"]
    assert {"precision=tf32", "precision=bf16"} <= {*others["settings"]} and (others["gain"] < 1 / (1 - 0.03)).all()
    # The same kernels without anything to try are a verdict.
    assert "full precision" in {*told(fixed, tmp_path, every_rule=True, kernel=name).of_cell["verdict"]}


def test_tuning_that_ends_is_told_by_what_it_takes_of_the_window(tmp_path: Path) -> None:
    """Of eight steps the first is not counted, and the second and third try algorithms for new shapes."""
    tries = lambda step: convolutions(min(step, 2), step < 3)  # noqa: E731
    found = told(tries, tmp_path, every_rule=True).of_cell.iloc[0]
    truth = step_ns(tries) / step_ns(lambda step: convolutions(step, False))
    assert found["verdict"] == "tuning for changing shapes" and found["gain"] == pytest.approx(truth, rel=0.02)


def test_products_in_full_precision_are_told_by_their_names() -> None:
    """Names of cuBLAS, CUTLASS and cuDNN as they stand in traces of H100s, A100s and older GPUs."""
    known = {
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(T1::Params)": True,
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute": True,
        "ampere_sgemm_128x64_tn": True,
        "maxwell_scudnn_128x64_relu_interior_nn_v1": True,
        "implicit_convolve_sgemm": True,
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_warpsize2x2x1_tensor16x8x8": False,
        "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NTN": False,
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn": False,
    }
    match = RULES["traits"]["causes"]["full_precision"]["match"]
    assert {kernel: bool(re.search(match, kernel)) for kernel in known} == known


def test_every_cause_is_planted() -> None:
    assert set(OWN) == {verdict for verdict, _, _ in PLANTED} and len(OWN) == 14
