"""The referee on a GPU: cheats are refused there, a compiled program is not, and a gain of 3 % is told from none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.records import import_graph
from profzoo.referee import envelope, judge
from profzoo.referee.judge import Options
from profzoo.statistics.speedup import EQUIVALENT, FASTER, UNDECIDED
from tests.benchmarks import judge_gains
from tests.unit.test_command_rounds import SERVING, TRAINING
from tests.unit.test_command_rounds import judged as judged_command
from tests.unit.test_judge_cheats import judged

# Work of a script's step that a GPU takes some milliseconds for.
LARGE = (
    ("4000, 40", "100000, 400"),
    ("torch.randn(64, 96)", "torch.randn(64, 96).cuda()"),
    ("Network()", "Network().cuda()"),
)


@pytest.mark.parametrize("name", ["side_stream", "patched_synchronize", "patched_events", "lower_precision"])
def test_a_cheat_on_a_gpu_is_refused(name: str, tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged(name, tmp_path, starter, device="cuda")
    assert found.outcome in ("different", "invalid"), found


def test_a_compiled_program_is_not_refused(tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged("honest_compiled", tmp_path, starter, budget_s=60.0, device="cuda")
    assert found.outcome in (FASTER, EQUIVALENT, UNDECIDED), found


@pytest.mark.parametrize(("after", "outcomes"), [(3, [FASTER]), (judge_gains.NOWHERE, [EQUIVALENT, UNDECIDED])])
def test_a_gain_of_3_percent_is_told_from_none(
    after: int, outcomes: list[str], tmp_path: Path, starter: ProcessStarter
) -> None:
    sides = [
        judge_gains.write_state(tmp_path / "a", after),
        judge_gains.write_state(tmp_path / "b", judge_gains.NOWHERE),
    ]
    found = judge.judge(*sides, Options(module="model.py", device="cuda", budget_s=30.0), starter=starter)
    assert found.outcome in outcomes, found


@pytest.mark.parametrize("text", [TRAINING, SERVING], ids=["training", "serving"])
def test_a_script_that_does_less_on_a_gpu_is_faster(text: str, tmp_path: Path) -> None:
    for old, new in (*LARGE, ("(10, (64,))", "(10, (64,)).cuda()")):
        text = text.replace(old, new)
    found = judged_command(tmp_path, text, text.replace("100000, 400", "100000, 200"), 120.0, device="cuda")
    assert found.outcome == FASTER and found.ratio and 0.4 < found.ratio < 0.7, found
    assert found.candidate_device_s and found.candidate_s
    assert found.candidate_device_s == pytest.approx(found.candidate_s, rel=0.1)


def test_the_gate_fails_on_3_percent_on_a_gpu_and_on_nothing_else(tmp_path: Path) -> None:
    """A repository whose second commit makes one product more, and whose third one changes a comment."""
    folder = Path(judge_gains.write_state(tmp_path / "project", judge_gains.NOWHERE))
    (folder / ".profzoo.yaml").write_text("judge: [{module: model.py}]\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)

    def commit() -> None:
        for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "change"]):
            assert not run("git", *words).returncode

    run("git", "init", "-q")
    commit()
    for after, note, code, outcomes in (
        (5, "", envelope.EXIT_FAILED, {"slower"}),
        (5, "# a note", 0, {"equivalent", "undecided"}),
    ):
        (folder / "plan.py").write_text(f"AFTER = {after}  {note}\n")
        commit()
        words = ["gate", "HEAD^1", "HEAD", "--json"]
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.append({str(import_graph.PROJECT)!r}); "
             "from profzoo.__main__ import main; sys.exit(main())", *words],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done
        claims = json.loads(done.stdout)["claims"]
        assert outcomes & {one["outcome"] for one in claims}, claims
