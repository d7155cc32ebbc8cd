"""Records: what a job was made of and what it made is compared by content, and damage to the record itself is seen."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from profzoo.cli import verify
from profzoo.records import atomic_writes, derived_outputs, digests, output_status, record
from profzoo.records.output_status import OutputState, PlannedJob
from profzoo.records.record import DamagedRecordError, Record


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    digests.forget_digests()


def derived(results: Path, text: str = "a,b\n1,2\n") -> PlannedJob:
    """A table with its record, made from two files of a cell by code of this folder, and its plan."""
    cell, table = results / "lstm", results / "tables" / "cells.csv"
    for folder in (cell, table.parent):
        folder.mkdir(parents=True, exist_ok=True)
    inputs = [cell / "train.time.csv", cell / "train.nsys.csv"]
    for number, path in enumerate(inputs):
        path.write_text(f"step\n{number}\n")
    code = Path("profzoo") / "tables.py"
    code.parent.mkdir(exist_ok=True)
    code.write_text("x = 1\n")
    table.write_text(text)
    job = derived_outputs.describe_job("tabulate", {"margin": 0.03})
    derived_outputs.keep_record(
        [table],
        job,
        {path: digests.compute_digest(path) for path in inputs},
        derived_outputs.source_digests([code], Path.cwd()),
    )
    return PlannedJob(job, [table], [code], inputs)


def state(planned: PlannedJob) -> OutputState:
    return output_status.judge_outputs(planned, Path.cwd()).state


def test_what_was_made_is_the_same_whatever_the_times_of_files() -> None:
    planned = derived(Path("results"))
    assert state(planned) is OutputState.SAME
    for place, path in enumerate([*planned.outputs, *planned.sources, *planned.read]):
        os.utime(path, (when := 1.7e9 - place * 1000, when))
    assert state(planned) is OutputState.SAME


@pytest.mark.parametrize("what", ["sources", "read"])
def test_another_content_of_a_source_or_an_input_is_another_job(what: str) -> None:
    planned = derived(Path("results"))
    path = getattr(planned, what)[0]
    before = path.stat()
    # Of the same size, and of the same time.
    path.write_text(path.read_text().replace("1", "7").replace("0", "7"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    verdict = output_status.judge_outputs(planned, Path.cwd())
    assert verdict.state is OutputState.OTHER and verdict.others == (path,) and not verdict.settings
    # What may be another is not compared.
    assert state(replace(planned, loose=frozenset([path]))) is OutputState.SAME


def test_another_setting_source_or_input_is_another_job() -> None:
    planned = derived(Path("results"))
    other = output_status.judge_outputs(
        replace(planned, job=derived_outputs.describe_job("tabulate", {"margin": 0.05})), Path.cwd()
    )
    assert other.state is OutputState.OTHER and other.settings
    assert other.why == ("params.margin was '0.03' and is '0.05'",)
    new = Path("profzoo/more.py")
    new.write_text("")
    assert output_status.judge_outputs(replace(planned, sources=[*planned.sources, new]), Path.cwd()).why == (
        "profzoo/more.py is new",
    )
    assert output_status.judge_outputs(replace(planned, sources=[]), Path.cwd()).why == (
        "profzoo/tables.py is no longer part of it",
    )
    assert state(replace(planned, read=planned.read[:1])) is OutputState.OTHER


DAMAGE = {
    "empty": lambda whole: b"",
    "cut at a line": lambda whole: whole[: whole.index(b"\n") + 1],
    "zeros in its second half": lambda whole: whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
    "a digit": lambda whole: whole.replace(b"1", b"9", 1),
    "more": lambda whole: whole + b"3,4\n",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_to_an_output_is_seen(kind: str) -> None:
    planned = derived(Path("results"))
    (table,) = planned.outputs
    before = table.stat()
    table.write_bytes(DAMAGE[kind](table.read_bytes()))
    os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
    verdict = output_status.judge_outputs(planned, Path.cwd())
    assert verdict.state is OutputState.DAMAGED and verdict.file == table


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_to_a_record_is_seen(kind: str) -> None:
    planned = derived(Path("results"))
    home = record.record_path(planned.outputs[0])
    home.write_bytes(DAMAGE[kind](home.read_bytes()))
    assert state(planned) is OutputState.DAMAGED
    with pytest.raises(DamagedRecordError, match=rf"^{home}"):
        record.read_output_record(planned.outputs[0])


def test_without_a_record_nothing_is_known() -> None:
    planned = derived(Path("results"))
    record.record_path(planned.outputs[0]).unlink()
    assert state(planned) is OutputState.UNKNOWN
    planned.outputs[0].unlink()
    assert state(planned) is OutputState.ABSENT


def test_a_moved_folder_keeps_its_records() -> None:
    planned = derived(Path("results"))
    shutil.move("results", "elsewhere")
    moved = replace(
        planned,
        outputs=[Path("elsewhere/tables/cells.csv")],
        read=[Path("elsewhere") / path.relative_to("results") for path in planned.read],
    )
    assert state(moved) is OutputState.SAME


def test_a_source_that_changed_while_its_job_ran_makes_what_is_there_another_jobs() -> None:
    known = Record({"tool": "time"}, sources={"models/lstm.py": "1"}, changed=("models/lstm.py",))
    (one,) = derived_outputs.find_differences(known, {"tool": "time"}, {"models/lstm.py": "1"})
    assert one.words == "models/lstm.py changed while it was measured"


def test_the_record_of_collected_files_is_in_their_sidecar_and_found_from_each() -> None:
    folder = Path("results/lstm")
    folder.mkdir(parents=True)
    steps, memory = folder / "train.time.csv", folder / "train.memory.csv"
    for path in (steps, memory):
        path.write_text("x\n1\n")
    sidecar = folder / "train.time.csv.json"
    job = {"tool": "time", "cell": {"batch": 4}}
    made_of = Record(job, {"weights.pt": "w"}, {"models/lstm.py": "s"}, (), record.make_entries([steps, memory]))
    sidecar.write_text(record.seal({**job, "loss": 1.5} | record.sidecar_part(made_of)))
    record.refer_to_record(memory, sidecar, sidecar=True)
    assert (
        record.read_output_record(steps)
        == record.read_output_record(memory)
        == record.read_sidecar_record(sidecar)
        == made_of
    )
    text = sidecar.read_text()
    assert json.loads(text)["loss"] == 1.5
    sidecar.write_text(text.replace("1.5", "1.6"))
    with pytest.raises(DamagedRecordError, match="is not as it was written"):
        record.read_output_record(memory)
    # Without its own digest it may have been changed; and its version is read.
    without = {key: value for key, value in json.loads(text).items() if key != record.ITSELF}
    sidecar.write_text(json.dumps({**without, "loss": 1.6}))
    assert verify.verify_folder(Path("results")).whole == 0
    with pytest.raises(DamagedRecordError, match="has lost its own digest"):
        record.read_output_record(memory)
    sidecar.write_text(record.seal({**without, "record_version": 2}))
    with pytest.raises(DamagedRecordError, match="is a record of version 2, and this release reads version 1"):
        record.read_output_record(memory)


def test_a_record_of_another_version_is_not_read_as_one_of_this() -> None:
    planned = derived(Path("results"))
    home = record.record_path(planned.outputs[0])
    home.write_text(record.seal(json.loads(home.read_text()) | {"version": 2}))
    assert state(planned) is OutputState.DAMAGED
    with pytest.raises(DamagedRecordError, match="is a record of version 2"):
        record.read_output_record(planned.outputs[0])


@pytest.mark.parametrize(
    ("now", "words"),
    [({"MODE": "m"}, []), ({"MODE": "n"}, ["MODE, which it reads, has another value"]), ({}, ["MODE, which it reads, is no longer set"]),
     ({"MODE": "m", "UNSET": "u"}, ["UNSET, which it reads, is set"])],
)  # fmt: skip
def test_a_variable_that_a_program_read_is_held_against_the_present_one(now: dict[str, str], words: list[str]) -> None:
    known = Record({"tool": "time"}, variables={"MODE": "m", "UNSET": None})
    planned = PlannedJob({"tool": "time"}, [Path("a.csv")], [], [], variables=now)
    found = output_status.compare_with_record(planned, known, Path())
    assert [one.words for one in found] == [f"the environment variable {said}" for said in words]


def test_a_file_is_as_it_was_or_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("made.txt")
    atomic_writes.write_synced(path, "old")

    def refuse(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        atomic_writes.write_synced(path, "new")
    assert path.read_text() == "old" and [one.name for one in Path().iterdir()] == ["made.txt"]


def test_files_are_on_the_disk_before_the_first_of_them_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for name in ("a", "b"):
        Path(name).write_text(name)
    named = {Path(name).stat().st_ino: name for name in ("a", "b")}
    real, rename = os.fsync, Path.replace

    def fsync(number: int) -> None:
        order.append(named.get(os.fstat(number).st_ino, "folder"))
        real(number)

    def replaced(source: Path, target: Path) -> Path:
        order.append(f"{source} -> {target}")
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replaced)
    atomic_writes.move_into_place([(Path("a"), Path("made-a")), (Path("b"), Path("made-b"))])
    assert order == ["a", "b", "a -> made-a", "b -> made-b", "folder"]


def test_a_digest_is_computed_anew_after_a_change_or_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, kept = Path("large.bin"), tmp_path / "kept.json"
    path.write_bytes(b"x" * digests.WORTH_KEEPING_BYTES)
    os.utime(path, (1, 1))
    monkeypatch.setattr(digests, "SETTLED_NS", 0)
    first = digests.compute_digest(path)
    digests.save_digests(kept)
    reads: list[Path] = []
    opened = Path.open

    def counted(file: Path, *words: object, **more: object) -> object:
        reads.append(file)
        return opened(file, *words, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counted)
    digests.forget_digests()
    digests.load_digests(kept)
    assert digests.compute_digest(path) == first and path not in reads
    with opened(path, "r+b") as file:
        file.write(b"y")
    os.utime(path, (1, 1))
    assert digests.compute_digest(path) != first and path in reads
    # The same times and size, as after a power loss that left other bytes.
    boot = tmp_path / "boot_id"
    boot.write_text("another")
    monkeypatch.setattr(digests, "BOOT", boot)
    digests.forget_digests()
    digests.load_digests(kept)
    assert not digests._known


def test_verify_names_what_differs_and_counts_the_rest(capsys: pytest.CaptureFixture) -> None:
    planned = derived(Path("results"))
    assert verify.main(["results"]) == 0
    printed = capsys.readouterr().out
    assert "results: 1 files are what was made (0.0 MB), 2 have no record" in printed
    assert "results/lstm/train.time.csv has no record" in printed
    planned.outputs[0].write_text("a,b\n")
    assert verify.main(["results"]) == 1
    printed = capsys.readouterr().out
    assert (
        "results/tables/cells.csv is damaged (it has 4 bytes, and had 8 when it was made): `snakemake --force"
        in printed
    )
    planned.outputs[0].unlink()
    assert verify.main(["results"]) == 0
    assert "results/tables/cells.csv is not there, and its record is" in capsys.readouterr().out


def test_the_private_folder_of_a_killed_job_is_made_anew_and_a_link_there_is_left_alone() -> None:
    output = Path("results/cells.csv")
    for folder in derived_outputs.private_folders([output]).values():
        folder.mkdir(parents=True)
        (folder / "cells.csv").write_text("half")
    with derived_outputs.make_privately([output]) as (made,):
        assert not made.exists()
        made.write_text("whole")
    assert output.read_text() == "whole" and [path.name for path in output.parent.iterdir()] == ["cells.csv"]
    mine = Path("mine")
    mine.mkdir()
    (mine / "kept").write_text("kept")
    (folder,) = derived_outputs.private_folders([output]).values()
    folder.symlink_to(mine.absolute())
    with (
        pytest.raises(ValueError, match="is not a folder of this user's jobs"),
        derived_outputs.make_privately([output]),
    ):
        pass
    assert (mine / "kept").read_text() == "kept"
