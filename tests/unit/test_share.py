"""What is given away: no tool's reports, no names of hosts and folders, nothing that was withheld."""

import base64
import csv
import gzip
import hashlib
import json
import re
import socket
import tarfile
from pathlib import Path
from urllib.parse import quote

import markupsafe
import pytest

from profzoo.cli import share
from profzoo.records import derived_outputs, record
from profzoo.records.import_graph import PROJECT
from profzoo.referee import states
from profzoo.report import packed_blocks

DIGEST = "withheld-[0-9a-f]{12}"
TOKEN = "hx92kQ7fLw03mZpT5vBc"
GITHUB = "ghp_" + "aB3dE6" * 6
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
    "lstm/other.csv", "lstm/.records/train.nsys.csv.json", "tables/.records/cells.csv.json", "tables/deep/cells.csv", "lstm@a@b/train.csv",
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


def packed(results: Path, *words: str) -> dict[str, bytes]:
    """The files of an archive of these results, by name."""
    archive = results.parent / "a.tar.gz"
    assert share.main([*words, str(results), str(archive)]) == 0
    return unpacked(archive)


def test_what_is_packed_and_listed(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = packed(results)
    manifest = files.pop("profzoo-results/MANIFEST").decode().splitlines()
    assert set(files) == {f"profzoo-results/{name}" for name in [*GIVEN, "figures/steps.png", "ORIGIN.json"]}
    assert manifest == [
        f"{hashlib.sha256(files[name]).hexdigest()} {len(files[name])} {name.removeprefix('profzoo-results/')}"
        for name in sorted(files)
    ]
    assert f"a.tar.gz: {len(files)} files, " in capsys.readouterr().out
    assert share.main([str(results), str(tmp_path / "b.tar.gz")]) == 0
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_hosts_and_folders_are_called_otherwise(results: Path) -> None:
    files = packed(results)
    called = share.redaction.secret_detection.hosts([{"host": "node7"}, {"host": "node8"}])
    assert set(called.values()) == {"host-1", "host-2", "host-3"} and socket.gethostname() in called
    facts = json.loads(files["profzoo-results/lstm/train.time.csv.json"])
    assert (facts["host"], facts["ranks"][0]["host"]) == (called["node7"], called["node8"])
    assert all(re.fullmatch(DIGEST, word) for word in (*facts["command"][1:], facts["source"]))
    assert (facts["loss"], facts["tool"], facts["device"]) == (1.5, "time", "NVIDIA H200")
    assert files["profzoo-results/report.html"].decode() == f'<td class="text">{called["node7"]}</td><p>node7000</p>'
    assert files["profzoo-results/tables/ranks.csv"].decode() == (
        f'model,host,note\nlstm,{called["node7"]},"a, ""b"""\nlstm,{called["node8"]},\n'
    )
    everything = b"".join(files.values())
    assert str(PROJECT).encode() not in everything and b"private set" not in everything


def test_where_results_come_from_is_told(results: Path) -> None:
    config = {"no_key_of_the_schema": 0.02, "data": {"root": "/data/private set/images"}}
    told = json.loads(packed(results, "--config", json.dumps(config))["profzoo-results/ORIGIN.json"])
    assert told["measured"] == {
        "commit": ["a" * 40], "device": ["NVIDIA H200"], "started": ["2026-11-22"], "tools": ["time: torch 2.11"],
    }  # fmt: skip
    (margin,) = told["config"].keys() - {"data"}
    assert re.fullmatch(DIGEST, margin) and told["config"][margin] == 0.02
    assert re.fullmatch(DIGEST, told["config"]["data"]["root"])


def test_only_selected_models_are_packed(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "unet").mkdir()
    (results / "unet/train.time.csv").write_text("step\n0\n")
    (results / "tables/cells.csv").write_text("model,phase\nlstm,train\nlstm@bf16,train\nunet,train\n")
    (results / "tables/columns.csv").write_text("table,column\nunet,x\n")
    files = packed(results, "--models", '["lstm"]')
    gone = {"compare.html", "report.html", "figures/steps.svg"}
    kept = {*GIVEN, "tables/columns.csv", "ORIGIN.json", "MANIFEST", "WITHHELD"} - gone
    assert set(files) == {f"profzoo-results/{name}" for name in kept}
    assert files["profzoo-results/tables/cells.csv"] == b"model,phase\nlstm,train\nlstm@bf16,train\n"
    assert files["profzoo-results/tables/columns.csv"] == b"table,column\nunet,x\n"
    assert "pages and figures were left out: they show unet, too" in capsys.readouterr().out
    # Nothing is left out where all that is shown is selected.
    assert share.main(["--models", '["lstm", "unet"]', str(results), str(tmp_path / "b.tar.gz")]) == 0
    assert f"{share.ROOT}/report.html" in unpacked(tmp_path / "b.tar.gz")


def test_reports_of_tools_are_packed_where_that_is_asked_for(results: Path) -> None:
    files = packed(results, "--reports")
    reports = {
        f"profzoo-results/lstm/train.{name}" for name in ("nsys-rep", "nsys.sqlite", "launch.ncu-rep", "trace.json.gz")
    }
    others = {f"profzoo-results/{name}" for name in [*GIVEN, "figures/steps.png", "MANIFEST", "ORIGIN.json"]}
    assert set(files) == reports | others and {files[name] for name in reports} == {b"x"}


@pytest.mark.parametrize("name", ["tables/cells.csv", "report.html", "figures/steps.svg", "lstm/train.time.csv.json"])
@pytest.mark.parametrize("form", ["plain", "quoted", "base64", "json in json"])
def test_a_text_loses_a_secret_however_it_is_written(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str,
    form: str,
) -> None:  # fmt: skip
    secret = 'hx92kQ7f"Lw0/3mZ+pT5vBc'
    monkeypatch.setenv("MY_TOKEN", secret)
    written = {
        "plain": secret, "quoted": quote(secret, safe=""), "json in json": json.dumps(json.dumps(secret))[3:-3],
        "base64": base64.b64encode(f"ab{secret}cd".encode()).decode(),
    }[form]  # fmt: skip
    path = results / name
    text = json.dumps({"tool": written}) if name.endswith("json") else f"{path.read_text()}\n {written}\n"
    path.write_text(text)
    files = packed(results)
    left = files[f"profzoo-results/{name}"].decode()
    assert written not in left and re.search(DIGEST if name.endswith("json") else share.redaction.GONE, left)
    told = f"{name} lost the value of MY_TOKEN"
    assert told in files["profzoo-results/WITHHELD"].decode() and f"profzoo: {told}\n" in capsys.readouterr().out
    assert secret[:6] not in b"".join(files.values()).decode(errors="replace")


def test_what_is_no_text_and_holds_a_secret_is_left_out(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    held = {
        "figures/steps.png": TOKEN.encode(), "lstm/train.trace.json.gz": gzip.compress(TOKEN.encode()),
        "lstm/train.nsys.sqlite": b"\xff" + TOKEN.encode(), "lstm/train.launch.ncu-rep": f"a {GITHUB} b".encode(),
    }  # fmt: skip
    for name, content in held.items():
        (results / name).write_bytes(content)
    files, said = packed(results, "--reports"), capsys.readouterr().out
    for name in (*held, "lstm/train.nsys-rep"):
        assert f"profzoo-results/{name}" not in files and f"profzoo: {name} was left out: it holds " in said
    assert "lstm/train.launch.ncu-rep was left out: it holds a GitHub token, by what it looks like" in said
    assert TOKEN not in said and GITHUB not in said


@pytest.mark.parametrize(
    "secret",
    [GITHUB, "AKIAIOSFODNN7EXAMPLE", "hf_" + "aB3" * 12, "xoxb-123456789012-abcdef", "me:hunter2",
     "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["tables/cells.csv", "report.html", "lstm/train.time.csv.json"])
def test_secrets_are_told_by_what_they_look_like(results: Path, name: str, secret: str) -> None:
    written = f"https://{secret}@host/a" if secret == "me:hunter2" else secret
    path = results / name
    path.write_text(json.dumps({"warnings": [f"x {written} y"]}) if name.endswith("json") else f"a\n{written}\n")
    files = packed(results)
    everything = b"".join(files.values()).decode(errors="replace")
    assert secret not in everything and json.dumps(secret)[1:-1] not in everything
    assert "by what it looks like" in files["profzoo-results/WITHHELD"].decode()


def test_secrets_of_older_sidecars_and_of_the_configuration_are_told_by_keys(results: Path) -> None:
    arguments = {"token": "swordfish-1", "password": "abc", "tokenizer": "bert-base", "max_tokens": 128}
    facts = {
        "cell": {"data": {"arguments": arguments}}, "variables": {"MY_PIN": "sha256:0123", "CUDA_LAUNCH_BLOCKING": "1"},
        "command": ["python", f"data.arguments={json.dumps(arguments)}", "token=swordfish-1"],
    }  # fmt: skip
    (results / "lstm/train.time.csv.json").write_text(json.dumps(facts))
    (results / "tables/cells.csv").write_text("model,words\nlstm,token=swordfish-1\n")
    config = json.dumps({"settings": {"lstm": {"data": {"arguments": {"api_key": "<secret 0123456789abcdef>"}}}}})
    files = packed(results, "--config", config)
    everything = b"".join(files.values()).decode(errors="replace")
    assert "swordfish" not in everything and '"abc' not in everything and "0123" not in everything
    told = json.loads(files["profzoo-results/lstm/train.time.csv.json"])
    values = list(told["cell"]["data"]["arguments"].values())
    assert values.count(share.redaction.GONE) == 2 and 128 in values and "bert-base" not in everything
    assert (
        "MY_PIN" not in everything and told["variables"]["CUDA_LAUNCH_BLOCKING"] == "1" and len(told["variables"]) == 2
    )


def test_no_text_names_host_user_or_folders(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "jdoe")
    line = f"waiting for {socket.gethostname()}.lab.example: process 7 of jdoe in /home/jdoe/secret project/x, {Path.home()}/y"
    facts = {"host": "node7.site.org", "warnings": [line, "another process on node7 was at work"], "module": "lstm"}
    (results / "lstm/train.time.csv.json").write_text(json.dumps(facts))
    (results / "tables/cells.csv").write_text(f'model,note\nlstm,"{line} on node7.site.org"\n')
    (results / "report.html").write_text(f"<p>{line}; node7.site.org</p><script>a = b / c / d</script>")
    files = packed(results)
    everything = b"".join(files.values()).decode(errors="replace")
    for name in (socket.gethostname(), "jdoe", "node7", "secret project/", "site.org", "lab.example"):
        assert name not in everything, name
    assert "lstm,waiting" not in everything and "a = b / c / d" in everything


def test_sidecars_tell_of_files_as_they_are_packed(results: Path, tmp_path: Path) -> None:
    table, sidecar = results / "lstm/train.time.csv", results / "lstm/train.time.csv.json"
    table.write_text(f"step,note\n0,{Path.home()}/x\n")
    made = record.Record({"tool": "time"}, files=record.make_entries([table]))
    sidecar.write_text(record.seal({"tool": "time", "host": "node7", **record.sidecar_part(made)}))
    assert share.main([str(results), str(tmp_path / "a.tar.gz")]) == 0
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        states.unpack(tar, tmp_path)
    there = tmp_path / "profzoo-results/lstm"
    known = record.read_sidecar_record(there / "train.time.csv.json")
    assert known and known.files != made.files
    assert derived_outputs.find_flaw(there / "train.time.csv", known.files["train.time.csv"]) is None


@pytest.mark.parametrize("damaged", ["train.time.csv", "train.time.csv.json"])
def test_damage_is_not_packed(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str) -> None:
    table, sidecar = results / "lstm/train.time.csv", results / "lstm/train.time.csv.json"
    made = record.Record({"tool": "time"}, files=record.make_entries([table]))
    sidecar.write_text(record.seal({"tool": "time", **record.sidecar_part(made)}))
    path = results / "lstm" / damaged
    path.write_text(path.read_text().replace("0", "1").replace("step", "stop"))
    assert share.main([str(results), str(tmp_path / "a.tar.gz")]) == 1
    assert capsys.readouterr().err.startswith(f"profzoo: {path} is damaged, remove it and make it again: ")


def test_a_host_named_as_a_model_harms_no_table(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "lstm")
    monkeypatch.setenv("USER", "train")
    files = packed(results)
    assert files["profzoo-results/tables/cells.csv"] == GIVEN["tables/cells.csv"].encode()


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
    assert "holds no files to share: `snakemake report" in capsys.readouterr().err


def test_nobody_can_put_a_link_where_the_archive_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine := tmp_path / "mine.txt").write_text("precious")
    archive = tmp_path / "share.tar.gz"
    for name in ("share.tar.gz", "share.tar.gz.partial"):
        (tmp_path / name).symlink_to(mine)
    share.write_archive({"a.csv": b"a\n"}, archive)
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
        share.write_archive({"a.csv": b"b\n"}, archive)
    assert archive.read_bytes() == before and len(list(tmp_path.iterdir())) == 3


def told(results: Path, environment: dict[str, str] | None = None) -> dict[str, str]:
    """The texts of what is packed of results, by name."""
    found, _ = share.collect_contents(results, environment or {}, {})
    return {name: content.decode() for name, content in found.items() if isinstance(content, bytes)}


def test_secrets_of_a_command_line_are_looked_for_everywhere(tmp_path: Path) -> None:
    words = ["python", "--auth-token", "0123456789ab", "token=qwertz123456", "password=abc4567", "batch=8"]
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm/train.torch.csv.json").write_text(
        json.dumps({"command": words, "warnings": ["HF_TOKEN=poiuz98765"]})
    )
    (tmp_path / "report.html").write_text("<p>0123456789ab, qwertz123456</p>")
    files = told(tmp_path)
    facts = json.loads(files["lstm/train.torch.csv.json"])
    assert all(re.fullmatch(DIGEST, word) for word in facts["command"][1:5] + facts["warnings"])
    assert facts["command"][::5] == ["python", "batch=8"]
    assert files["report.html"] == "<p><secret>, <secret></p>"


def test_a_secret_with_quotes_is_found_as_pages_and_hexadecimal_digits_have_it(tmp_path: Path) -> None:
    secret = "pa\"ss'wo rd<7>x"
    forms = [str(markupsafe.escape(one)) for one in (secret, json.dumps(secret)[1:-1])] + [secret.encode().hex()]
    (tmp_path / "report.html").write_text("".join(f"<p>{one}</p>" for one in forms))
    assert told(tmp_path, {"MY_SECRET": secret})["report.html"] == "<p><secret></p>" * 3


def test_users_of_other_machines_are_known_by_their_folders(tmp_path: Path) -> None:
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm/train.torch.csv.json").write_text(
        json.dumps({"command": ["/home/jane/bin/python"], "host": "node7"})
    )
    (tmp_path / "report.html").write_text("<p>by jane in /data/p123/y, janet</p>")
    files = told(tmp_path)
    assert re.fullmatch(f"<p>by user in {DIGEST}, janet</p>", files["report.html"])
    assert "jane" not in files["lstm/train.torch.csv.json"]


# Texts that tell of a person, a customer or a place, in forms that no list of forbidden ones has in full.
PRIVATE = [
    "/home/zoltan/X/train.py", "file:///home/zoltan/X/", "~zoltan/X", "~/zoltan.yaml", "root=/mnt/zoltan", "C:\\Users\\zoltan\\x.py",
    "\\\\server\\zoltan\\x", "zoltan@lab", "smb://zoltan/x", "s3://zoltan/data", "hdfs:///user/zoltan", "ssh zoltan@10.1.2.3:/x",
    "--name=zoltan", "--project", "zoltan-secret-merger", "X=zoltan python", "import zoltan_net.core", "Zoltan's laptop: low power",
    "gs://b/zoltan", "$HOME/zoltan", "${HOME}/zoltan/x", "..\\zoltan", "../zoltan/x", "zoltan/weights.pt", "a/b/c/zoltan",
    "http://zoltan.example/x?q=1", "git+ssh://git@h/zoltan.git", "docker://zoltan/x:1", "/zoltan", "user=zoltan;uid=1000",
    "data:zoltan", '{"who": "zoltan"}', "%7Ezoltan/x", "-Dzoltan=1", "/proc/1/zoltan x y/z", "zoltan",
]  # fmt: skip


@pytest.mark.parametrize("private", PRIVATE)
def test_no_text_outside_the_lists_is_packed_wherever_it_stands(tmp_path: Path, private: str) -> None:
    (tmp_path / "lstm").mkdir()
    (tmp_path / "tables").mkdir()
    cell = {"data": {"root": private, "arguments": {private: private}}, "shape": {"size": 3, "word": private}, "batch": 4,
            "precision": "bf16", "module": private}  # fmt: skip
    facts = {
        "command": ["python", private, f"--x={private}"], "warnings": [f"see {private}: low"], "cell": cell, "left_out": [private],
        "environment": [private], "variables": {private: private, "OMP_NUM_THREADS": private}, "device_why": private,
        "blocking_lines": [{"file": private, "text": private, "function": private, "line": 3}], "imports": {private: "0" * 64},
        "tool": private, "device": private, "unknown": private, "failed": {private: private}, "steps": 20,
        "inputs": {private: private}, private: 1, "set": private, "commit": private, "started": private,
    }  # fmt: skip
    # A name is a name where names stand.
    facts |= dict.fromkeys(("tool", "device", "set"), "x") if private == "zoltan" else {}
    (tmp_path / "lstm/train.torch.csv.json").write_text(json.dumps(facts))
    shown = [private] if re.search(r"\W", private) else []
    as_html = "".join(f'<p title="{markupsafe.escape(one)}">{markupsafe.escape(one)}</p>' for one in shown)
    data = json.dumps({"a": shown}).replace("<", "\\u003c")
    packed = f"{packed_blocks.pack_data(data)}{packed_blocks.pack_drawn(f'<figure>{as_html}</figure>')}"
    html = f'{as_html}<script type="application/json">{data}</script>{packed}<b>3 steps/s</b>'
    (tmp_path / "report.html").write_text(html)
    with (tmp_path / "tables/cells.csv").open("w", newline="") as table:
        csv.writer(table).writerows([["model", "note"], *(["lstm", one] for one in shown)])
    found, _ = share.collect_contents(tmp_path, {}, {"settings": {"lstm": cell}, "models": ["lstm"]})  # type: ignore[typeddict-item]
    for name, content in found.items():
        assert isinstance(content, bytes)
        assert "zoltan" not in packed_blocks.unpack_blocks(content.decode()).lower(), name
    shared = found["report.html"]
    assert isinstance(shared, bytes) and "<figure>" in packed_blocks.list_blocks(shared.decode(), "drawn")[0]
    assert len(json.loads(packed_blocks.list_blocks(shared.decode(), "data")[0])["a"]) == len(shown)
    kept = json.loads(found["lstm/train.torch.csv.json"])
    assert (kept["steps"], kept["cell"]["batch"], kept["cell"]["precision"]) == (20, 4, "bf16")
    assert kept["cell"]["shape"]["size"] == 3 and b"<b>3 steps/s</b>" in found["report.html"]


def test_a_digest_is_the_same_for_the_same_text_and_no_one_can_try_it(tmp_path: Path) -> None:
    (tmp_path / "lstm").mkdir()
    path = tmp_path / "lstm/train.torch.csv.json"
    path.write_text(json.dumps({"warnings": ["abc", "abc", "abd"]}))
    first = json.loads(told(tmp_path)["lstm/train.torch.csv.json"])["warnings"]
    assert first[0] == first[1] != first[2] and told(tmp_path)["lstm/train.torch.csv.json"].count(first[0]) == 2
    assert hashlib.sha256(b"abc").hexdigest()[:12] not in first[0]
    path.write_text(json.dumps({"warnings": ["abc", "abc", "abd"], "steps": 2}))
    assert json.loads(told(tmp_path)["lstm/train.torch.csv.json"])["warnings"][0] != first[0]
