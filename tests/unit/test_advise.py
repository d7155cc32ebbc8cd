"""cli/advise: what is refused before anything runs, what the end says, and the folder of the workflow."""

import csv
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from profzoo import __main__ as command_line
from profzoo.cell import rerun_commands, schema
from profzoo.cli import advise, new_folder
from profzoo.plans import recipes
from profzoo.script_harness import launcher
from profzoo.terminal import run_end
from profzoo.tools import unavailable_tools
from profzoo.trials import cli
from profzoo.verdicts.rules import rules
from tests import slow
from tests.unit import test_trial_table
from tests.workflow.project import heed_interrupts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-- python trian.py", "there is no trian.py in "),
        ("-- pyhton train.py", "pyhton is not on PATH"),
        ("train.py", "train.py is not on PATH, nor a file that can be run: write `python train.py`"),
        ("--budget 2x -- python train.py", "--budget = '2x' is not a time"),
        ("--window 0 -- python train.py", "--window 0: give a number of steps"),
        ("--name 7x -- python train.py", "--name '7x' is not a name"),
        ("--step moduel -- python train.py", "--step = 'moduel'"),
        ("--try workers -- python train.py", "--try = 'workers' is not a time"),
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
    slow.first([
        ("import sys\nsys.exit('no data in /data')", r"failed before its first step with SystemExit: no data in /data \(train.py:2\)"),
        ("import torch\nopen('none.csv')", r"failed before its first step with FileNotFoundError.*\(train.py:2\)"),
        ("import torch\nnet = torch.nn.Linear(2, 2)\ntorch.optim.SGD(net.parameters())\nnet(torch.ones(3))", "failed in step 1 with RuntimeError"),
    ]),

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


def test_a_ctrl_c_while_snakemake_is_imported_is_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*advise.SNAKEMAKE, "--version"], cwd=tmp_path, env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
        stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    with process:
        assert process.stderr
        # Its first module was imported, and others take longer.
        next(line for line in process.stderr if "snakemake" in line)
        process.send_signal(signal.SIGINT)
        lines = process.stderr.readlines()
    said = [line for line in lines if not line.startswith("import time:")]
    assert said == ["profzoo: ended by Ctrl-C\n"] and process.returncode == 130


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
    assert advise._windows({**own, "phase": "inference"}, ["torch"], 3, 100) == {"time": 100}


def test_the_advice_of_a_try_names_the_command_without_it() -> None:
    command = ["python", "train.py", "--try", "x"]
    for given in ([], ["--try", "2m"], ["--budget", "1m", "--try", "2m"]):
        found = advise._own_variables({}, [*given, "--", *command], command)[rerun_commands.ADVISED]
        assert found == f"{'--budget 1m ' if '--budget' in given else ''}-- python train.py --try x"


def test_the_plan_counts_the_runs_and_the_time_of_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    options = advise._parser().parse_args(["--window", "7", "--", "python", "train.py"])
    monkeypatch.setattr(unavailable_tools, "lacks_gpu", lambda: False)
    said = advise.plan_runs("python train.py", ["ncu", "nsys", "torch"], options)
    assert said.startswith(
        "5 runs of python train.py, about 10 steps each: a first look, then time, ncu (at most 2m), nsys and torch; about 3 min."
    )
    monkeypatch.setattr(unavailable_tools, "lacks_gpu", lambda: True)
    said = advise.plan_runs("python train.py", ["torch"], options)
    assert "3 runs" in said and "time and torch (no GPU here); about 55 s." in said


PLAN = {"model": "mine", "phase": "train", "settings": "precision=bf16 workers=2", "gain": "1.5", "gain_low": "1.2",
        "gain_high": "1.9", "outlook": "expected to help", "method": "replay", "changes": "",
        "command": "snakemake compare --config models='{mine: {command: python train.py}}'"}  # fmt: skip
RECIPE = 'train.py:9: torch.autocast("cuda", torch.bfloat16); train.py:5: DataLoader(..., num_workers=2)'
VERDICT = {"model": "mine", "phase": "train", "level": "cell", "verdict": "input-bound", "by": "profzoo", "gain": "2",
           "next_step": "load in parallel (workers: 1 or more), or decode less", "method": "Amdahl", "settings": ""}  # fmt: skip
TYPED = "try     profzoo advise --try 3m -- python train.py"


def answer(
    folder: Path, plans: list[dict[str, str]], verdicts: list[dict[str, str]], trials: list[dict[str, str]]
) -> list[str]:
    """What the end of a run says of tables with these rows."""
    tables, cells = folder / "results" / "tables", [{"model": "mine", "phase": "train", "step_ns": "30000000"}]
    tables.mkdir(parents=True, exist_ok=True)
    for name, rows in (("plans", plans), ("verdicts", verdicts), ("cells", cells), ("trials", trials)):
        with (tables / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*dict.fromkeys(key for row in rows for key in row)])
            writer.writeheader()
            writer.writerows(rows)
    made = {run_end.VERDICTS_RULE: [str(tables / "verdicts.csv")], run_end.PLANS_RULE: [str(tables / "plans.csv")]}
    return run_end.format_answer(made, 200)


def test_the_answer_is_lines_of_pytorch_then_the_gain_the_reason_and_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rerun_commands.ADVISED, "-- python train.py")
    change = [
        'change  train.py:9: torch.autocast("cuda", torch.bfloat16)',
        "        train.py:5: DataLoader(..., num_workers=2)",
    ]
    verdict = {**VERDICT, "gain": ""}
    assert answer(tmp_path, [PLAN | {"recipe": RECIPE}], [verdict], []) == [
        *change,
        "gain    expected to run 1.50 times as fast (1.20 to 1.90), which saves 10 of 30 ms per step",
        "why     input-bound: load in parallel, or decode less",
        TYPED,
    ]
    # Without a plan, what the verdict says; a verdict on written code has lines too.
    gain = "gain    at most 2.00 times as fast, which saves up to 15 of 30 ms per step"
    assert answer(tmp_path, [], [VERDICT], []) == [
        "change  load in parallel, or decode less",
        gain,
        "why     input-bound",
        TYPED,
    ]
    written = answer(tmp_path, [], [VERDICT | {"verdict": "unfused softmax"}], [])
    assert written[0] == "change  torch.nn.functional.softmax(scores, dim=-1)" and written[2].startswith(
        "why     unfused softmax: "
    )
    at = {
        "verdict": "unfused softmax",
        "next_step": "Block (torch/nn/a.py:3), Top (train.py:21-26) runs exp, sum: write",
    }
    (placed, *_) = answer(tmp_path, [], [VERDICT | at], [])
    assert placed == "change  train.py:21-26: torch.nn.functional.softmax(scores, dim=-1)"
    # What was tried on the script as it is comes first; it says nothing of a script that was timed again.
    tried = {"model": "mine", "phase": "train", "verdict": "faster", "why": "", "chosen": "True", "gain": "1.4",
             "gain_low": "1.3", "gain_high": "1.5", "base_ns": "3e7", "ns": "2.1e7", "recipe": RECIPE}  # fmt: skip
    timed = tmp_path / "results" / "mine" / "train.time.csv"
    timed.parent.mkdir()
    timed.write_text("")
    measured = answer(tmp_path, [PLAN], [verdict], [tried])
    assert measured == [*change, "gain    measured: 1.40 times as fast (1.30 to 1.50), 30 ms to 21 ms per step", TYPED]
    os.utime(timed, (2**32, 2**32))
    assert "expected to run" in answer(tmp_path, [PLAN | {"recipe": RECIPE}], [verdict], [tried])[2]


def test_no_next_step_of_a_rule_names_a_setting_to_the_user_of_a_script() -> None:
    texts = re.findall(r'next: "(.*)"', (rules.RULES_FILE).read_text())
    named = re.compile(rf"\b({'|'.join(schema.cell_properties())})(: (?:true|false|[a-z]+\d+|\d)|=(?!True\b))")
    assert len([text for text in texts if named.search(text)]) > 10
    told = [run_end.name_next_step({"next_step": text}) for text in texts]
    assert not [text for text in told if named.search(text)]


@pytest.mark.parametrize(("steps", "option"), [(20, "--window 100"), (19, "--try 3m")])
def test_more_steps_are_advised_where_the_script_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, option: str
) -> None:
    monkeypatch.setenv(rerun_commands.ADVISED, "-- python train.py")
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "results" / "mine" / "train.time.csv.json").write_text(json.dumps({"steps": steps}))
    undecided = {
        **VERDICT,
        "verdict": "undecided",
        "gain": "",
        "next_step": "measure more steps (time.window, torch.window)",
    }
    assert answer(tmp_path, [], [undecided], []) == [
        "verdict measure more steps",
        f"try     profzoo advise {option} -- python train.py",
    ]


def test_a_try_ends_with_what_is_faster_and_whether_it_computes_the_same(tmp_path: Path) -> None:
    words = ["workers=2", "precision=bf16", "compile=true", "optimizer=fused"]
    table = test_trial_table.rows(("workers", 2.0, "faster", "", True), ("bf16", 1.25, "undecided", "", False),
                                  ("compile", float("nan"), "failed", "no compiler", False),
                                  ("fused", float("nan"), "not tried", "", False))  # fmt: skip
    table = table.assign(words=words, recipe=[recipes.format_recipes(one, (), "cpu") for one in words], numerics="same")
    assert cli.format_advice(table, 200) == [
        "change  DataLoader(..., num_workers=2)",
        "gain    measured: 2.00 times as fast (1.90 to 2.10), 2 ms to 1 ms per step; computes the same",
        'others  torch.autocast("cpu", torch.bfloat16): 1.25 times as fast (1.15 to 1.35), undecided; computes the same',
        "failed  model = torch.compile(model): no compiler",
        "left    no time was left for fused: give --try more",
    ]
    assert cli.format_advice(table[1:2], 200)[0] == "change  nothing: no change that was tried is clearly faster"
