"""Verdicts, each number worked out by hand: thresholds, limits by the CPU, doubts, causes, narrower operands, scores."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.tables.ncu_coverage import KEYS
from profzoo.tools.ncu.details_page import SPEEDUP
from profzoo.verdicts import (
    advice_gain,
    gain_models,
    launch_causes,
    launch_traits,
    layer_verdicts,
    ncu_advice,
    reduced_precision,
    step_quality,
    verdicts,
)
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.advice_scores import Score, Scores
from profzoo.verdicts.rule_evaluation import UNDECIDED, CellRules
from profzoo.verdicts.rules import ChosenAdvice
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.predicted_gains import Gain
from tests import known_rules
from tests.known_rules import a_verdict
from tests.unit.test_layer_verdicts import judged as of_layers
from tests.unit.test_layer_verdicts import kernel, layer
from tests.unit.test_verdicts import ROOFS, UNTRIED, held, kernel_rows, made

RULES = known_rules.load()
FLOORS = RULES["floors"]


def table(step: pd.DataFrame, rows: pd.DataFrame, roofs: pd.DataFrame | None = None, **given: Any) -> pd.DataFrame:
    return verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {}, RULES, scored=UNTRIED, **given)


@pytest.mark.parametrize(
    ("wall", "host", "step", "removed", "right"),
    [
        # The CPU is busy for 4 of 10 ms; without half of its launches for 2.
        (10.0, 4.0, 10.0, 0.0, 2.5),
        (10.0, 4.0, 10.0, 0.5, 5.0),
        (10.0, 4.0, 10.0, 1.0, np.inf),
        # Of 12 ms in place of 10.
        (10.0, 12.0, 10.0, 0.0, 1.0),
        # Twice the unprofiled step is as far as it tells.
        (20.0, 4.0, 10.0, 0.0, 5.0),
        (20.1, 4.0, 10.0, 0.0, np.inf),
        (10.0, 0.0, 10.0, 0.0, np.inf),
        (10.0, np.nan, 10.0, 0.0, np.inf),
        (10.0, 0.5, 10.0, 0.0, 20.0),
    ],
)
def test_what_the_cpu_lets_through(wall: float, host: float, step: float, removed: float, right: float) -> None:
    row = {"wall_ns": wall, "host_ns": host, "step_ns": step}
    assert step_quality.cpu_limited_gain(row, 2.0, removed) == pytest.approx(right)


@pytest.mark.parametrize(
    ("row", "right", "metric"),
    [
        # A step of 10 ms whose median is 10; under nsys 10.
        ({}, 0.0, None),
        # Twice, and 1.3 times, are as much as floors allow; and 5 in 100 of the CPU.
        ({"wall_ns": 20.0}, 0.0, None),
        ({"wall_ns": 20.1}, 0.0, step_quality.STRETCH),
        ({"step_ns": 13.0}, 0.0, None),
        ({"step_ns": 16.0}, 1 - 1 / 1.6, "unprofiled step, mean / median"),
        ({"cpu_taken_share": 0.05}, 0.0, None),
        ({"cpu_taken_share": 0.06}, 0.06, "CPU time of other programs"),
        ({"cpu_taken_share": 0.2, "step_ns": 16.0}, 0.5, "CPU time of other programs"),
        ({"cpu_taken_share": np.nan}, 0.0, None),
        ({"cpu_taken_share": None}, 0.0, None),
        ({"cpu_taken_share": -1.0}, 0.0, None),
    ],
)
def test_what_puts_a_step_in_doubt(row: dict[str, Any], right: float, metric: str | None) -> None:
    step = pd.Series({"wall_ns": 10.0, "step_ns": 10.0, "step_median_ns": 10.0} | row, dtype="object")
    assert step_quality.disturbed_share(step, FLOORS) == pytest.approx(right)
    doubt = step_quality.find_doubt(step, FLOORS)
    assert (doubt.metric if doubt else None) == metric


def cell(step: pd.DataFrame) -> CellRules:
    return CellRules(step.iloc[0], {}, RULES, ROOFS, None, UNTRIED)


def test_shares_of_doubtful_steps_are_what_they_are_at_least() -> None:
    """Idle by the input for 0.9; others took half: 0.4 of 0.5. Took they all, nothing is left; kernels are what they are."""
    step = made({"idle_input": 0.9})
    assert cell(step)._told("idle_input") == (pytest.approx(0.9), True)
    found = cell(step.assign(cpu_taken_share=0.5))
    assert found._told("idle_input") == (pytest.approx(0.8), False)
    assert found._told("kernels") == (pytest.approx(0.1), True)
    assert cell(step.assign(cpu_taken_share=1.0))._told("idle_input") == (0, False)
    # Under nsys four times as long: of 3.9 ms idle 1.95 are the host's, so that of the 0.9 nothing is sure.
    longer = cell(made({"idle_input": 0.45, "idle_host": 0.45}, stretch=4))
    assert longer._told("idle_input") == (0, False)


def test_what_is_gained_at_most_by_launches_that_take_no_time() -> None:
    """Kernels take 0.6 of a step that waits 0.4 for launches, of which there are 1,000.

    500 of them that take half of the kernels' time: 0.3 and 0.2. All of them, or more than all: the whole step.
    """
    rows = pd.DataFrame({"total_ns": [50.0, 0.0, 100.0], "launches": [500.0, 250.0, 2000.0]})
    most = cell(made({"idle_host": 0.4})).most(rows, 100.0)
    assert most.tolist()[:2] == pytest.approx([2, 1 / 0.9]) and most.iloc[2] > 1e6
    assert cell(made({"idle_host": 0.4})).share_of(rows[:1], 100.0) == pytest.approx(0.3)
    assert cell(made({})).share_of(rows[:1], 0.0) == 0


@pytest.mark.parametrize(("share", "held_back"), [(0.0999, False), (0.1, True), (0.1001, True)])
def test_rules_hold_from_their_threshold_on(share: float, held_back: bool) -> None:
    found = table(made({"idle_input": share}), kernel_rows(total_ns=[1.0]))
    assert (found["verdict"].iloc[0] == "input-bound") == held_back


@pytest.mark.parametrize(("part", "verdict"), [(10.0, "memory-bound"), (9.99, verdicts.NOTHING)])
def test_rules_about_kernels_hold_from_their_threshold_on(part: float, verdict: str) -> None:
    """A tenth of a step that is all kernels, and a little less."""
    roofs = held([0.8, 0.4], ["dram", "dram"])
    found = table(made({}), kernel_rows(total_ns=[part, 100 - part]), roofs)
    assert found["verdict"].iloc[0] == verdict


def test_what_may_reach_its_threshold_is_undecided_from_there_on() -> None:
    sides = {"efficiency_low": [0.4] * 3, "efficiency_high": [0.9, 0.9, 0.4]}
    for part, verdict in ((10.0, UNDECIDED), (9.99, verdicts.NOTHING)):
        roofs = held([0.45, 0.4], ["dram", "dram"]).assign(**sides)
        found = table(made({}), kernel_rows(total_ns=[part, 100 - part]), roofs)
        assert found["verdict"].iloc[0] == verdict


def test_idleness_that_is_sure_is_not_undecided() -> None:
    """Half of a steady step idles for no cause that is known, as its GPU never did so under nsys."""
    step = made({}).assign(busy_share=0.5)
    assert table(step, kernel_rows(total_ns=[1.0]))["verdict"].tolist() == [verdicts.NOTHING]
    # In doubt, a tenth that is not told is undecided, and less is not.
    for idle, verdict in ((0.1001, UNDECIDED), (0.0999, verdicts.NOTHING)):
        doubted = made({}).assign(busy_share=1 - idle, step_median_ns=0.5e6)
        assert table(doubted, kernel_rows(total_ns=[1.0]))["verdict"].tolist() == [verdict]


def test_kernels_are_judged_from_a_fiftieth_of_the_step_on() -> None:
    """Kernels of 2 and 1.99 of 100 at a roof: the one is named, the other is not. Half of its time has to have the trait."""
    rows = kernel_rows(total_ns=[2.0, 1.99, 1.5, 1.51, 93.0], function=["a", "b", "c", "c", "d"])
    roofs = held([0.8, 0.8, 0.8, 0.4, 0.4], ["dram"] * 5)
    found = table(made({}), rows, roofs)
    assert found.loc[found["level"] == "kernel", "function"].tolist() == ["a"]
    roofs = held([0.8, 0.8, 0.4, 0.8, 0.4], ["dram"] * 5)
    kernels = table(made({}), rows, roofs).query("level == 'kernel'").set_index("function")
    assert list(kernels.index) == ["a", "c"] and kernels.loc["c", "threshold"] == pytest.approx(0.01505)


def test_launches_that_go_take_their_waits_along() -> None:
    """Short launches have 0.3 of the step and 250 of 1,000; a quarter of the 0.4 that waits for launches goes with them."""
    rows = kernel_rows(total_ns=[50.0, 50.0], mean_ns=[1e3, 1e5], launches=[250.0, 750.0])
    rows["class"] = ["elementwise", "gemm"]
    found = table(made({"idle_host": 0.4}), rows).query("level == 'cell'").set_index("verdict")
    assert found.loc["latency-bound (short kernels)", "gain"] == pytest.approx(1 / (1 - 0.3 - 0.1))
    assert found.loc["launch-bound", "gain"] == pytest.approx(1 / 0.6)


def test_at_most_a_cure_gains_what_it_takes_of_the_most() -> None:
    """Half of 0.6 goes of what is near DRAM's roof at one end: 1 / 0.7, or what the CPU lets through."""
    rule = next(one for one in RULES["rules"] if one["verdict"] == "memory-bound")
    rows = kernel_rows(total_ns=[60.0, 40.0]).assign(memory_most_ns=[60.0, 0.0])
    assert cell(made({}))._potential(rule, 0.6, rows) == pytest.approx(1 / 0.7)
    assert cell(made({}).assign(host_ns=0.8e6))._potential(rule, 0.6, rows) == pytest.approx(1.25)
    removed = rule | {"launches": "removed"}
    assert cell(made({}).assign(host_ns=0.8e6))._potential(removed, 0.6, rows) == pytest.approx(1 / 0.7)
    assert cell(made({}))._potential(rule | {"cured": "share"}, 0.6, rows) == pytest.approx(1 / 0.4)


def caused(causes_of: dict[str, Any], **columns: Any) -> pd.DataFrame:
    rows = pd.DataFrame({"total_ns": 100.0, "launches": 1, "class": "gemm", **columns}, index=range(1))
    return launch_causes.mark_causes(rows, {"x": causes_of})


@pytest.mark.parametrize(
    ("name", "columns", "share"),
    [
        # 1.2 waves take two rounds, 3 waves three; what fits in one has no last wave beside others.
        ("tail", {"waves": 1.2}, 0.4),
        ("tail", {"waves": 3.0}, 0.0),
        ("tail", {"waves": 1.0}, np.nan),
        ("tail", {"waves": 0.5}, np.nan),
        ("conflicts", {"bank_conflicts": 3.0, "shared_wavefronts": 12.0}, 0.25),
        ("conflicts", {"bank_conflicts": 3.0, "shared_wavefronts": 0.0}, np.nan),
        ("conflicts", {"bank_conflicts": 3.0}, np.nan),
        # Sectors are 32 bytes.
        ("spilled", {"local_sectors": 2.0, "l1_bytes": 256.0}, 0.25),
        ("stalled_math", {"stall_math_cycles": 2.0, "warp_cycles": 8.0}, 0.25),
        ("stalled_barrier", {"stall_barrier_cycles": 2.0, "stall_math_cycles": 9.0, "warp_cycles": 8.0}, 0.25),
        # Of 8 sectors 2 were asked for, by one request; of 4 written 1, by two requests: 6 and 2 of 12.
        ("unused_sectors", {"load_sectors": 8.0, "load_requests": 1.0, "load_needed_sectors": 2.0, "store_sectors": 4.0,
                            "store_requests": 2.0, "store_needed_sectors": 1.0}, 8 / 12),
        # L2 saw 16 of them; one way alone is known.
        ("unused_sectors", {"load_sectors": 8.0, "load_requests": 1.0, "load_needed_sectors": 2.0, "l2_sectors": 16.0},
         6 / 16),
        ("unused_sectors", {"load_sectors": 0.0, "load_requests": 0.0, "load_needed_sectors": 0.0}, np.nan),
        ("unused_sectors", {"l2_sectors": 16.0}, np.nan),
        ("off_tensor_cores", {"fp32_flop": 5.0, "tensor_tf32_flop": 0.0}, 1.0),
        ("off_tensor_cores", {"fp32_flop": 0.0, "fp16_flop": 5.0, "tensor_tf32_flop": 0.0}, 1.0),
        ("off_tensor_cores", {"fp32_flop": 0.0, "tensor_tf32_flop": 0.0}, 0.0),
        ("off_tensor_cores", {"fp32_flop": 5.0, "tensor_tf32_flop": 0.0, "tensor_bf16_flop": 1.0}, 0.0),
        ("off_tensor_cores", {"fp32_flop": 5.0}, np.nan),
        ("off_tensor_cores", {"fp32_flop": np.nan, "tensor_tf32_flop": 0.0}, np.nan),
        ("off_tensor_cores", {"fp32_flop": 5.0, "tensor_tf32_flop": np.nan}, np.nan),
    ],
)  # fmt: skip
def test_shares_of_a_launch(name: str, columns: dict[str, float], share: float) -> None:
    found = launch_causes.SHARE_FORMULAS[name](pd.DataFrame(columns, index=[0]))
    assert found.tolist() == pytest.approx([share], nan_ok=True)


def test_conditions_of_a_cause() -> None:
    """At a bound one holds that asks for as much, and does not that asks for less; what is not known does not hold."""
    columns = {"waves": 1.2, "l2_hit_pct": 20.0, "kernel": "a_f64_b"}
    for when, holds in (({"tail": {"at_least": 0.4}}, True), ({"tail": {"at_least": 0.41}}, False),
                        ({"l2_hit_pct": {"below": 20}}, False), ({"l2_hit_pct": {"below": 20.1}}, True),
                        ({"l2_hit_pct": {"at_least": 20}}, True), ({"dram_pct": {"below": 50}}, False),
                        ({"tail": {"at_least": 0.4}, "l2_hit_pct": {"below": 20}}, False)):  # fmt: skip
        found = caused({"when": when}, **columns).iloc[0]
        assert [found[f"x{of}_ns"] for of in ("", "_least", "_most")] == [100 * holds] * 3
        assert found["x_launches"] == holds
        assert found.get("x_saved_ns") == (pytest.approx(40 * holds) if next(iter(when)) == "tail" else None)
    # Only the first condition says what is saved.
    assert "x_saved_ns" not in caused({"when": {"waves": {"below": 2}, "tail": {"at_least": 0}}}, **columns)
    assert caused({"match": "_f64_"}, **columns)["x_ns"].tolist() == [100]
    assert caused({"match": "_f64_", "classes": ["copy"]}, **columns)["x_ns"].tolist() == [0]
    assert (
        caused({"match": "_f64_"})["x_ns"].tolist() == [0] == caused({"match": "_f64_"}, function="f")["x_ns"].tolist()
    )
    assert caused({"match": "b"}, function="b")["x_ns"].tolist() == [100]
    assert caused({"classes": ["gemm"]}, total_ns=np.nan)["x_ns"].tolist() == [0]


@pytest.mark.parametrize(
    ("row", "trait"),
    [
        # 5 us is no longer short, half of a roof is near it, three tenths are no longer far, one block each is enough.
        ({"class": "copy", "mean_ns": 4999.0}, "short"),
        ({"class": "copy", "mean_ns": 5000.0}, ""),
        ({"mean_ns": 4999.0}, ""),
        ({"efficiency": 0.5}, "memory"),
        ({"efficiency": 0.5, "bound": "l2"}, "memory"),
        ({"efficiency": 0.5, "bound": "simt"}, "simt"),
        ({"efficiency": 0.5, "bound": "tensor"}, "tensor"),
        ({"efficiency": 0.499}, ""),
        ({"efficiency": 0.3}, ""),
        ({"efficiency": 0.299}, "underused"),
        ({"grid_x": 10}, ""),
        ({"grid_x": 3, "grid_y": 3}, "small_grid"),
        ({"grid_x": 3, "grid_y": 2, "grid_z": 2}, ""),
        ({"grid_x": 9, "efficiency": 0.1}, "small_grid"),
        ({"grid_x": 9, "efficiency": 0.5}, "memory"),
        ({"class": "copy", "mean_ns": 4999.0, "grid_x": 9, "efficiency": 0.9}, "short"),
        ({"class": "copy", "mean_ns": 4999.0, "efficiency": 0.1}, "short"),
    ],
)
def test_a_launch_has_one_trait(row: dict[str, Any], trait: str) -> None:
    known = {
        "mean_ns": 1e5,
        "grid_x": 1000,
        "grid_y": 1,
        "grid_z": 1,
        "class": "gemm",
        "efficiency": 0.4,
        "bound": "dram",
    }
    one = known | row
    rows = kernel_rows(**{name: [one[name]] for name in ("mean_ns", "grid_x", "grid_y", "grid_z", "class")})
    counted = pd.DataFrame({"level": ["launch"], "efficiency": [one["efficiency"]], "bound": [one["bound"]]})
    found = launch_traits.mark_traits(rows, counted, RULES["traits"], ROOFS).iloc[0]
    names = ("short", "small_grid", "memory", "simt", "tensor", "underused")
    assert [name for name in names if found[f"{name}_ns"]] == ([trait] if trait else [])
    assert [name for name in names if found[f"{name}_most_ns"]] == ([trait] if trait else [])
    assert found["counted_ns"] == 100 and "small_grid_saved_ns" in found


def test_what_of_a_trait_is_saved() -> None:
    """9 of 10 blocks: a tenth. A fifth of a roof at half of which others are: three fifths. Tensor cores, ten times as fast."""
    rows = kernel_rows(grid_x=[9, 1000, 1000], total_ns=[100.0] * 3)
    counted = held([0.4, 0.2, 0.8], ["dram", "dram", "simt"])
    found = launch_traits.mark_traits(rows, counted, RULES["traits"], ROOFS)
    assert found["small_grid_saved_ns"].tolist() == pytest.approx([10, 0, 0])
    assert found["underused_saved_ns"].tolist() == pytest.approx([0, 60, 0])
    assert found["simt_saved_ns"].tolist() == pytest.approx([0, 0, 90])
    slower = launch_traits.mark_traits(rows, counted, RULES["traits"], {"fp32": 2.0, "tf32": 1.0})
    assert slower["simt_saved_ns"].tolist() == [0, 0, 0]
    assert "simt_saved_ns" not in launch_traits.mark_traits(rows, counted, RULES["traits"], {"fp32": 2.0})


@pytest.mark.parametrize(
    ("gain", "cured", "share", "limit", "settings"),
    [
        # By Amdahl's law a half of 0.8 would gain 2/3: a gain of a third is half of that, and less is held back.
        (4 / 3 + 1e-9, 0.5, 0.8, None, "x=1"),
        (4 / 3 - 1e-9, 0.5, 0.8, 4 / 3, "x=1"),
        (1.0, 0.0, 0.8, None, "x=1"),
        (1.0, 0.5, 0.8, 1.0, "x=1"),
        (0.99, 0.0, 0.8, None, None),
        (0.99, 0.5, 0.8, 0.99, None),
    ],
)
def test_what_a_replay_changes_of_a_verdict(
    gain: float, cured: float, share: float, limit: float | None, settings: str | None
) -> None:
    row = a_verdict("v", cured=cured, share=share, next_step="do it", settings="x=1")
    told = advice_gain._adjust_texts(row, gain, gain_models.RequestedChange("faster"))
    assert told.limit == (limit if limit is None else pytest.approx(limit)) and told.settings == settings
    lead = (advice_gain.NO_GAIN if gain < 1 else "") + (advice_gain.LAUNCH_LESS if limit and gain >= 1 else "")
    assert told.next_step == f"{lead}do it"
    # What is about the step is not held back by its own launches.
    assert advice_gain._adjust_texts(row, gain, gain_models.RequestedChange("graph")).limit is None


def test_what_is_asked_of_a_replay() -> None:
    """Launches with the trait, and of each the part that its saving says, or all of them alike."""
    rows = pd.DataFrame({"x_ns": [100.0, 0.0, 50.0], "x_saved_ns": [25.0, 0.0, 50.0], "total_ns": 100.0, "launches": 1})
    rule = {"share": "x"}

    def parts(change: str | None, cured: Any, known: float | None, given: pd.DataFrame | None = rows) -> Any:
        asked = advice_gain.ask_simulation(rule, ChosenAdvice("", None, cured, change), given, known, True, {}, {})
        return asked and (asked.change, None if asked.saved is None else asked.saved.tolist())

    assert parts("faster", "share", 0.5) == ("faster", [0.25, 1]) and parts("faster", 0.5, 0.5) == (
        "faster",
        [0.5, 0.5],
    )
    assert parts("fused", "share", 0.5) == ("fused", [0.5, 0.5])
    assert parts("faster", "share", 0.5, rows.drop(columns="x_saved_ns")) == ("faster", [0.5, 0.5])
    assert parts("faster", 0.5, 0.5, rows.drop(columns="x_ns")) == ("faster", [0.5] * 3)
    assert parts(None, 0.5, 0.5) is None and parts("faster", 0.5, 0.5, None) is None
    assert parts("graph", 1, 1) == ("graph", None)


def score(**given: Any) -> Score:
    return replace(Score(9, 3, 0.1, 0.3, 0.2, 0.9, 0.3333, 0.3333), **given)


def scored(fitted: dict[str, Score], held_out: dict[str, Score] | None = None) -> Scores:
    return Scores(3, 0.5, 0.61, 0.2, fitted, held_out or {})


def test_errors_are_those_of_enough_trials() -> None:
    assert scored({"v": score()}).error("v") == 0.3 and scored({"v": score(trials=8)}).error("v") == 0.61
    both = {"v": score(trials=8), "all": score(error=0.4)}
    assert scored(both).error("v") == 0.4 and scored(both).error("w") == 0.4
    assert scored({"all": score(trials=8)}).error("v") == 0.61


@pytest.mark.parametrize(
    ("trials", "gain", "doubted"), [(9, 1.2, True), (9, 1.21, False), (8, 1.2, False), (9, None, False)]
)
def test_gains_that_errors_may_eat_are_doubted(trials: int, gain: float | None, doubted: bool) -> None:
    assert scored({"v": score(trials=trials)}).doubts("v", gain) == doubted
    assert not scored({"all": score()}).doubts("v", 1.0)


@pytest.mark.parametrize(
    ("given", "abstains", "said"),
    [
        ({}, True, "abstains: in trials, such advice helped 1 of 3 cells, no more than a coin would"),
        ({"advised": 2, "slowed_down": 0.5}, False, "In 9 trials, such gains were off by 10% in the median. Of 2 cells, 1 became slower."),
        ({"helped": 0.51}, False, "In 9 trials, such gains were off by 10% in the median. Of 3 cells, 1 became slower."),
        ({"helped": 1.0, "slowed_down": 0.0, "undecided": 0.6667, "constant_error": 0.2}, False,
         "In 9 trials, such gains were off by 10% in the median; the same gain for all cells would be off by 20%. "
         "Of 3 cells, 0 became slower and 2 are undecided."),
        ({"helped": 0.6667, "undecided": 0.3333}, False,
         "In 9 trials, such gains were off by 10% in the median. Of 3 cells, 1 became slower and 1 is undecided."),
        ({"advised": 0, "helped": 0.0}, False, "In 9 trials, such gains were off by 10% in the median."),
        ({"trials": 3, "advised": 1, "slowed_down": 0.0}, False, "In 3 trials, such gains were off by 10% in the median. Of 1 cell, 0 became slower."),
        ({"trials": 2, "advised": 1}, False, "too few trials of such advice: 2 of 3"),
        ({"trials": 0, "advised": 0}, False, "no trials of such advice yet"),
    ],
)  # fmt: skip
def test_what_stands_beside_a_gain(given: dict[str, Any], abstains: bool, said: str) -> None:
    known = scored({}, {"v": score(**given)})
    assert known.abstains("v") == abstains and known.columns("v")["score"] == said
    assert known.columns("w") == {"trials": 0, "score": "no trials of such advice yet"} and not known.abstains("w")


def test_why_settings_are_not_advised() -> None:
    known = scored({"v": score()})
    said = [advice_gain.why_not_advised("v", Gain(1, 1, gain, 1, 1), known, "else") for gain in (0.99, 1.0, 1.2, 1.21)]
    assert said == [advice_gain.SLOWER, advice_gain.DOUBTED, advice_gain.DOUBTED, "else"]
    assert advice_gain.why_not_advised("w", Gain(1, 1, 1.0, 1, 1), known, "else") == "else"


def details(*rows: dict[str, Any]) -> pd.DataFrame:
    known = {"ID": 0, "Rule Type": "OPT", SPEEDUP: 50.0, "Estimated Speedup Type": "global", "Kernel Name": "f(int)",
             "Rule Name": "r", "Rule Description": "do", "Section Name": "s"}  # fmt: skip
    return pd.DataFrame([known | row for row in rows])


def ncu_said(*rows: dict[str, Any], totals: tuple[float, ...] = (60.0, 40.0)) -> list[Verdict]:
    launches = pd.DataFrame({"id": range(len(totals) + 1)}).assign(**dict.fromkeys(KEYS, 1))
    launches["grid_x"] = range(len(totals) + 1)
    kernels = launches[:-1].assign(total_ns=totals)
    return ncu_advice.tabulate_ncu_advice(details(*rows), launches, kernels, 0.5)


def test_what_ncu_advises_by_its_worth_to_the_step() -> None:
    """Kernels of 60 and 40 have 0.3 and 0.2 of the step: 20 and 50 % of these are 0.06 and 0.1 of it."""
    first, second, none = ncu_said({"ID": 0, SPEEDUP: 20.0}, {"ID": 1, "Rule Name": "q"}, {"ID": 2, "Rule Name": "p"})
    assert (first.share, second.share) == pytest.approx((0.2, 0.3)) and np.isnan(none.share or 0)
    assert (first.gain, second.gain) == pytest.approx((1 / 0.9, 1 / 0.94))
    assert (first.value, first.evidence) == (50, "ncu-details.csv: launch 1")
    # What is no advice to optimise, or saves nothing, is none; a unit's own speed-up is none of the launch.
    assert ncu_said({"Rule Type": "INF"}, {SPEEDUP: 0.0}, {SPEEDUP: np.nan}) == []
    (local,) = ncu_said({"Estimated Speedup Type": "local"})
    assert local.gain is None and local.share == pytest.approx(0.3)
    # One of a function and rule, and the largest five of many.
    assert len(ncu_said({}, {"ID": 1}, {"Rule Name": "q"})) == 2
    assert len(ncu_said(*({"Rule Name": f"r{number}"} for number in range(6)))) == 5
    (whole,) = ncu_advice.tabulate_ncu_advice(details({SPEEDUP: 200.0}), *_one_launch(), 1.0)
    assert whole.gain == pytest.approx(100)


def _one_launch() -> tuple[pd.DataFrame, pd.DataFrame]:
    launches = pd.DataFrame({"id": [0]}).assign(**dict.fromkeys(KEYS, 1))
    return launches, launches.assign(total_ns=5.0)


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
    known = {"module": "a", "direction": "forward", "self_ns": 100.0, "total_ns": 100.0, "needed_share": 1.0,
             "counted_share": 1.0, "needed_flop": 1.0, "simt_flop": 2.0, "tensor_flop": 1.0}  # fmt: skip
    assert layer_verdicts._work(pd.DataFrame([known | row])) == ({("a", "forward"): work} if work else {})


def test_shapes_are_of_the_operator_that_takes_longest() -> None:
    """Twice 3 ns are longer than 5; and of its inputs the first two that have a shape are named."""
    rows = pd.DataFrame({"shapes": ["[[8, 3], [3, 5], [5]]", "[[1]]", "[[8, 3], [3, 5], [5]]", "[[], [2]]"],
                         "total_ns": [3.0, 5.0, 3.0, 1.0]})  # fmt: skip
    assert layer_verdicts._shapes(rows) == "8x3 and 3x5" and layer_verdicts._shapes(rows[1:2]) == "1"
    assert layer_verdicts._shapes(rows[3:]) == "2"


def saved(to: str, now: str = "fp32", peaks: dict[str, float] | None = None, **row: Any) -> float:
    rows = pd.DataFrame([{"class": "gemm", "mean_ns": 1e5, "bound": "", "efficiency": np.nan, **row}])
    return reduced_precision.saved_share(rows, peaks or {}, to, now).iloc[0]


ROOFED = {"roof_dram_ns": 5e3, "roof_l2_ns": 0.0, "roof_simt_ns": 8e4, "roof_tensor_ns": 0.0, "efficiency": 0.8}


@pytest.mark.parametrize(
    ("right", "given"),
    [
        # 80 us of operations are 10 at the data sheet's rate of 8, of which 0.8 is reached: 12.5 and 15 to begin with.
        (0.725, {"to": "tf32", **ROOFED}),
        # At 16 times: 5 us, 6.25 and 8.
        (0.8575, {"to": "bf16", **ROOFED}),
        # From tf32 at half the time: 40 us are 20, 25 and 8.
        (0.67, {"to": "bf16", "now": "tf32", **ROOFED, "roof_simt_ns": 0.0, "roof_tensor_ns": 4e4}),
        # A rate that is no higher saves nothing.
        (0.0, {"to": "tf32", "peaks": {"fp32": 2.0, "tf32": 1.0}, **ROOFED}),
        # Nor does it lengthen operations: of 90 us by DRAM 45 are left, and the 80 of operations.
        (0.1, {"to": "bf16", "peaks": {"fp32": 2.0, "bf16": 1.0}, **ROOFED, "roof_dram_ns": 9e4}),
        (
            0.1,
            {
                "to": "bf16",
                "now": "tf32",
                "peaks": {"fp32": 1.0, "tf32": 2.0, "bf16": 1.0},
                **ROOFED,
                "roof_simt_ns": 0.0,
                "roof_tensor_ns": 8e4,
                "roof_dram_ns": 9e4,
            },
        ),
        # Channels first: 12.5 and 15 us a quarter more, and for bf16 6.25 and 8 half more.
        (1 - 0.34375, {"to": "tf32", **ROOFED, "class": "convolution"}),
        (1 - 0.21375, {"to": "bf16", **ROOFED, "class": "convolution"}),
        # Of 3 us two stay, whatever is saved.
        (1 / 3, {"to": "bf16", "class": "copy", "mean_ns": 3e3, "roof_dram_ns": 2.8e3, "efficiency": 0.93}),
        (0.0, {"to": "bf16", "class": "copy", "mean_ns": 2e3, "roof_dram_ns": 1.9e3, "efficiency": 0.93}),
        # A copy of 40 us of DRAM's time and 30 of L2's has half of either left.
        (0.2, {"to": "bf16", "class": "copy", "roof_dram_ns": 4e4, "roof_l2_ns": 3e4, "efficiency": 0.4}),
        (0.2, {"to": "bf16", "class": "copy", "roof_dram_ns": 3e4, "roof_l2_ns": 4e4, "efficiency": 0.4}),
        (0.2, {"to": "bf16", "class": "copy", "bound": "l2", "efficiency": 0.4, "range": "graph"}),
        (0.0, {"to": "bf16", "class": "copy", "bound": "l2", "efficiency": 0.4, "range": "data"}),
        # Pieces go with their product in fp32 alone.
        (1.0, {"to": "tf32", "kernel": "splitKreduce_kernel", "bound": "dram", "efficiency": 0.4}),
        (0.0, {"to": "tf32", "kernel": "splitKreduce_kernel", "bound": "dram", "efficiency": 0.4, "class": "copy"}),
        (0.2, {"to": "bf16", "now": "tf32", "kernel": "splitKreduce_kernel", "bound": "dram", "efficiency": 0.4}),
    ],
)
def test_what_is_saved_by_narrower_operands(right: float, given: dict[str, Any]) -> None:
    assert saved(**given) == pytest.approx(right)


def test_a_gain_that_waits_has_its_method_and_interval() -> None:
    """By Amdahl's law with an error of a half: from 1.2 / 1.5 to 1.2 * 1.5; what the CPU limits is to launch less."""
    row = a_verdict("v", gain=1.2)
    found = advice_gain.add_expected_gain(
        replace(row, lead="there: "), None, {}, scored({"v": score(error=0.5, over=0.3)})
    )
    assert (found.gain_low, found.gain_high) == pytest.approx((0.8, 1.8)) and found.method == "Amdahl"
    assert found.next_step == "there: do"
    limited = advice_gain.add_expected_gain(replace(row, limit=1.2), None, {}, scored({}))
    assert limited.next_step == f"{advice_gain.LAUNCH_LESS}do" and limited.limit == 1.2
    unsure = advice_gain.add_expected_gain(replace(row, settings="a=1"), None, {}, scored({"v": score(over=0.3)}))
    assert unsure.settings is None and unsure.next_step == f"{advice_gain.UNSURE}do"
    sure = advice_gain.add_expected_gain(replace(row, settings="a=1"), None, {}, scored({"v": score(over=0.1)}))
    assert sure.settings == "a=1" and sure.next_step == "do"
    silent = advice_gain.add_expected_gain(replace(row, limit=1.1), None, {}, scored({}, {"v": score()}))
    assert (silent.gain, silent.gain_low, silent.gain_high, silent.limit) == (None,) * 4


def test_advice_is_the_first_that_fits() -> None:
    """A value at the bound is not below it; settings that are not known are the defaults; what is done is passed over."""
    rule = {"cured": 1, "replay": "graph", "advice": [
        {"when": {"cpu_data_ns": {"below": 5}, "precision": ["fp32"]}, "next": "a", "settings": "precision=tf32"},
        {"when": {"cpu_data_ns": {"at_least": 9}}, "next": "b", "cured": 0.5},
        {"next": "c", "doubled": "batch"},
    ]}  # fmt: skip

    def fits(ns: float, **ran_with: Any) -> str:
        return str(verdict_rules.choose_advice(rule, {"cpu_data_ns": ns}, ran_with).next_step)

    assert [fits(ns) for ns in (4.9, 5, 8.9, 9)] == ["a", "c", "c", "b"] and fits(1, precision="tf32") == "c"
    last = verdict_rules.choose_advice(rule, {"cpu_data_ns": 6}, {"batch": 4})
    assert (last.settings, last.cured, last.replay) == ("batch=8", 1, "graph")
    assert verdict_rules.choose_advice(rule, {"cpu_data_ns": 6}, {}).settings is None
    assert verdict_rules.choose_advice(rule, {"cpu_data_ns": 9}, {}).cured == 0.5
    done = {"cured": 1, "advice": [{"next": "d", "settings": "precision=bf16"}]}
    given = verdict_rules.choose_advice(done, {}, {"precision": "bf16"})
    assert (given.next_step, given.settings) == ("d", None)


@pytest.mark.parametrize(
    ("counted", "verdict"),
    [
        # A half goes by fewer bytes and operations; beyond twice the need more than that by smaller tiles.
        (1.4e9, "compute-bound (tensor)"),
        (1.9e9, "compute-bound (tensor)"),
        (2.1e9, "work beyond need"),
    ],
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
    found = of_layers([kernel("a", **row)], [layer("a", tensor_flop=counted)])
    assert found["verdict"].tolist() == (["work beyond need"] if named else [])
    if named:
        # A third of the step, which one launch is all of.
        assert (found["value"].iloc[0], found["threshold"].iloc[0]) == (1.5, 1.5)
        assert found["gain"].iloc[0] == pytest.approx(1.5) and found["cured"].iloc[0] == pytest.approx(1 / 3)


def test_a_layer_is_named_by_its_longest_kernel_and_what_it_is_told_of() -> None:
    """At 60 and 90 % of the roof for 300 and 100 us: 67.5 % in all; the kernel that is at none is the longest."""
    rows = [kernel("a", efficiency=0.6, total_ns=3e5, function="x"), kernel("a", efficiency=0.9, function="y"),
            kernel("a", efficiency=0.4, total_ns=3.9e5, function="z")]  # fmt: skip
    (found,) = of_layers(rows, []).to_dict("records")
    assert found["function"] == "z" and found["share"] == pytest.approx(4 / 7.9)
    assert found["next_step"].startswith("at 68% of what tensor cores can do: ")


def test_what_is_seen_of_few_blocks_and_short_kernels() -> None:
    (few,) = of_layers([kernel("a", grid_x=3, grid_y=4, grid_z=5)], []).to_dict("records")
    assert few["next_step"].startswith("60 blocks for 132 multiprocessors: ")
    short = {"class": "elementwise", "mean_ns": 2e3, "bound": "", "efficiency": np.nan}
    rows = [kernel("a", launches=30.0, total_ns=6e4, **short), kernel("a", launches=10.0, total_ns=3e4, **short)]
    (found,) = of_layers([*rows, kernel("a", total_ns=5e4)], []).to_dict("records")
    # 90 us of 40 launches.
    assert found["next_step"].startswith("40 kernels of 2.2 µs (elementwise): ")


def test_cells_and_kernels_of_equal_gains_keep_their_order() -> None:
    steps = pd.concat([made({}).assign(model=name) for name in ("z", "a")], ignore_index=True)
    rows = pd.concat(
        [
            kernel_rows(grid_x=[4, 4], total_ns=[50.0] * 2, function=["y", "b"]).assign(model=name)
            for name in ("z", "a")
        ],
        ignore_index=True,
    )
    found = table(steps, rows)
    assert list(dict.fromkeys(found["model"])) == ["z", "a"]
    kernels = found[(found["level"] == "kernel") & (found["model"] == "z")]
    assert kernels["function"].tolist() == ["y", "b"] and kernels["rank"].tolist() == [1, 2]


def test_of_several_processes_the_busiest_is_judged() -> None:
    busy, idle = made({"idle_input": 0.2}).assign(process=7), made({"idle_input": 0.6}).assign(process=3)
    found = table(pd.concat([idle, busy], ignore_index=True), kernel_rows(total_ns=[1.0]))
    assert found["evidence"].tolist() == ["steps.csv: process 7"] and found["share"].iloc[0] == pytest.approx(0.2)


@pytest.mark.parametrize(("counted", "told"), [(0.8, False), (0.79, True), (0.0, False)])
def test_too_few_counters_are_told_below_four_fifths(counted: float, told: bool) -> None:
    rows = kernel_rows(total_ns=[counted * 100, 100 - counted * 100])
    found = table(made({}), rows, held([0.4, np.nan], ["dram", ""]))
    assert found["verdict"].eq(UNDECIDED).any() == told
    if told:
        row = found[found["verdict"] == UNDECIDED].iloc[0]
        assert row["value"] == pytest.approx(0.79) and row["next_step"].startswith("counters cover 79% of GPU time")


def test_idleness_is_undecided_from_the_lowest_threshold_on() -> None:
    """Of rules of a tenth but for one of 0.3, 0.15 of a doubtful step may hold one."""
    given = {**RULES, "rules": [rule | {"at_least": 0.3} if rule["verdict"] == "input-bound" else rule
                                for rule in RULES["rules"]]}  # fmt: skip
    step = made({}).assign(busy_share=0.85, step_median_ns=0.5e6)
    found = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, ROOFS, {}, {}, given, scored=UNTRIED)
    assert found["verdict"].tolist() == [UNDECIDED]


def test_verdicts_that_abstain_come_last() -> None:
    """Input gains 1.25; advice on launches, which would gain 1 / 0.6, helps no more often than a coin."""
    poor = replace(UNTRIED, held_out={"launch-bound": score()})
    step = made({"idle_input": 0.2, "idle_host": 0.4})
    found = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1.0]), None, ROOFS, {}, {}, RULES, scored=poor)
    assert found["verdict"].tolist() == ["input-bound", "launch-bound"] and np.isnan(found["gain"].iloc[1])
