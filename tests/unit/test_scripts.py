"""files and paths: errors in one line into log and console, whole CSV and JSON files, importable modules."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from snakemake.iocontainers import Namedlist

from profzoo.errors import ConfigError
from profzoo.io import scripts
from profzoo.machine import inherited_paths


@pytest.mark.parametrize("kind", [scripts.DataError, ConfigError])
def test_what_is_wrong_with_the_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, kind: type) -> None:
    log = tmp_path / "log"
    with pytest.raises(SystemExit) as ended, scripts.report_errors(str(log)):
        print("working")
        raise kind("a.csv is empty")
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "profzoo: a.csv is empty\n")
    assert log.read_text() == "working\nprofzoo: a.csv is empty\n"


def test_other_errors_leave_their_traceback_in_the_log(tmp_path: Path) -> None:
    out, log = sys.stdout, tmp_path / "log"
    with pytest.raises(KeyError), scripts.report_errors(str(log)):
        {}["missing"]
    assert "Traceback" in log.read_text() and "KeyError: 'missing'" in log.read_text()
    assert sys.stdout is out


def test_a_log_takes_the_place_of_a_link_and_of_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    log, mine = tmp_path / "log", tmp_path / "mine.txt"
    mine.write_text("precious")
    for link in (log.symlink_to, log.hardlink_to):
        link(mine)
        with scripts.report_errors(str(log)):
            print("working")
        assert log.read_text() == "working\n" and not log.is_symlink() and mine.read_text() == "precious"
        log.unlink()
    os.mkfifo(log)
    with pytest.raises(SystemExit), scripts.report_errors(str(log)):
        pytest.fail("it began")
    assert capsys.readouterr().err == f"profzoo: {log} is no file, where the log of a job is to be: remove it\n"


def test_files_of_ones_own_may_be_empty_and_others_may_not(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    # The `__init__.py` of a package with a model is often empty.
    for name in ("__init__.py", "table.csv"):
        (tmp_path / name).touch()

    def run(**inputs: str) -> None:
        output = tmp_path / "job.json"
        given = SimpleNamespace(
            input=Namedlist(fromdict=inputs), output=Namedlist(fromdict={"job": str(output)}), params=Namedlist(),
            wildcards=Namedlist(), log=[str(tmp_path / "log")], rule="settle",
        )  # fmt: skip
        with scripts.begin_script(given) as job:
            scripts.write_text("{}\n", job.output.job)

    for sources in (str(tmp_path / "__init__.py"), [str(tmp_path / "__init__.py")]):
        run(sources=sources)
        assert (tmp_path / "job.json").read_text() == "{}\n"
    with pytest.raises(SystemExit):
        run(sources=str(tmp_path / "__init__.py"), table=str(tmp_path / "table.csv"))
    assert f"{tmp_path / 'table.csv'} is damaged (it is empty)" in capsys.readouterr().err


def test_csv_is_tidy(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["a,b", "ü"], "ns": pd.array([1, None], dtype="Int64")})
    scripts.write_csv(frame, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes().decode("utf-8") == 'name,ns\n"a,b",1\nü,\n'


def test_json_comes_back_and_keys_are_sorted(tmp_path: Path) -> None:
    scripts.write_json({"b": [1], "a": None}, tmp_path / "s.json")
    assert list(scripts.read_json(tmp_path / "s.json").items()) == [("a", None), ("b", [1])]


def test_modules_are_importable_by_started_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/only_here.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "kept")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    for _ in range(2):
        inherited_paths.make_importable(str(tmp_path / "a"))
    found = [str(tmp_path / "a"), str(tmp_path), "kept"]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == found
    assert subprocess.run([sys.executable, "-c", "import only_here"], check=False).returncode == 0


@pytest.mark.parametrize("hiding", ["profile.py", "queue", "signal.cpython-311-x86_64-linux-gnu.so"])
def test_what_hides_a_module_of_pythons_is_left_out_of_what_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hiding: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "data.txt", "notes.profile.py"):
        (tmp_path / name).write_text("VALUE = 3\n")
    # A folder without __init__ hides nothing, and a text is no module.
    (tmp_path / "tokenize").mkdir()
    (tmp_path / "random.txt").touch()
    assert inherited_paths.shield_folder(tmp_path) == tmp_path
    path = tmp_path / hiding
    if hiding == "queue":
        path.mkdir()
        path = path / "__init__.py"
    path.write_text("raise RuntimeError\n")
    for _ in range(2):
        found = inherited_paths.shield_folder(tmp_path)
        assert found.parent == tmp_path / inherited_paths.LINKS and len(list(found.parent.iterdir())) == 1
    assert {one.name for one in found.iterdir()} == {
        "mine.py",
        "data.txt",
        "notes.profile.py",
        "tokenize",
        "random.txt",
    }
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    inherited_paths.make_importable(str(tmp_path))
    code = "import profile, queue, signal, mine; assert mine.VALUE == 3"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


def test_a_script_tells_of_its_outputs_by_where_they_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    given = SimpleNamespace(
        input=Namedlist(),
        output=Namedlist(fromdict={"csv": "results/lstm/train.nsys.csv"}),
        params=Namedlist(),
        wildcards={},
        log=["log"],
        rule="r",
    )
    with scripts.begin_script(given) as job:
        Path(job.output.csv).write_text("a\n1\n")
        job.say(f"{job.output.csv}: 468 launches a step")
    assert "profzoo: results/lstm/train.nsys.csv: 468 launches a step\n" in capsys.readouterr().err
    assert Path("results/lstm/train.nsys.csv").read_text() == "a\n1\n"
