"""files and paths: errors in one line into log and console, whole CSV and JSON files, importable modules."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from snakemake.iocontainers import Log, Namedlist, OutputFiles

from profzoo.errors import ConfigError
from profzoo.io import scripts
from profzoo.records import record


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
    assert capsys.readouterr().err == f"profzoo: {log} is not a file, where the log of a job is to be: remove it\n"


def test_files_of_ones_own_may_be_empty_and_others_may_not(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    # The `__init__.py` of a package with a model is often empty.
    for name in ("__init__.py", "table.csv"):
        (tmp_path / name).touch()

    def run(**inputs: str) -> None:
        output = tmp_path / "job.json"
        given = SimpleNamespace(
            input=Namedlist(fromdict=inputs), output=Namedlist(fromdict={"job": str(output)}), params=Namedlist(),
            wildcards=Namedlist(), log=Log([str(tmp_path / "log")]), rule="settle",
        )  # fmt: skip
        with scripts.begin_script(given) as job:
            scripts.write_text("{}\n", job.output.job)

    for sources in (str(tmp_path / "__init__.py"), [str(tmp_path / "__init__.py")]):
        run(sources=sources)
        assert (tmp_path / "job.json").read_text() == "{}\n"
    with pytest.raises(SystemExit):
        run(sources=str(tmp_path / "__init__.py"), table=str(tmp_path / "table.csv"))
    assert f"{tmp_path / 'table.csv'} is damaged (it is empty)" in capsys.readouterr().err


SCRIPT = """
from profzoo.io.scripts import begin_script, write_text
with begin_script(globals()["snakemake"]) as job:
    for path in job.output:
        write_text(f"{job.params.steps} of {job.input.table}", path)
    FAIL
"""


@pytest.mark.parametrize(("table", "fails", "told"), [
    ("a\n1\n", "from profzoo.errors import DataError; raise DataError('no stream')", "no stream"),
    ("a\n1\n", "raise ValueError('no stream')", "no stream"), ("", "", "is damaged (it is empty)"),
])  # fmt: skip
def test_what_fails_in_one_rule_of_a_joint_job_costs_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture, table: str, fails: str, told: str
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "early.csv").write_text(table)
    (tmp_path / "late.csv").write_text("a\n1\n")
    inputs: dict[str, str] = {}
    for rule, end in (("early", fails), ("late", "")):
        (tmp_path / f"scripts/{rule}.py").write_text(SCRIPT.replace("FAIL", end))
        inputs |= {f"{rule}__code": f"{tmp_path}/scripts/{rule}.py", f"{rule}__table": f"{tmp_path}/{rule}.csv"}
    names = ("early__text", "late__text", "late__twin")
    given = SimpleNamespace(
        input=Namedlist(fromdict=inputs), rule="both", wildcards=Namedlist(),
        output=OutputFiles(fromdict={name: str(tmp_path / f"{name}.txt") for name in names}),
        log=Log(fromdict={part: str(tmp_path / f"{part}.log") for part in ("early", "late")}),
        params=Namedlist(fromdict={"early__steps": 3, "late__steps": [4, 5]}),
    )  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        scripts.run_joined(given)
    assert ended.value.code == 1 and told in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.glob("*.txt")) == ["late__text.txt", "late__twin.txt"]
    assert (tmp_path / "late__text.txt").read_text() == f"[4, 5] of {tmp_path}/late.csv"
    assert told in (tmp_path / "early.log").read_text() and not (tmp_path / "late.log").read_text()
    known = record.read_output_record(tmp_path / "late__twin.txt")
    assert known and known.job == {"rule": "late", "params": {"steps": "[4, 5]"}}
    assert sorted(known.files) == ["late__text.txt", "late__twin.txt"] and "late.csv" in known.inputs


def test_csv_is_tidy(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["a,b", "ü"], "ns": pd.array([1, None], dtype="Int64")})
    scripts.write_csv(frame, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes().decode("utf-8") == 'name,ns\n"a,b",1\nü,\n'


def test_json_comes_back_and_keys_are_sorted(tmp_path: Path) -> None:
    scripts.write_json({"b": [1], "a": None}, tmp_path / "s.json")
    assert list(scripts.read_json(tmp_path / "s.json").items()) == [("a", None), ("b", [1])]


def test_a_script_tells_of_its_outputs_by_where_they_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    given = SimpleNamespace(
        input=Namedlist(),
        output=Namedlist(fromdict={"csv": "results/lstm/train.nsys.csv"}),
        params=Namedlist(),
        wildcards={},
        log=Log(["log"]),
        rule="r",
    )
    with scripts.begin_script(given) as job:
        Path(job.output.csv).write_text("a\n1\n")
        job.say(f"{job.output.csv}: 468 launches a step")
    assert "profzoo: results/lstm/train.nsys.csv: 468 launches a step\n" in capsys.readouterr().err
    assert Path("results/lstm/train.nsys.csv").read_text() == "a\n1\n"
