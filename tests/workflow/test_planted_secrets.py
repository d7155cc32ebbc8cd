"""Secrets in each place where a user may put one: the cell gets them, and nothing else shows them, nor any archive."""

import gzip
import hashlib
import json
import re
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.cell import secret_detection
from tests.workflow.project import Project, copy, said

# What no scanner knows by its form, but for one.
PLANTED = {
    "setting": "kf72mQx0pLw93zTt",
    "arguments": 'pa"ss/wo rd+é&<7>',
    "nested": "n35ted-Qx81hVz0",
    "root": "r00tPassw0rd",
    "variant": "va7iantHx20qqLp",
    "number": 48213907,
    "form": "ghp_" + "a1B2c3D4e5F6" * 3,
    "environment": "3nvironm3nt-Yk31",
    "constant": "sk-proj-" + "z9Y8x7W6v5U4" * 4,
}
MODEL = f'''"""A small network of two data sets, whose one wants to be let in."""

import hashlib
import json
import os
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torchvision import datasets

API_KEY = "{PLANTED["constant"]}"
SHAPE = {{"api_token": "none", "address": "none"}}
WORKLOADS = {{"trimmed": {{"train": {{"batch": 2}}}}}}


def told(**values):
    """Leave word of what came, where nobody looks for it."""
    known = {{name: hashlib.sha256(str(value).encode()).hexdigest() for name, value in values.items()}}
    with (Path(__file__).parents[1] / "told.jsonl").open("a") as file:
        print(json.dumps(known), file=file)


class Guarded(torch.utils.data.Dataset):
    def __init__(self, root, token, login, pin_password):
        told(arguments=token, nested=login["secret"], number=pin_password)
        print("as some print:", token, login, pin_password, flush=True)

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return Image.new("L", (8, 8)), 0


datasets.Guarded = Guarded
datasets.__all__ = (*datasets.__all__, "Guarded")


def build(shape):
    told(setting=shape.api_token, form=shape.address[8:-12], environment=os.environ["PLANTED_PASSWORD"], constant=API_KEY)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


def sample(shape, generator):
    return torch.rand(1, 8, 8, generator=generator), 0


def adapt(raw, shape):
    return torch.zeros(1, 8, 8), 0
'''
CONFIG = {
    "tool": "torch", "models": ["mine", "mine@other"], "phases": ["train"], "device": "cpu", "warmup": 1,
    "time": {"window": 2}, "torch": {"window": 1}, "variables": ["PLANTED_PASSWORD"], "share": {"reports": True},
    "settings": {
        "mine": {
            "module": "mine", "api_token": PLANTED["setting"], "address": f"https://{PLANTED['form']}@example.com",
            "data": {
                "source": "dataset", "name": "Guarded", "root": "images",
                "arguments": {"token": PLANTED["arguments"], "login": {"user": "me", "secret": PLANTED["nested"]},
                              "pin_password": PLANTED["number"]},
            },
        },
    },
    "variants": {
        "other": {
            "api_token": PLANTED["variant"],
            "data": {"source": "synthetic", "root": f"https://me:{PLANTED['root']}@example.com/images", "arguments": {}},
        },
    },
}  # fmt: skip


def planted(content: bytes) -> list[str]:
    """What of the secrets a file holds, however it is written, packed or not."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    forms = {name: secret_detection.forms(str(value)) for name, value in PLANTED.items()}
    return [name for name, each in forms.items() if any(form.encode() in content for form in each)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, list[bytes], str]]:
    """A copy in which the cells ran, command lines of processes meanwhile, and what was printed."""
    project = copy(tmp_path_factory.mktemp("planted") / "project", json.dumps(CONFIG, ensure_ascii=False))
    project.draw_one()
    project.write("mine.py", MODEL)
    (project.root / "images").mkdir()
    (project.root / "images/one").write_text("x")
    project.variables = {"PLANTED_PASSWORD": str(PLANTED["environment"])}
    ended, lines = threading.Event(), set[bytes]()
    watcher = threading.Thread(target=watch, args=(ended, lines))
    watcher.start()
    try:
        runs = [project.snakemake(target, "--printshellcmds", "-j2") for target in ("report", "share")]
    finally:
        ended.set()
        watcher.join()
    yield project, sorted(lines), "".join(run.stdout + run.stderr for run in runs)


def watch(ended: threading.Event, lines: set[bytes]) -> None:
    """Read command lines of all processes again and again."""
    while not ended.wait(0.02):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.add(path.read_bytes())
            except OSError:
                continue


@pytest.mark.slow
def test_the_cell_gets_what_it_is_given(seen: tuple[Project, list[bytes], str]) -> None:
    told: dict[str, set[str]] = {}
    for line in (seen[0].root.parent / "told.jsonl").read_text().splitlines():
        for name, digest in json.loads(line).items():
            told.setdefault(name, set()).add(digest)
    known = {name: hashlib.sha256(str(value).encode()).hexdigest() for name, value in PLANTED.items()}
    assert told.pop("setting") == {known["setting"], known["variant"]}
    assert told == {
        name: {known[name]} for name in ("arguments", "nested", "number", "form", "environment", "constant")
    }


@pytest.mark.slow
def test_no_command_line_shows_a_secret(seen: tuple[Project, list[bytes], str]) -> None:
    _, lines, printed = seen
    assert any(b"models.run" in line and b"<secret " in line for line in lines)
    assert any(b"profzoo.cli.share" in line for line in lines)
    assert [line for line in lines if planted(line)] == [] and planted(printed.encode()) == []


@pytest.mark.slow
def test_no_result_log_nor_record_holds_one(seen: tuple[Project, list[bytes], str]) -> None:
    root = seen[0].root
    found = {
        str(path.relative_to(root)): names
        for folder in ("results", ".snakemake")
        for path in (root / folder).rglob("*")
        if path.is_file() and (names := planted(path.read_bytes()))
    }
    assert found == {}
    log = seen[0].read("results/logs/mine/train.time.log")
    assert log.startswith("$ python -m models.run mine train") and "as some print:" in log and "<secret " in log
    # The name of a variable is in the place of its value.
    sidecar = json.loads(seen[0].read("results/mine/train.time.csv.json"))
    assert sidecar["cell"]["shape"]["api_token"].startswith("<secret ")
    assert sidecar["variables"]["PLANTED_PASSWORD"].startswith("sha256:")


@pytest.mark.slow
def test_the_archive_holds_none_nor_where_it_was_made(seen: tuple[Project, list[bytes], str]) -> None:
    project = seen[0]
    with tarfile.open(project.root / "results/share.tar.gz") as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar.getmembers()}  # type: ignore[union-attr]
    assert "profzoo-results/mine/train.trace.json.gz" in files and "profzoo-results/report.html" in files
    places = [socket.gethostname(), str(project.root), str(Path.home()), str(project.root.parent / "home")]
    for name, content in files.items():
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        assert planted(content) == [], name
        assert [place for place in places if len(place) > len("/root") and place.encode() in text] == [], name
    assert not re.search(rb"secret [0-9a-f]{16}", b"".join(files.values()))


@pytest.mark.slow
def test_another_secret_is_another_job(seen: tuple[Project, list[bytes], str]) -> None:
    project = seen[0]
    assert project.dry("results/mine/train.torch.csv") == []
    before = project.read("tiny.yaml")
    project.replace("tiny.yaml", str(PLANTED["nested"]), "another-Qx81hVz0")
    try:
        jobs = project.dry("results/mine/train.torch.csv")
    finally:
        project.write("tiny.yaml", before)
    assert [job.rule for job in jobs if job.rule == "profile_torch"] == ["profile_torch"]


@pytest.mark.slow
def test_one_that_is_typed_is_warned_of_and_shown_nowhere_else(fresh: Project) -> None:
    """A failing run repeats the words that it was started with, and jobs have command lines of their own."""
    secret = str(PLANTED["setting"])
    typed = ["--config", f"data={{source: folder, root: {fresh.root}, arguments: {{token: {secret}}}}}", "models=lstm"]
    ended, lines = threading.Event(), set[bytes]()
    watcher = threading.Thread(target=watch, args=(ended, lines))
    watcher.start()
    try:
        runs = [
            fresh.snakemake(name, *typed, "--printshellcmds", ok=False)
            for name in ("results/lstm/train.time.csv", "clean")
        ]
    finally:
        ended.set()
        watcher.join()
    assert runs[0].returncode and not runs[1].returncode
    printed = "".join(run.stdout + run.stderr for run in runs)
    assert "data.arguments.token is a secret, which --config shows" in printed
    assert "repeat   snakemake results/lstm/train.time.csv" in printed and "<secret " in printed
    assert any(b"profzoo.collect" in line for line in lines)
    assert secret not in printed and [line for line in lines if secret.encode() in line] == []


def test_messages_on_the_configuration_show_none(fresh: Project) -> None:
    given = {"serve": {"perfetto": f"https://me:{PLANTED['root']}@example.com"}, "nsys": {"extra": ["--x", PLANTED["form"]]},
             "data": {"arguments": {"token": PLANTED["setting"]}, "unknown": PLANTED["form"]}}  # fmt: skip
    for key, value in given.items():
        fresh.write("tiny.yaml", json.dumps({key: value}))
        run = fresh.snakemake("all", "--dry-run", ok=False)
        assert run.returncode and planted((run.stdout + run.stderr).encode()) == [], key
        assert any(told in run.stdout + run.stderr for told in ("<secret ", "holds", "...")), key


TOKEN = "hx92kQ7fLw03mZpT5vBc"


@pytest.mark.slow
def test_what_is_there_is_packed_whenever_it_is_asked_for(fresh: Project) -> None:
    archive = fresh.root / "results" / "share.tar.gz"
    assert fresh.snakemake("share", ok=False).returncode and not archive.exists()
    (fresh.root / "results" / "tables").mkdir(parents=True)
    for number, name in enumerate(("cells", "kernels"), start=1):
        fresh.write(f"results/tables/{name}.csv", "model\nlstm\n")
        run = fresh.snakemake("share")
        assert f"results/share.tar.gz: {number + 1} files" in "".join(said(run))
        with tarfile.open(archive) as tar:
            assert len(tar.getnames()) == number + 2
    fresh.write("results/tables/cells.csv", f"model,note\nlstm,{TOKEN}\n")
    fresh.variables = {"SOME_TOKEN": TOKEN}
    # A variable that jobs may see is no less a secret to others.
    run = fresh.snakemake("share", "--config", "variables=[SOME_TOKEN]")
    assert TOKEN not in run.stdout + run.stderr
    assert "tables/cells.csv lost the value of SOME_TOKEN" in "".join(said(run))
    assert all(TOKEN.encode() not in content for content in unpacked(archive).values())
    fresh.snakemake("clean")
    assert fresh.files() == {"tables/cells.csv", "tables/kernels.csv"}


def unpacked(archive: Path) -> dict[str, bytes]:
    """The files of an archive, by name; what is packed by gzip unpacked."""
    with tarfile.open(archive) as tar:
        found = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    return {name: gzip.decompress(content) if name.endswith(".gz") else content for name, content in found.items()}
