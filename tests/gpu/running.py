"""Runs snakemake as a user does, for tests of what it makes on a GPU."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]


def run_snakemake(*words: str | Path) -> str:
    """Run it in the checkout, which must succeed, and return what it prints on its standard output."""
    command = [sys.executable, "-m", "snakemake", "--nolock", *words]
    answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def make_results(given: Mapping[str, Any], folder: Path, *words: str | Path) -> Path:
    """Make what words ask for by a configuration in a results folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    configured = folder / "given.yaml"
    # JSON is YAML.
    configured.write_text(json.dumps({**given, "pathvars": {"results": str(folder)}}))
    run_snakemake(*words, "--configfile", configured)
    return folder
