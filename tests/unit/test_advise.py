"""cli/advise: what is refused before anything runs, whose program a command names, and the folder of the workflow."""

from pathlib import Path

import pytest

from profzoo import __main__ as command_line
from profzoo.cli import advise, new_folder
from profzoo.script_harness import launcher
from profzoo.terminal import run_end


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-- python trian.py", "there is no trian.py in "),
        ("-- pyhton train.py", "pyhton is not on PATH"),
        ("--budget 2x -- python train.py", "--budget = '2x' is not a time"),
        ("--window 0 -- python train.py", "--window 0: give a number of steps"),
        ("--name 7x -- python train.py", "--name '7x' is not a name"),
        ("--step moduel -- python train.py", "--step = 'moduel'"),
        ("--try workers -- python train.py", "'workers' is not a setting"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert command_line.main(["advise", *words.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"profzoo: {said}"), lines
    assert [*tmp_path.iterdir()] == [tmp_path / "train.py"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit('no data in /data')", "before any of its Python processes imported torch.*no data in /data"),
        ("import torch\nopen('none.csv')", r"failed before its first step with FileNotFoundError.*\(train.py:2\)"),
        ("import torch\nnet = torch.nn.Linear(2, 2)\ntorch.optim.SGD(net.parameters())\nnet(torch.ones(3))", "failed in step 1 with RuntimeError"),
    ],
)  # fmt: skip
def test_a_script_that_cannot_be_measured_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """In one line, with what it printed last where the line does not hold it."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    advise.FOLDER.mkdir()
    options = advise._parser().parse_args(["--", "python", "train.py"])
    with pytest.raises(launcher.CollectError, match=said) as caught:
        advise.configure(options, options.command[1:])
    assert "\n" not in str(caught.value) and not advise.CONFIGURED.exists()


def test_the_program_is_that_of_the_active_environment(tmp_path: Path) -> None:
    """Though a runner such as uvx has put its own first, which is found where no environment is active."""
    for name in ("runner", "active"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").write_text("#!/bin/sh\n")
        (tmp_path / name / "bin" / "python").chmod(0o755)
    runner, active = (str(tmp_path / name / "bin") for name in ("runner", "active"))
    given = {"PATH": f"{runner}:{active}"}
    assert advise.find_programs(["python", "train.py"], given) == [f"{runner}/python", "train.py"]
    given["VIRTUAL_ENV"] = str(tmp_path / "active")
    assert advise.find_programs(["python", "train.py"], given) == [f"{active}/python", "train.py"]
    assert advise.find_programs(["env", "A=1", "python", "-V"], given) == ["env", "A=1", f"{active}/python", "-V"]
    # One that has been left is no longer on PATH.
    given["PATH"] = runner
    assert advise.find_programs(["python"], given) == [f"{runner}/python"]
    assert advise.find_programs(["./run.sh"], given) == ["./run.sh"]


def test_the_folder_follows_the_installation(tmp_path: Path) -> None:
    folder = tmp_path / "profzoo-results"
    new_folder.update_folder(folder)
    assert (folder / ".gitignore").read_text() == "*\n"
    source = new_folder.PACKAGE / "__init__.py"
    held = folder / "profzoo" / "__init__.py"
    assert held.read_text() == source.read_text() and held.stat().st_mtime_ns == source.stat().st_mtime_ns
    held.write_text("of an earlier release\n")
    (held.parent / "gone.py").write_text("")
    (folder / "results").mkdir()
    (folder / "results" / "mine.csv").write_text("")
    new_folder.update_folder(folder)
    assert held.read_text() == source.read_text() and not (held.parent / "gone.py").exists()
    assert (folder / "results" / "mine.csv").exists()


def test_short_scripts_have_shorter_windows_and_long_ones_are_timed_for_longer() -> None:
    own = {"phase": "train", "command": "python train.py"}
    assert advise._windows(own, ["torch"], 3, 20) == {}
    assert advise._windows(own, ["torch"], 3, 8) == {"time": 8}
    assert advise._windows(own, ["torch"], 1, 2) == {"time": 2, "torch": 1}
    assert advise._windows(own, ["torch"], 3, 100) == {"time": 100}


def test_a_plan_is_tried_by_the_command_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"settings": "precision=bf16 workers=2", "changes": "load batches", "command": "snakemake compare"}
    assert run_end._trying(row) == "snakemake compare"
    monkeypatch.setenv(run_end.TYPED, "-- python train.py")
    assert run_end._trying(row) == "profzoo advise --try precision=bf16,workers=2 -- python train.py  # load batches"


def test_the_advice_of_a_try_names_the_command_without_it() -> None:
    command = ["python", "train.py", "--try", "x"]
    for given in ([], ["--try", "workers=2"], ["--budget", "1m", "--try", "workers=2"]):
        found = advise._own_variables({}, [*given, "--", *command], command)[run_end.TYPED]
        assert found == f"{'--budget 1m ' if '--budget' in given else ''}-- python train.py --try x"
