"""Damage of every kind of collected file is seen and said, with and without a record; no file is touched."""

import gzip
import hashlib
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from profzoo.errors import DataError
from profzoo.io import file_checks
from profzoo.records import record
from profzoo.records.record import Record


def weights(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights/data.pkl", b"x" * 5000)


def database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE steps (name TEXT)")
        made.executemany("INSERT INTO steps VALUES (?)", [("x" * 100,)] * 500)
        made.commit()


# Each kind of file: how to write a whole one.
KINDS = {
    "weights.pt": weights,
    "train.nsys.sqlite": database,
    "train.trace.json.gz": lambda path: path.write_bytes(gzip.compress(b'{"traceEvents": []}' * 200, compresslevel=1)),
    "train.time.csv": lambda path: path.write_text("step,wall_ns\n0,1\n1,1\n"),
    "train.full.ncu-rep": lambda path: path.write_bytes(file_checks.NCU_MAGIC + b"x" * 1000),
    "train.plan.json": lambda path: path.write_text('{"options": []}\n'),
}


def written(folder: Path, name: str) -> Path:
    """A whole file without a record."""
    path = folder / name
    KINDS[name](path)
    return path


def recorded(path: Path) -> Path:
    """The same file with the sidecar that its job leaves."""
    made_of = Record({"tool": "time"}, files=record.make_entries([path]))
    path.with_name(f"{path.name}.json").write_text(record.seal({"tool": "time"} | record.sidecar_part(made_of)))
    return path


@pytest.mark.parametrize("name", KINDS)
def test_a_whole_file_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    before = path.read_bytes()
    digest = hashlib.sha256(before).hexdigest()
    assert file_checks.require_whole([path]) == file_checks.require_whole([recorded(path)]) == {path: digest}
    assert path.read_bytes() == before


@pytest.mark.parametrize("with_record", [False, True])
@pytest.mark.parametrize("left", [0, 1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_is_cut_off_is_named_with_its_command(
    tmp_path: Path, name: str, left: int, with_record: bool
) -> None:
    """left: quarters of it; all but the last byte for 3."""
    path = written(tmp_path, name)
    if with_record:
        recorded(path)
    elif name == "train.full.ncu-rep" and left:
        # Nothing but its record tells.
        return
    whole = path.read_bytes()
    cut = whole[: -1 - (name == "train.plan.json")] if left == 3 else whole[: len(whole) * left // 4]
    path.write_bytes(cut)
    with pytest.raises(DataError, match=rf"{name} is damaged \(.+\): `snakemake --force .+{name}` makes it") as said:
        file_checks.require_whole([path])
    assert path.read_bytes() == cut and "\n" not in str(said.value)


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_byte_is_seen(tmp_path: Path, name: str) -> None:
    """Wherever it is: here, where most kinds have no check of their own."""
    path = recorded(written(tmp_path, name))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="its content is not what was written"):
        file_checks.require_whole([path])


@pytest.mark.parametrize("name", ["weights.pt", "train.trace.json.gz"])
def test_a_changed_byte_of_an_archive_is_seen_without_a_record(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    content = bytearray(path.read_bytes())
    # Within the data, and within the stored sum of a gzip.
    content[-5 if name.endswith(".gz") else 500] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError):
        file_checks.require_whole([path])


def test_pages_of_zeros_in_a_database_are_seen(tmp_path: Path) -> None:
    path = written(tmp_path, "train.nsys.sqlite")
    content = bytearray(path.read_bytes())
    content[8192:12288] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(DataError, match="SQLite"):
        file_checks.require_whole([path])


def test_a_folder_goes_by_each_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "train.full.ncu-ranks"
    folder.mkdir()
    for rank in range(2):
        KINDS["train.full.ncu-rep"](folder / f"host.{rank}.ncu-rep")
    recorded(folder)
    (folder / ".snakemake_timestamp").touch()
    file_checks.require_whole([folder])
    (folder / "host.1.ncu-rep").unlink()
    with pytest.raises(DataError, match="it has 1004 bytes, and had 2008 when it was made"):
        file_checks.require_whole([folder])
    assert folder.exists()


def test_a_disk_that_fails_says_nothing_about_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "train.nsys.sqlite")

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(OSError, match="disk I/O error"):
        file_checks.require_whole([path])
    assert path.exists()


def test_the_command_line_says_it_in_the_log_and_on_the_console(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path, log = recorded(written(tmp_path, "train.full.ncu-rep")), tmp_path / "log"
    assert file_checks.main(["--log", str(log), str(path)]) == 0 and not log.exists()
    path.write_bytes(path.read_bytes()[:-1])
    assert file_checks.main(["--log", str(log), str(path)]) == 1
    printed = capsys.readouterr().err
    assert printed == log.read_text() and printed.count("\n") == 1 and str(path) in printed


def test_a_trace_that_is_not_packed_is_left_as_it_is(tmp_path: Path) -> None:
    """Which is read as well; one that is cut off is damaged, packed or not."""
    path = tmp_path / "train.trace.json.gz"
    path.write_text('\n{"traceEvents": [{"ph": "X"}\n]}\n')
    file_checks.require_whole([path])
    assert path.exists()
    path.write_text('\n{"traceEvents": [{"ph": "X"')
    with pytest.raises(DataError, match=r"damaged \(no whole JSON: its end is missing\): `snakemake --force"):
        file_checks.require_whole([path])
    assert path.exists()
