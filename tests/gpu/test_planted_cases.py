"""Planted cases on a GPU: each costs what it should, and a CUDA graph captures those of which that is said."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted import cases, try_out

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("half", cases.HALVES)
def test_cases_are_as_their_records_say(half: str) -> None:
    # In a process of its own, which has not used CUDA before it forks.
    command = [sys.executable, "-m", try_out.__name__, "--half", half]
    run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    print(run.stdout)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2 * len(cases.find_cases(half))
    assert [line for line in lines if "CHECK" in line or "FAILED" in line] == []
