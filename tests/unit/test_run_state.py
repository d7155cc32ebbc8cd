"""collect/this_run: what jobs of one run tell each other."""

from pathlib import Path

import pytest

from profzoo.collect import run_state
from profzoo.machine import orphan_guard

WHY = "mine train failed with RuntimeError: the cat is on the keyboard"
SIDECAR = Path("results/mine/train.time.csv.json")


@pytest.fixture(autouse=True)
def within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(orphan_guard.OWNER, "12:34:pid:[56]")


def job(tool: str, **more: object) -> dict:
    return {"tool": tool, "cell": {"phase": "train"}, **more}


def test_a_line_is_said_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_state.is_first_time("of the CPU") and run_state.is_first_time("another")
    assert not run_state.is_first_time("of the CPU")
    monkeypatch.setenv(orphan_guard.OWNER, "13:34:pid:[56]")
    assert run_state.is_first_time("of the CPU")
    monkeypatch.delenv(orphan_guard.OWNER)
    assert run_state.is_first_time("of the CPU") and run_state.is_first_time("of the CPU")


def test_a_model_that_failed_is_known_to_other_tools_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run_state.note_failure(job("nsys"), SIDECAR, WHY)
    assert (
        run_state.find_known_failure(job("torch"), SIDECAR)
        == f"not run under torch, because it failed under nsys: {WHY}"
    )
    # The same again, as batch systems do.
    assert run_state.find_known_failure(job("nsys"), SIDECAR) is None
    assert run_state.find_known_failure(job("torch"), Path("results/mine@bf16/train.time.csv.json")) is None
    assert run_state.find_known_failure(job("torch") | {"cell": {"phase": "inference"}}, SIDECAR) is None
    assert run_state.find_known_failure(job("torch", trials={}), SIDECAR) is None
    monkeypatch.setenv(orphan_guard.OWNER, "13:34:pid:[56]")
    assert run_state.find_known_failure(job("torch"), SIDECAR) is None


@pytest.mark.parametrize(
    ("tool", "why", "known"),
    [
        ("train", WHY, True),
        ("time", "mine train: the loss is nan at step 1 of 3; try another seed, precision fp32 or", True),
        ("time", "mine train failed with RuntimeError: CUDA error: an illegal memory access", True),
        ("ncu", "mine train failed with RuntimeError: CUDA error: an illegal memory access", False),
        ("torch", "mine train ran out of memory at batch 8: set a smaller batch", False),
        ("ncu", "ncu is not on PATH: install NVIDIA Nsight Compute", False),
        ("time", "python was killed (SIGKILL): by a user", False),
    ],
)
def test_only_what_the_model_does_by_itself_counts(tool: str, why: str, known: bool) -> None:
    run_state.note_failure(job(tool), SIDECAR, why)
    assert (run_state.find_known_failure(job("sample"), SIDECAR) is not None) == known


def test_what_a_run_left_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    run_state.note_failure(job("nsys"), SIDECAR, WHY)
    monkeypatch.setenv(orphan_guard.OWNER, "13:34:pid:[56]")
    assert run_state.is_first_time("of the CPU")
    run_state.forget_run()
    assert len(list(run_state.FOLDER.iterdir())) == 1
    run_state.forget_run(others=True)
    assert not run_state.FOLDER.exists()
