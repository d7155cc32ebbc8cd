"""run_locks: locks of Snakemake that name who holds them; those of a killed run go with the next."""

import base64
import os
import signal
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest
import snakemake.cli
from snakemake.persistence.file import FilePersistence

from profzoo.machine import file_locks
from profzoo.workflow import run_locks, snakemake_internals
from tests.faults import family
from tests.unit.workflow_runs import fork_snakemake

SNAKEFILE = """
from pathlib import Path
from profzoo.workflow import run_locks
if workflow.is_main_process:
    run_locks.take_over(True)
rule all:
    input: "one", "two"
rule make:
    output: "{name}"
    shell: "echo begun > {output}; touch {wildcards.name}.begun; "
           "while test ! -e {wildcards.name}.go; do sleep 0.05; done; echo done > {output}"
"""
SAID = "profzoo: removed the lock of a run that was killed: process"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "Snakefile").write_text(SNAKEFILE)
    return tmp_path / "work"


def working(folder: Path, name: str = "one") -> ForkProcess:
    """A run whose job has begun, and waits."""
    run = fork_snakemake(folder, name)
    family.until(lambda: (folder / f"{name}.begun").exists() or not run.is_alive(), 60)
    assert run.is_alive(), ended(folder, run)
    return run


def ended(folder: Path, run: ForkProcess) -> tuple[int | None, str]:
    run.join(60)
    if run.is_alive():
        kill(run)
    return run.exitcode, Path(f"{folder}.said.{run.pid}").read_text()


def kill(run: ForkProcess) -> None:
    os.killpg(run.pid, signal.SIGKILL)
    run.join()


def locks(folder: Path) -> list[Path]:
    return [path for path in folder.glob(".snakemake/locks/*.lock") if path.stat().st_size]


def test_what_a_version_lacks_is_named_and_left_to_snakemake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used = {**snakemake_internals.USED, "snakemake.persistence.file.FilePersistence": {"lock": "", "_bolt": ""}}
    monkeypatch.setattr(snakemake_internals, "USED", used)
    before = snakemake.workflow.FilePersistence
    run_locks.take_over(True)
    assert snakemake.workflow.FilePersistence is before
    said = capsys.readouterr().err
    assert "snakemake.persistence.file.FilePersistence._bolt" in said and "--unlock" in said and said.count("\n") == 1


def test_a_killed_run_is_followed_by_one_that_needs_no_more_words(folder: Path) -> None:
    kill(working(folder))
    assert locks(folder) and (folder / "one").read_text() == "begun\n"
    # A dry run changes nothing, and is not told that another run is at work.
    code, said = ended(folder, fork_snakemake(folder, "-n"))
    assert code == 0 and "cannot be locked" not in said and SAID not in said and locks(folder)
    (folder / "one.go").touch()
    code, said = ended(folder, fork_snakemake(folder, "one"))
    assert code == 0 and said.count(SAID) == 1, said
    assert (folder / "one").read_text() == "done\n" and not locks(folder)
    assert not list((folder / ".snakemake/profzoo/owners").iterdir())


@pytest.mark.slow
def test_a_run_that_lives_keeps_its_lock_whoever_else_ends(folder: Path) -> None:
    first = working(folder)
    held = locks(folder)
    # Of other files; when it ends, Snakemake's own removes all locks of the folder.
    (folder / "two.go").touch()
    assert ended(folder, fork_snakemake(folder, "two"))[0] == 0
    assert locks(folder) == held
    code, said = ended(folder, fork_snakemake(folder, "one"))
    assert code == 1 and f"another run makes the same files in this folder, process {first.pid} on " in said, said
    assert "--unlock" not in said and locks(folder) == held
    (folder / "one.go").touch()
    assert ended(folder, first)[0] == 0 and not locks(folder)


@pytest.mark.slow
def test_a_lock_of_another_host_stays_until_a_user_removes_it(folder: Path) -> None:
    kill(working(folder))
    (folder / "one.go").touch()
    owner = file_locks.parse_owner(locks(folder)[0].read_text().split("\n")[0].removeprefix(run_locks.MARK))
    assert owner
    # As where /proc says so of a shared file system; the line of what is mounted cannot be changed for another process.
    code = f"from profzoo.machine import file_locks; file_locks.LOCAL.clear()\n{SNAKEFILE}"
    (folder / "Snakefile").write_text(code)
    elsewhere = file_locks.format_owner(replace(owner, host="elsewhere", boot="another"))
    for path in locks(folder):
        path.write_text(path.read_text().replace(file_locks.format_owner(owner), elsewhere))
    exit_code, said = ended(folder, fork_snakemake(folder, "one"))
    assert exit_code == 1 and "on elsewhere since " in said and "`snakemake --unlock`" in said and locks(folder)
    assert ended(folder, fork_snakemake(folder, "--unlock"))[0] == 0 and not locks(folder)
    assert ended(folder, fork_snakemake(folder, "one"))[0] == 0


def test_a_lock_that_names_nobody_stays(folder: Path) -> None:
    """Of a run of Snakemake without this, or of an earlier version."""
    (folder / ".snakemake/locks").mkdir(parents=True)
    lock = folder / ".snakemake/locks/0.output.lock"
    lock.write_text("one\n")
    code, said = ended(folder, fork_snakemake(folder, "one"))
    assert code == 1 and "cannot be locked" in said and lock.read_text() == "one\n"


@pytest.mark.slow
def test_two_that_begin_at_once_do_not_both_get_the_lock_of_a_killed_one(folder: Path) -> None:
    kill(working(folder))
    (folder / "one.begun").unlink()
    runs = [fork_snakemake(folder, "one") for _ in range(3)]
    family.until(lambda: sum(not run.is_alive() for run in runs) >= 2, 60)
    (folder / "one.go").touch()
    codes = sorted(ended(folder, run)[0] for run in runs)
    assert codes == [0, 1, 1]


@pytest.mark.slow
def test_no_lock_asks_for_none(folder: Path) -> None:
    first = working(folder)
    (folder / "two.go").touch()
    assert ended(folder, fork_snakemake(folder, "two", "--nolock"))[0] == 0
    assert locks(folder)
    kill(first)
    assert issubclass(run_locks.Persistence, FilePersistence)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]", b'{"version": "x", "input": 3}', b"{", None])
def test_a_damaged_record_of_snakemakes_is_told_in_one_line_and_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    """Of its own, which this workflow's records make needless; None: a folder in its place."""
    kept = run_locks.Persistence.__new__(run_locks.Persistence)
    kept._damaged, kept._metadata_path, kept._max_len = set(), str(tmp_path), 200
    # Snakemake's name for the record of a file `one`.
    path = tmp_path / base64.b64encode(b"one").decode()
    path.mkdir() if content is None else path.write_bytes(content)
    assert kept._read_record("one") is None and kept._read_record("one") is None
    told = [line for line in capsys.readouterr().err.splitlines() if "Ignore corrupted" not in line]
    assert len(told) == (content != b"{") and all("record of one is damaged and not used" in line for line in told)
