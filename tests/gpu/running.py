"""Runs snakemake as a user does, for tests of what it makes on a GPU."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def run_snakemake(*words: str | Path) -> str:
    """Run it in the checkout, which must succeed, and return what it prints on its standard output."""
    command = [sys.executable, "-m", "snakemake", "--nolock", *words]
    answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout
