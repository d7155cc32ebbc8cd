"""What is given away: no tool's reports, no names of hosts and folders, nothing that was withheld."""

import hashlib
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from profzoo import share
from profzoo.imports import PROJECT

TOKEN = "hx92kQ7fLw03mZpT5vBc"
GIVEN = {
    "compare.html": "<p></p>",
    "report.html": '<td class="text">node7</td><p>node7000</p>',
    "tables/cells.csv": "model,phase\nlstm,train\n",
    "tables/ranks.csv": 'model,host,note\nlstm,node7,"a, ""b"""\nlstm,node8,\n',
    "figures/steps.svg": "<svg/>",
    "peaks/h200.csv": "a\n1\n",
    "peaks/h200.csv.json": "{}",
    "lstm/train.time.csv": "step\n0\n",
    "lstm/train.time.csv.json": json.dumps({
        "host": "node7", "ranks": [{"rank": 0, "host": "node8"}], "loss": 1.5,
        "command": ["python", "--facts", f"{Path.cwd()}/results/x", "data.root=/data/private set/images", "1/2"],
        "source": "https://example.com/a/b", "tool": "time", "tool_version": "torch 2.11", "device": "NVIDIA H200",
        "commit": "a" * 40, "started": "2026-11-22T10:00:00+00:00",
    }),
    "lstm@bf16/inference.ncu.roofline.csv": "a\n",
    "lstm/train.nsys/cuda_api_sum.csv": "a\n",
    "lstm/weights.pt.json": "{}",
}  # fmt: skip
KEPT = [
    "lstm/weights.pt", "lstm/train.nsys-rep", "lstm/train.nsys.sqlite", "lstm/train.launch.ncu-rep", "logs/lstm/train.log",
    "lstm/train.trace.json.gz", "benchmarks/lstm/train.tsv", "mystuff/train.nsys/note.txt", "mystuff/precious.csv",
    "tables/cells.csv.bak", "x.y/train.csv", "doctor.txt", "share.tar.gz", "lstm/train.nsys-ranks/node7.0.nsys-rep",
    "lstm/other.csv", "tables/deep/cells.csv", "lstm@a@b/train.csv",
]  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with all kinds of files."""
    folder = tmp_path / "results"
    for name, text in {**GIVEN, **dict.fromkeys(KEPT, "x")}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "figures/steps.png").write_bytes(b"\x89PNG\xff")
    (folder / "tables/link.csv").symlink_to("/etc/hostname")
    return folder


def unpacked(archive: Path) -> dict[str, bytes]:
    """The files of an archive, by name."""
    with tarfile.open(archive) as tar:
        entries = tar.getmembers()
        assert {(entry.uid, entry.gid, entry.uname, entry.mtime, entry.mode) for entry in entries} == {
            (0, 0, "", 0, 0o644)
        }
        return {entry.name: tar.extractfile(entry).read() for entry in entries}  # type: ignore[union-attr]


def test_what_is_packed_and_listed(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert share.main([str(results), str(tmp_path / "a.tar.gz")]) == 0
    files = unpacked(tmp_path / "a.tar.gz")
    manifest = files.pop("profzoo-results/MANIFEST").decode().splitlines()
    assert set(files) == {f"profzoo-results/{name}" for name in [*GIVEN, "figures/steps.png", "ORIGIN.json"]}
    assert manifest == [
        f"{hashlib.sha256(files[name]).hexdigest()} {len(files[name])} {name.removeprefix('profzoo-results/')}"
        for name in sorted(files)
    ]
    assert f"a.tar.gz: {len(files)} files, " in capsys.readouterr().out
    assert share.main([str(results), str(tmp_path / "b.tar.gz")]) == 0
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_hosts_and_folders_are_called_otherwise(results: Path, tmp_path: Path) -> None:
    share.main([str(results), str(tmp_path / "a.tar.gz")])
    files = unpacked(tmp_path / "a.tar.gz")
    called = share.hosts([{"host": "node7"}, {"host": "node8"}])
    assert set(called.values()) == {"host-1", "host-2", "host-3"} and socket.gethostname() in called
    facts = json.loads(files["profzoo-results/lstm/train.time.csv.json"])
    assert (facts["host"], facts["ranks"][0]["host"]) == (called["node7"], called["node8"])
    assert facts["command"] == ["python", "--facts", "./results/x", "data.root=.../images", "1/2"]
    assert facts["source"] == "https://example.com/a/b" and facts["loss"] == 1.5
    assert files["profzoo-results/report.html"].decode() == f'<td class="text">{called["node7"]}</td><p>node7000</p>'
    assert files["profzoo-results/tables/ranks.csv"].decode() == (
        f'model,host,note\nlstm,{called["node7"]},"a, ""b"""\nlstm,{called["node8"]},\n'
    )
    everything = b"".join(files.values())
    assert str(PROJECT).encode() not in everything and b"private set" not in everything


def test_where_results_come_from_is_told(results: Path, tmp_path: Path) -> None:
    config = {"margin": 0.02, "data": {"root": "/data/private set/images"}}
    share.main(["--config", json.dumps(config), str(results), str(tmp_path / "a.tar.gz"), "SOME_VARIABLE"])
    told = json.loads(unpacked(tmp_path / "a.tar.gz")["profzoo-results/ORIGIN.json"])
    assert told["measured"] == {
        "commit": ["a" * 40], "device": ["NVIDIA H200"], "started": ["2026-11-22"], "tools": ["time: torch 2.11"],
    }  # fmt: skip
    assert told["config"] == {"margin": 0.02, "data": {"root": ".../images"}}


def test_reports_of_tools_are_packed_where_that_is_asked_for(results: Path, tmp_path: Path) -> None:
    share.main(["--reports", str(results), str(tmp_path / "a.tar.gz")])
    files = unpacked(tmp_path / "a.tar.gz")
    reports = {
        f"profzoo-results/lstm/train.{name}" for name in ("nsys-rep", "nsys.sqlite", "launch.ncu-rep", "trace.json.gz")
    }
    others = {f"profzoo-results/{name}" for name in [*GIVEN, "figures/steps.png", "MANIFEST", "ORIGIN.json"]}
    assert set(files) == reports | others and {files[name] for name in reports} == {b"x"}


@pytest.mark.parametrize("name", ["tables/cells.csv", "lstm/train.time.csv.json", "figures/steps.png", "report.html"])
def test_what_holds_a_secret_is_refused(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    with (results / name).open("a") as file:
        file.write(TOKEN)
    assert share.main([str(results), str(tmp_path / "a.tar.gz")]) == 1
    said = capsys.readouterr().err
    assert said == f"profzoo: {results / name} holds the value of MY_TOKEN: remove the file, and make it again\n"
    assert not list(tmp_path.glob("a.tar.gz*"))
    assert TOKEN not in said and os.environ["MY_TOKEN"] == TOKEN


@pytest.mark.parametrize(("name", "content"), [("lstm/train.time.csv.json", b"{"), ("tables/cells.csv", b"\xff"),
                                               ("tables/ranks.csv", b"a,host\n1\n")])  # fmt: skip
def test_what_is_damaged_is_named(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (results / name).write_bytes(content)
    assert share.main([str(results), str(tmp_path / "a.tar.gz")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"profzoo: {results / name} is damaged, remove it and make it again: ")
    assert said.count("\n") == 1 and not (tmp_path / "a.tar.gz").exists()


def test_nothing_to_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert share.main([str(tmp_path), str(tmp_path / "a.tar.gz")]) == 1
    assert "holds nothing that may be given away: `snakemake report` makes it" in capsys.readouterr().err


def test_nobody_can_put_a_link_where_the_archive_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine := tmp_path / "mine.txt").write_text("precious")
    archive = tmp_path / "share.tar.gz"
    for name in ("share.tar.gz", "share.tar.gz.partial"):
        (tmp_path / name).symlink_to(mine)
    share.pack({"a.csv": b"a\n"}, archive)
    assert (
        mine.read_text() == "precious"
        and not archive.is_symlink()
        and set(unpacked(archive)) >= {f"{share.ROOT}/a.csv"}
    )
    before = archive.read_bytes()

    def full(*given: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="no space"):
        share.pack({"a.csv": b"b\n"}, archive)
    assert archive.read_bytes() == before and len(list(tmp_path.iterdir())) == 3
