"""Answers to questions about results that are made of recordings: claims by row, what is not claimed, and damage."""

import csv
import io
import json
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.cli import ask
from profzoo.io.scripts import write_csv
from profzoo.referee import envelope, questions
from profzoo.referee.questions import COMPARE, TABLES, TRIALS, VERDICTS
from tests import slow
from tests.unit import compared
from tests.unit.test_envelope import HOSTILE

CELL = "bert/train"
BY_TABLE = {"list": "cells", "diagnose": "verdicts", "plans": "plans", "compare": "compare", "trials": "trials"}


@pytest.fixture(scope="module")
def made(few_results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three models, with a comparison."""
    results = Path(shutil.copytree(few_results, tmp_path_factory.mktemp("asked") / "results"))
    table, _ = compared.compared([(model, phase) for model in ("bert", "lstm") for phase in ("train", "inference")])
    write_csv(table, results / "tables/compare.csv")
    trials = pd.read_csv(results / "tables/trials.csv", dtype=str, keep_default_na=False)
    write_csv(trials[trials["model"].isin(["bert", "mobilenetv2"])], results / "tables/trials.csv")
    return results


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "results"))


def answer(results: Path, *question: str) -> dict[str, Any]:
    """An answer as JSON, which holds the schema."""
    found = envelope.to_json(questions.ask(question, results))
    envelope.check(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def rows_of(results: Path, table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((results / f"tables/{table}.csv").read_text())))


@pytest.mark.parametrize("question", BY_TABLE)
def test_each_row_is_a_claim_or_a_reason_for_none(made: Path, question: str) -> None:
    table = BY_TABLE[question]
    rows = rows_of(made, table)
    cells = sorted({f"{row['model']}/{row['phase']}" for row in rows})
    answers = [answer(made, question, cell) for cell in cells] if question != "list" else [answer(made, question)]
    claims = [claim for one in answers for claim in one["claims"]]
    told = {claim["evidence"][0]["row"]: claim for claim in claims}
    assert len(told) == len(claims) > 0 and len({claim["id"] for claim in claims}) == len(claims)
    abstained = [one for found in answers for one in found["abstained"] if " under " not in one["subject"]]
    assert len(claims) + len(abstained) == len(rows)
    for number, claim in told.items():
        row = rows[number - 1]
        assert claim["subject"] == f"{row['model']} {row['phase']}" and claim["kind"] in claim["id"]
        assert claim["evidence"][0]["file"] == f"tables/{table}.csv" and "snakemake " in claim["evidence"][0]["command"]
        assert claim["unit"] or claim["value"] is None
        low, high = (claim[end] for end in ("low", "high"))
        assert low is None or high is None or low <= claim["value"] <= high


def test_numbers_intervals_and_confidence_are_those_of_the_row(made: Path) -> None:
    columns = {"list": "step_ns", "diagnose": "share", "plans": "gain", "compare": "ratio", "trials": "gain"}
    sure = {"list": {None, 0.95}, "diagnose": {None}, "plans": {None}, "compare": {0.95}, "trials": {None, 0.95}}
    for question, column in columns.items():
        found = answer(made, question, *([CELL] if question == "diagnose" else []))
        rows, start = rows_of(made, BY_TABLE[question]), column.removesuffix("_ns")
        end = column.removeprefix(start)
        for claim in found["claims"]:
            row = rows[claim["evidence"][0]["row"] - 1]
            told = [claim[name] for name in ("value", "low", "high")]
            assert told == [float(text) if (text := row.get(name)) else None
                            for name in (column, f"{start}_low{end}", f"{start}_high{end}")]  # fmt: skip
        assert {claim["confidence"] for claim in found["claims"]} <= sure[question]


def test_a_verdict_has_evidence_a_record_and_what_to_do_next(made: Path) -> None:
    (claim, *_) = [one for one in answer(made, "diagnose", CELL)["claims"] if one["outcome"] == "launch-bound"]
    row = rows_of(made, VERDICTS)[claim["evidence"][0]["row"] - 1]
    assert claim["id"] == "verdict:bert/train:launch-bound" and claim["settings"] == row["settings"] == "graph=true"
    assert claim["next"] == [row["next_step"]]
    trials, covered = int(row["trials"]), float(row["covered"])
    assert claim["record"] == {"trials": trials, "right": round(trials * covered), "says": row["score"]}
    steps = next(one for one in claim["evidence"] if one["file"] == "tables/steps.csv")
    named = rows_of(made, "steps")[steps["row"] - 1]
    assert (named["model"], named["phase"]) == ("bert", "train") and row["evidence"].endswith(named["process"])


def test_evidence_has_the_row_as_the_file_has_it(made: Path) -> None:
    told = answer(made, "claims")
    assert {claim["kind"] for claim in told["claims"]} == {*TABLES} and told["error"] is None
    rows = {table: rows_of(made, table) for table in TABLES.values()}
    for number, claim in enumerate(told["claims"]):
        if number % 9 == 0:
            (found,) = answer(made, "evidence", claim["id"])["claims"]
            first, *_ = found["evidence"]
            row = rows[TABLES[claim["kind"]]][first["row"] - 1]
            assert first["fields"] == {name: envelope.quote(text, 4000) for name, text in row.items() if text}
            assert found | {"evidence": claim["evidence"]} == claim


def test_commands_that_remake_are_those_of_sidecars_and_of_the_workflow(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (results / "bert/train.time.csv").write_text("step\n")
    (results / "bert/train.time.csv.json").write_text(json.dumps({"command": ["python", "-m", "models.run", "a b"]}))
    (claim,) = [one for one in answer(results, "list")["claims"] if one["subject"] == "bert train"]
    commands = {one["file"]: one["command"] for one in claim["evidence"]}
    there = f"cd {results.parent} && "
    assert commands["bert/train.time.csv"] == f"{there}python -m models.run 'a b'"
    assert commands["tables/cells.csv"] == f"{there}snakemake results/tables/cells.csv"
    (results / "bert/train.time.csv.json").write_text("{")
    monkeypatch.chdir(results.parent)
    (claim,) = [one for one in answer(Path("results"), "list")["claims"] if one["subject"] == "bert train"]
    assert {one["command"] for one in claim["evidence"]} == {
        "snakemake results/tables/cells.csv", "snakemake results/bert/train.time.csv"}  # fmt: skip
    (side, *_) = answer(Path("results"), "compare", "bert/train")["claims"]
    assert side["evidence"][0]["command"] == "snakemake compare --config candidate=bf16 models=bert phases=train"
    monkeypatch.chdir(results.parent.parent)
    (plan, *_) = answer(results, "plans", "lstm/train")["claims"]
    assert plan["next"][-1].startswith(f"cd {results.parent.name} && snakemake compare --config models=lstm ")


def change(results: Path, table: str, row: int, **fields: str) -> None:
    """Change fields of a row of a table."""
    path = results / f"tables/{table}.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame.loc[row, [*fields]] = list(fields.values())
    write_csv(frame, path)


def test_what_is_undecided_impossible_or_untried_is_no_claim(results: Path) -> None:
    change(results, VERDICTS, 0, verdict="undecided", next_step="measure more steps")
    change(results, "plans", 0, not_possible="it failed in a trial")
    change(results, "plans", 1, outlook="not advised: in trials, such settings made at most half of the cells faster")
    change(
        results, COMPARE, 0, verdict="undecided", missing_rounds="4", ratio="0.99", ratio_low="0.9", ratio_high="1.1"
    )
    change(results, TRIALS, 0, verdict="failed", why="out of memory")
    change(results, TRIALS, 1, verdict="undecided", why="")
    row = rows_of(results, VERDICTS)[0]
    found = answer(results, "diagnose", row["model"], row["phase"])
    assert {"subject": f"{row['model']} {row['phase']}", "why": "measure more steps"} in found["abstained"]
    whys = [one["why"] for question in ("plans", "compare", "trials") for one in answer(results, question)["abstained"]]
    assert "not possible: it failed in a trial" in whys and "failed: out of memory" in whys
    assert any(why.startswith("not advised: ") for why in whys)
    assert any(re.fullmatch(r"undecided: it takes 0.99 .*; about 4 more rounds would decide", why) for why in whys)
    assert any(why.startswith("undecided: measured speedup 1.") for why in whys)


def test_what_computes_something_else_is_not_called_faster(results: Path) -> None:
    change(results, TRIALS, 0, verdict="different", numerics="different", numerics_why="the loss is 3 times as large")
    (claim,) = [one for one in answer(results, "trials")["claims"] if one["evidence"][0]["row"] == 1]
    assert claim["outcome"] == "different" and "numerics: different (the loss is 3 times as large)" in claim["says"]
    assert "faster" not in claim["says"]


def test_tools_that_did_not_measure_a_cell_are_named(made: Path) -> None:
    found = answer(made, "diagnose", "mobilenetv2/train")
    assert not [
        one for one in found["abstained"] if one["subject"].endswith(("under ncu", "under nsys", "under torch"))
    ]
    found = answer(made, "diagnose", "lstm/train")
    assert [one["subject"] for one in found["abstained"] if " under " in one["subject"]] == [
        f"lstm train under {tool}" for tool in ("ncu", "nsys", "torch")]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (["diagnose", "bert/trian"], "did you mean 'train'"),
        (["plans", "bret/train"], "did you mean 'bert'"),
        (["compare", "lstn train"], "did you mean 'lstm'"),
        (["trials", "a/b/c"], "give its model and phase, as in lstm/train"),
        (["diagnose", "lstm"], "lstm has several cells: lstm/inference, lstm/train"),
        (["diagnose"], "diagnose needs a cell"),
        (["list", "lstm/train"], "list takes no cell"),
        (["evidence", "verdict:bert/train:launch-bond"], "did you mean 'verdict:bert/train:launch-bound'?"),
        (["evidence", "plan:zzz"], "`claims` tells all ids"),
        (["evidence", "tables/verdicts.csv"], "is not an id"),
        (["evidence"], "is not an id"),
        (["diagnose", "../../etc/passwd"], "does not name a cell"),
        (["plans", "\x1b[31mbert/train"], "no model"),
    ],
)
def test_a_name_that_is_not_there_is_an_error_with_the_nearest(made: Path, question: list[str], told: str) -> None:
    found = answer(made, *question)
    assert found["status"] == "error" and told in found["error"]["what"] and not found["claims"]


def test_a_missing_table_is_no_error_and_a_missing_folder_is(results: Path, tmp_path: Path) -> None:
    for table in TABLES.values():
        (results / f"tables/{table}.csv").unlink()
    for question in (["plans"], ["compare"], ["trials"], ["diagnose", "bert/train"], ["claims"]):
        found = answer(results, *question)
        assert found["status"] == "abstained" and "makes it" in found["abstained"][0]["why"]
    listed = answer(results, "list")
    assert {one["subject"] for one in listed["abstained"]} == {"bert train", "mobilenetv2 train"}
    (tmp_path / "empty").mkdir()
    assert "it has no cells: " in answer(tmp_path / "empty", "list")["abstained"][0]["why"]
    for wrong in (tmp_path / "nowhere", results / "bert/train.layers.csv"):
        for question in (["list"], ["plans"], ["evidence", "cell:a/b"]):
            found = answer(wrong, *question)
            assert "is not a folder of results" in found["error"]["what"] and found["error"]["where"] == str(wrong)


def damages(content: bytes, draw: random.Random) -> Mapping[str, bytes]:
    """Damaged contents of a table, by what is wrong."""
    cuts = {f"cut after {place} bytes": content[:place] for place in draw.sample(range(len(content)), 12)}
    heading, _, rest = content.partition(b"\n")
    place = draw.randrange(len(content))
    return cuts | {
        "empty": b"",
        "binary": draw.randbytes(300),
        "compressed": b"\x1f\x8b\x08" + draw.randbytes(100),
        "zeros": bytes(200),
        "other columns": b"a,b\n1,2\n",
        "a column less": b"\n".join(line.partition(b",")[2] for line in content.splitlines()) + b"\n",
        "a column twice": heading + b",model\n" + rest.replace(b"\n", b",x\n"),
        "text for a number": content.replace(b"0.", b"x.", 3),
        "a quote that does not end": heading + b'\n"' + rest,
        "bytes replaced": content[:place] + draw.randbytes(8) + content[place + 8 :],
        "a byte order mark": b"\xef\xbb\xbf" + content,
        "heading alone": heading + b"\n",
        "carriage returns": content.replace(b"\n", b"\r\n"),
    }


@pytest.mark.parametrize("table", slow.only(TABLES.values(), VERDICTS))
def test_damage_to_a_table_is_an_error_and_never_a_traceback(results: Path, table: str) -> None:
    path = results / f"tables/{table}.csv"
    content, draw = path.read_bytes(), random.Random(table)
    mine = [next(question for question, of in BY_TABLE.items() if of == table), *([CELL] if table == VERDICTS else [])]
    may_be_whole = ("a byte order mark", "heading alone", "carriage returns", "bytes replaced")
    for what, damaged in damages(content, draw).items():
        path.write_bytes(damaged)
        own, every = answer(results, *mine), answer(results, "claims")
        ends_a_row = damaged.endswith(b"\n") and content.startswith(damaged)
        if what not in may_be_whole and not ends_a_row:
            assert own["status"] == every["status"] == "error" and f"{table}.csv" in own["error"]["what"], what
            # The claims of other tables are told beside it.
            assert every["error"]["where"] == f"tables/{table}.csv" and every["claims"], what
    path.unlink()
    path.mkdir()
    assert answer(results, *mine)["status"] == "error"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_program_chose_stays_within_its_quotes(results: Path, text: str) -> None:
    if "\ud800" in text or "\0" in text:
        text = text.replace("\ud800", "").replace("\0", "")
    rows = rows_of(results, VERDICTS)
    row = next(number for number, one in enumerate(rows) if one["level"] == "kernel")
    change(results, VERDICTS, row, function=text)
    change(results, VERDICTS, row + 1, verdict=text, level="layer", module=text, next_step=text)
    for number, table in enumerate(("cells", "plans", COMPARE, TRIALS)):
        change(results, table, number, **{
            "cells": {"device": text}, "plans": {"changes": text}, COMPARE: {"differs": text}, TRIALS: {"why": text}
        }[table])  # fmt: skip
    printed = envelope.format_json(questions.ask(["claims"], results))
    assert all(line.isprintable() for line in printed.split("\n"))
    found = json.loads(printed)
    envelope.check(found)
    (claim,) = [one for one in found["claims"] if one["kind"] == "verdict" and one["evidence"][0]["row"] == row + 1]
    name = envelope.quote(text).replace('"', "'")
    assert f'kernel "{name}"' in claim["says"]
    # An id is one word, whatever the name is, and finds the claim again.
    assert all(re.fullmatch(r"[\w:/.@+=#-]+", one["id"], re.ASCII) for one in found["claims"])
    (again,) = answer(results, "evidence", claim["id"])["claims"]
    assert again["evidence"][0]["fields"]["function"] == envelope.quote(text)


def test_ids_are_unique_and_stay_when_other_rows_come(results: Path) -> None:
    path = results / "tables/verdicts.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    before = {one["id"] for one in answer(results, "claims")["claims"]}
    first = frame[frame["model"] == "bert"].head(1)
    write_csv(pd.concat([first.assign(model="new"), first.assign(model="new"), frame]), path)
    after = [one["id"] for one in answer(results, "claims")["claims"]]
    assert len({*after}) == len(after) and {*after} - before == {
        f"verdict:new/{first['phase'].iloc[0]}:launch-bound{end}" for end in ("", "#2")}  # fmt: skip


def test_the_command_prints_an_answer_and_ends_with_its_code(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in (
        (["list", str(made)], 0),
        (["list", "--results", str(made)], 0),
        (["--results", str(made), "diagnose", "bert", "train"], 0),
        (["plans", "lstm/train", "--results", str(made)], 0),
        (["plans", "nothing", "--results", str(made)], 1),
        (["list", str(made / "nowhere")], 1),
        (["trials", "--results", str(made / "bert")], 3),
        (["session", str(made / "nowhere")], 1),
    ):
        assert ask.main(words) == code, words
        envelope.check(json.loads(capsys.readouterr().out))
    assert ask.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["version"] == {
        "const": envelope.VERSION, "description": "raised when a field changes its meaning or goes; new fields leave it"}  # fmt: skip
    for wrong in (["diagnoze"], [], ["list", "--all"], ["session"]):
        with pytest.raises(SystemExit) as ended:
            ask.main(wrong)
        assert ended.value.code == envelope.EXIT_USAGE
    helped = ask._parser().format_help()
    assert all(f"\n  {name} " in helped for name in ask.ASKED) and {*ask.EXITS} == {
        *envelope.EXIT_CODES.values(), envelope.EXIT_FAILED, envelope.EXIT_USAGE}  # fmt: skip


def test_results_are_found_where_a_workflow_or_advise_leaves_them(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask.main(["list"]) == 1 and "neither results nor profzoo-results/results" in capsys.readouterr().out
    (tmp_path / "profzoo-results").mkdir()
    (tmp_path / "profzoo-results/results").symlink_to(made)
    assert ask.main(["list"]) == 0 and capsys.readouterr().out
    (tmp_path / "results").mkdir()
    assert ask.main(["list"]) == 3 and "it has no cells" in capsys.readouterr().out
