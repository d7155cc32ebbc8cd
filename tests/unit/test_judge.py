"""What judges two states: their private copies, inputs that nobody can know, and answers of the referee in Python."""

import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from profzoo.errors import ConfigError
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.referee import envelope, exchange, gate, inputs, judge, rounds, states
from profzoo.referee.judge import Options
from tests import slow
from tests.unit import test_judge_cheats as cheats

PROGRAM = "def build(shape):\n    pass\n"


def folder(home: Path, **files: str) -> Path:
    """A folder with these files, whose names end in .py."""
    home.mkdir(parents=True)
    for name, text in files.items():
        (home / f"{name}.py").write_text(text)
    return home


# States.


def test_a_copy_has_what_the_program_needs_and_is_not_written_to(tmp_path: Path) -> None:
    given = folder(tmp_path / "a", model=PROGRAM)
    folder(given / ".git", secret="x")
    folder(given / "part", inner="x")
    found = states.copy_state(str(given), tmp_path / "copy")
    assert found.module == Path("model.py") and set(found.digests) == {"model.py", "part", "part/inner.py"}
    assert not any(path.stat().st_mode & 0o222 for path in [found.folder, *found.folder.rglob("*")])
    states.remove_copies(found.folder)
    assert not found.folder.exists() and (given / "model.py").exists()


@pytest.mark.parametrize("how", ["text", "added", "hidden", "link"])
def test_a_changed_copy_is_noticed(how: str, tmp_path: Path) -> None:
    found = states.copy_state(str(folder(tmp_path / "a", model=PROGRAM)), tmp_path / "copy")
    found.folder.chmod(0o755)
    (found.folder / "model.py").chmod(0o644)
    if how == "text":
        (found.folder / "model.py").write_text(PROGRAM.replace("pass", "None"))
    elif how == "link":
        (found.folder / "more.py").symlink_to("model.py")
    else:
        (found.folder / {"added": "kept", "hidden": ".kept"}[how]).write_text("")
    name = {"text": "model.py was changed", "added": "kept was added", "hidden": ".kept was added"}
    told = states.explain_change(found.digests, states.digest_files(found.folder))
    assert told == name.get(how, "more.py was added")


def test_a_commit_and_a_patch_are_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = folder(tmp_path / "a", model=PROGRAM)
    monkeypatch.chdir(given)
    for words in (
        ["init", "-q"], ["add", "."],
        ["-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "Begin"],
    ):  # fmt: skip
        subprocess.run(["git", *words], check=True)
    (given / "model.py").write_text(PROGRAM.replace("pass", "return 1"))
    (tmp_path / "change.diff").write_bytes(subprocess.run(["git", "diff"], check=True, capture_output=True).stdout)
    first = states.copy_state("git:HEAD", tmp_path / "first")
    assert (first.folder / "model.py").read_text() == PROGRAM
    second = states.copy_state(f"patch:{tmp_path}/change.diff", tmp_path / "second", first)
    assert "return 1" in (second.folder / "model.py").read_text()
    assert (first.folder / "model.py").read_text() == PROGRAM
    for word, told in (("git:nothing", "no commit 'nothing'"), ("git:--all", "no commit '--all'")):
        with pytest.raises(ConfigError, match=told):
            states.copy_state(word, tmp_path / "third")


NEW = "--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NEW.format(name="../out.py"), r"names '\.\./out\.py'"),
        (NEW.format(name="/tmp/out.py").replace("b/", ""), "names '/tmp/out.py'"),
        ("diff --git a/x b/../../y\nrename from x\nrename to ../../y\n", "names '../../y'"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n", "symbolic link"),
        ("no patch at all\n", "does not fit the reference"),
    ],
)
def test_a_patch_that_reaches_out_of_the_folder_is_refused_in_one_line(text: str, told: str, tmp_path: Path) -> None:
    first = states.copy_state(str(folder(tmp_path / "a", model=PROGRAM)), tmp_path / "first")
    (tmp_path / "x.diff").write_text(text)
    with pytest.raises(ConfigError, match=told) as raised:
        states.copy_state(f"patch:{tmp_path}/x.diff", tmp_path / "second", first)
    assert "\n" not in str(raised.value) and not (tmp_path / "out.py").exists()


def test_a_folder_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    linked = folder(tmp_path / "linked", model=PROGRAM)
    (linked / "out").symlink_to("/etc")
    piped = folder(tmp_path / "piped", model=PROGRAM)
    os.mkfifo(piped / "pipe")
    several = folder(tmp_path / "several", one=PROGRAM, two=PROGRAM)
    for given, told in (
        (linked, "out is a link out of the folder"), (piped, "pipe is neither a file"),
        (several, "several files define it: one.py, two.py"), (tmp_path / "none", "is not a folder"),
        (folder(tmp_path / "empty"), "no file there does"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            states.copy_state(str(given), tmp_path / "copies" / given.name)
    with pytest.raises(ConfigError, match=r"has no file \.\./model\.py"):
        states.copy_state(str(several), tmp_path / "more", module="../model.py")


# Inputs.


def make_inputs(double: bool = False) -> inputs.Inputs:
    generator = torch.Generator().manual_seed(1)
    given = [(torch.randn(8, 5, generator=generator), torch.randint(10, (8,), generator=generator)) for _ in range(2)]
    return inputs.Inputs(given, torch.device("cpu"), double)


def test_inputs_are_those_of_the_seed_and_never_repeat() -> None:
    one, other = make_inputs(), make_inputs(double=True)
    one.begin(7, 50, "")
    other.begin(7, 50, "")
    made = [one.mix(step) for step in range(50)]
    for step, (numbers, words) in enumerate(made):
        exact, same = other.mix(step)
        assert exact.dtype == torch.float64 and torch.equal(exact, numbers.double()) and torch.equal(same, words)
        assert words.dtype == torch.int64 and words.max() < 10
    assert len({numbers.numpy().tobytes() for numbers, _ in made}) == 50
    whole = torch.stack([numbers for numbers, _ in made])
    base = torch.cat([batch[0] for batch in ([one._form])])
    assert 0.5 < float(whole.square().mean() / base.square().mean()) < 2
    one.begin(8, 1, "")
    assert not torch.equal(one.mix(0)[0], made[0][0])


def test_inference_needs_no_targets() -> None:
    given = [(torch.ones(2, 3) * number, torch.zeros(2)) for number in (1, 2)]
    made = inputs.Inputs(given, torch.device("cpu"), double=False, targets=False)
    made.begin(7, 1, "")
    mixed, target = made.mix(0)
    assert mixed.shape == (2, 3) and target is None


def test_inputs_of_one_value_keep_whole_numbers() -> None:
    made = make_inputs()
    made.begin(7, 1, "ones")
    numbers, words = made.mix(0)
    assert bool((numbers == 1).all()) and len(set(words.tolist())) > 1 and made.has_numbers


def test_constant_inputs_are_replaced() -> None:
    given = [(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))] * 2
    varied, replaced = inputs.vary_constants(given, torch.Generator().manual_seed(0))
    assert replaced and len(varied[0][0].unique()) == 12 and varied[0][1] is given[0][1]
    kept = [(torch.arange(4.0), torch.zeros(4))] * 2
    assert inputs.vary_constants(kept, torch.Generator()) == (kept, False)


# Answers.


@pytest.mark.slow
def test_rounds_can_be_played_by_others(tmp_path: Path, starter: ProcessStarter) -> None:
    sides = cheats.state("program", tmp_path / "a"), cheats.state("honest_faster", tmp_path / "b")
    before = states.digest_files(tmp_path)
    options = Options(module="model.py", device="cpu", threads=1, turn_s=0.04)
    with judge.open_rounds(*sides, options, starter) as play:
        found = [play() for _ in range(4)]
    assert np.median(found) < -0.2 and len(set(found)) == 4
    assert states.digest_files(tmp_path) == before
    shutdown = cheats.state("not_finite", tmp_path / "c")
    with (
        pytest.raises(judge.DifferentError, match="not finite"),
        judge.open_rounds(sides[0], shutdown, options, starter),
    ):
        pass


IN_A_PACKAGE = """
import torch, yaml
from torch import nn
from lib import layers

WORKLOADS = {"trimmed": {phase: {"batch": 4} for phase in ("inference", "train")}}

def build(shape):
    return layers.NAMEmake()

def sample(shape, generator):
    return torch.randn(8, generator=generator), torch.randint(8, (), generator=generator)

def loss(outputs, targets):
    return 2 * nn.functional.cross_entropy(outputs, targets)
"""
LAYERS = "from torch import nn\ndef NAMEmake():\n    return nn.Linear(8, 8)\n"


@pytest.mark.parametrize("phase", slow.first(("train", "inference")))
@pytest.mark.parametrize("fork", slow.first((True, False)))
def test_states_import_their_own_files_and_none_of_the_current_folder(
    phase: str, fork: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders without __init__.py have the names of an installed package, and of one of the other state."""
    sides = []
    for name in ("its_", "own_"):
        home = folder(tmp_path / name / "models", tiny=IN_A_PACKAGE.replace("NAME", name)).parent
        folder(home / "lib", layers=LAYERS.replace("NAME", name))
        sides.append(str(home))
    marker = tmp_path / "imported"
    trap = f"open({str(marker)!r}, 'w').close()\nraise SystemExit('the current folder was imported from')\n"
    here = folder(tmp_path / "here", yaml=trap, torch=trap, lib=trap, sitecustomize=trap)
    monkeypatch.chdir(here)
    folder(tmp_path / "packages/models", __init__=trap)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(tmp_path / "packages")]))
    with closing(ProcessStarter(fork)) as starter:
        given = Options(phase=phase, device="cpu", threads=1, turn_s=0.04)
        with judge.open_rounds(sides[0], sides[1], given, starter) as play:
            assert np.isfinite(play())
    assert not marker.exists()


BROKEN = {
    "division by zero": "WORKLOADS = {'trimmed': {'inference': {'batch': 2}}}\n" + PROGRAM.replace("pass", "1 / 0"),
    "says no batch in WORKLOADS": "from torch import nn\ndef build(shape):\n    return nn.Linear(2, 2)\n",
    "defines no sample": (
        "from torch import nn\nWORKLOADS = {'trimmed': {'inference': {'batch': 2}}}\n"
        "def build(shape):\n    return nn.Linear(2, 2)\n"
    ),
}


@pytest.mark.parametrize("told", BROKEN)
def test_a_reference_that_fails_is_an_error_of_one_line(told: str, tmp_path: Path, starter: ProcessStarter) -> None:
    given = str(folder(tmp_path / "a", model=BROKEN[told]))
    with pytest.raises(ConfigError, match=told) as raised:
        judge.judge(given, given, Options(device="cpu"), starter=starter)
    assert "\n" not in str(raised.value)


# Candidates that raise the harness's own error, in a step and as they are loaded.
OWN_ERRORS = {
    "lower the width": (
        "from profzoo.errors import ConfigError\nfrom program import *\n"
        "class Network(Network):\n    def forward(self, inputs):\n        raise ConfigError('lower the width')\n"
        "def build(shape):\n    return Network()\n"
    ),
    "no such part": "from profzoo.errors import ConfigError\nraise ConfigError('no such part')\n",
}


@pytest.mark.parametrize("told", OWN_ERRORS)
def test_an_error_of_the_candidate_is_no_error_of_the_command(
    told: str, tmp_path: Path, starter: ProcessStarter
) -> None:
    sides = cheats.state("program", tmp_path / "a"), cheats.state("program", tmp_path / "b")
    (tmp_path / "b" / "model.py").write_text(OWN_ERRORS[told])
    found = judge.judge(*sides, Options(module="model.py", device="cpu"), starter=starter)
    assert found.outcome == "different" and "the candidate: " in found.why and told in found.why, found


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGSTOP, "process was stopped"), (signal.SIGKILL, "process was killed"), (signal.SIGTERM, "was killed")],
)
@pytest.mark.parametrize("name", [exchange.REFERENCE, exchange.CANDIDATE])
def test_a_process_that_a_signal_keeps_from_its_work_is_no_failure_of_the_reference(
    name: str, number: int, told: str, tmp_path: Path, starter: ProcessStarter
) -> None:
    given = states.copy_state(str(folder(tmp_path / "a", model=PROGRAM)), tmp_path / "copy")
    side = exchange.Side(name, given, starter, tmp_path / "printed.log", limit_s=60.0)
    try:
        os.kill(side.process, number)
        began = time.monotonic()
        with pytest.raises(judge.InvalidError, match=f"the candidate: .*{told} by a signal"):
            side.ask("ping")
        assert time.monotonic() - began < 2
    finally:
        side.close()


def test_a_process_that_the_referee_stopped_goes_on(tmp_path: Path, starter: ProcessStarter) -> None:
    given = states.copy_state(str(folder(tmp_path / "a", model=PROGRAM)), tmp_path / "copy")
    side = exchange.Side(exchange.REFERENCE, given, starter, tmp_path / "printed.log", limit_s=60.0)
    try:
        side.stop()
        time.sleep(3 * exchange.LOOK_S)
        side.go_on()
        assert side.ask("ping") == ({}, b"")
    finally:
        side.close()


def test_values_are_given_where_they_are_asked_for() -> None:
    values = inputs.Values()
    values.begin([torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)], 4)
    for row in range(4):
        values.keep(row, [torch.full((2, 3), float(row)), torch.tensor([row, row + 1])])
    asked = [{"leaf": 0, "rows": [2], "count": 0}, {"leaf": 1, "rows": None, "count": 1}]
    found = values.give(asked, np.array([[0], [1], [0], [1]]).tobytes())
    assert np.frombuffer(found[:48]).tolist() == [2.0] * 6
    assert np.frombuffer(found[48:], dtype=np.int64).tolist() == [0, 2, 2, 4]
    with pytest.raises(ValueError, match="change their number or shape"):
        values.keep(0, [torch.zeros(2, 3)])


def test_what_the_answer_says_is_data(tmp_path: Path) -> None:
    found = judge.Judgement("different", "the candidate: \x1b[31mred", subject="b against a, train")
    shown = envelope.to_json(envelope.Envelope(["judge"], [found.to_claim()]))
    envelope.check(shown)
    assert shown["claims"][0]["says"] == "the candidate: \\x1b[31mred" and shown["claims"][0]["confidence"] is None


def test_what_is_undecided_claims_nothing_and_never_fails_a_gate() -> None:
    found = judge.Judgement("undecided", "1.0% less time per step: raise the budget", ratio=0.99, subject="b against a")
    answer = found.to_answer(["judge", "a", "b"])
    assert (answer.status, answer.exit_code, answer.claims) == ("abstained", 3, [])
    assert answer.abstained == [envelope.Abstention("b against a", found.why)]
    (read,) = gate.read_stored(envelope.to_json(answer), "here")
    assert (read.outcome, read.why, gate.decide(read, gate.FAILING)) == ("undecided", found.why, False)
    decided = judge.Judgement("faster", "10.0% less time per step", ratio=0.9, subject="b against a").to_answer(
        ["judge"]
    )
    assert decided.exit_code == 0 and decided.claims[0].outcome == "faster"


def test_a_turn_is_a_part_of_the_budget() -> None:
    turns = [Options(budget_s=budget).choose_turn_s("cpu") for budget in (0.1, 9.6, 600.0)]
    assert turns == pytest.approx([0.04, 0.2, 1.0]) and Options(budget_s=15.0).choose_turn_s("cuda") == 0.2
    assert rounds.MOST_TURN_S == 1.0
