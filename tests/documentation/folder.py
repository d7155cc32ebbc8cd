"""The folder in which documented commands are planned and run: a copy of the project with the files that they name."""

import gzip
import itertools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from tests.conftest import DATA
from tests.documentation.commands import Command
from tests.documentation.declared import CONFIGURED
from tests.documentation.pages import Block
from tests.workflow.project import CHECKOUT, Project, copy

# What a reader's configuration selects: one cell, so that plans are made within a second. Zoo-wide numbers are checked
# where a page shows them.
SELECTED = "models: [lstm]\nphases: [train]\n"
TRAINING = """\
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.ones(3, 6)), torch.ones(3, 2)).backward()
    optimizer.step()
"""
# A model of a reader's own, and the modules that pages name.
MODEL = """\
import torch
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 32}, "inference": {"batch": 32}}}


def build(shape):
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def sample(shape, generator):
    return torch.randn(64, generator=generator), int(torch.randint(10, (), generator=generator))
"""
MODULES = ("mine.py", "my_package/my_model.py", "my/package.py")
# Recordings by the names that pages give to a reader's own reports.
RECORDED = {
    ".nsys-rep": None,
    ".sqlite": "nsys/train.sqlite.gz",
    ".json.gz": "torch/train.trace.json.gz",
    ".json": "torch/train.trace.json.gz",
    ".csv": "ncu/launch.raw.demangled.csv.gz",
    ".ncu-rep": None,
}
NAMED = (
    "trace.json.gz", "rank0.json.gz", "run8/rank0.json.gz", "a.nsys-rep", "b.csv", "b.ncu-rep", "c.csv", "a.sqlite",
)  # fmt: skip
# Folders of results that commands compare or read as they are, and what was measured there; plans look for names only.
RESULTS = ("results", "runs/before", "runs/after")
MEASURED = tuple(
    f"train.{name}{sidecar}"
    for name in ("time.csv", "nsys-rep", "nsys.csv", "nsys-steps.csv", "nsys.sqlite", "ncu.launch.csv", "torch.csv")
    for sidecar in ("", ".json")
)
PARTS = ("tests/gpu/programs/libraries", ".test/config")
# Answers Snakemake's question for a version; a dry run asks no more of it.
APPTAINER = "#!/bin/sh\necho apptainer version 1.3.4\n"
# Where pods mount the volume of the project, in the profile as it is shipped.
MOUNTED = "/profzoo"


def make_folder(root: Path, measured: bool = True) -> Project:
    """Copy the project, and add the files that pages name as a reader's own.

    measured: whether names of results are there, which plans look for; their files are empty.
    """
    project = copy(root)
    project.write("config/config.yaml", SELECTED)
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, project.root / part)
    for name in NAMED:
        unpack(name, project.root / name)
    (project.root / "src").mkdir()
    project.write("train.py", TRAINING)
    for name in MODULES:
        (project.root / name).parent.mkdir(exist_ok=True)
        project.write(name, MODEL)
    for results, name in itertools.product(RESULTS if measured else (), MEASURED):
        path = project.root / results / "lstm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if name.endswith(".json") else "")
    (root.parent / "tools").mkdir()
    project.path = (root.parent / "tools",)
    (root.parent / "tools/apptainer").write_text(APPTAINER)
    (root.parent / "tools/apptainer").chmod(0o755)
    # A site names its own folder there.
    for key in (f"default-storage-prefix: {MOUNTED}", f"- profzoo:{MOUNTED}"):
        project.replace("profiles/kubernetes/config.yaml", key, key.replace(MOUNTED, str(root)))
    (project.root / "other/tables").mkdir(parents=True)
    project.write("other/tables/plans.csv", "")
    return project


def unpack(name: str, path: Path) -> None:
    """Write a recording of the form that the name has; reports of which there is none are empty files."""
    recorded = next(recorded for ending, recorded in RECORDED.items() if name.endswith(ending))
    path.parent.mkdir(parents=True, exist_ok=True)
    if recorded is None:
        path.touch()
    elif path.suffix == ".gz":
        shutil.copyfile(DATA / recorded, path)
    else:
        with gzip.open(DATA / recorded) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)


def is_configuration(block: Block, keys: Iterable[str]) -> bool:
    """Whether a block of YAML is a configuration of profzoo; keys: those that there are."""
    if block.language not in ("yaml", "yml"):
        return False
    found = yaml.safe_load(block.text)
    return isinstance(found, Mapping) and bool(found) and set(found) <= set(keys)


def configure(command: Command, configurations: Iterable[Block]) -> str:
    """Return the configuration under which a command is planned: the reader's, with what the page shows before.

    configurations: blocks of the command's page. One counts if the command names a model or variant that it defines.
    """
    # Files that a command names say what is selected.
    config = {} if "--configfile" in command.words else yaml.safe_load(SELECTED)
    for part, more in CONFIGURED.items():
        if part in command.words:
            config |= yaml.safe_load(more)
    for block in configurations:
        shown = yaml.safe_load(block.text)
        own = {name for key in ("settings", "variants", "imported") for name in shown.get(key) or {}}
        if block.line < command.line and any(name in _names(command) for name in own):
            config |= shown
    return yaml.safe_dump(config)


def write_named(project: Project, command: Command, blocks: Sequence[Block]) -> None:
    """Write the YAML files that a command names and the folder lacks, from the nearest such block of the page."""
    for word in command.words:
        if word.endswith(".yaml") and not (project.root / word).exists():
            shown = [block for block in blocks if block.language == "yaml"]
            if shown:
                project.write(word, min(shown, key=lambda block: abs(block.line - command.line)).text)


def _names(command: Command) -> set[str]:
    """Names of models and variants in a command's targets and settings."""
    separators = str.maketrans(dict.fromkeys("/@=,+{}:", " "))
    return {name for word in command.words[1:] for name in word.translate(separators).split()}
