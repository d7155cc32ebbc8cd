"""What there is to be won: how much, how sure, in which order; and that every word of it is explained."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from profzoo.figures import palette
from profzoo.io.scripts import write_csv
from profzoo.plans import plan
from profzoo.report import glossary, savings, savings_section
from profzoo.terminal import largest_gains
from profzoo.verdicts import rule_evaluation, rules, verdicts
from tests import whole_zoo

CELLS = pd.DataFrame({"model": ["a", "b"], "phase": "train", "step_ns": [10e6, 4e6]})


def advice(**given: object) -> dict[str, object]:
    row = {"model": "a", "phase": "train", "level": "cell", "module": "", "direction": "", "verdict": "launch-bound",
           "gain": 2.0, "gain_low": 1.0, "gain_high": 2.0, "method": "Amdahl", "next_step": "launch less",
           "settings": "graph=true", "by": "profzoo", "rank": 1}  # fmt: skip
    return row | given


def told(rows: list[dict[str, object]], **more: pd.DataFrame) -> list[savings.Saving]:
    return savings.list_savings({"cells": CELLS, "verdicts": pd.DataFrame(rows), **more})


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
    (measured,) = told([advice(method="replay")], trials=trial())
    assert (measured.how, measured.saved_ns) == (savings.MEASURED, pytest.approx(8e6))
    assert measured.typed == "python -m models.run a train graph=true"
    # Of other settings nothing was measured.
    assert told([advice(settings="precision=tf32")], trials=trial(verdict="slower"))[0].how == savings.AT_MOST
    # What was measured while the cell computed something else promises nothing.
    assert told([advice()], trials=trial(verdict="different", numerics="different"))[0].how == savings.AT_MOST


def test_a_gain_that_comes_with_an_interval_and_a_score_keeps_them() -> None:
    scored = {
        "gain": 4.0,
        "gain_low": 2.0,
        "gain_high": 8.0,
        "score": "In 12 trials, such gains were off by 9% in the median.",
    }
    (replayed,) = told([advice(**scored, method="replay")])
    assert (replayed.how, replayed.saved_ns, replayed.low_ns, replayed.high_ns) == (
        savings.SIMULATED,
        7.5e6,
        5e6,
        8.75e6,
    )
    assert replayed.score == scored["score"]
    (most,) = told([advice(**scored)])
    assert (most.how, most.low_ns) == (savings.AT_MOST, 5e6) and savings_section.saving_context(most)[
        "between"
    ] == "5 to 8.75 ms"
    assert told([advice(gain=None, score="abstains")]) == []


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
    assert [
        one["unsteady"]
        for one in savings_section.make_first_section(found, {"steps": pd.DataFrame(columns=["model", "phase"])})[
            "first"
        ]
    ] == ["", why]
    # As the run ends too.
    write_csv(cells, tmp_path / "cells.csv")
    write_csv(rows, tmp_path / "verdicts.csv")
    assert [one.says for one in largest_gains.list_largest_gains(tmp_path / "verdicts.csv", None)] == [
        "b train: launch-bound, saves up to 1.33 of 4 ms per step: graph=true",
        f"a train: launch-bound, saves up to 30 of 60 ms per step: graph=true (unsteady times: {why})",
    ]


def a_plan(**given: object) -> dict[str, object]:
    row = {"model": "a", "phase": "train", "rank": 1, "settings": "graph=true precision=bf16", "changes": "launch as one graph",
           "gain": 2.5, "gain_low": 0.8, "gain_high": 4.0, "outlook": plan.MAY_NOT_HELP, "verdicts": "v", "advised": False,
           "method": "replay", "evidence": "program.npz: simulated graph + bf16", "score": "no trials of such advice yet", "command": "compare it",
           "not_possible": ""}  # fmt: skip
    return row | given


def planned(
    rows: list[dict[str, object]], plans: list[dict[str, object]], **more: pd.DataFrame
) -> list[savings.Saving]:
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
    assert [(one.verdict, one.next_step) for one in first.plan.bottlenecks] == [
        ("launch-bound", "launch less"),
        ("memory-bound", "launch less"),
    ]
    told_ = savings_section.saving_context(first)["plan"]
    assert (told_["gain"], told_["between"], told_["outlook"]) == ("2.50", "0.80 to 4.00", plan.MAY_NOT_HELP)
    assert [one["share"] for one in told_["bottlenecks"]] == ["46%", ""]


def test_a_verdict_that_names_no_bottleneck_is_no_reason() -> None:
    assert plan.NO_BOTTLENECKS == (verdicts.NOTHING, rule_evaluation.UNDECIDED)
    rows = [
        advice(verdict=verdicts.NOTHING, gain=1.0, settings=""),
        advice(verdict=rule_evaluation.UNDECIDED, gain=None, rank=2),
    ]
    (one,) = planned(rows, [a_plan()])
    assert one.plan and one.plan.bottlenecks == () and one.verdict == verdicts.NOTHING


def test_advice_that_a_simulation_expects_more_of_than_of_any_setting_comes_first() -> None:
    rows = [advice(gain=4.0, method="replay", settings="", verdict="synchronisation-bound")]
    first, second = savings.largest_savings(planned(rows, [a_plan()]))
    assert first.verdict == "synchronisation-bound" and not first.plan and second.plan


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
    words = [
        form for entries in content.values() for entry in entries for form in (entry["word"], *entry.get("also", []))
    ]
    assert (
        len(words) == len(set(words))
        and len({glossary.load_meanings()[word]["anchor"] for word in words}) >= len(words) - 5
    )


def test_the_made_up_zoo_has_all_that_the_page_shows() -> None:
    found = savings.list_savings(whole_zoo.tables())
    assert {one.how for one in found} == {savings.MEASURED, savings.SIMULATED, savings.AT_MOST}
    assert len(savings.largest_savings(found)) == savings.FIRST_COUNT
