"""Candidates that win by measuring wrongly never do, and honest ones are judged by what they do (tests/cheats)."""

import shutil
from pathlib import Path

import pytest

from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.referee import judge
from profzoo.referee.judge import Judgement, Options
from tests import slow

CHEATS = Path(__file__).parents[1] / "cheats"
# Outcome of each candidate, with words of its reason; in inference on a CPU.
REFUSED = {
    "skipped_layer": ("different", "outputs"),
    "skipped_when_single": ("different", "outputs"),
    "lower_precision": ("different", "outputs"),
    "lower_precision_hidden": ("invalid", "bfloat16, and fp32 is declared"),
    "cached_by_value": ("different", "outputs"),
    "cached_by_address": ("different", "outputs"),
    "lazy_result": ("invalid", "Lazy, and not a plain dense tensor"),
    "patched_timer": ("invalid", "time.perf_counter was replaced"),
    "patched_comparison": ("invalid", "torch.allclose was replaced"),
    "patched_synchronize": ("invalid", "torch.cuda.synchronize was replaced"),
    "patched_events": ("invalid", "Event.elapsed_time was replaced"),
    "patched_random": ("invalid", "torch.randn was replaced"),
    "patched_harness": ("invalid", "Inputs.mix was replaced"),
    "results_from_file": ("different", "outputs"),
    "previous_results": ("different", "outputs"),
    "right_in_warm_up": ("different", "outputs"),
    "smaller_batch": ("different", "outputs"),
    "last_sample": ("different", "outputs"),
    "shortcut_for_zeros": ("different", "inputs of zeros"),
    "background_thread": ("invalid", "in which nothing was asked of it"),
    "other_process": ("invalid", "has started 1 other process"),
    "process_of_a_step": ("invalid", "ran another process within its turn"),
    "process_left_behind": ("invalid", "has left"),
    "intercepting_mode": ("invalid", "a mode that intercepts torch's functions is active"),
    "threads_of_a_step": ("invalid", "cores busy, and its number of threads is 1"),
    "more_threads": ("invalid", "threads was changed from 1 to 2"),
    "lower_priority": ("invalid", "priority or cores of the reference's process were changed"),
    "writes_its_copy": ("invalid", "copy of the candidate was changed: kept.txt was added"),
    "other_weights": ("different", "weights do not fit it"),
    "half_results": ("different", "float16"),
    "not_finite": ("different", "not finite"),
    "ends_itself": ("invalid", "its process ended"),
    "own_samples": ("different", "outputs"),
}
IN_TRAINING = {
    "skipped_update": ("different", "losses"),
    "detached_layer": ("different", "weights"),
    "lower_precision": ("different", "losses"),
    "smaller_batch": ("different", "losses"),
}
# Candidates that were written once the referee was finished, by another author, and their phase. At first
# sight 14 of 19 were refused and none was called faster. Two were undecided (answers_itself, after_many_steps), one
# slower (detached_burner), one of no use (imports_reference), and one ended as an error of the reference
# (stops_reference). after_many_steps began to cheat after 59 steps then, which a small budget does not reach.
LATER = {
    "after_many_steps": ("different", "outputs", "inference"),
    "answers_itself": ("invalid", "_send was replaced", "inference"),
    "detached_burner": ("invalid", "has left 2 other processes behind", "inference"),
    "every_other_step": ("different", "outputs", "inference"),
    "expanded_result": ("different", "outputs", "inference"),
    "fewer_sums": ("different", "losses", "train"),
    "interpolated": ("different", "outputs", "inference"),
    "low_rank": ("different", "outputs", "inference"),
    "other_activation": ("different", "outputs", "inference"),
    "pins_reference": ("invalid", "priority or cores of the reference's process were changed", "inference"),
    "profiles_harness": ("different", "outputs", "inference"),
    "pruned_weights": ("different", "outputs", "inference"),
    "quantised_weights": ("different", "outputs", "inference"),
    "rare_step": ("different", "outputs", "inference"),
    "stale_gradients": ("different", "losses", "train"),
    "stale_layer": ("different", "outputs", "inference"),
    "stops_reference": ("invalid", "process was stopped", "inference"),
    "walks_frames": ("different", "outputs", "inference"),
}
# One of each way to be refused.
QUICK = ("skipped_layer", "lazy_result", "patched_timer", "background_thread", "writes_its_copy", "shortcut_for_zeros")


def state(name: str, folder: Path) -> str:
    """A folder with a candidate's file, and that of the reference beside it."""
    folder.mkdir()
    shutil.copy(CHEATS / f"{name}.py", folder / "model.py")
    shutil.copy(CHEATS / "program.py", folder / "program.py")
    return str(folder)


def judged(name: str, where: Path, starter: ProcessStarter, budget_s: float = 3.0, **options: object) -> Judgement:
    """The judgement of a candidate."""
    given = {"module": "model.py", "device": "cpu", "threads": 1, "turn_s": 0.05, "budget_s": budget_s, **options}
    sides = state("program", where / "a"), state(name, where / "b")
    return judge.judge(*sides, Options(**given), starter=starter)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", slow.only(REFUSED, *QUICK))
def test_a_cheat_is_refused(name: str, tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged(name, tmp_path, starter)
    outcome, words = REFUSED[name]
    assert (found.outcome, words in found.why) == (outcome, True), found


@pytest.mark.parametrize("name", slow.only(IN_TRAINING, "skipped_update"))
def test_a_cheat_in_training_is_refused(name: str, tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged(name, tmp_path, starter, phase="train")
    outcome, words = IN_TRAINING[name]
    assert (found.outcome, words in found.why) == (outcome, True), found


@pytest.mark.parametrize("name", slow.only(LATER, "stops_reference"))
def test_a_cheat_written_later_is_refused(name: str, tmp_path: Path, starter: ProcessStarter) -> None:
    outcome, words, phase = LATER[name]
    found = judged(name, tmp_path, starter, phase=phase)
    assert (found.outcome, words in found.why) == (outcome, True), found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phase"), [
    ("cached_exactly", "inference"), ("shortcut_for_constants", "inference"), ("imports_reference", "inference"),
    ("own_loss", "train"),
])  # fmt: skip
def test_what_is_of_no_use_is_not_faster(name: str, phase: str, tmp_path: Path, starter: ProcessStarter) -> None:
    assert judged(name, tmp_path, starter, phase=phase).outcome in ("equivalent", "slower", "undecided")


@pytest.mark.parametrize("phase", slow.first(("inference", "train")))
def test_a_true_gain_is_found(phase: str, tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged("honest_faster", tmp_path, starter, budget_s=60.0, phase=phase)
    assert found.outcome == "faster" and found.ratio and found.ratio < 0.8, found
    assert found.reference_s and found.candidate_s and found.candidate_s < found.reference_s
    assert "aten::" in found.work["differs"] and found.work["reference"]["flop"] > found.work["candidate"]["flop"]
    assert found.to_claim().outcome == "faster"


@pytest.mark.parametrize(("name", "phase"), slow.first([
    (name, phase) for name in ("honest_reordered", "honest_same") for phase in ("inference", "train")
]))  # fmt: skip
def test_an_honest_program_is_not_refused(name: str, phase: str, tmp_path: Path, starter: ProcessStarter) -> None:
    found = judged(name, tmp_path, starter, phase=phase)
    if name == "honest_same":
        assert found.outcome in ("equivalent", "undecided"), found
    assert found.outcome not in ("different", "invalid"), found
