"""Tests of profzoo score: what is true, claims that cannot be read, and scores of advisors whose answer is known."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.cli import score as command
from profzoo.referee import envelope, score
from profzoo.referee.score import Advice
from tests.benchmarks import advisor_truth, verdict_score

TRUTH = score.load_truth()
HELD_OUT = (score.TRIALS, "held_out")
# A CSV of claims whose faults each have a line of their own, beside a part of that line.
FAULTS = {
    "cell,change\nbert train,graph=true\n": "column is missing: expected_gain",
    "cell,change,expected_gain,lo\nbert train,graph=true,2,1\n": "no column 'lo': did you mean 'low'?",
    "cell,change,expected_gain,low,low\nbert train,graph=true,2,1,1\n": "two columns low",
    "cell,change,expected_gain\n": "no claim below the heading",
    "": "columns are missing: cell, change, expected_gain;",
    "cell,change,expected_gain\nbert trian,graph=true,2\n": "row 1: unknown cell 'bert trian': did you mean 'bert train'?",
    "cell,change,expected_gain\nbert-mended train,graph=true,2\n": "row 1: unknown cell 'bert-mended train'",
    "cell,change,expected_gain\nbert train,graph=true,0\n": "row 1: expected_gain 0 is not above 0",
    "cell,change,expected_gain\nbert train,graph=true,nan\n": "row 1: expected_gain nan is not above 0",
    "cell,change,expected_gain\nbert train,graph=true,30%\n": "row 1: expected_gain '30%' is a percentage",
    "cell,change,expected_gain\nbert train,graph=true,130\n": "row 1: expected_gain 130 looks like a percentage",
    "cell,change,expected_gain\nbert train,graph=true,much\n": "row 1: expected_gain 'much' is no number",
    "cell,change,expected_gain,low,high\nbert train,graph=true,2,3,4\n": "does not hold the expected gain 2",
    "cell,change,expected_gain\nbert train,bf16,2\n": "row 1: 'bf16' is no setting: write words such as 'graph=true'",
    "cell,change,expected_gain\nvit_heads train,looped head,2\n": "is no cause: did you mean 'looped heads'?",
    "cell,change,expected_gain\nbert train,graph=true,2\nbert/train,graph=true,2\n": "is claimed in row 1 already",
}  # fmt: skip


def perfect(source: str, half: str) -> list[Advice]:
    """Claims that are all true."""
    claims = []
    for cell in TRUTH.part(source, half):
        if cell.causes:
            claims.append(Advice(cell.name, cell.causes[0], cell.twin.gain if cell.twin else math.nan, rank=1))
        ordered = sorted(cell.tried, key=lambda change: -cell.tried[change].gain)
        claims += [Advice(cell.name, one, cell.tried[one].gain, rank=at) for at, one in enumerate(ordered, 1)]
    return claims


def test_the_truth_is_that_of_the_recordings_and_small() -> None:
    """`python -m tests.benchmarks.advisor_truth --write` mends this."""
    text = advisor_truth.write_truth(verdict_score.TABLES, advisor_truth.PLANTED)
    assert score.TRUTH.read_text(encoding="utf-8") == text
    assert len(text.encode()) <= 150_000


def test_all_cells_have_a_part_and_no_model_is_in_two_halves_of_a_source() -> None:
    halves: dict[tuple[str, str], set[str]] = {}
    for cell in TRUTH.cells.values():
        assert (cell.source, cell.half) in score.PARTS
        halves.setdefault((cell.source, cell.model), set()).add(cell.half)
    assert len(TRUTH.cells) == 91
    assert all(len(own) == 1 for own in halves.values())


@pytest.mark.parametrize("text", FAULTS, ids=FAULTS.values())
def test_a_fault_in_claims_has_one_line(text: str) -> None:
    _, faults, _ = score.read_claims(text, TRUTH)
    assert len(faults) == 1
    assert FAULTS[text] in faults[0]


def test_claims_are_read_as_people_write_them() -> None:
    text = '\ufeffCell,Change,Expected gain\r\n"bert/train", precision=bf16 graph=true ,2\n\nbert train,Nothing,1\n'
    claims, faults, notes = score.read_claims(text, TRUTH)
    assert faults == []
    assert claims[0] == Advice("bert train", "graph=true precision=bf16", 2.0, rank=1)
    assert claims[1].change == score.NOTHING
    assert notes == ["row 1: bert train: graph=true precision=bf16 was not measured, so nothing is known of its gain"]


def test_without_ranks_the_largest_gain_is_advised_first_and_losses_never() -> None:
    text = "cell,change,expected_gain\nbert train,graph=true,1.2\nbert train,precision=tf32,1.5\nbert train,precision=bf16,0.9\n"
    claims, faults, _ = score.read_claims(text, TRUTH)
    assert not faults
    assert {claim.change: claim.rank for claim in claims} == {
        "precision=tf32": 1, "graph=true": 2, "precision=bf16": None,
    }  # fmt: skip


@pytest.mark.parametrize("part", score.PARTS, ids=" ".join)
def test_an_advisor_that_knows_the_truth_is_right_everywhere(part: tuple[str, str]) -> None:
    found = score.score_advisor("all-knowing", perfect(*part), TRUTH, *part)
    lost = sum(all(one.gain <= 1 for one in cell.tried.values()) for cell in TRUTH.part(*part) if cell.tried)
    assert found.hits.value == 1 - lost / found.cells
    assert found.silent == 0
    assert found.error.value == 0 or part[1] == "sealed"
    if part[0] == score.TRIALS:
        (best,) = (one for one in score.score_all({}, TRUTH, *part) if one.advisor == "best that was tried")
        assert found.gain.value == pytest.approx(best.gain.value)
        assert all(
            one.gain.value <= best.gain.value + 1e-9
            for one in score.score_all({}, TRUTH, *part)
            if one.gain.count == one.cells
        )


def test_errors_and_intervals_are_those_of_the_claims() -> None:
    factor = 1.25
    claims = [
        replace(one, gain=one.gain * factor, low=one.gain * low, high=one.gain * 2)
        for low, one in zip(np.resize([0.5, 1.1], 1000), perfect(*HELD_OUT), strict=False)
    ]
    found = score.score_advisor("hopeful", claims, TRUTH, *HELD_OUT)
    assert found.error.value == pytest.approx(math.log(factor))
    assert found.inside.value == pytest.approx(0.5, abs=0.01)
    _, *rows = advisor_truth.tabulate_bins(claims, TRUTH, *HELD_OUT)
    assert sum(int(row[1]) for row in rows) == found.error.count == len(claims)
    assert {row[2].partition(" ")[0] for row in rows} == {f"{1 / factor:.2f}"}


def test_silence_gains_nothing_and_is_told() -> None:
    part = TRUTH.part(*HELD_OUT)
    claims = [claim for claim in perfect(*HELD_OUT) if claim.cell == part[0].name]
    found = score.score_advisor("shy", claims, TRUTH, *HELD_OUT)
    assert (found.silent, found.cells) == (len(part) - 1, len(part))
    best = max(one.gain for one in part[0].tried.values())
    assert found.gain.value == pytest.approx(best ** (1 / len(part)))
    assert score.score_advisor("mute", [], TRUTH, *HELD_OUT).gain.count == 0


def test_promises_of_what_gains_nothing_are_false_alarms() -> None:
    nulls = [
        (cell.name, change)
        for cell in TRUTH.part(*HELD_OUT)
        for change, found in cell.tried.items()
        if found.high < score.NO_GAIN
    ]
    assert len(nulls) >= 5
    promise = [Advice(cell, change, 1.5) for cell, change in nulls]
    doubt = [Advice(cell, change, 1.5, 0.9, 2.0) for cell, change in nulls]
    assert score.score_advisor("", promise, TRUTH, *HELD_OUT).alarms.value == 1
    assert score.score_advisor("", doubt, TRUTH, *HELD_OUT).alarms.value == 0


def test_advice_for_a_program_without_its_fault_is_a_false_alarm() -> None:
    part = (score.PLANTED, "development")
    right, other = Advice("vit_heads-mended train", "looped heads", rank=1), "synchronisation"
    assert score.score_advisor("", [right], TRUTH, *part).alarms.value == 1
    assert score.score_advisor("", [replace(right, change=other)], TRUTH, *part).alarms.value == 0


def test_policies_learn_nothing_from_the_cells_they_are_scored_on() -> None:
    worse = {
        name: replace(cell, tried={change: score.Measured(found.gain / 9) for change, found in cell.tried.items()})
        for name, cell in TRUTH.cells.items()
        if (cell.source, cell.half) == HELD_OUT
    }
    other = replace(TRUTH, cells={**TRUTH.cells, **worse})
    assert score.name_policies(other, *HELD_OUT) == score.name_policies(TRUTH, *HELD_OUT)


def test_intervals_draw_models_and_not_rows() -> None:
    chance = np.random.default_rng(1)
    offsets = chance.normal(size=12)
    rows = [(str(model), offsets[model] + 1e-6 * chance.normal()) for model in range(12) for _ in range(20)]
    found = score.estimate(rows)
    by_row = score.estimate([(str(place), value) for place, (_, value) in enumerate(rows)])
    assert (found.count, found.models) == (240, 12)
    # 20 equal rows of a model say no more than one of them.
    assert (found.high - found.low) / (by_row.high - by_row.low) == pytest.approx(math.sqrt(20), rel=0.2)


def test_the_interval_of_a_median_holds_it_as_often_as_it_says() -> None:
    chance = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        found = score.estimate(
            [(str(model), value) for model, value in enumerate(chance.exponential(size=25))], median=True
        )
        held += found.low <= math.log(2) <= found.high
    assert 0.88 <= held / 200 <= 0.99


def test_profzoos_own_scores_are_those_of_the_benchmarks() -> None:
    """The geometric mean of both series of docs/guides/trials.md, and the first look at the planted programs."""
    trials = score.score_advisor("profzoo", TRUTH.advice, TRUTH, *HELD_OUT)
    assert trials.gain.value == pytest.approx(math.sqrt(1.63 * 3.22), rel=0.01)
    assert (trials.error.count, round(trials.inside.value, 2)) == (80, 0.94)
    planted = score.score_advisor("profzoo", TRUTH.advice, TRUTH, score.PLANTED, "held_out")
    assert planted.hits.value == 11 / 20


def test_the_command_prints_tables_or_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims = tmp_path / "mine.csv"
    claims.write_text("cell,change,expected_gain\ngpt train,graph=true,1.1\n")
    assert command.main([str(claims)]) == 0
    printed = capsys.readouterr().out
    assert "20 cells, of which 19 have no advice of mine.csv" in printed
    assert [line.split("  ")[0] for line in printed.splitlines()[3:5]] == ["mine.csv", "profzoo"]
    assert command.main([str(claims), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    envelope.check(document)
    assert {"score.trials.held_out.hits", "score.trials.held_out.gain"} <= {one["id"] for one in document["claims"]}


def test_faults_are_printed_a_line_each_and_in_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims = tmp_path / "mine.csv"
    claims.write_text("cell,change,expected_gain\nbert trian,graph=true,2\nbert train,graph=true,\x1b[31m%\n")
    assert command.main([str(claims)]) == envelope.EXIT_CODES[envelope.ERROR]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert all(line.startswith("profzoo: error: ") and "\x1b" not in line for line in told)
    assert command.main([str(claims), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    envelope.check(document)
    assert document["status"] == envelope.ERROR
    assert command.main([str(tmp_path / "none.csv")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_page_is_up_to_date() -> None:
    """`make docs` mends this."""
    page = Path(__file__).parents[2] / "docs/measured/advisors.md"
    assert page.read_text(encoding="utf-8") == advisor_truth.write_page(TRUTH, pd.read_csv(advisor_truth.RULES))


def test_rules_of_ncu_are_scored_by_twins() -> None:
    """A rule that names another fault, and a promise that the twin exceeds, count against them."""
    rules = pd.read_csv(advisor_truth.RULES)
    assert "in 100% [29%, 100%]" in advisor_truth.describe_rules(rules) and len(rules) > 20
    (name, *_), other = advisor_truth.PAIRS[0], rules["report"] == advisor_truth.PAIRS[0][0]
    worse = rules.assign(rule=rules["rule"].mask(other, "CPIStall"), saved=rules["saved"].mask(other, 0.1))
    said = advisor_truth.describe_rules(worse)
    assert f"| {name} | arithmetic in fp64 | CPIStall | 10.0% | 94.9% |" in said
    assert "in 67% [0%, 100%]" in said and "; 2\nof 3 hold" in said


@pytest.mark.slow
@pytest.mark.skipif("PROFZOO_NCU" not in os.environ, reason="PROFZOO_NCU names no folder of ncu")
def test_rules_are_those_that_ncu_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ["PROFZOO_NCU"])
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    pd.testing.assert_frame_equal(
        advisor_truth.print_rules(folder / "examples").reset_index(drop=True), pd.read_csv(advisor_truth.RULES)
    )


def test_the_example_of_the_page_can_be_scored() -> None:
    rows = [line.strip("|").split("|") for line in advisor_truth.PAGE.splitlines() if line.count("|") == 7]
    text = "\n".join(",".join(map(str.strip, row)) for row in rows if "---" not in row)
    claims, faults, notes = score.read_claims(text, TRUTH)
    assert (len(claims), faults, notes) == (3, [], [])
