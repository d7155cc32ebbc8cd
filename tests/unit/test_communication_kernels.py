"""Kernels that wait for other GPUs are known as such wherever profzoo tells them from others, whatever library's."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.kernels import kernel_classes
from profzoo.tables import across_cells, cell_tables, layers
from profzoo.tools import kernel_signature
from profzoo.tools.ncu import command, launch_selection
from profzoo.tools.nsys.steps import ranks as nsys_ranks
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from profzoo.verdicts.rules import launch_traits, rules
from profzoo.what_if import changes, predicted_gains, tables
from tests import simulated, zoo
from tests.unit import test_nsys_steps
from tests.unit.test_what_if import LAUNCH, replace, steps

# As nsys or torch.profiler show it, mangled, and the function alone, as ncu has it.
KERNELS = [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
     "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
     "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ("void <unnamed>::multimem_all_reduce_kernel<__nv_bfloat16, (int)16>(T1 *, unsigned long, unsigned int **)",
     "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelI13__nv_bfloat16Li16EEEvPT_mPPj", "multimem_all_reduce_kernel"),
    ("void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(float**, float*, unsigned long)",
     "_ZN12_GLOBAL__N_126one_shot_all_reduce_kernelIfLi16ELi8EEEvPPT_S3_m", "one_shot_all_reduce_kernel"),
    ("void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8>(float**, unsigned long)",
     "_ZN12_GLOBAL__N_126two_shot_all_reduce_kernelIfLi16ELi8EEEvPPT_m", "two_shot_all_reduce_kernel"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)",
     "_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li2EEEvPNS_8RankDataENS_11RankSignalsEPNS_6SignalE",
     "cross_device_reduce_1stage"),
    ("void sglang::cross_device_reduce_2stage<half, 8>(sglang::RankData*)",
     "_ZN6sglang26cross_device_reduce_2stageI6__halfLi8EEEvPNS_8RankDataE", "cross_device_reduce_2stage"),
    ("void deep_ep::intranode::dispatch<(int)8, (int)768, (int)8192>(int4 *, float *)",
     "_ZN7deep_ep9intranode8dispatchILi8ELi768ELi8192EEEvP4int4Pf", "dispatch"),
    ("void deep_ep::legacy::internode_ll::combine<(bool)1, (int)7168>(void *, void *)",
     "_ZN7deep_ep6legacy12internode_ll7combineILb1ELi7168EEEvPvS2_", "combine"),
    ("void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int)",
     "_ZN7deep_ep9intranode21cached_notify_combineILi8EEEvPPvPii", "cached_notify_combine"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(int)2>(T1)",
     "_ZN10flashinfer23trtllm_allreduce_fusion39allreduce_fusion_kernel_oneshot_lamportILi2EEEvT_",
     "allreduce_fusion_kernel_oneshot_lamport"),
    ("void mscclpp::collective::allreduceNvls<float>(void*)", "_ZN7mscclpp10collective13allreduceNvlsIfEEvPv",
     "allreduceNvls"),
    ("c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int, int)",
     "_ZN4c10d17nvshmem_extension9allToAllVEPvS1_Plmii", "allToAllV"),
    ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int, int)",
     "_Z36barrier_on_stream_kernel_threadgroupIL13threadgroup_t2EEvii", "barrier_on_stream_kernel_threadgroup"),
    ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8(int, int)", "_Z44userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8ii",
     "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8"),
]  # fmt: skip
SHOWN = KERNELS[2][0]
# A reduction and a product that have a communicator's type among their parameters, and what Inductor generates.
OTHERS = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(T3)",
    "void my::norm_kernel<float>(ncclComm*, vllm::cross_device_reduce_arguments<float>)",
    "triton_red_fused_all_reduce_sum_3", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n", "get_layout", "dispatch_rows",
]  # fmt: skip
TRACE = test_nsys_steps.trace
TALKING = 2
SET = "roofline"
CELL = {"model": "m", "phase": "train", "gpus": 2, "nodes": 1, "graph": False, "compile": "off"}


@pytest.mark.parametrize("kernel", [name for names in KERNELS for name in names[:2]])
def test_they_are_of_the_class_communication(kernel: str) -> None:
    assert kernel_classes.classify(kernel) == "communication"


@pytest.mark.parametrize("kernel", OTHERS)
def test_kernels_that_compute_are_not(kernel: str) -> None:
    assert not kernel_signature.communicates(kernel) and kernel_classes.classify(kernel) != "communication"


def test_ncu_replays_none_of_them_whatever_it_knows_of_the_name() -> None:
    config = zoo.config.normalise_config({})["ncu"]
    words = command.selection_options(command.adapt_to_cell(config, SET, CELL), SET)
    expression = re.compile(words[words.index("--kernel-name") + 1].removeprefix("regex:"))
    for shown, mangled, function in KERNELS:
        assert not expression.search(mangled) and not expression.search(function), shown
    for name in ("sgemm_nn", "_ZN2at6native13reduce_kernelILi512EEEvT_", "layer_norm_kernel", "dispatch_rows"):
        assert expression.search(name)


def test_of_the_users_own_choice_ncu_replays_none_of_them() -> None:
    given = {**zoo.config.normalise_config({})["ncu"], "kernel_name": "^all_reduce|gemm|two_shot"}
    chosen = command.adapt_to_cell(given, SET, CELL)
    names = ["two_shot_all_reduce_kernel", "sgemm_nn", "all_reduce_kernel", "add"]
    assert [bool(re.search(chosen["kernel_name"], name)) for name in names] == [False, True, False, False]
    assert command.adapt_to_cell(given, SET, {**CELL, "gpus": 1})["kernel_name"] == given["kernel_name"]
    census = pd.DataFrame({"mangled": names})
    assert launch_selection.select_candidates(chosen, SET, census)["mangled"].tolist() == ["sgemm_nn"]


def test_ncus_expression_has_nothing_that_its_syntax_may_lack() -> None:
    """Of look-aheads without groups, flags and colons, which std::regex, Boost and Python read alike."""
    words = [*kernel_signature.WORDS, *kernel_signature.FUNCTIONS]
    assert all(re.fullmatch(r"(?:\w|\[\w+\]|_\?)+", word) for word in words)
    assert re.fullmatch(r"\^(?:\(\?![^()]+\))+", kernel_signature.REPLAYED)


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is not NCCL's, where traces have one that communicates."""
    monkeypatch.setitem(test_nsys_steps.NAMES, TALKING, SHOWN)


def test_its_time_is_communication_and_not_kernels(tmp_path: Path) -> None:
    """Kernels from 10 to 50 ns and it from 30 to 70: 40 ns of it, 20 beside another, 20 alone."""
    calls = [(test_nsys_steps.LAUNCH, 0, 1, 1), (test_nsys_steps.LAUNCH, 1, 2, 2)]
    row = TRACE(tmp_path, [("step", 0, 100)], calls, [(10, 50, 1), (30, 70, 2, TALKING)])
    assert (row["kernel_ns"], row["communication_ns"], row["overlap_ns"]) == (60, 40, 20)
    step = pd.DataFrame([{**row, "busy_share": 0.6, "waiting_ns": 5.0}])
    found = cell_tables.step_shares(step).iloc[0]
    # Of 55 ns of work, 15 are communication alone.
    assert found["communication"] == pytest.approx(0.6 * 15 / 55) and found["kernels"] == pytest.approx(0.6 * 40 / 55)


def test_ranks_wait_in_it(tmp_path: Path) -> None:
    """The second computes for 50 ns to the first's 30, which waits 20 ns for it."""
    TRACE(tmp_path, [("step", 0, 100)], kernels=[(10, 40, 1), (30, 90, 2, TALKING)], name="a.0.sqlite")
    TRACE(tmp_path, [("step", 0, 100)], kernels=[(10, 60, 1), (50, 90, 2, TALKING)], name="b.1.sqlite")
    cell = {"model": "m", "phase": "train"}
    table = across_cells.across_cells([(cell, nsys_ranks.tabulate_ranks(tmp_path.glob("*.sqlite"), 2))])
    assert table["compute_ns"].tolist() == [30, 50] and table["communication_ns"].tolist() == [60, 40]
    assert table["waiting_ns"].tolist() == [20, 0] and table["overlap_share"].tolist() == [1 / 6, 1 / 4]


def test_the_replay_overlaps_it(tmp_path: Path) -> None:
    """Of 10 kernels one after the other, 200 us of communication can go on beside nine of 40."""
    acts = [*[replace(LAUNCH, ns=4e4)] * 9, replace(LAUNCH, ns=2e5, group=-1)]
    path = simulated.record(simulated.simulate(steps(acts, 6)), tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE StringIds SET value = ? WHERE value = 'ncclDevKernel'", (SHOWN,))
        database.commit()
    (program,) = tables.read_programs(path)
    assert program.gpu["talking"].sum() == 6
    gain = predicted_gains.predict_gain(program, changes.overlap_communication(program))
    assert gain.step_ns == pytest.approx(9 * 4e4 + 2e5 + 10 * 1.1e3, rel=0.01)
    assert gain.predicted_ns == pytest.approx(9 * (4e4 + 1.1e3), rel=0.02)


def test_layers_do_not_own_it() -> None:
    ids = {"External id": 1, "correlation": 5}
    sizes = {"grid": [1, 1, 1], "block": [32, 1, 1], "stream": 7, "device": 0}
    events: list[dict[str, Any]] = [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": 1, "dur": 1, "args": ids},
        {"cat": "kernel", "name": SHOWN, "tid": 7, "ts": 5, "dur": 2, "args": ids | sizes},
    ]  # fmt: skip
    (owner,) = owners.tabulate_launches(torch_trace.make_trace(events))[["module", "direction"]].to_numpy().tolist()
    assert owner == ["(communication)", "communication"] and "communication" in layers.DIRECTIONS


def test_verdicts_judge_it_as_no_kernel() -> None:
    rows = pd.DataFrame({"name": [SHOWN, "sgemm"], "mean_ns": 1e3, "launches": 1, "total_ns": 1e3})
    rows = rows.assign(**{"class": rows["name"].map(kernel_classes.classify)}, multiprocessors=132)
    rows = rows.assign(grid_x=1, grid_y=1, grid_z=1)
    traits = rules.load_rules()["traits"]
    assert launch_traits.mark_traits(rows, None, traits, {})["name"].tolist() == ["sgemm"]
