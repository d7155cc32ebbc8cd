"""collect/transaction and collect/verifying: what goes to its place, by which way, and what is held back."""

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from profzoo.collect import job_run, transaction
from profzoo.errors import CollectError

STEPS = "step,wall_ns,gpu_ns,items,peak_memory_bytes\n"


def files(folder: Path) -> dict[str, Path]:
    return {"steps": folder / "train.time.csv", "sidecar": folder / "train.time.csv.json"}


def write(work: transaction.Transaction, text: str = "new") -> None:
    for path in work.private.values():
        path.write_text(text)


def test_files_come_to_their_places_and_nothing_is_left(tmp_path: Path) -> None:
    made = files(tmp_path)
    made["steps"].write_text("old")
    with transaction.begin(made) as work:
        write(work)
        assert made["steps"].read_text() == "old" and not made["sidecar"].exists()
        assert {path.parent for path in work.private.values()} == {work.folder}
        assert work.final(f"--out={work.private['steps']}") == f"--out={made['steps']}"
        work.commit()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "train.time.csv": "new", "train.time.csv.json": "new",
    }  # fmt: skip


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    made = files(tmp_path)
    made["steps"].write_text("old")
    with pytest.raises(CollectError, match="no"), transaction.begin(made) as work:
        write(work)
        raise CollectError("no")
    assert [path.name for path in tmp_path.iterdir()] == ["train.time.csv"] and made["steps"].read_text() == "old"


@pytest.mark.parametrize("old", [None, [], ["host.0.ncu-rep", "host.7.ncu-rep"]])
def test_a_folder_takes_the_place_of_an_earlier_one(tmp_path: Path, old: list[str] | None) -> None:
    """Snakemake leaves one that is not empty."""
    made = {"ranks": tmp_path / "train.full.ncu-ranks", "sidecar": tmp_path / "train.full.ncu-ranks.json"}
    if old is not None:
        made["ranks"].mkdir()
        for name in old:
            (made["ranks"] / name).touch()
    with transaction.begin(made) as work:
        work.private["sidecar"].touch()
        work.private["ranks"].mkdir()
        (work.private["ranks"] / "host.1.ncu-rep").touch()
        work.commit()
    assert [path.name for path in made["ranks"].iterdir()] == ["host.1.ncu-rep"]


def test_the_job_that_began_last_counts(tmp_path: Path) -> None:
    made = files(tmp_path)
    with transaction.begin(made) as later:
        pass
    with pytest.raises(transaction.SupersededError, match=r"train\.time\.csv is left as it is.*was removed"):
        later.commit()
    with ExitStack() as jobs:
        first = jobs.enter_context(transaction.begin(made))
        second = jobs.enter_context(transaction.begin(made))
        write(second, "second")
        with pytest.raises(transaction.SupersededError, match=rf"process {os.getpid()} on .* began to make it at"):
            first.commit()
        assert not first.folder.exists()
        second.commit()
    assert made["steps"].read_text() == "second"


def test_what_a_superseded_job_fails_by_is_that(tmp_path: Path) -> None:
    with pytest.raises(transaction.SupersededError), transaction.begin(files(tmp_path)):
        with transaction.begin(files(tmp_path)) as later:
            write(later)
            later.commit()
        raise CollectError("python ended with exit code 1")


@pytest.mark.parametrize("name", ["a#b", "a%hb", 'a"b', "a b", "ä"])
def test_odd_folders_have_a_plain_way(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    odd, scratch = tmp_path / name, tmp_path / "scratch"
    odd.mkdir()
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with transaction.begin(files(odd)) as work:
        assert transaction.PLAIN.fullmatch(str(work.private["steps"])) and work.private["steps"].is_relative_to(scratch)
        write(work)
        work.commit()
    assert files(odd)["steps"].read_text() == "new" and not list(scratch.iterdir())
    # Other nodes do not have this one's temporary files.
    with transaction.begin(files(odd), one_node=False) as work:
        assert work.private["steps"].parent == work.folder


def test_what_a_killed_job_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd, scratch = tmp_path / "a#b", tmp_path / "scratch"
    odd.mkdir()
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    child = os.fork()
    if not child:
        with transaction.begin(files(odd)) as work:
            write(work)
            os._exit(9)
    os.waitpid(child, 0)
    assert (
        len(list(scratch.iterdir())) == 1 and len(list(transaction.private_home(files(odd)["sidecar"]).iterdir())) == 2
    )
    with transaction.begin(files(odd)):
        assert (
            len(list(scratch.iterdir())) == 1
            and len(list(transaction.private_home(files(odd)["sidecar"]).iterdir())) == 2
        )
    assert not list(scratch.iterdir()) and not list(odd.iterdir())


JOB = {"tool": "time", "cell": {"window": 2, "gpus": 1, "nodes": 1}, "environment": []}


def checked(folder: Path, table: str = STEPS + "0,1,,1,\n1,1,,1,\n", **changes: object) -> None:
    made = files(folder)
    made["steps"].write_text(table)
    made["sidecar"].write_text(json.dumps({**JOB, "run": "a", "steps": 2, **changes}))
    job_run.check_outputs(JOB, made, "a")


def test_a_whole_result_of_the_job_passes(tmp_path: Path) -> None:
    checked(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cell": {"window": 60, "gpus": 1, "nodes": 1}}, "the sidecar says cell = "),
        ({"tool": "torch"}, "the sidecar says tool = 'torch', but the job says 'time'"),
        ({"run": "b"}, "the sidecar says run = 'b', but the job says 'a'"),
        ({"steps": 3}, "train.time.csv has 2 steps, but the run had 3"),
    ],
)
def test_what_is_not_of_the_job_is_held_back(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(CollectError, match=words):
        checked(tmp_path, **changes)


@pytest.mark.parametrize("table", ["", STEPS + "0,1,,1,\n1,1", "\n"])
def test_a_table_that_is_cut_off_is_held_back(tmp_path: Path, table: str) -> None:
    with pytest.raises(CollectError, match=r"damaged or incomplete: train\.time\.csv: "):
        checked(tmp_path, table)


def test_each_process_leaves_as_many_files(tmp_path: Path) -> None:
    made = {"ranks": tmp_path / "ranks", "sidecar": tmp_path / "s.json"}
    made["ranks"].mkdir()
    job = {**JOB, "cell": {"gpus": 2, "nodes": 1}}
    made["sidecar"].write_text(json.dumps({**job, "run": "a"}))
    with pytest.raises(CollectError, match="2 processes left no file in ranks"):
        job_run.check_outputs(job, made, "a")
    (made["ranks"] / "host.0.nsys-rep").write_text("x")
    with pytest.raises(CollectError, match=r"2 processes left 1 \.nsys-rep in ranks"):
        job_run.check_outputs(job, made, "a")
    (made["ranks"] / "host.1.nsys-rep").write_text("x")
    job_run.check_outputs(job, made, "a")


@pytest.mark.parametrize("text", ["", '{"torch": ', "[1]", "\0"])
def test_facts_that_are_none_are_said_to_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(CollectError, match=r"the program left facts that are not (a )?JSON"):
        job_run.read_program_facts(tmp_path / "s.json")
