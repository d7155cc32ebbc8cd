"""Commands of unchanged scripts are judged by the clock of whole processes too, and scripts that cheat never win."""

import time
from pathlib import Path
from typing import Any

import pytest

from profzoo.errors import ConfigError
from profzoo.referee import judge, states
from profzoo.referee.command_rounds import CommandChecks, CommandMatch, WindowClock
from profzoo.referee.exchange import CANDIDATE, REFERENCE, DifferentError, InvalidError
from profzoo.referee.judge import Judgement, Options
from profzoo.script_harness import task
from profzoo.statistics import sequential
from profzoo.statistics.speedup import FASTER, SLOWER
from tests import slow

# A script that trains, and one that does not; `WORK` is the larger part of both.
TRAINING = """
import os, sys, time, torch
from torch import nn
torch.set_num_threads(1)
STEPS, WORK = 4000, 40
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(96, 96), nn.Linear(96, 10)
    def forward(self, inputs):
        several = [self.first(inputs) for _ in range(WORK)]
        return self.last(torch.relu(sum(several) / WORK))
net = Network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(STEPS):
    inputs, target = torch.randn(64, 96), torch.randint(10, (64,))
    loss = nn.functional.cross_entropy(net(inputs), target)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
SERVING = (
    TRAINING.partition("optimizer =")[0]
    + """
with torch.inference_mode():
    for step in range(STEPS):
        net(torch.randn(64, 96))
"""
)
# What scripts do to win, as changes of the text, and how each ends.
CHEATS = {
    "skips a layer": (SERVING, "torch.relu(sum(several) / WORK)", "several[0]", "different"),
    "serves stale results": (
        SERVING, "net(torch.randn(64, 96))",
        "inputs = torch.randn(64, 96); net.forward = (lambda x, kept=kept: kept) if step > 11 else net.forward; "
        "kept = net(inputs)", "different"),
    # It draws other random numbers, so that nothing can be compared.
    "knows results by their seed": (
        SERVING, "WORK = 4000, 40", "WORK = 4000, 40; torch.manual_seed(7)", "undecided"),
    "computes in bf16": (SERVING, "self.first(inputs)", "self.first.bfloat16()(inputs.bfloat16()).float()", "invalid"),
    "declares bf16": (SERVING, "        net(", "        with torch.autocast('cpu', torch.bfloat16): net(", "invalid"),
    "has smaller batches": (SERVING, "torch.randn(64, 96)", "torch.randn(32, 96)", "different"),
    "skips updates after a while": (
        TRAINING, "loss.backward(); optimizer.step()",
        "step > 20 or loss.backward(); step > 20 or optimizer.zero_grad; optimizer.step()", "different"),
    "trains fewer weights": (TRAINING, "net.parameters()", "net.last.parameters()", "different"),
    "patches its clock": (
        SERVING, "STEPS, WORK", "now = time.perf_counter_ns; time.perf_counter_ns = lambda: now() // 2; STEPS, WORK",
        "invalid"),
    "marks its window itself": (
        SERVING, "with torch.inference_mode():", "import json, pathlib; write = pathlib.Path.write_bytes\n"
        "pathlib.Path.write_bytes = lambda path, text: write(path, text) and (text == b'(' and write(path, b')'))\n"
        "with torch.inference_mode():", "invalid"),
    "leaves a process behind": (
        SERVING, "STEPS, WORK", "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True); "
        "STEPS, WORK", "invalid"),
    "fails": (SERVING, "STEPS, WORK", "1 / 0; STEPS, WORK", "different"),
    "ends early": (SERVING, "STEPS, WORK = 4000", "STEPS, WORK = 6", "different"),
    "shortens its window": (
        SERVING, "with torch.inference_mode():", "import profzoo.script_harness.stages as own\n"
        "note = own.Stages.note_step\n"
        "own.Stages.note_step = lambda stages, items: note(stages, items) or (setattr(stages, '_taken', stages._taken + 1))\n"
        "with torch.inference_mode():", "different"),
}  # fmt: skip


def judged(folder: Path, reference: str, candidate: str, budget_s: float = 20.0, **options: Any) -> Judgement:
    """The judgement of two scripts."""
    for name, text in (("a", reference), ("b", candidate)):
        (folder / name).mkdir()
        (folder / name / "run.py").write_text(text)
    given = {"command": "python run.py", "device": "cpu", "precision": "", "budget_s": budget_s, **options}
    return judge.judge(str(folder / "a"), str(folder / "b"), Options(**given))


@pytest.mark.parametrize("name", slow.only(CHEATS, "marks its window itself"))
def test_a_script_that_cheats_is_refused(name: str, tmp_path: Path) -> None:
    text, old, new, outcome = CHEATS[name]
    assert text.count(old) >= 1
    found = judged(tmp_path, text, text.replace(old, new))
    assert found.outcome == outcome, found


@pytest.mark.slow
def test_gains_need_the_clock_of_whole_processes_and_a_script_equals_itself(tmp_path: Path) -> None:
    for name in ("gain", "null"):
        (tmp_path / name).mkdir()
    found = judged(tmp_path / "gain", TRAINING, TRAINING.replace("4000, 40", "4000, 10"), 150.0)
    assert found.outcome == "faster" and found.ratio and found.ratio < 0.7, found
    assert found.reference_s and found.candidate_s and found.candidate_s < found.reference_s
    assert {"losses", "outputs"} <= {*found.numerics}
    found = judged(tmp_path / "null", TRAINING, TRAINING)
    assert found.outcome in ("equivalent", "undecided"), found


def match(tmp_path: Path) -> CommandMatch:
    """A match whose rounds a test writes."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (
        states.copy_state(str(tmp_path / name), tmp_path / f"{name}.copy", command="true") for name in "ab"
    )
    return CommandMatch(first, second, Options(command="true"), tmp_path)


def decided(ratio: float) -> sequential.Decision:
    """A decision of the windows' clock."""
    return sequential.decide([float.fromhex("0x1p-9") + (ratio - 1)] * 6, 0.02)


def test_a_gain_that_whole_processes_lack_is_invalid(tmp_path: Path) -> None:
    """Windows of 1 s become half as long, and the rest of each process takes 3 s."""
    played, gain = match(tmp_path), decided(0.5)
    assert gain.outcome == FASTER
    played._whole = [{REFERENCE: 4.0 + 0.01 * number, CANDIDATE: 3.5} for number in range(4)]
    assert played.confirm(gain)
    # Setting up takes as much longer as steps take less, which shorter runs tell.
    played._whole = [{REFERENCE: 4.0 + 0.01 * number, CANDIDATE: 4.0} for number in range(6)]
    assert not played.confirm(gain)
    played._short = [{REFERENCE: 3.0 + 0.01 * number, CANDIDATE: 3.5} for number in range(6)]
    assert played.confirm(gain)
    # Or steps take as long as before.
    played._short = [{REFERENCE: 3.0, CANDIDATE: 3.0 + 0.002 * number} for number in range(6)]
    played._whole = [{REFERENCE: 4.0, CANDIDATE: 4.0 + 0.002 * number} for number in range(6)]
    with pytest.raises(InvalidError, match=r"by the clock of whole processes its steps take 1.00 times as long"):
        played.confirm(gain)
    loss = sequential.decide([0.3, 0.31, 0.3, 0.29], 0.02)
    assert loss.outcome == SLOWER and played.confirm(loss)


def facts(losses: list[Any], outputs: list[float], draws: list[int] | None = None) -> dict[str, Any]:
    """Facts of a run with these losses, the last one behind the window, and these values of its outputs."""
    sample = [{"values": outputs, "rms": 1.0}]
    first = {"losses": losses[:-1], "outputs": [sample], "last_outputs": sample, "draws": draws or [1]}
    return {"first_steps": first, "loss": losses[-1], "steps": 7}


def test_errors_are_allowed_as_far_as_nudged_weights_lead() -> None:
    checks = CommandChecks()
    checks.declare("fp32")
    right = facts([2.0, 1.0, 0.5], [1.0, -1.0])
    checks.learn(right, facts([2.0 + 2e-6, 1.0 + 1e-5, 0.5 + 1e-3], [1.0 + 1e-6, -1.0]))
    checks.compare(right, facts([2.0 + 8e-6, 1.0 - 1.2e-4, 0.5 - 4e-2], [1.0, -1.0 + 4e-6]))
    assert not checks.explain_unchecked() and {check.quantity for check in checks.checks} == {"losses", "outputs"}
    for wrong in (facts([2.0 + 1e-4, 1.0, 0.5], [1.0, -1.0]), facts([2.0, 1.0, 0.6], [1.0, -1.0]),
                  facts([2.0, 1.0, 0.5], [1.0, -1.0001]), facts([1.0, 0.5], [1.0, -1.0])):  # fmt: skip
        with pytest.raises(DifferentError):
            checks.compare(right, wrong)
    with pytest.raises(DifferentError, match="its losses are not finite"):
        checks.compare(right, facts([2.0, None, 0.5], [1.0, -1.0]))
    # Other random numbers explain it, and then nothing is known.
    checks.compare(right, facts([2.1, 1.0, 0.5], [1.0, -1.0], [2]))
    assert "it draws other random numbers" in checks.explain_unchecked()
    checks.learn(right, facts([3.0, 1.0, 0.5], [1.0, -1.0]))
    assert "does not repeat itself: with the same seed its losses of the first step differ by 0.5" in (
        checks.explain_unchecked()
    )


def test_the_clock_of_a_window_takes_one_begin_and_one_end(tmp_path: Path) -> None:
    for words, known in ((task.BEGUN + task.ENDED, True), (task.BEGUN, False), (task.BEGUN + 2 * task.ENDED, False)):
        clock = WindowClock(tmp_path / words.hex())
        for word in words:
            clock.path.write_bytes(bytes([word]))
            time.sleep(0.02)
        clock.close()
        seconds = clock.read_s()
        assert (seconds is not None) == known and (seconds is None or 0.01 < seconds < 1)


def test_a_command_is_part_of_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.py").write_text("")
    monkeypatch.chdir(tmp_path / "a")
    one, other, given = (
        states.copy_state(word, tmp_path / str(number), command="python run.py")
        for number, word in enumerate(("command:python run.py", "command:python run.py --fast", "."))
    )
    assert one.command == given.command and other.command == "python run.py --fast"
    assert states.digest_state(one) == states.digest_state(given) != states.digest_state(other)
    with pytest.raises(ConfigError, match=r"'\.' has no command: give it by --command"):
        judge.judge("command:python run.py", ".", Options(module="run.py"))
