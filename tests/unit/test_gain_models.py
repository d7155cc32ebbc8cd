"""Expected gains of verdicts: of traced steps run again where there is a trace, by Amdahl's law where there is none."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.verdicts import advice_gain, advice_scores, gain_models, other_settings, reduced_precision, verdicts
from profzoo.verdicts import rule_evaluation as judging
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.launch_traits import mark_traits
from profzoo.what_if import storage, tables
from profzoo.what_if.program import Program
from tests import known_rules, launched, simulated
from tests.known_rules import a_verdict
from tests.simulated import Act
from tests.unit.test_verdicts import ROOFS, UNTRIED, held
from tests.unit.test_verdicts import made as a_step

RULES = known_rules.load()
CELL = ("m", "train")
LAUNCH = Act("kernel", 0, "forward", 3e3, 4e3, ns=5e4)


def steps(inside: Sequence[Act], count: int = 5) -> list[Act]:
    acts = []
    for step in range(count):
        acts += [Act("begin", step), *(replace(act, step=step) for act in inside), Act("end", step, before=1e3)]
    return acts


def simulation(acts: Sequence[Act], folder: Path) -> tuple[Program, float]:
    """The program of what a simulated CPU does, and ns of its step."""
    recording = simulated.simulate(list(acts))
    (program,) = tables.read_programs(simulated.record(recording, folder / "t.sqlite", True))
    return program, recording.step_ns()


PEAKS = {"fp32": 50.0, "tf32": 500.0, "bf16": 1000.0}
UNCOUNTED = {"bound": "", "efficiency": float("nan")}
AT_BOTH = {"bound": "simt", "efficiency": 0.5, "roof_simt_ns": 5e4, "roof_dram_ns": 4e4}


def kernels(program: Program) -> pd.DataFrame:
    """The table of kernels of a program's launches."""
    table = launched.configurations(program)
    return table.assign(model="m", phase="train", function=table["mangled"], kernel=table["mangled"],
                        multiprocessors=1, **{"class": "gemm"})  # fmt: skip


def judged(program: Program, step: pd.DataFrame, efficiency: Sequence[float] = (), **given: Any) -> pd.DataFrame:
    """The verdicts on its cell, whose kernels come as near to SIMT's roof as given, in the order of the table."""
    rows = kernels(program)
    roofs = held(list(efficiency), ["simt"] * len(rows)) if len(efficiency) else None
    step = step.assign(process=storage.process_number(program.process))
    programs = {CELL: {storage.process_number(program.process): program}}
    return verdicts.tabulate_verdicts(
        step, rows, roofs, ROOFS, {}, {}, RULES, None, programs, **{"scored": UNTRIED, **given}
    )


def test_every_change_that_rules_name_can_be_made() -> None:
    of_noted = [name for name in verdict_rules.SIMULATED_CHANGES["noted"] if name not in verdict_rules.SHARES["trace"]]
    named = [*verdict_rules.SIMULATED_CHANGES["step"], *verdict_rules.SHARES["trace"], *of_noted]
    # No rule names the pauses all together, which are what is left out of the idle time of launches.
    assert (*named, gain_models.WITHOUT_HOST_PAUSES) == tuple(gain_models.STEP_CHANGES)
    assert verdict_rules.SIMULATED_CHANGES["kernels"] == gain_models.LAUNCH_CHANGES
    assert all("replay" in rule for rule in RULES["rules"] if rule["cured"] and rule["of"] not in ("trace", "cpu"))


def test_a_graph_is_worth_what_the_replay_says(tmp_path: Path) -> None:
    """Launched every 7 us, kernels of 2 us run back to back as a graph, which no share of idleness tells."""
    program, step_ns = simulation(steps([replace(LAUNCH, ns=2e3)] * 50), tmp_path)
    step = a_step({"idle_host": 0.6})
    (row, *_) = judged(program, step).to_dict("records")
    assert (row["verdict"], row["method"], row["score"]) == ("launch-bound", "replay", advice_scores.UNSCORED)
    assert row["gain"] == pytest.approx(step_ns / (50 * 3e3), rel=0.1)
    assert row["gain_low"] < row["gain"] / 1.5 and row["gain"] * 1.5 < row["gain_high"]
    rows = kernels(program)
    (without, *_) = verdicts.tabulate_verdicts(step, rows, None, {}, {}, {}, RULES, scored=UNTRIED).to_dict("records")
    assert without["method"] == "Amdahl" and without["gain"] == pytest.approx(2.5)
    assert without["gain_low"] == pytest.approx(2.5 / 1.61) and without["gain_high"] == pytest.approx(2.5 * 1.61)


@pytest.mark.parametrize(("ns", "gains"), [(5e5, True), (4e3, False)])
def test_faster_kernels_gain_where_the_gpu_is_the_limit(tmp_path: Path, ns: float, gains: bool) -> None:
    group, other = replace(LAUNCH, ns=ns, group=1), replace(LAUNCH, ns=ns, group=2)
    acts = [group, group, group, other] * 10
    program, step_ns = simulation(steps(acts), tmp_path)
    table = judged(program, a_step({}), [0.8, 0.1])
    (row, *_) = table[table["verdict"] == "compute-bound (SIMT)"].to_dict("records")
    # Four fifths and a tenth of their time at the roof, on tensor cores that are ten times as fast and reach 0.8 of it.
    left = {group: reduced_precision.BEGINNING_NS["tf32"] + ns * at / 10 / 0.8 for group, at in ((1, 0.8), (2, 0.1))}
    if gains:
        changed = simulated.simulate(steps([replace(act, ns=left[act.group]) for act in acts])).step_ns()
        assert row["gain"] == pytest.approx(step_ns / changed, rel=0.1) and row["gain"] > 6
        assert pd.isna(row["limit"]) and row["settings"] == "precision=tf32"
    else:
        assert row["gain"] == pytest.approx(1, abs=0.01) == row["limit"]
        assert row["next_step"].startswith(advice_gain.LAUNCH_LESS)


def test_gains_are_no_surer_than_processes_are_alike(tmp_path: Path) -> None:
    """Of one process alone, than those of others are."""
    program, _ = simulation(steps([replace(LAUNCH, ns=2e3)] * 50), tmp_path)
    known = {
        apart: judged(replace(program, apart=apart), a_step({"idle_host": 0.6})).loc[0] for apart in (0.0, 0.01, 1.0)
    }
    assert len({row["gain"] for row in known.values()}) == 1
    # Half widths of logarithms add up as squares.
    alone, sure, unsure = (np.log(row["gain_high"] / row["gain"]) ** 2 for row in known.values())
    assert unsure - sure == pytest.approx(1.0, rel=1e-3)
    assert alone - sure == pytest.approx(UNTRIED.unrepeated**2, rel=0.01)


def test_bf16_costs_casts(tmp_path: Path) -> None:
    """Where the CPU is the limit, the launches that autocast adds make a step slower, and it is not advised."""
    program, step_ns = simulation(steps([replace(LAUNCH, ns=5e3)] * 50), tmp_path)
    replayed = gain_models.CellSimulation(program)
    rows = kernels(program)
    once, never = pd.Series(1.0, rows.index), pd.Series(0.0, rows.index)
    for added, slower in (((once, never), 2.0), ((never, once), 1.6), (None, 1.0)):
        asked = gain_models.RequestedChange("bf16", rows, pd.Series(0.5, rows.index), added)
        found = replayed.gain(asked, {}, 0.0)
        assert found and found.predicted_ns == pytest.approx(step_ns * slower, rel=0.05)
    asked = gain_models.RequestedChange("bf16", rows, pd.Series(0.5, rows.index), (once, never))
    row = a_verdict("memory-bound", gain=1.3, share=0.5, cured=0.5, settings="x=1", change=asked)
    told = advice_gain.add_expected_gain(row, replayed, {}, UNTRIED)
    assert told.settings is None and told.next_step.startswith(advice_gain.NO_GAIN) and (told.gain or 1) < 1


def test_a_trace_without_the_launches_leaves_amdahls_law(tmp_path: Path) -> None:
    program, _ = simulation(steps([LAUNCH] * 20), tmp_path)
    rows = kernels(program).assign(mangled="another")
    asked = gain_models.RequestedChange("faster", rows, pd.Series(0.5, rows.index))
    assert gain_models.CellSimulation(program).gain(asked, {}, 0.0) is None
    nothing_known = gain_models.RequestedChange("faster", kernels(program), pd.Series(np.nan, rows.index))
    assert gain_models.CellSimulation(program).gain(nothing_known, {}, 0.0) is None


def test_a_part_of_a_configurations_launches_is_a_part_of_its_time(tmp_path: Path) -> None:
    """As of a layer, whose kernels others launch as well."""
    program, _ = simulation(steps([LAUNCH] * 20), tmp_path)
    rows = kernels(program).drop(columns="range")
    quarter = rows.assign(launches=5.0, total_ns=rows["total_ns"] / 4)
    found = [gain_models.CellSimulation(program).gain(gain_models.RequestedChange("faster", one, pd.Series(1.0, rows.index)), {}, 0.0)
             for one in (rows.assign(launches=10.0, total_ns=rows["total_ns"] / 2), quarter)]  # fmt: skip
    assert [gain.gain for gain in found if gain] == pytest.approx([2, 4 / 3], rel=0.05)


def test_copies_to_the_host_and_waits_are_removed(tmp_path: Path) -> None:
    copy = Act("pageable", 0, "forward", 3e3, 5e3, ns=4e5)
    program, step_ns = simulation(steps([LAUNCH, LAUNCH, copy] * 5), tmp_path)
    replayed = gain_models.CellSimulation(program)
    without = simulated.simulate(steps([LAUNCH, LAUNCH] * 5)).step_ns()
    found = {
        name: replayed.gain(gain_models.RequestedChange(name), {}, 0.0)
        for name in ("transfers_removed", "copies_removed")
    }
    assert found["transfers_removed"].gain == pytest.approx(step_ns / without, rel=0.1)
    assert found["copies_removed"].gain == pytest.approx(1)


def test_waiting_for_other_processes_goes_by_its_share_of_communication(tmp_path: Path) -> None:
    acts = [*[LAUNCH] * 4, replace(LAUNCH, ns=4e5, group=-1)]
    program, _ = simulation(steps(acts), tmp_path)
    step = {"communication_ns": 4e5, "waiting_ns": 3e5}
    found = gain_models.CellSimulation(program).gain(gain_models.RequestedChange("waiting_removed"), step, 0.0)
    assert found and found.step_ns - found.predicted_ns == pytest.approx(3e5, rel=0.02)


@pytest.mark.parametrize(
    ("row", "to", "now", "saved"),
    [
        ({"bound": "simt", "efficiency": 0.5}, "tf32", "fp32", 1 - 0.05 / 0.8 - 0.15),
        ({"bound": "simt", "efficiency": 0.5, "class": "elementwise"}, "tf32", "fp32", 0),
        ({"bound": "dram", "efficiency": 0.8}, "bf16", "fp32", 0.4),
        ({"bound": "dram", "efficiency": 0.8, "class": "elementwise"}, "bf16", "fp32", 0.4),
        ({"bound": "dram", "efficiency": 0.8, "class": "optimizer"}, "bf16", "fp32", 0),
        ({"bound": "dram", "efficiency": 0.8, "range": "optimizer"}, "bf16", "fp32", 0),
        ({"bound": "tensor", "efficiency": 0.6}, "bf16", "tf32", 1 - 0.3 / 0.8 - 0.08),
        ({"bound": "tensor", "efficiency": 0.6}, "bf16", "bf16", 0),
        # Without counters a product does operations for 0.7 of its time beyond the shortest, and a copy moves bytes.
        (UNCOUNTED, "tf32", "fp32", 1 - 0.7 * 0.98 / 10 / 0.8 - 0.15),
        (UNCOUNTED, "bf16", "tf32", 1 - 0.7 * 0.98 / 2 / 0.8 - 0.08),
        ({**UNCOUNTED, "class": "copy"}, "bf16", "fp32", 0.7 * 0.98 / 2),
        ({**UNCOUNTED, "class": "copy"}, "tf32", "fp32", 0),
        ({**UNCOUNTED, "class": "reduction"}, "bf16", "fp32", 0),
        # The roof of DRAM is next, and tensor cores do not raise it; but what FFTs are multiplied in, others do not read.
        ({**AT_BOTH, "kernel": "gemm_f32f32"}, "tf32", "fp32", 1 - 0.4 - 0.15),
        ({**AT_BOTH, "kernel": "gemm_cf32cf32"}, "tf32", "fp32", 1 - 0.05 / 0.8 - 0.15),
        # By other kernels, what another one read again from L2 is none of these.
        (
            {"bound": "simt", "efficiency": 0.5, "roof_simt_ns": 5e4, "roof_l2_ns": 4.9e4},
            "tf32",
            "fp32",
            1 - 0.05 / 0.8 - 0.15,
        ),
        # Convolutions are laid out otherwise on tensor cores, and transforms go.
        ({"bound": "simt", "efficiency": 0.5, "class": "convolution"}, "tf32", "fp32", 1 - 1.25 * (0.05 / 0.8 + 0.15)),
        ({"bound": "dram", "efficiency": 0.5, "class": "convolution", "kernel": "fft2d_r2c_32x32"}, "tf32", "fp32", 1),
        (
            {"bound": "dram", "efficiency": 0.8, "class": "normalisation", "kernel": "cudnn::bn_fw_tr"},
            "bf16",
            "fp32",
            0,
        ),
        # No kernel of tensor cores is that short.
        ({"bound": "simt", "efficiency": 1.0, "mean_ns": 1e4}, "tf32", "fp32", 0),
    ],
)
def test_what_narrower_operands_save(row: dict[str, Any], to: str, now: str, saved: float) -> None:
    rows = pd.DataFrame([{"class": "gemm", "mean_ns": 1e5, "range": "forward"} | row])
    assert reduced_precision.saved_share(rows, PEAKS, to, now).tolist() == pytest.approx([saved])


def test_rates_that_were_not_measured_are_those_of_data_sheets() -> None:
    rows = pd.DataFrame([{"class": "gemm", "mean_ns": 1e5, "bound": "simt", "efficiency": 0.8}])
    assert reduced_precision.saved_share(rows, {}, "tf32", "fp32").tolist() == pytest.approx([1 - 0.8 / 8 / 0.8 - 0.15])
    assert reduced_precision.saved_share(rows, {"fp32": 1, "tf32": 2}, "tf32", "fp32").tolist() == pytest.approx(
        [1 - 0.4 / 0.8 - 0.15]
    )


def test_channels_last_need_no_other_layout() -> None:
    rows = pd.DataFrame([{"class": "convolution", "mean_ns": 1e5, "range": "forward", **AT_BOTH}])
    last = reduced_precision.saved_share(rows, PEAKS, "tf32", "fp32", nchw=False)
    assert last.tolist() == pytest.approx([1 - 0.4 - 0.15])
    assert [more.tolist() for more in reduced_precision.added_launches(rows, "tf32", "fp32", nchw=False)] == [[0], [0]]


@pytest.mark.parametrize(
    ("rows", "to", "now", "operators", "within"),
    [
        ([("gemm", "forward", ""), ("gemm", "backward", "")], "bf16", "fp32", [2, 0], [0, 0]),
        ([("gemm", "forward", ""), ("elementwise", "forward", "")], "bf16", "tf32", [2, 0], [0, 0]),
        ([("convolution", "forward", ""), ("convolution", "backward", "")], "tf32", "fp32", [0, 0], [1, 1]),
        ([("convolution", "backward", "fft2d_c2r"), ("attention", "forward", "")], "bf16", "fp32", [0, 0], [0, 0]),
        ([("normalisation", "forward", "cudnn::bn_fw_tr"), ("convolution", "graph", "")], "bf16", "fp32",
         [0, 2 / 3], [2, 1]),
        ([("gemm", "forward", "")], "bf16", "bf16", [0], [0]),
    ],
)  # fmt: skip
def test_launches_that_narrower_operands_add(
    rows: list[tuple[str, str, str]], to: str, now: str, operators: list[float], within: list[float]
) -> None:
    table = pd.DataFrame(rows, columns=["class", "range", "kernel"])
    assert [more.tolist() for more in reduced_precision.added_launches(table, to, now)] == [operators, within]


def test_settings_that_no_verdict_advises_have_their_gain_too(tmp_path: Path) -> None:
    """Of kernels that keep the GPU busy: a graph gains nothing much, and casts cost the CPU what they do not save."""
    program, step_ns = simulation(steps([replace(LAUNCH, ns=5e4)] * 20), tmp_path)
    table = judged(program, a_step({}), [0.5])
    here, untold = (
        table[table["level"] == level].set_index("settings") for level in ("cell", other_settings.SETTING_LEVEL)
    )
    assert "precision=tf32" in here.index and "precision=tf32" not in untold.index
    assert {"graph=true", "precision=bf16"} <= set(untold.index) and untold["method"].eq("replay").all()
    graph = untold.loc["graph=true"]
    assert graph["verdict"] == "launch-bound" and graph["next_step"] == "not advised: launch-bound does not apply here"
    assert graph["gain"] == pytest.approx(step_ns / (20 * 5e4 + 1e3), rel=0.05) and graph["gain_low"] < graph["gain"]
    # Without counters operands go by times, and the row says so; without a trace nothing is said of any setting.
    assert untold.loc["precision=bf16", "metric"] == "replay: bf16"
    timed = judged(program, a_step({})).query("level == 'setting'").set_index("settings")
    assert (
        timed.loc["precision=tf32", "metric"] == "replay: tf32, without counters"
        and timed.loc["precision=tf32", "gain"] > 1
    )
    assert timed.loc["graph=true", "metric"] == "replay: graph"
    rows = kernels(program)
    without = verdicts.tabulate_verdicts(a_step({}), rows, held([0.5], ["simt"]), ROOFS, {}, {}, RULES, scored=UNTRIED)
    assert "setting" not in set(without["level"])


def test_narrower_operands_are_worth_more_in_a_graph(tmp_path: Path) -> None:
    """Kernels of 40 us take 10.5 us in bf16 and two casts of 3 us, which a CPU that launches every 7 us cannot keep up with."""
    program, step_ns = simulation(steps([replace(LAUNCH, ns=4e4)] * 50), tmp_path)
    found = judged(program, a_step({}), [0.8]).query("level == 'setting'").set_index("settings")
    both, graph, narrower = (
        found.loc[words] for words in ("graph=true precision=bf16", "graph=true", "precision=bf16")
    )
    assert both["gain"] == pytest.approx(step_ns / (50 * (8e3 + 2.5e3 + 6e3 + 1e3)), rel=0.05)
    assert narrower["gain"] == pytest.approx(step_ns / (50 * 21e3), rel=0.05) and graph["gain"] < 1.1
    assert both["verdict"] == "launch-bound + memory-bound" and both["metric"] == "replay: graph + bf16"
    assert both["next_step"] == advice_gain.TOGETHER
    # A cell that is a graph already is not told to become one.
    step = a_step({}).iloc[0]
    ran = judging.CellRules(step, {"graph": True}, RULES, ROOFS, gain_models.CellSimulation(program), UNTRIED)
    words = {
        row.settings or ""
        for row in other_settings.other_setting_rows(ran, mark_traits(kernels(program), None, RULES["traits"], {}), [])
    }
    assert "precision=bf16" in words and not any("graph" in one for one in words)


def test_what_may_as_well_be_slower_is_not_advised_once_trials_tell(tmp_path: Path) -> None:
    """Gains that were less than expected by half in trials: 1.35 times as fast is no advice then, 2.3 times is."""
    told = advice_scores.Score(
        trials=9, advised=9, median_error=0.1, error=0.5, over=0.5, covered=0.9, helped=1, slowed_down=0
    )
    known = replace(UNTRIED, fitted={"launch-bound": told})
    for ns, advised in ((4e3, False), (2e3, True)):
        (folder := tmp_path / f"{ns:.0f}").mkdir()
        program, _ = simulation(steps([replace(LAUNCH, ns=ns)] * 50), folder)
        for scored in (UNTRIED, known):
            table = judged(program, a_step({"idle_host": 0.6}), scored=scored)
            row, rest = table.loc[0], table[table["level"].eq("setting") & table["settings"].eq("graph=true")]
            assert row["verdict"] == "launch-bound" and row["gain"] > 1.3
            assert (row["settings"] == "graph=true") == rest.empty == (advised or scored is not known)
        if not advised:
            assert row["next_step"].startswith(advice_gain.UNSURE) and row["gain_low"] < 1
            assert rest["next_step"].tolist() == [advice_gain.DOUBTED]


def test_advice_that_abstains_is_told_as_what_the_setting_would_come_to(tmp_path: Path) -> None:
    program, _ = simulation(steps([replace(LAUNCH, ns=2e3)] * 50), tmp_path)
    poor = advice_scores.Score(
        trials=4, advised=4, median_error=1, error=1, over=1, covered=0, helped=0.25, slowed_down=0.75
    )
    scored = replace(UNTRIED, held_out={"launch-bound": poor})
    table = judged(program, a_step({"idle_host": 0.6}), scored=scored)
    assert table.loc[0, "verdict"] == "launch-bound" and pd.isna(table.loc[0, "gain"])
    (row,) = table[table["settings"].eq("graph=true") & table["level"].eq("setting")].to_dict("records")
    assert (
        row["gain"] > 2
        and row["next_step"] == "not advised: in trials, advice on launch-bound made at most half of the cells faster"
    )
