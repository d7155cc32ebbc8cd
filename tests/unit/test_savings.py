"""What there is to be won: how much, how sure, in which order; and that every word of it is explained."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from profzoo.figures import palette
from profzoo.io.scripts import write_csv
from profzoo.plans import plan, plan_table
from profzoo.report import glossary, savings
from profzoo.terminal import run_end
from profzoo.verdicts import ONLY_ITSELF
from profzoo.verdicts.causes import verdicts
from profzoo.verdicts.rules import rule_evaluation, rules
from tests import whole_zoo

CELLS = pd.DataFrame({"model": ["a", "b"], "phase": "train", "step_ns": [10e6, 4e6]})


def advice(**given: object) -> dict[str, object]:
    row = {"model": "a", "phase": "train", "level": "cell", "module": "", "direction": "", "verdict": "launch-bound",
           "gain": 2.0, "gain_low": 1.0, "gain_high": 2.0, "method": "Amdahl", "next_step": "launch less",
           "settings": "graph=true", "by": "profzoo", "rank": 1}  # fmt: skip
    return row | given


def told(rows: list[dict[str, object]], **more: pd.DataFrame) -> list[savings.Saving]:
    return savings.list_savings({"cells": CELLS, "verdicts": pd.DataFrame(rows), **more})


def run_ends_with(folder: Path, **tables: pd.DataFrame) -> list[str]:
    """What the end of a run with these tables says of gains."""
    for name, table in tables.items():
        write_csv(table, folder / f"{name}.csv")
    plans = folder / "plans.csv" if "plans" in tables else None
    return [one.says for one in run_end.list_largest_gains(folder / "verdicts.csv", plans)]


def test_a_graph_that_only_a_script_can_capture_is_told_by_lines_for_the_script(tmp_path: Path) -> None:
    refused = f"a CUDA graph is not possible, as {ONLY_ITSELF}; use a larger batch; or try compile: true"
    plan = {"model": "a", "phase": "train", "gain": "", "outlook": "not possible", "settings": "graph=true"}
    by_hand = plan | {"not_possible": ONLY_ITSELF, "recipe": "train.py:48: with torch.cuda.graph(graph): step()"}

    def rows(row: dict[str, object]) -> list[tuple[str, str]]:
        run_ends_with(tmp_path, cells=CELLS, verdicts=pd.DataFrame([advice(settings="", next_step=refused)]),
                      plans=pd.DataFrame([row]))  # fmt: skip
        (gain,) = run_end.list_largest_gains(tmp_path / "verdicts.csv", tmp_path / "plans.csv")
        return [one for one in gain.rows if one[0] != "gain"]

    assert rows(by_hand) == [
        ("change", "train.py:48: with torch.cuda.graph(graph): step()"),
        ("why", "launch-bound; instead: use a larger batch; or try torch.compile"),
    ]
    # Where the step waits, too, lines for a graph would not do.
    waits = by_hand | {"not_possible": f"{ONLY_ITSELF}; besides, it waits"}
    assert rows(waits)[0][1].startswith("a CUDA graph is not possible") and rows(waits)[1] == ("why", "launch-bound")


def trial(**given: object) -> pd.DataFrame:
    row = {"model": "a", "phase": "train", "settings": "graph", "words": "graph=true", "verdict": "faster",
           "gain": 5.0, "gain_low": 4.0, "gain_high": 6.0, "numerics": "same"}  # fmt: skip
    return pd.DataFrame([row | given])


def test_what_is_measured_comes_before_what_is_simulated_and_that_before_the_most() -> None:
    (most,) = told([advice()])
    assert (most.how, most.saved_ns, most.low_ns, most.high_ns) == (savings.AT_MOST, 5e6, 0, 5e6)
    (replayed,) = told([advice(gain=1.6, gain_low=1.5, gain_high=1.7, method="replay")])
    assert replayed.how == savings.SIMULATED and replayed.saved_ns == pytest.approx(10e6 * (1 - 1 / 1.6))
    assert replayed.low_ns == pytest.approx(10e6 * (1 - 1 / 1.5))
    scored = {"gain": 4.0, "gain_low": 2.0, "gain_high": 8.0, "score": "In 12 trials, such gains were off by 9%."}
    (replayed,) = told([advice(**scored, method="replay")])
    assert (replayed.saved_ns, replayed.low_ns, replayed.high_ns) == (7.5e6, 5e6, 8.75e6)
    (most,) = told([advice(**scored)])
    assert (most.how, most.low_ns, most.score) == (savings.AT_MOST, 5e6, scored["score"])
    assert savings.saving_context(most)["between"] == "5 to 8.75 ms" and not told([advice(gain=None)])
    (measured,) = told([advice(method="replay")], trials=trial())
    assert (measured.how, measured.saved_ns) == (savings.MEASURED, pytest.approx(8e6))
    assert measured.typed == "python -m models.run a train graph=true"
    # Of other settings nothing was measured.
    assert told([advice(settings="precision=tf32")], trials=trial(verdict="slower"))[0].how == savings.AT_MOST
    # What was measured while the cell computed something else promises nothing.
    assert told([advice()], trials=trial(verdict="different", numerics="different"))[0].how == savings.AT_MOST


def test_advice_on_an_operator_in_a_layer_stands_once() -> None:
    """The saving in a layer is a part of that of the cell; one by another operator, or of another cell, is none."""
    layer = {"level": "layer", "module": "head", "direction": "forward", "verdict": "operator-bound", "settings": ""}
    whole = advice(verdict="operator-bound", function="aten::mm", settings="")
    rows = [whole, advice(**layer, function="aten::mm", gain=1.5), advice(**layer, function="aten::add", gain=1.2),
            advice(**layer, function="aten::mm", gain=1.4, model="b")]  # fmt: skip
    shown = savings.largest_savings(told(rows))
    assert [(one.model, one.about, one.function) for one in shown] == [
        ("a", "", "aten::mm"), ("b", "head forward", "aten::mm"), ("a", "head forward", "aten::add"),
    ]  # fmt: skip


def test_most_is_first_and_of_each_cell_one_before_more() -> None:
    rows = [advice(gain=1.1), advice(gain=2.0, verdict="memory-bound", settings=""), advice(model="b", gain=1.5),
            advice(level="layer", module="head", direction="forward", gain=1.6), advice(by="ncu", gain=9.0),
            advice(gain=1.0), advice(model="gone")]  # fmt: skip
    found = told(rows)
    assert [one.saved_ns for one in found] == sorted((one.saved_ns for one in found), reverse=True)
    assert len(found) == 4
    first = savings.largest_savings(found, 3)
    assert [(one.model, one.about) for one in first] == [("a", ""), ("b", ""), ("a", "head forward")]
    assert first[0].typed == "snakemake trials --config models=a"


def test_cells_whose_times_are_unsteady_come_last_and_say_so(tmp_path: Path) -> None:
    """20 steps of 60 ms where the truth is 0.06, as others had 87 % of the CPU: ten times as much as the other would save."""
    why = "other programs used the CPU up to 87% of the time"
    cells = CELLS.assign(step_ns=[60e6, 4e6], unsteady=[why, ""])
    rows = pd.DataFrame([advice(gain=2.0), advice(model="b", gain=1.5)])
    found = savings.list_savings({"cells": cells, "verdicts": rows})
    assert [(one.model, one.unsteady) for one in found] == [("b", ""), ("a", why)]
    section = savings.make_first_section(found, {"steps": pd.DataFrame(columns=["model", "phase"])})
    assert [one["unsteady"] for one in section["first"]] == ["", why]
    # As the run ends too.
    assert run_ends_with(tmp_path, cells=cells, verdicts=rows) == [
        "b train: launch-bound, saves up to 1.33 of 4 ms per step: graph=true",
        f"a train: launch-bound, saves up to 30 of 60 ms per step: graph=true (unsteady times: {why})",
    ]


def test_a_saving_of_a_report_made_elsewhere_names_the_tool_that_timed_it(tmp_path: Path) -> None:
    clock = "as timed under torch.profiler, which makes steps longer"
    cells = CELLS.assign(phase=["imported", "train"], timed_under=["torch.profiler", ""])
    rows = pd.DataFrame([advice(phase="imported", timed_under="torch.profiler"), advice(model="b", timed_under=None)])
    found = savings.list_savings({"cells": cells, "verdicts": rows})
    assert [savings.saving_context(one)["clock"] for one in found] == [clock, ""]
    assert run_ends_with(tmp_path, cells=cells, verdicts=rows) == [
        f"a imported: launch-bound, saves up to 5 of 10 ms per step {clock}: launch less",
        "b train: launch-bound, saves up to 2 of 4 ms per step: graph=true",
    ]


def a_plan(**given: object) -> dict[str, object]:
    row = {"model": "a", "phase": "train", "rank": 1, "settings": "graph=true precision=bf16", "changes": "launch as one graph",
           "gain": 2.5, "gain_low": 0.8, "gain_high": 4.0, "outlook": plan.MAY_NOT_HELP, "verdicts": "v", "advised": False,
           "method": "replay", "evidence": "program.npz: simulated graph + bf16", "score": "no trials of such advice yet", "command": "compare it",
           "not_possible": ""}  # fmt: skip
    return row | given


def planned(rows: list[Any], plans: list[Any], **more: pd.DataFrame) -> list[savings.Saving]:
    return told(rows, plans=pd.DataFrame(plans), **more)


def test_a_cell_begins_with_its_best_plan_and_verdicts_are_the_reasons() -> None:
    """A plan gains 2.5 times, which saves 6 of 10 ms; a layer saves at most 9, and what a verdict advises is within the plan."""
    rows = [advice(gain=1.9, method="replay", share=0.46), advice(verdict="memory-bound", settings="", gain=None, rank=2),
            advice(level="layer", module="head", direction="forward", gain=10.0)]  # fmt: skip
    plans = [a_plan(), a_plan(settings="graph=true", gain=1.9, rank=2), a_plan(model="gone")]
    found = planned(rows, plans)
    assert [(one.about, one.saved_ns / 1e6) for one in found] == [("head forward", 9.0), ("", pytest.approx(6.0))]
    first, second = savings.largest_savings(found)
    assert first.plan and first.plan.settings == "graph=true precision=bf16" and second.about == "head forward"
    assert (first.how, first.verdict, first.typed) == (savings.SIMULATED, "launch-bound", "compare it")
    reasons = [(one.verdict, one.next_step) for one in first.plan.bottlenecks]
    assert reasons == [("launch-bound", "launch less"), ("memory-bound", "launch less")]
    told_ = savings.saving_context(first)["plan"]
    assert (told_["gain"], told_["between"], told_["outlook"]) == ("2.50", "0.80 to 4.00", plan.MAY_NOT_HELP)
    assert [one["share"] for one in told_["bottlenecks"]] == ["46%", ""]


def test_an_upper_limit_comes_before_a_plan_that_may_not_help() -> None:
    rows = [advice(verdict="restarted workers", settings="", gain=4.0, method="Amdahl")]
    for outlook, leads in ((plan.MAY_NOT_HELP, "restarted workers"), (plan.HELPS, "")):
        first, *_ = savings.largest_savings(planned(rows, [a_plan(outlook=outlook)]))
        assert (first.verdict if not first.plan else "") == leads


def test_a_plan_comes_with_the_lines_to_write() -> None:
    """Of a script they come first; a trial takes the places from the plan with the same settings."""
    short, typed = (
        'train.py:3: torch.autocast("cuda", torch.bfloat16)',
        "snakemake compare --config models='{m: {command: a}}'",
    )
    row = a_plan(settings="precision=bf16", recipe=short, command=typed)
    (of_script,) = (one for one in planned([advice(settings="")], [row]) if one.plan)
    recipe = savings.saving_context(of_script)["plan"]["recipe"]
    assert (recipe["leads"], recipe["short"], recipe["settings"]) == (True, short, "precision=bf16")
    assert [part["lines"].splitlines()[0] for part in recipe["parts"]] == [
        'with torch.autocast("cuda", torch.bfloat16):'
    ]
    (tried,) = (
        one
        for one in planned(
            [advice(settings="")], [row], trials=trial(words="precision=bf16").assign(chosen=False, why="")
        )
        if one.plan
    )
    assert savings.saving_context(tried)["plan"]["recipe"]["short"] == short and tried.how == savings.MEASURED
    # A verdict on written code has lines too, and others have words.
    parts = [savings.verdict_recipe_context(verdict)["parts"] for verdict in ("unfused attention", "launch-bound")]
    assert "scaled_dot_product_attention(" in parts[0][0]["lines"] and not parts[1]
    # Of a table of an earlier version there is none.
    (old,) = (one for one in planned([advice(settings="")], [a_plan()]) if one.plan)
    recipe = savings.saving_context(old)["plan"]["recipe"]
    assert (recipe["leads"], recipe["short"], recipe["parts"]) == (False, "", [])


def test_a_verdict_that_names_no_bottleneck_is_no_reason() -> None:
    assert plan.NO_BOTTLENECKS == (verdicts.NOTHING, rule_evaluation.UNDECIDED)
    undecided = advice(verdict=rule_evaluation.UNDECIDED, gain=None, rank=2)
    rows = [advice(verdict=verdicts.NOTHING, gain=1.0, settings=""), undecided]
    (one,) = planned(rows, [a_plan()])
    assert one.plan and one.plan.bottlenecks == () and one.verdict == verdicts.NOTHING


def test_advice_that_a_simulation_expects_more_of_than_of_any_setting_comes_first() -> None:
    rows = [advice(gain=4.0, method="replay", settings="", verdict="synchronisation-bound")]
    first, second = savings.largest_savings(planned(rows, [a_plan()]))
    assert first.verdict == "synchronisation-bound" and not first.plan and second.plan


def test_a_cause_comes_before_what_it_explains_though_that_saves_more(tmp_path: Path) -> None:
    """Waits save 1 of 10 ms, and late launches, that they explain, 6; a plan of other settings saves 2.5."""
    of = {"settings": "", "method": "replay", "gain_high": 3.0}
    rows = [advice(verdict="synchronisation-bound", gain=1 / 0.9, **of), advice(gain=2.5, rank=2, **of)]
    plans = [a_plan(settings="precision=tf32", gain=1 / 0.75)]
    for more in ({}, {"plans": pd.DataFrame(plans)}):
        (first,) = savings.first_savings(told(rows, **more))
        assert first.verdict == "synchronisation-bound" and first.saved_ns == pytest.approx(1e6)
        (said,) = run_ends_with(tmp_path, cells=CELLS, verdicts=pd.DataFrame(rows), **more)
        assert said.startswith("a train: synchronisation-bound, saves 1 of 10 ms per step")
    # A plan that saves more than both stays first, with the cause as its first reason.
    better = pd.DataFrame([a_plan(gain=4.0)])
    (first,) = savings.first_savings(told(rows, plans=better))
    assert first.plan and first.plan.bottleneck == "synchronisation-bound"
    (said,) = run_ends_with(tmp_path, cells=CELLS, verdicts=pd.DataFrame(rows), plans=better)
    assert "; bottlenecks: synchronisation-bound, launch-bound;" in said
    # What was measured stays first.
    tried = [rows[0], advice(gain=2.5, rank=2, method="replay")]
    assert savings.first_savings(told(tried, trials=trial()))[0].how == savings.MEASURED


@pytest.mark.parametrize(
    ("plans", "chosen"),
    [
        ([a_plan(outlook=plan.DOES_NOT_HELP, gain=0.9)], None),
        ([a_plan(outlook=plan.ABSTAINS)], None),
        ([a_plan(outlook=plan.NOT_POSSIBLE, gain=None, not_possible="it waits")], None),
        ([a_plan(rank=2), a_plan(rank=1, settings="precision=bf16")], "precision=bf16"),
    ],
)
def test_only_what_may_help_is_a_plan_to_begin_with(plans: list[dict[str, object]], chosen: str | None) -> None:
    found = [one.plan.settings for one in planned([advice(settings="")], plans) if one.plan]
    assert found == ([chosen] if chosen else [])


@pytest.mark.parametrize(
    ("tried", "chosen", "how"),
    [
        # What was measured to be faster comes first, and what was measured otherwise is no plan any more.
        (trial(words="precision=tf32"), "precision=tf32", "measured"),
        (trial(words="precision=bf16 graph=true", verdict="failed", gain=float("nan")), "graph=true", "simulated"),
        (trial(words="precision=bf16 graph=true", verdict="slower", gain=0.8), "graph=true", "simulated"),
        (trial(words="precision=bf16 graph=true", verdict="equivalent", gain=1.0), "graph=true", "simulated"),
        # Trials that decided nothing leave the expectation.
        (
            trial(words="precision=bf16 graph=true", verdict="undecided", gain=1.6),
            "graph=true precision=bf16",
            "simulated",
        ),
        (trial(words="precision=bf16 graph=true", verdict="undecided", gain=0.7), "graph=true", "simulated"),
    ],
)
def test_trials_know_better_than_plans(tried: pd.DataFrame, chosen: str, how: str) -> None:
    tried = tried.assign(chosen=False, why="")
    (one,) = planned([advice()], [a_plan(), a_plan(settings="graph=true", rank=2, gain=1.9)], trials=tried)
    assert one.plan and (one.plan.settings, one.how) == (chosen, how)


def test_a_setting_that_no_advice_names_is_promised_where_it_was_measured() -> None:
    rows = [advice(settings="")]
    found = told(rows, trials=pd.concat([trial(), trial(words="slow=true", verdict="slower", gain=0.5)]))
    assert [one.how for one in found] == [savings.MEASURED, savings.AT_MOST]
    assert len(told([advice()], trials=trial())) == 1


def test_every_word_of_verdicts_and_strips_is_explained() -> None:
    given = {rule["verdict"] for rule in rules.load_rules()["rules"]} | {rule_evaluation.UNDECIDED, verdicts.NOTHING}
    given |= set(palette.STEP_COLOURS) | {savings.MEASURED, savings.SIMULATED, savings.AT_MOST}
    assert given - set(glossary.load_meanings()) == set()


def test_the_glossary_says_each_word_once() -> None:
    content = yaml.safe_load((glossary.HERE / glossary.FILES[0]).read_text())
    entries = [entry for some in content.values() for entry in some]
    words = [form for entry in entries for form in (entry["word"], *entry.get("also", []))]
    assert len(words) == len(set(words))
    assert len({glossary.load_meanings()[word]["anchor"] for word in words}) >= len(words) - 5


@pytest.mark.slow
def test_the_made_up_zoo_has_all_that_the_page_shows() -> None:
    found = savings.list_savings(whole_zoo.tables())
    assert {one.how for one in found} == {savings.MEASURED, savings.SIMULATED, savings.AT_MOST}
    assert len(savings.largest_savings(found)) == savings.FIRST_COUNT


def test_digits_show_on_which_side_of_one_a_gain_lies(tmp_path: Path) -> None:
    """Of plans and trials on the page, and of a plan in the terminal; what hardly excludes 1 is not settled."""
    row = {**dict.fromkeys(plan_table.COLUMNS, ""), "model": "a", "phase": "train", "rank": 1, "settings": "graph=true",
           "changes": "c", "gain": 1.48, "gain_low": 1.004, "gain_high": 2.16, "outlook": plan.HELPS, "method": "replay"}  # fmt: skip
    plans = pd.DataFrame([row])
    (expected,) = told([advice(method="replay")], plans=plans)
    context = savings.saving_context(expected)["plan"]
    assert (context["gain"], context["between"], context["outlook"]) == ("1.480", "1.004 to 2.160", "")
    shown = {"why": "", "chosen": False, "base_ns": 10e6, "ns": 6.76e6, "expected": 1.002, "processes": 5.0,
             "numerics_why": "", "work": "", "settings": "graph", "gain": 1.48, "gain_low": 1.004, "gain_high": 2.16}  # fmt: skip
    trials = trial(**shown)
    (measured,) = told([advice(method="replay")], plans=plans, trials=trials)
    assert measured.how == savings.MEASURED and "not settled" in savings.saving_context(measured)["plan"]["outlook"]
    (table,) = savings.make_first_section([], {"trials": trials, "cells": CELLS})["trials"]
    (tried,) = table["rows"]
    assert (tried["gain"], tried["between"], tried["expected"]) == ("1.480×", "1.004 to 2.160", "1.002×")
    assert tried["outcome"] == "faster, not settled"
    first, *_ = run_ends_with(tmp_path, cells=CELLS, verdicts=pd.DataFrame([advice()]), plans=plans)
    assert "expected to run 1.480 times as fast (1.004 to 2.160)" in first
