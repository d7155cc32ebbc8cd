"""programs: a program that is missing, refuses to start or hangs is an answer."""

import time
from pathlib import Path

import pytest

from profzoo.machine import external_programs


def test_an_answer_is_what_was_printed() -> None:
    answer = external_programs.ask_program(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.stdout, answer.stderr, answer.returncode) == ("out\n", "err\n", 3)


@pytest.mark.parametrize("name", ["no_such_program", "file"])
def test_what_cannot_be_started_is_missing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("no program")
    answer = external_programs.ask_program([str(tmp_path / name)])
    assert answer.returncode == external_programs.MISSING and answer.stderr.startswith(str(tmp_path / name))


def test_what_hangs_is_waited_for_no_longer(tmp_path: Path) -> None:
    began = time.monotonic()
    # Its child keeps what it prints to open.
    answer = external_programs.ask_program(["sh", "-c", "sleep 20 & sleep 20"], 0.3)
    assert answer.returncode == external_programs.TIMED_OUT and "did not answer within 0.3 s" in answer.stderr
    assert time.monotonic() - began < 5
