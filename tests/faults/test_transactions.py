"""A job's files are all of it or none, and those of the job that began last, whatever is killed and when."""

import shutil
import signal
from pathlib import Path

import pytest

from tests import slow
from tests.faults.jobs import begun, collected, ended, wait


def reached(gate: Path) -> bool:
    return Path(f"{gate}.reached").exists()


@pytest.mark.parametrize("moment", slow.first(["begun", "half"]))
def test_an_orphan_does_not_replace_what_a_later_job_made(tmp_path: Path, moment: str) -> None:
    results, gate = tmp_path / "results", tmp_path / "gate"
    results.mkdir()
    orphan = begun(results, 60, f"{moment} {gate}")
    wait(lambda: reached(gate))
    assert ended(begun(results, 5))[0] == 0
    assert collected(results) == (5, 5)
    gate.touch()
    code, said = ended(orphan)
    assert code != 0 and len(said) == 1
    assert said[0].startswith(f"profzoo: {results / 'train.time.csv'} is left as it is")
    assert collected(results) == (5, 5)


@pytest.mark.slow
def test_an_orphan_does_not_come_before_a_later_job_that_runs(tmp_path: Path) -> None:
    gates = [tmp_path / "first", tmp_path / "second"]
    results = tmp_path / "results"
    results.mkdir()
    orphan = begun(results, 60, f"half {gates[0]}")
    wait(lambda: reached(gates[0]))
    later = begun(results, 5, f"half {gates[1]}")
    wait(lambda: reached(gates[1]))
    gates[0].touch()
    assert ended(orphan)[0] != 0 and not (results / "train.time.csv").exists()
    gates[1].touch()
    assert ended(later)[0] == 0 and collected(results) == (5, 5)


@pytest.mark.parametrize("moment", slow.first(["begun", "half", "first file", "second file"]))
def test_nothing_half_written_counts_after_a_kill(tmp_path: Path, moment: str) -> None:
    results, gate = tmp_path / "results", tmp_path / "gate"
    results.mkdir()
    assert ended(begun(results, 3))[0] == 0
    if moment in ("begun", "half"):
        killed = begun(results, 60, f"{moment} {gate}")
        wait(lambda: reached(gate))
        killed.send_signal(signal.SIGKILL)
        ended(killed)
        assert (results / ".train.time.csv.making").is_dir()
        left = 3
    else:
        killed = begun(results, 60, PYTHON_KILLED_AT="1" if moment == "first file" else "2")
        assert ended(killed)[0] == -signal.SIGKILL
        left = 3 if moment == "first file" else 60
        # Snakemake makes a job's outputs anew where one is missing.
        assert not (results / "train.time.csv.json").exists()
    assert len((results / "train.time.csv").read_text().splitlines()) == 1 + left
    assert ended(begun(results, 5))[0] == 0
    assert collected(results) == (5, 5)


@pytest.mark.slow
def test_a_job_that_ends_by_a_signal_leaves_nothing_but_what_was_there(tmp_path: Path) -> None:
    results, gate = tmp_path / "results", tmp_path / "gate"
    results.mkdir()
    assert ended(begun(results, 3))[0] == 0
    stopped = begun(results, 60, f"half {gate}")
    wait(lambda: reached(gate))
    stopped.send_signal(signal.SIGTERM)
    assert ended(stopped)[0] == 128 + signal.SIGTERM
    assert collected(results) == (3, 3)


@pytest.mark.slow
def test_results_that_were_removed_are_not_made_again_by_an_orphan(tmp_path: Path) -> None:
    results, gate = tmp_path / "results", tmp_path / "gate"
    results.mkdir()
    orphan = begun(results, 60, f"half {gate}")
    wait(lambda: reached(gate))
    shutil.rmtree(results / ".train.time.csv.making")
    gate.touch()
    code, said = ended(orphan)
    assert code == 1 and len(said) == 1 and "was removed" in said[0]
    assert [path.name for path in results.iterdir()] == ["60.log"]


@pytest.mark.slow
def test_jobs_of_other_files_do_not_know_of_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    gate = tmp_path / "gate"
    first = begun(folders[0], 4, f"half {gate}")
    wait(lambda: reached(gate))
    assert ended(begun(folders[1], 5))[0] == 0
    gate.touch()
    assert ended(first)[0] == 0
    assert [collected(folder) for folder in folders] == [(4, 4), (5, 5)]
