"""Which interpreter the jobs' `python` is, and what they can import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.collect import environment
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
def test_an_interpreter_without_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bool) -> None:
    monkeypatch.setattr(sys, "executable", str(programs(tmp_path / "own", "python3") / "python3"))
    monkeypatch.setenv("PATH", str(programs(tmp_path / "other", *["python"] * found)))
    with pytest.raises(ConfigError, match="run it in a virtual environment") as raised:
        inherited_paths.use_own_python()
    assert (shutil.which("python") or "there is none") in str(raised.value)


def test_python_in_path_will_do_where_it_is_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (own / "python3").write_text("#!/bin/sh\n")
    (own / "python3").chmod(0o755)
    (other / "python").symlink_to(own / "python3")
    monkeypatch.setattr(sys, "executable", str(own / "python3"))
    monkeypatch.setenv("PATH", str(other))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    inherited_paths.use_own_python()
    assert os.environ["PATH"] == str(other)
    # In a virtual environment the same file by another path finds other packages.
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ConfigError, match="run it in a virtual environment"):
        inherited_paths.use_own_python()


def test_modules_of_a_folder_do_not_hide_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    (folder := tmp_path / "mine").mkdir()
    for name in ("net.py", "data.csv", ".hidden", "json.txt"):
        (folder / name).touch()
    (folder / "json").mkdir()
    assert inherited_paths.shield_folder(folder) == folder
    (folder / "profile.py").touch()
    (folder / "json" / "__init__.py").touch()
    place = inherited_paths.shield_folder(folder)
    assert place.parent == here / ".snakemake/profzoo/importable"
    assert sorted(path.name for path in place.iterdir()) == ["data.csv", "json.txt", "net.py"]
    assert (place / "net.py").resolve() == folder / "net.py" and inherited_paths.shield_folder(folder) == place
    monkeypatch.setenv("PYTHONPATH", f"/a{os.pathsep}{os.pathsep}/b{os.pathsep}/a")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    inherited_paths.make_importable(str(folder))
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(place), str(here), "/a", "/b"]
    assert os.environ["PYTHONSAFEPATH"] == "1"


def test_ncu_leaves_home_alone(monkeypatch) -> None:
    monkeypatch.setenv(inherited_paths.NO_DEPLOYMENT, "")
    monkeypatch.delenv(inherited_paths.NO_DEPLOYMENT)
    inherited_paths.leave_home_alone()
    assert environment.select_environment(os.environ, [])[inherited_paths.NO_DEPLOYMENT] == "1"
