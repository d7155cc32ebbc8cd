"""A program that is missing, refuses to start or hangs is an answer; and what answers are the cause of."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profzoo.machine import doctor_checks, external_programs
from tests.faults.jobs import wait_for_ends


def test_an_answer_is_what_was_printed() -> None:
    answer = external_programs.ask_program(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.stdout, answer.stderr, answer.returncode) == ("out\n", "err\n", 3)


@pytest.mark.parametrize("name", ["no_such_program", "file"])
def test_what_cannot_be_started_is_missing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("no program")
    answer = external_programs.ask_program([str(tmp_path / name)])
    assert answer.returncode == external_programs.MISSING and answer.stderr.startswith(str(tmp_path / name))


# Answers of programs.


def test_the_first_pattern_that_is_found_is_the_cause() -> None:
    causes = (("b.d", "one"), ("a", "two"), ("b", "three"))
    assert [doctor_checks.match_cause(text, causes) for text in ("abcd", "cab", "b", "x")] == [
        "one",
        "two",
        "three",
        None,
    ]
    told = [
        doctor_checks.match_cause(text, doctor_checks.ON_GPU)
        for text in ("CUDA error: misaligned address", "device-side assert")
    ]
    assert told[0] and "compute-sanitizer" in told[0] and told[1] and "out of range" in told[1]


def test_a_program_is_told_by_the_last_line_of_its_version(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("NVIDIA (R)\nVersion 7\n")
    assert external_programs.read_version("nvidia-smi") == "Version 7"
    assert doctor_checks.check_on_path("nvidia-smi", "get it") == doctor_checks.Finding("nvidia-smi", "Version 7")
    nvidia_smi("")
    assert (
        external_programs.read_version("nvidia-smi") == ""
        and doctor_checks.check_on_path("nvidia-smi", "get it").found == "no version"
    )
    assert doctor_checks.check_on_path("none-such", "get it") == doctor_checks.Finding(
        "none-such", "not on PATH", "get it"
    )


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = external_programs.ask_program(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], seconds=0.3)
    assert (answer.returncode, answer.stdout, answer.stderr) == (124, "", "sh did not answer within 0.3 s")
    assert 0.3 <= time.monotonic() - began < 5
    wait_for_ends([int((tmp_path / "pid").read_text())], 5)
    assert external_programs.ask_program(["none-such"]).returncode == 127
