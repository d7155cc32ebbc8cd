"""`snakemake share` packs what is there at that moment, by itself and without collecting anything."""

import base64
import gzip
import json
import tarfile
from pathlib import Path

import pytest

from tests.workflow.project import Project, copy, said

TOKEN = "hx92kQ7fLw03mZpT5vBc"
# One secret for each place that a user may put one in.
SECRETS = {
    "data": "dAtA4kQ7fLw03mZpT5vBc", "url": "uRl5kQ7fLw03mZpT5vBc", "setting": "sEt7kQ7fLw03mZpT5vBc",
    "variant": "vAr8kQ7fLw03mZpT5vBc", "variable": "eNv9kQ7fLw03mZpT5vBc",
}  # fmt: skip
# It says what it got, by number, which secrets are in any process's words meanwhile, and prints what no log is to keep.
MODEL = '''"""A small network that needs a secret to have its data."""

import json
import os
from pathlib import Path

import torch
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 4, "access_token": "none"}}}
SECRETS = json.loads(Path("PLACE/secrets.json").read_text())


def sample(shape, generator):
    return torch.randn(8, generator=generator), 1


def build(shape):
    words = b"\\0".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    shown = [name for name, value in SECRETS.items() if value.encode() in words]
    got = [name for name in ("setting", "variant") if SECRETS[name] == shape.access_token]
    seen = os.environ.get("MY_ACCESS_TOKEN") == SECRETS["variable"]
    with Path("PLACE/told").open("a") as file:
        file.write(json.dumps({"shown": shown, "got": got, "seen": seen}) + "\\n")
    print("WARNING: my token is", shape.access_token)
    return nn.Linear(8, 2)
'''


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
    fresh.write("results/tables/cells.csv", f"model\n{TOKEN}\n")
    fresh.variables = {"SOME_TOKEN": TOKEN}
    # A variable that jobs may see is no less a secret to others.
    run = fresh.snakemake("share", "--config", "environment=[SOME_TOKEN]")
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


def with_secrets(root: Path) -> Project:
    """A project with secrets in all places, whose values its model knows."""
    mine = {"module": "mine", "threads": 1, "access_token": SECRETS["setting"]}
    mine["data"] = {"arguments": {"token": SECRETS["data"]}, "root": f"https://me:{SECRETS['url']}@host/data"}
    config = {
        "tool": "torch", "models": {"mine": mine}, "phases": ["train"], "device": "cpu", "warmup": 1,
        "time": {"window": 2}, "torch": {"window": 1}, "environment": ["MY_ACCESS_TOKEN"],
        "variants": {"other": {"access_token": SECRETS["variant"]}}, "share": {"reports": True},
    }  # fmt: skip
    project = copy(root / "project", json.dumps(config))
    project.variables = {"MY_ACCESS_TOKEN": SECRETS["variable"]}
    project.write("mine.py", MODEL.replace("PLACE", str(root)))
    (root / "secrets.json").write_text(json.dumps(SECRETS))
    return project


@pytest.mark.slow
def test_secrets_reach_the_cell_and_nothing_that_stays_or_that_others_see(tmp_path: Path) -> None:
    project = with_secrets(tmp_path)
    targets = [f"results/{cell}/train.time.csv" for cell in ("mine", "mine@other")]
    runs = [
        project.snakemake(*targets, "results/mine/train.trace.json.gz", "--printshellcmds"),
        project.snakemake("share"),
    ]
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert {(*one["got"],) for one in told} == {("setting",), ("variant",)}
    assert all(one["seen"] and not one["shown"] for one in told)
    written = {path: path.read_bytes() for path in project.root.rglob("*")
               if path.is_file() and path.name != "tiny.yaml"}  # fmt: skip
    written |= {path: gzip.decompress(text) for path, text in written.items() if path.suffix == ".gz"}
    written |= {Path(name): text for name, text in unpacked(project.root / "results" / "share.tar.gz").items()}
    written[Path("console")] = "".join(run.stdout + run.stderr for run in runs).encode()
    for secret in SECRETS.values():
        for form in (secret.encode(), base64.b64encode(secret.encode())[:-4]):
            assert not [str(path) for path, text in written.items() if form in text]
    # What the command line shows itself, at least nothing keeps.
    run = project.snakemake("clean", "--config", f"data={{arguments: {{token: {TOKEN}}}}}")
    assert "data.arguments.token is a secret, which --config shows" in "".join(said(run))
    logs = "".join(path.read_text() for path in (project.root / ".snakemake" / "log").iterdir() if path.is_file())
    assert TOKEN not in run.stdout + run.stderr + logs
    project.snakemake(*targets)
    # Another secret is another cell; the same one is not.
    assert not project.dry(*targets)
    project.replace("tiny.yaml", SECRETS["variant"], SECRETS["variant"] + "x")
    assert {(job.rule, job.model) for job in project.dry(*targets)} == {("time_training", "mine@other")}
