"""What a new user meets first: what `make env` says without venv, and the model that README.md has as example."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "tests" / "benchmarks" / "first_hour.sh"


def test_an_interpreter_without_venv_is_told_in_one_line(tmp_path: Path) -> None:
    for path in ("Makefile", *(lock.name for lock in PROJECT.glob("requirements*.lock"))):
        shutil.copy2(PROJECT / path, tmp_path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    run = subprocess.run(["make", "env", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    first, *_ = run.stderr.splitlines()
    assert run.returncode == 2 and not (tmp_path / ".venv").exists()
    assert first == f"{python} cannot make environments: install venv (Debian and Ubuntu: apt install python3-venv)"


def test_the_timed_hour_writes_the_model_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    shutil.copy2(PROJECT / "README.md", tmp_path)
    (function,) = re.findall(r"^write_model\(\) \{.*?^\}$", SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-euc", f"{function}\nwrite_model"], cwd=tmp_path, check=True)
    model = tmp_path / "models" / "mine.py"
    assert model.read_text() in (PROJECT / "README.md").read_text()
    defined = {node.name for node in ast.parse(model.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert defined == {"build", "sample"}
