"""`profzoo bisect` on real git repositories and programs: it names the planted commit, and leaves the checkout alone."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from profzoo.cli import bisect
from profzoo.referee import envelope

# A program that prints the CPU time of a step.
PROGRAM = """
import time, torch
torch.set_num_threads(1)
weights, data, times = torch.randn(96, 96), torch.randn(96, 96), []

def step():
    found = torch.tanh(data @ weights)
    {extra}
    return found

with torch.inference_mode():
    for _ in range(60):
        began = time.process_time_ns(); step(); times.append(time.process_time_ns() - began)
print(min(times))
"""
# A program without torch, which starts within a moment.
QUICK = """
import time
def step():
    return sum(i * i for i in range({products}))
times = []
for _ in range(30):
    began = time.process_time_ns(); step(); times.append(time.process_time_ns() - began)
{extra}
print(min(times))
"""
CHEATS = Path(__file__).parents[1] / "cheats"
COMMAND = ("--", sys.executable, "bench.py")


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def make_history(folder: Path, programs: Sequence[str], file: str = "bench.py") -> list[str]:
    """Make a repository with one commit per program; return the commits."""
    folder.mkdir()
    git(folder, "init", "-q")
    found = []
    for number, program in enumerate(programs):
        (folder / file).write_text(program)
        (folder / "notes.txt").write_text(f"{number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"Change {number}")
        found.append(git(folder, "rev-parse", "HEAD"))
    return found


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = bisect.main([*words[:2], "--json", *words[2:]])
    found = json.loads(capsys.readouterr().out)
    envelope.check(found)
    assert code == {"answered": 0, "abstained": 3, "error": 1}[found["status"]]
    return found


def test_the_planted_commit_is_found_and_a_broken_one_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of nine commits, the sixth does half as much again, and the middle one does not run."""
    programs = [QUICK.format(products=20_000 if at < 5 else 30_000, extra="") for at in range(9)]
    programs[4] = "raise SystemExit('no step here')\n"
    commits = make_history(tmp_path / "repo", programs)
    monkeypatch.chdir(tmp_path / "repo")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "repo").rglob("*")}
    found = ask(capsys, "HEAD~8", "HEAD", *COMMAND)
    (claim,) = found["claims"]
    assert claim["subject"].startswith(commits[4][:12]) and claim["subject"].endswith(f"{commits[5][:12]} Change 5")
    assert claim["outcome"] == "slower" and claim["low"] < 1.5 < claim["high"] * 1.1
    assert any("Change 4 was passed over: exit code 1: no step here" in note for note in found["notes"])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "repo").rglob("*")} == before


@pytest.mark.slow
def test_an_extra_operator_is_named_with_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of eight commits, the sixth sorts in each step."""
    programs = [PROGRAM.format(extra="torch.sort(found, dim=1)" if at >= 5 else "pass") for at in range(8)]
    commits = make_history(tmp_path / "repo", programs)
    monkeypatch.chdir(tmp_path / "repo")
    found = ask(capsys, commits[0], commits[-1], *COMMAND)
    (claim,) = found["claims"]
    assert (claim["subject"], claim["outcome"]) == (commits[5], "slower")
    assert any("what changed: operator aten::sort" in note and "appeared" in note for note in found["notes"])


@pytest.mark.slow
def test_a_tenth_more_is_found_among_sixteen_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fourth commit does a tenth more; the lines for people say so."""
    programs = [QUICK.format(products=22_000 if at >= 3 else 20_000, extra="") for at in range(16)]
    commits = make_history(tmp_path / "repo", programs)
    monkeypatch.chdir(tmp_path / "repo")
    assert bisect.main([commits[0], commits[-1], *COMMAND]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{commits[3][:12]} Change 3 made it ") and "% of what made it" in told


@pytest.mark.slow
def test_a_models_file_is_searched_by_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of six commits, the second computes something else, and the fourth makes each product twice as often."""
    text = (CHEATS / "program.py").read_text()
    programs = [text.replace("REPEATED = 16", "REPEATED = 32") if at >= 3 else text for at in range(6)]
    programs[1] = (CHEATS / "skipped_layer.py").read_text().replace("import program", "import missing")
    commits = make_history(tmp_path / "repo", programs, "model.py")
    monkeypatch.chdir(tmp_path / "repo")
    found = ask(capsys, commits[0], commits[-1], "--module", "model.py")
    (claim,) = found["claims"]
    assert (claim["subject"], claim["outcome"]) == (commits[3], "slower")
    assert any("what changed: " in note and "aten::addmm 81 -> 161" in note for note in found["notes"]), found["notes"]


def test_what_cannot_be_searched_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_history(tmp_path / "repo", ["print(1)\n", "print(1)\n", "raise SystemExit('broken')\n"])
    monkeypatch.chdir(tmp_path / "repo")
    for words, told in (
        (("HEAD", "HEAD~2", *COMMAND), "does not follow on HEAD"),
        (("HEAD~2", "nowhere", *COMMAND), "there is no commit 'nowhere'"),
        (("HEAD~2", "HEAD", *COMMAND), "Change 2 does not run (exit code 1: broken): choose ends that do"),
    ):
        found = ask(capsys, *words)
        assert told in found["error"]["what"] and "\n" not in found["error"]["what"], found
    same = ask(capsys, "HEAD~2", "HEAD~1", *COMMAND)
    assert same["claims"][0]["outcome"] == "equivalent"
    assert ask(capsys, "HEAD~2", "HEAD~1", "--budget", "1", *COMMAND)["status"] == "abstained"
    with pytest.raises(SystemExit):
        bisect.main(["HEAD"])


@pytest.mark.slow
def test_versions_of_a_package_are_installed_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of four wheels, the third version is slower, and one before it is lost; each says what it takes."""
    wheels = []
    for number, ns in enumerate((100, 100, 110, 110)):
        wheels.append(tmp_path / f"stepper-{number}-py3-none-any.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr("stepper.py", f"TIME = {ns}\n")
            archive.writestr(
                f"stepper-{number}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: stepper\nVersion: {number}\n"
            )
            archive.writestr(
                f"stepper-{number}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"stepper-{number}.dist-info/RECORD", "")
    (tmp_path / "bench.py").write_text("import random, stepper\nprint(stepper.TIME * random.uniform(0.999, 1.001))\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    first, second, third, last = map(str, wheels)
    lost = str(tmp_path / "stepper-9-py3-none-any.whl")
    found = ask(capsys, first, second, lost, third, last, "--versions", *COMMAND)
    (claim,) = found["claims"]
    assert claim["subject"] == f"{lost} to {third}" and claim["outcome"] == "slower"
    assert any(note.startswith(f"{lost} was passed over: {lost} cannot be installed") for note in found["notes"])
