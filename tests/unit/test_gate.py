"""Tests of the gate: what a configuration may say, which outcomes fail, and that no text can form marks in the comment."""

import html
import json
import math
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from profzoo.cli import gate as command
from profzoo.errors import ConfigError
from profzoo.referee import envelope, gate, states
from profzoo.referee.gate import Change, Entry, Judged

CONFIGURATION = """
fail_on: [slower]
judge:
  - {module: models/decoder.py, phase: train, shape: {batch: 8}}
  - {module: models/encoder.py, fail_on: [different, invalid]}
"""
# A configuration with a fault, and a part of the line about it.
FAULTS = {
    "judge: []": "`judge` is not a list of programs",
    "[1, 2]": "`judge` is not a list of programs",
    "judge: [{modul: a.py}]": "program 1: unknown key 'modul'; did you mean 'module'?",
    "judge: [{phase: train}]": "program 1: 'module' is missing",
    "judge: [{command: python a.py, shape: {batch: 2}}]": "program 1: shape is that of a model's file",
    "judge: [{command: 3}]": "program 1: command 3 is no command: write 'python train.py'",
    "judge: [{module: /etc/a.py}]": "is no Python file of the repository",
    "judge: [{module: ../a.py}]": "is no Python file of the repository",
    "judge: [{module: a.sh}]": "is no Python file of the repository",
    "judge: [{module: a.py, phase: training}]": "phase 'training': did you mean 'train'?",
    "judge: [{module: a.py, precision: 7}]": "precision 7: valid are",
    "judge: [{module: a.py, shape: {batch: true}}]": "shape is no mapping of names to numbers",
    "judge: [{module: a.py, fail_on: [undecided]}]": "fail_on has 'undecided'; valid are",
    "judge: [{module: a.py, fail_on: 3}]": "fail_on is no list",
    "judge: [{module: a.py}, {module: a.py}]": "is named twice",
    "judge: [{module: a.py}]\nbudget: 3": "unknown key 'budget'",
    "judge: [{module: a.py": ".profzoo.yaml",
}
HOSTILE = (
    "a | b\n| **slower** | c", "<script>alert(1)</script>", "</code></details>", "@octocat and #1 and !2", "`x` [a](http://b)",
    "\x1b[31m\u202eabc", "www.example.com", "&#124; &lt;", "<!-- profzoo gate -->", "/close", "x" * 500,
)  # fmt: skip


def commit(repository: Path, profzoo: str | None = None) -> str:
    """Commit a configuration to a repository, which is created if there is none; returns the commit's name."""
    repository.mkdir(exist_ok=True)
    git = ("git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com")
    if not (repository / ".git").exists():
        subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
    if profzoo is not None:
        (repository / gate.CONFIGURATION).write_text(profzoo)
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=x"], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def stored(*judged: Judged) -> str:
    """An answer as a file has it."""
    return envelope.format_json(gate.to_envelope(["gate"], judged, []))


def test_a_configuration_names_programs_and_what_fails() -> None:
    one, other = gate.parse_configuration(CONFIGURATION, "here")
    assert one == Entry("models/decoder.py", "train", {"batch": 8}, "fp32", ("slower",))
    assert (other.phase, other.fail_on) == ("inference", ("different", "invalid"))
    assert (one.name, other.name) == ("models/decoder.py train batch=8", "models/encoder.py inference")


def test_a_script_is_named_by_its_command() -> None:
    (entry,) = gate.parse_configuration("judge: [{command: python train.py, fail_on: slower}]", "it")
    assert (entry.command, entry.name, entry.module, entry.fail_on) == (
        "python train.py", "python train.py", "", ("slower",),
    )  # fmt: skip


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_in_a_configuration_has_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        gate.parse_configuration(text, "base's .profzoo.yaml")
    assert FAULTS[text] in str(caught.value)


@pytest.mark.parametrize(
    "outcome", ["faster", "slower", "equivalent", "undecided", "different", "invalid", "not judged"]
)
@pytest.mark.parametrize("fail_on", [(), ("slower",), gate.FAILING])
def test_only_decided_outcomes_that_are_named_fail(outcome: str, fail_on: tuple[str, ...]) -> None:
    assert gate.decide(Judged("a", outcome), fail_on) == (outcome in fail_on)
    # Nobody can ask for a failure of what is undecided.
    assert not gate.decide(Judged("a", outcome), ("undecided", "not judged", "faster")) or outcome == "faster"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_program_forms_a_mark(text: str) -> None:
    shown = gate.escape(text)
    inner = shown.removeprefix("<code>").removesuffix("</code>")
    assert re.fullmatch(r"(?:[0-9A-Za-z \u0080-\U0010ffff]|&#[0-9]+;)*", inner)
    assert html.unescape(inner) == envelope.quote(text, gate.LONGEST)
    comment = gate.write_comment(
        [Judged(text, text, numerics=text, why=text, fails=True, parts=[text])], Change("b", "h")
    )
    rows = [line for line in comment.splitlines() if line.startswith("|")]
    assert [row.count("|") for row in rows] == [8, 8, 8]
    assert set(re.findall(r"<[^>]*>", comment)) <= {gate.MARK, "<code>", "</code>", "<br>"}
    assert comment.count(gate.MARK) == 1
    assert "@" not in comment and "](" not in comment and "`" not in comment


def test_drawn_texts_form_no_mark() -> None:
    chance = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(map(chr, chance.choice([*range(0x250), 0x202E, 0x200B, 0x1F600, 0xFF5C], 40)))
        inner = gate.escape(text).removeprefix("<code>").removesuffix("</code>")
        assert html.unescape(inner) == envelope.quote(text, gate.LONGEST)
        assert not re.search(r"[^0-9A-Za-z \u0080-\U0010ffff&#;]", inner)


def test_the_comment_says_what_failed_first_and_what_is_undecided() -> None:
    judged = [
        Judged("a.py train", "equivalent", 1.0, 0.99, 1.01, 0.01, 0.01),
        Judged("b.py train", "undecided", 1.1, 0.9, 1.3, 0.01, 0.011, why="raise the budget"),
        Judged("c.py train", "slower", 1.21, 1.19, 1.23, 0.01, 0.0121, why="it takes longer", fails=True),
    ]
    comment = gate.write_comment(judged, Change("1" * 40, "2" * 40, reconfigured=True))
    lines = comment.splitlines()
    assert lines[0] == gate.MARK
    assert (
        lines[1] == "**profzoo failed: 1 of 3 programs; 1 is undecided, which does not fail** (111111111 to 222222222)"
    )
    names = [
        re.search(r"<code>(\w)&#46;py train", line)[1] for line in lines if line.startswith("| ") and "<code>" in line
    ]  # type: ignore[index]
    assert names == ["c", "b", "a"]
    assert "| **slower** |" in comment and "10 ms | 12.1 ms | 1.21 (1.19 to 1.23)" in comment
    assert "raise the budget" in comment
    assert "That of the base was used" in comment


def test_a_long_comment_is_cut_to_what_the_server_takes_and_says_so() -> None:
    judged = [
        Judged(f"{at}{'|' * 200}", "slower", why="|" * 300, fails=True, parts=["|" * 300] * 3) for at in range(50)
    ]
    comment = gate.write_comment(judged, Change("b", "h"))
    assert len(comment) <= gate.LARGEST
    assert "more programs have no room here" in comment
    assert "failed: 50 of 50" in comment


def test_what_changed_is_told_by_the_table_of_contributions() -> None:
    row = {"model": "unet", "phase": "train", "range": "forward", "change": ""}
    rows = [
        row | {"level": "kernel", "name": "gemm", "delta_share": 0.1, "change": "appeared"},
        row | {"level": "kernel", "name": "relu", "delta_share": 0.004},
        row | {"level": "layer", "name": "up.1", "delta_share": -0.02},
        row | {"level": "range", "name": "forward", "delta_share": 0.5},
        row | {"model": "bert", "level": "kernel", "name": "other", "delta_share": 0.9},
    ]
    assert gate.list_parts(rows, "unet train") == [
        "kernel gemm: +10.0% of the step, appeared", "layer up.1: -2.0% of the step",
    ]  # fmt: skip


def test_a_judgement_becomes_a_row() -> None:
    judgement = SimpleNamespace(
        outcome="slower", why="it takes longer", ratio=1.2, low=1.1, high=1.3, reference_s=0.01, candidate_s=0.012,
        numerics={"output": (1e-7, 1e-5)}, work={"differs": "aten::mm 2 -> 3"},
    )  # fmt: skip
    found = gate.from_judgement(judgement, Entry("a.py", "train"))
    assert (found.name, found.fails, found.before_s, found.after_s) == ("a.py train", True, 0.01, 0.012)
    assert (found.numerics, found.parts) == ("output: 1e-07 of 1e-05 allowed", ["aten::mm 2 -> 3"])
    judgement.work, judgement.ratio, judgement.outcome = {}, None, "undecided"
    found = gate.from_judgement(judgement, Entry("a.py"))
    assert math.isnan(found.ratio) and found.parts == [] and not found.fails


def test_an_answer_that_was_stored_gives_the_same_judgements() -> None:
    judged = [
        Judged("a.py train", "slower", 1.25, 1.2, 1.3, 0.008, 0.01, why="it takes longer"),
        Judged("b.py train", "different", why="the output"),
        Judged("c.py train", gate.NOT_JUDGED, why="no such file"),
    ]
    document = json.loads(stored(*judged))
    envelope.check(document)
    found = gate.read_stored(document, "here")
    assert [(one.name, one.outcome, one.why) for one in found] == [(one.name, one.outcome, one.why) for one in judged]
    assert found[0].before_s == pytest.approx(0.008)
    # Numbers of another unit are not taken for a ratio.
    document["claims"][0]["unit"] = "times as fast"
    assert math.isnan(gate.read_stored(document, "here")[0].ratio)


@pytest.mark.parametrize(
    "document", [{}, [], {"schema": "x"}, json.loads(envelope.format_json(envelope.fail(["a"], ValueError("b"))))]
)
def test_what_is_no_answer_is_told(document: object) -> None:
    with pytest.raises(ConfigError, match=r"is no answer of profzoo|holds an error: b"):
        gate.read_stored(document, "here")


def test_the_exit_code_follows_the_configuration_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The head lets nothing fail, and names another program; neither counts."""
    base = commit(tmp_path / "r", profzoo="judge: [{module: a.py, fail_on: [slower]}]\n")
    head = commit(tmp_path / "r", profzoo="judge: [{module: evil.py, fail_on: []}]\n")
    monkeypatch.chdir(tmp_path / "r")
    answer = tmp_path / "answer.json"
    for outcome, code in (("slower", envelope.EXIT_FAILED), ("different", 0), ("undecided", 0), ("faster", 0)):
        answer.write_text(stored(Judged("a.py inference", outcome, 1.2), Judged("evil.py inference", "slower", 1.2)))
        assert command.main([base, head, "--claims", str(answer)]) == code
        printed = capsys.readouterr().out
        assert "The change edits .profzoo.yaml" in printed
        assert "evil" not in printed and "does not name: left out" in printed


def test_a_program_without_a_judgement_is_told_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = commit(tmp_path / "r", profzoo=CONFIGURATION)
    monkeypatch.chdir(tmp_path / "r")
    answer = tmp_path / "answer.json"
    answer.write_text(stored(Judged("models/encoder.py inference", "equivalent", 1.0)))
    assert command.main([base, base, "--claims", str(answer), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    envelope.check(document)
    assert [one["subject"] for one in document["abstained"]] == ["models/decoder.py train batch=8"]


def test_without_a_configuration_in_the_base_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = commit(tmp_path / "r")
    head = commit(tmp_path / "r", profzoo="judge: [{module: evil.py}]\n")
    monkeypatch.chdir(tmp_path / "r")
    assert command.main([base, head]) == 0
    assert "only what the base names is run: nothing was judged" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["nowhere", "--output=x", "HEAD^9", "main:a"])
def test_a_commit_that_is_none_is_told(word: str, tmp_path: Path) -> None:
    commit(tmp_path / "r")
    with pytest.raises(ConfigError, match="there is no commit"):
        states.find_commit(word, tmp_path / "r")
