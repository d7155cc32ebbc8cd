"""Verdicts on single causes: layers, the allocator's memory, guards of compiled code, calls that are repeated."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.cell.job_types import AllocatorFacts
from profzoo.harness.observers import allocator, recorders
from profzoo.tables import layers as layer_tables
from profzoo.verdicts.causes import cause_verdicts, verdicts
from profzoo.verdicts.causes.cause_verdicts import LOOKUP, GuardTime, find_guards, judge_guards, judge_memory
from profzoo.verdicts.rules.cell_facts import NotedFacts, read_noted
from profzoo.verdicts.rules.rule_evaluation import CellRules
from profzoo.what_if.predicted_gains import Gain
from profzoo.what_if.program import process_number
from tests import known_rules, simulated_waits, slow
from tests.simulated import Act
from tests.simulated_waits import GIVEN, Told, operator
from tests.unit.test_verdicts import PLAIN, ROOFS, UNTRIED, kernel_rows
from tests.unit.test_verdicts import made as a_step

RULES = known_rules.load(every=True)
CELL = ("m", "train")


def kernel(module: str, **given: Any) -> dict[str, Any]:
    """A row of a layer that takes 100 of the step's 1,000 us in one launch, at two fifths of the tensor cores' roof."""
    row: dict[str, Any] = dict.fromkeys(layer_tables.LAYER_KERNELS_COLUMNS, float("nan")) | {
        "operator": "aten::cudnn_convolution", "shapes": "[[8, 3, 224, 224], [32, 3, 3, 3], []]", "caller": "", "module": module,
        "type": "Conv2d", "direction": "forward", "class": "convolution", "kernel": "k", "function": "k", "mangled": "k",
        "grid_x": 1000, "grid_y": 1, "grid_z": 1, "launches": 1.0, "total_ns": 1e5, "mean_ns": 1e5, "share": 0.1,
        "bound": "tensor", "efficiency": 0.4, "multiprocessors": 132,
    }  # fmt: skip
    return row | given


def layer(module: str, **given: Any) -> dict[str, Any]:
    """A row of the tree, which needs as much as was counted."""
    row: dict[str, Any] = dict.fromkeys(layer_tables.LAYERS, 0.0) | {
        "module": module, "direction": "forward", "self_ns": 1e5, "total_ns": 1e5, "needed_share": 1.0,
        "counted_share": 1.0, "needed_flop": 1e9, "tensor_flop": 1e9, "simt_flop": 0.0,
    }  # fmt: skip
    return row | given


def of_layers(kernels: list[dict[str, Any]], tree: list[dict[str, Any]], idle: float = 0.0) -> pd.DataFrame:
    """The verdicts on the layers of a cell whose kernels take all of its step but for what it idles as the CPU is late."""
    step = a_step({"idle_host": idle} if idle else {})
    judge = CellRules(step.iloc[0], {}, PLAIN, ROOFS, None, UNTRIED)
    rows = pd.DataFrame(kernels, columns=layer_tables.LAYER_KERNELS_COLUMNS)
    found = cause_verdicts.judge_top_layers(judge, rows, pd.DataFrame(tree, columns=layer_tables.LAYERS))
    return pd.DataFrame([row.columns() for row in found])


def test_layers_come_first_from_which_most_is_to_be_had_in_the_table() -> None:
    """Forward and backward are judged apart; ten of fourteen are named."""
    slow = [kernel(f"l{place}", bound="simt", efficiency=0.9, total_ns=1e4 * (1 + place)) for place in range(13)]
    slow.append(kernel("l12", direction="backward", bound="simt", efficiency=0.9, total_ns=1.4e5))
    rows = pd.DataFrame(slow, columns=layer_tables.LAYER_KERNELS_COLUMNS)
    found = {CELL: (rows, pd.DataFrame([], columns=layer_tables.LAYERS))}
    given = a_step({}), kernel_rows(total_ns=[1e6]), None, ROOFS, {}, {}, PLAIN
    table = verdicts.tabulate_verdicts(*given, found, scored=UNTRIED).query("level == 'layer'")
    assert table["module"].tolist() == ["l12", *(f"l{place}" for place in range(12, 3, -1))]
    assert table["direction"].tolist() == ["backward", *["forward"] * 9] and len(table) == cause_verdicts.TOP
    assert table["gain"].is_monotonic_decreasing and table["rank"].tolist() == [*range(1, 11)]
    assert of_layers([], []).empty


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        ({"bound": "simt", "efficiency": 0.7}, "compute-bound (SIMT)",
         "aten::cudnn_convolution 8x3x224x224 and 32x3x3x3 runs without tensor cores, at 70% of what it could: "),
        ({"bound": "dram", "efficiency": 0.8}, "memory-bound", "at 80% of what DRAM can do: move fewer bytes"),
        ({"grid_x": 3, "grid_y": 4, "grid_z": 5}, "latency-bound (small grid)", "60 blocks for 132 multiprocessors: fill the GPU"),
        ({"class": "elementwise", "launches": 40.0, "mean_ns": 2500.0, "bound": "", "efficiency": float("nan")},
         "latency-bound (short kernels)", "40 kernels of 2.5 µs (elementwise): fuse"),
        ({"efficiency": 0.1}, "latency-bound (occupancy, tail)", "at 10% of the nearest roof"),
    ],
)  # fmt: skip
def test_a_layer_has_the_advice_that_fits(given: dict[str, Any], verdict: str, said: str) -> None:
    others = [kernel(f"fine.{place}", total_ns=1e5) for place in range(9)]
    (row,) = of_layers([kernel("conv1", **given), *others], [layer("conv1")]).to_dict("records")
    assert (row["module"], row["direction"], row["verdict"]) == ("conv1", "forward", verdict)
    assert said in row["next_step"] and row["share"] == pytest.approx(0.1)


def test_a_layer_that_computes_more_than_it_needs_says_so() -> None:
    tree = [layer("conv1", tensor_flop=4e9), layer("other", tensor_flop=1.2e9), layer("part", needed_share=0.5)]
    table = of_layers([kernel("conv1"), kernel("other", total_ns=9e5), kernel("part")], tree)
    assert table["module"].tolist() == ["conv1"] and table.loc[0, "value"] == 4
    said = "4.0 times the operations that it needs, with inputs 8x3x224x224 and 32x"
    assert table.loc[0, "next_step"].startswith(said)
    # Three quarters of a tenth of the step could be saved.
    assert table.loc[0, "cured"] == 0.75 and table.loc[0, "gain"] == pytest.approx(1 / (1 - 0.75 * 1e5 / 1.1e6))


@pytest.mark.parametrize("idle", slow.first([0.1, 0.6]))
@pytest.mark.parametrize("seed", slow.first(range(4)))
def test_layers_that_are_not_looked_at_would_not_be_named(
    seed: int, idle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, kernels, tree = random.Random(seed), [], []
    for place in range(25):
        many = choose.uniform(5, 60)
        short = {"class": "elementwise", "launches": many, "mean_ns": 2e3, "total_ns": 2e3 * many}
        long = {"bound": choose.choice(["dram", "simt", "tensor"]), "total_ns": 8e3 * many}
        kind: dict[str, Any] = short if choose.random() < 0.4 else long
        kernels.append(kernel(f"l{place}", efficiency=choose.random(), grid_x=choose.choice([33, 1000]), **kind))
        tree.append(layer(f"l{place}", tensor_flop=choose.uniform(1, 4) * 1e9))
    told = of_layers(kernels, tree, idle)
    monkeypatch.setattr(cause_verdicts, "TOP", len(kernels))
    every = of_layers(kernels, tree, idle)
    assert len(told) == 10 < len(every)
    pd.testing.assert_frame_equal(told.fillna(""), every[:10].fillna(""), check_dtype=False)


@pytest.mark.parametrize(
    ("row", "work"),
    [
        ({}, 3.0),
        ({"self_ns": 99.0}, 3.0),
        ({"self_ns": 98.9}, None),
        ({"needed_share": 0.99}, None),
        ({"counted_share": 0.99}, None),
        ({"needed_flop": 0.0}, None),
        ({"needed_flop": 4.0}, 0.75),
    ],
)
def test_work_over_need_is_told_where_all_is_known(row: dict[str, float], work: float | None) -> None:
    """Two operations on SIMT units and one on tensor cores, of one that is needed."""
    known = {"self_ns": 100.0, "total_ns": 100.0, "needed_flop": 1.0, "simt_flop": 2.0, "tensor_flop": 1.0}
    found = cause_verdicts._work(pd.DataFrame([layer("a", **known) | row]))
    assert found == ({("a", "forward"): work} if work else {})


def test_shapes_are_of_the_operator_that_takes_longest() -> None:
    """Twice 3 ns are longer than 5; and of its inputs the first two that have a shape are named."""
    shapes = ["[[8, 3], [3, 5], [5]]", "[[1]]", "[[8, 3], [3, 5], [5]]", "[[], [2]]"]
    rows = pd.DataFrame({"shapes": shapes, "total_ns": [3.0, 5.0, 3.0, 1.0]})
    assert cause_verdicts._shapes(rows) == "8x3 and 3x5" and cause_verdicts._shapes(rows[1:2]) == "1"
    assert cause_verdicts._shapes(rows[3:]) == "2"


@pytest.mark.parametrize(
    ("counted", "verdict"),
    # A half goes by fewer bytes and operations; beyond twice the need more than that by smaller tiles.
    [(1.9e9, "compute-bound (tensor)"), (2.1e9, "work beyond need")],
)
def test_a_layer_is_told_what_gains_most(counted: float, verdict: str) -> None:
    found = of_layers([kernel("a", efficiency=0.6)], [layer("a", tensor_flop=counted)])
    assert found["verdict"].tolist() == [verdict]


@pytest.mark.parametrize(
    ("row", "counted", "named"),
    [
        ({}, 1.5e9, True),
        ({}, 1.49e9, False),
        ({"class": "copy"}, 1.5e9, False),
        ({"class": "gemm", "bound": "simt"}, 1.5e9, True),
        ({"bound": "dram"}, 1.5e9, False),
    ],
)
def test_work_beyond_need_is_that_of_tiles(row: dict[str, Any], counted: float, named: bool) -> None:
    """A third of the step, which one launch is all of."""
    found = of_layers([kernel("a", **row)], [layer("a", tensor_flop=counted)]).to_dict("records")
    told = [(one["verdict"], one["value"], one["threshold"], one["gain"], one["cured"]) for one in found]
    assert told == [("work beyond need", 1.5, 1.5, pytest.approx(1.5), pytest.approx(1 / 3))] * named


def test_a_layer_is_named_by_its_longest_kernel_and_what_it_is_told_of() -> None:
    """At 60 and 90 % of the roof for 300 and 100 us: 67.5 % in all; the kernel that is at none is the longest."""
    rows = [kernel("a", efficiency=0.6, total_ns=3e5, function="x"), kernel("a", efficiency=0.9, function="y"),
            kernel("a", efficiency=0.4, total_ns=3.9e5, function="z")]  # fmt: skip
    (found,) = of_layers(rows, []).to_dict("records")
    assert found["function"] == "z" and found["share"] == pytest.approx(4 / 7.9)
    assert found["next_step"].startswith("at 68% of what tensor cores can do: ")
    short = {"class": "elementwise", "mean_ns": 2e3, "bound": "", "efficiency": np.nan}
    rows = [kernel("a", launches=30.0, total_ns=6e4, **short), kernel("a", launches=10.0, total_ns=3e4, **short)]
    (found,) = of_layers([*rows, kernel("a", total_ns=5e4)], []).to_dict("records")
    # 90 us of 40 launches.
    assert found["next_step"].startswith("40 kernels of 2.2 µs (elementwise): ")


GIB = 2**30
FINE: AllocatorFacts = {
    "retries": 0, "failures": 0, "driver_allocations": 0, "driver_frees": 0, "reserved_bytes": 70 * GIB,
    "used_peak_bytes": 66 * GIB, "stuck_bytes": 0, "limit_bytes": 80 * GIB,
}  # fmt: skip
RETRIED: AllocatorFacts = FINE | {"retries": 16, "driver_allocations": 32, "driver_frees": 31}
FRAGMENTED: AllocatorFacts = FINE | {"used_peak_bytes": 40 * GIB}
RETRIES, STALLS, FRAGMENTS = "allocator retries", "allocator stalls", "fragmented memory"
RETRYING = "within the window the allocator found no block that fits and no more memory "
WORK = [operator(2e4) for _ in range(40)]
# What a retry does in each step: free blocks are given back, which waits for the GPU, and another one is taken.
RETRY = [Act("free", 0, "forward", 2e3, 6e4)] * 2 + [Act("allocate", 0, "forward", 2e3, 8e4)]
SLOWED = [*WORK[:20], *RETRY, *WORK[20:], *RETRY]


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Told:
    noted = NotedFacts(allocator=RETRIED)
    return simulated_waits.told(SLOWED, tmp_path_factory.mktemp("slowed"), noted=noted, every_rule=True)


def untraced(**ran_with: Any) -> CellRules:
    return CellRules(a_step({}).iloc[0], ran_with, RULES, {}, None, UNTRIED)


def test_retries_cost_what_the_steps_gain_without_them(slowed: Told) -> None:
    found = {row["verdict"]: row for row in slowed.of_cell.to_dict("records")}
    row, measured = found[RETRIES], simulated_waits.step_ns(SLOWED) / simulated_waits.step_ns(WORK)
    assert row["gain"] == pytest.approx(measured, rel=0.05) and measured > 1.3
    # Such advice was never tried, so that its interval is too wide to be told.
    assert np.isnan(row["gain_low"]) and measured <= row["gain_high"]
    assert row["next_step"].startswith(f"{RETRYING}16 ")
    assert "expandable_segments:True" in row["next_step"] and "run the largest batch first" in row["next_step"]
    # One finding, not two of the same time.
    assert STALLS not in found and FRAGMENTS not in found


def test_memory_given_back_by_the_program_is_no_retry(slowed: Told) -> None:
    row, number = slowed.row.to_frame().T.infer_objects(), process_number(slowed.program.process)
    judge = verdicts.judge_cell(row, GIVEN, RULES, {}, {number: slowed.program}, UNTRIED)
    for noted, told in ((RETRIED, RETRIES), (FINE, STALLS), (None, STALLS)):
        found = cause_verdicts.without_stalls([*judge.of_trace(), *judge_memory(judge, noted)])
        assert [one.verdict for one in found if one.verdict in (RETRIES, STALLS)] == [told]


@pytest.mark.parametrize(("times", "told"), [(1.0, True), (0.99, False), (0.0, False)])
def test_retries_that_cost_nothing_are_no_finding(times: float, told: bool) -> None:
    judge = untraced()
    (least,) = (rule["at_least"] for rule in RULES["rules"] if rule["verdict"] == RETRIES)
    gain = Gain(1, 1, 1 / (1 - least * times) + 1e-9 * told, 1, 2)
    judge.replayed = SimpleNamespace(gain=lambda *asked: gain)  # type: ignore[assignment]
    assert [row.verdict for row in judge_memory(judge, RETRIED)] == [RETRIES] * told


@pytest.mark.parametrize(("retries", "times"), [(1, "once"), (2, "2 times")])
def test_retries_are_told_without_a_gain_where_no_steps_were_traced(retries: int, times: str) -> None:
    (found,) = judge_memory(untraced(), RETRIED | {"retries": retries})
    assert (found.level, found.verdict, found.value, found.threshold) == ("cell", RETRIES, retries, 1)
    assert found.gain is found.share is found.cured is None
    assert found.next_step.startswith(
        f"{RETRYING}{times}, waited for the GPU and gave its free blocks back (32 blocks taken from the driver, 31 given "
        "back); tensors use 66.0 GiB at most, of 80.0 GiB that the process may take: "
    )
    assert not list(judge_memory(untraced(), FINE)) + list(judge_memory(untraced(), None))


@pytest.mark.parametrize(
    ("changed", "ran_with", "unused"),
    [
        # Half of what the process may take is large, and a quarter of it unused is enough.
        ({}, {}, 3 / 7),
        ({"limit_bytes": 140 * GIB}, {}, 3 / 7),
        ({"limit_bytes": 140 * GIB + 1}, {}, None),
        ({"used_peak_bytes": 52.5 * GIB}, {}, 0.25),
        ({"used_peak_bytes": 53 * GIB}, {}, None),
        ({"limit_bytes": 0}, {}, None),
        # Kept on purpose.
        ({}, {"graph": True}, None),
        ({}, {"compile": "reduce-overhead"}, None),
        ({}, {"compile": "max-autotune"}, None),
    ],
)
def test_memory_that_no_tensor_used_is_told_from_its_thresholds_on(
    changed: Any, ran_with: dict[str, Any], unused: float | None
) -> None:
    found = list(judge_memory(untraced(**ran_with), FRAGMENTED | changed))
    known = [(row.verdict, row.value, row.gain, row.share) for row in found]
    assert known == ([] if unused is None else [(FRAGMENTS, pytest.approx(unused), None, None)])
    assert changed or all(row.next_step.startswith(
        "the allocator holds 70.0 GiB of the 80.0 GiB that the process may take, and tensors never used more than 40.0 "
    ) for row in found)  # fmt: skip


def statistics(**counts: int) -> dict[str, int]:
    names = {**allocator.COUNTS, "reserved": allocator.RESERVED, "used": allocator.USED}
    return {own: counts.get(name, 0) for name, own in names.items()}


def test_only_what_happened_within_the_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_read_limit", lambda device: 80)
    before = statistics(retries=5, driver_allocations=30, driver_frees=20, reserved=60, used=10)
    after = statistics(retries=7, driver_allocations=33, driver_frees=21, failures=1, reserved=50, used=40)
    found = allocator.describe_allocator(before, after, torch.device("cuda"))
    assert found == {
        "retries": 2, "failures": 1, "driver_allocations": 3, "driver_frees": 1, "reserved_bytes": 60,
        "used_peak_bytes": 40, "stuck_bytes": 0, "limit_bytes": 80,
    }  # fmt: skip
    assert allocator.describe_allocator(before, {}, torch.device("cuda")) is None
    assert read_noted({"allocator": RETRIED}).allocator == RETRIED and read_noted({}).allocator is None


def test_a_cpu_has_no_such_allocator(tmp_path: Path) -> None:
    timer = recorders.StepTimer(torch.device("cpu"), tmp_path / "steps.csv")
    timer.start()
    timer.step(1)
    timer.stop()
    assert not {"allocator", "clocks"} & set(recorders.describe_window(timer))
    assert {"step_ns", "window_wall_ns", "cpu_taken_share", "shifts"} <= set(recorders.describe_window(timer))


def test_guards_are_found_in_a_trace_with_steps() -> None:
    row = {"kind": "operator", "name": LOOKUP, "count": 40, "cpu_ns": 4e6}
    others = [row | {"name": "aten::mul", "cpu_ns": 9e9}, {"kind": "range", "name": "step", "count": 20, "cpu_ns": 9e9}]
    assert find_guards(pd.DataFrame([row, *others])) == GuardTime(2e5, 2.0)
    assert find_guards(pd.DataFrame(others)) is find_guards(pd.DataFrame([row])) is find_guards(None) is None


@pytest.mark.parametrize(("idle", "right"), [(5e5, 0.2), (1e5, 0.1), (1e4, None)])
def test_a_gpu_that_works_while_guards_are_checked_loses_nothing(idle: float, right: float | None) -> None:
    found = list(judge_guards(RULES["rules"], GuardTime(2e5, 8.0), {}, 1e6, idle))
    said = "torch.compile checks guards 8 times per step, which takes "
    told = [(row.verdict, row.share, row.gain, row.next_step.startswith(said)) for row in found]
    share = right or 0
    assert told == [("time in guards", pytest.approx(share), pytest.approx(1 / (1 - share)), True)] * (
        right is not None
    )


ENCODER = {"module": "encoder", "type": "ResNet", "calls": 2, "places": ["train.py:8", "train.py:9"]}


def tree(**calls: float) -> pd.DataFrame:
    """Layers of a cell whose kernels take 1 ms: 400 µs in the encoder's forward pass, 100 in the head's."""
    rows = [("encoder", "forward", 4e5, 40), ("encoder", "backward", 2e5, 40), ("head", "forward", 1e5, 10)]
    made = [{"module": module, "direction": way, "total_ns": ns, "launches": count, "calls": calls.get(module, 2.0)}
            for module, way, ns, count in rows]  # fmt: skip
    return pd.DataFrame(made).reindex(columns=layer_tables.LAYERS)


def repeated(found: list[Any], layers: pd.DataFrame | None, idle: float = 0.0) -> list[Any]:
    """Verdicts on a step whose kernels take all of it, but for what it idles as the host is late."""
    judge = verdicts.judge_cell(a_step({"idle_host": idle} if idle else {}), {}, RULES, {}, {})
    return list(cause_verdicts.judge_repeated(judge, found, layers, 1e6))


def test_half_of_the_forward_pass_of_a_module_that_is_called_twice_is_not_needed() -> None:
    (row,) = repeated([ENCODER], tree())
    assert row.verdict == "repeated work" and row.gain == pytest.approx(1 / 0.8) and row.gain_low == 1
    said = "encoder (ResNet) is called 2 times on the same inputs, with the same result (train.py:8, train.py:9): call it once"
    assert row.next_step.startswith(said)
    # Of four calls, one is not needed.
    (row,) = repeated([ENCODER], tree(encoder=4))
    assert row.gain == pytest.approx(1 / 0.9)
    (row,) = repeated([ENCODER, ENCODER | {"module": "head", "calls": 4}], tree(head=4))
    assert row.gain == pytest.approx(1 / (1 - 0.2 - 0.075))
    # A fifth of the kernels' half of the step, and what the host takes to launch them.
    (row,) = repeated([ENCODER], tree(), idle=0.5)
    assert row.gain > 1 / (1 - 0.2 * 0.5)


@pytest.mark.parametrize(
    ("found", "layers"),
    [
        ([], tree()),
        ([ENCODER], None),
        ([ENCODER | {"module": "head"}], tree(head=8)),
        ([ENCODER | {"module": "elsewhere"}], tree()),
    ],
    ids=["nothing", "no layers", "too little", "an unknown layer"],
)
def test_nothing_is_told_where_it_costs_little_or_nobody_knows(found: list[Any], layers: pd.DataFrame | None) -> None:
    assert not repeated(found, layers)


def test_on_a_cpu_operators_within_the_module_count() -> None:
    rows = [("encoder.0", "forward", 3.0), ("encoder", "forward", 1.0), ("encoder", "backward", 2.0), ("head", "forward", 4.0)]  # fmt: skip
    operators = pd.DataFrame(rows, columns=["module", "direction", "total_ns"])
    given = operators, {"forward": 8.0, "backward": 2.0}, {}
    (row,) = cause_verdicts.judge_repeated_on_cpu(RULES["rules"], [ENCODER], *given)
    assert row.verdict == "repeated work" and row.gain == pytest.approx(1 / 0.8)
    assert not list(cause_verdicts.judge_repeated_on_cpu(RULES["rules"], [], *given))
