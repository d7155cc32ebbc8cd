"""paths: which interpreter the jobs' `python` is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.errors import ConfigError
from profzoo.machine import inherited_paths


def programs(folder: Path, *names: str) -> Path:
    """A folder of programs."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_python_is_the_interpreter_that_runs_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{programs(tmp_path / 'other', 'python')}:/usr/bin:/bin")
    inherited_paths.use_own_python()
    said = subprocess.check_output(["python", "-c", "import sys; print(sys.executable)"], text=True)
    assert Path(said.strip()).parent == Path(sys.executable).parent


def test_path_is_left_alone_where_python_is_right_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the user has put before it, such as another nsys, stays before it.
    given = f"{programs(tmp_path / 'mine', 'nsys')}:{Path(sys.executable).parent}:/usr/bin"
    monkeypatch.setenv("PATH", given)
    inherited_paths.use_own_python()
    assert os.environ["PATH"] == given


@pytest.mark.parametrize("found", [True, False])
def test_an_interpreter_without_a_python_beside_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    monkeypatch.setattr(sys, "executable", str(programs(tmp_path / "own", "python3") / "python3"))
    monkeypatch.setenv("PATH", str(programs(tmp_path / "other", *["python"] * found)))
    with pytest.raises(ConfigError, match="run it in a virtual environment") as raised:
        inherited_paths.use_own_python()
    assert (shutil.which("python") or "there is none") in str(raised.value)
