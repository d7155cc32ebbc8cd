"""What a model or a script reads is part of its jobs, declared or not: what is changed runs again, and is named."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.workflow.project import Project, copy, models, rules

TARGETS = [f"results/{model}/train.time.csv" for model in ("lstm", "unet")]
READERS = Path(__file__).with_name("programs_that_read")
READING = """\
tool: torch
models: [reader, script]
phases: [train]
device: cpu
warmup: 1
time: {window: 2}
settings:
  reader: {module: mine.net, threads: 1, workers: 1}
  script: {command: sh own/run.sh own/conf.ini, inputs: [own/given], window: 2}
"""
READ = ["results/reader/train.time.csv", "results/script/train.time.csv"]
# 65 MiB, which no digest is taken of.
LARGE_BYTES = 65 << 20


def append(name: str) -> Callable[[Path], None]:
    """Change a file by a line at its end."""

    def change(root: Path) -> None:
        with (root / name).open("a") as file:
            file.write("\n")

    return change


def add(name: str) -> Callable[[Path], None]:
    return lambda root: Path(root / name).write_text("1\n") and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def replace_with_equal_size(root: Path) -> None:
    """Replace a file by another of the same size and time."""
    path = root / "lists/words.txt"
    before = path.stat()
    path.write_text(path.read_text()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def point_elsewhere(root: Path) -> None:
    """Point a link to another file."""
    (root / "lists/chosen").unlink()
    (root / "lists/chosen").symlink_to("two.txt")


def replace_end(name: str) -> Callable[[Path], None]:
    """Change the last byte of a file."""

    def change(root: Path) -> None:
        content = (root / name).read_bytes()
        (root / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return change


# Of each change what does it, and what is said of it.
OF_MODEL = {
    "its module": (append("mine/net.py"), "mine/net.py has changed"),
    "its package": (append("mine/__init__.py"), "mine/__init__.py has changed"),
    "a module of its package": (append("mine/layers.py"), "mine/layers.py has changed"),
    "a module that a function imports": (append("mine/deep/late.py"), "mine/deep/late.py has changed"),
    "a module that a name in a file asks for": (append("mine/plugin.py"), "mine/plugin.py, which it read, has changed"),
    "a file beside the package": (append("helper_top.py"), "helper_top.py, which it read, has changed"),
    "another package": (append("pkg2/sub.py"), "pkg2/sub.py, which it read, has changed"),
    "the start of another package": (append("pkg2/__init__.py"), "pkg2/__init__.py, which it read, has changed"),
    "a module that only a worker imports": (append("of_workers.py"), "of_workers.py, which it read, has changed"),
    "a file in FILES": (append("mine/listed.txt"), "mine/listed.txt has changed"),
    "a file not in FILES": (append("width.json"), "width.json, which it read, has changed"),
    "an array": (replace_end("lists/values.npy"), "lists/values.npy, which it read, has changed"),
    "weights of torch": (replace_end("lists/state.pt"), "lists/state.pt, which it read, has changed"),
    "weights of safetensors": (replace_end("lists/state.safetensors"), "lists/state.safetensors, which it read, has"),
    "a file of equal size and time": (replace_with_equal_size, "lists/words.txt, which it read, has changed"),
    "where a link leads": (point_elsewhere, "lists/chosen, which it read, has changed"),
    "a large file": (
        append("lists/large.bin"),
        "lists/large.bin, which it read, has changed (a large file is known by",
    ),
    "a file that is added": (add("samples/c.txt"), "samples/c.txt is new in a folder that it listed"),
    "a file that is removed": (remove("samples/b.txt"), "samples/b.txt, which it read, is gone"),
    "a file that it looked for": (add("override.json"), "override.json, which it looked for, is new"),
}
OF_SCRIPT = {
    "its file": (append("own/train.py"), "own/train.py, which it read, has changed"),
    "what the shell runs": (append("own/run.sh"), "own/run.sh, which it read, has changed"),
    "the file that its command names": (append("own/conf.ini"), "own/conf.ini, which it read, has changed"),
    "a module beside it": (append("own/sizes.py"), "own/sizes.py, which it read, has changed"),
    "a package from another folder": (append("pkg2/sub.py"), "pkg2/sub.py, which it read, has changed"),
    "a file of its inputs": (append("own/given/words.txt"), "own/given/words.txt has changed"),
    "a file added to its inputs": (add("own/given/more.txt"), "own/given/more.txt is new"),
    "a file that a worker opens": (append("own/data/0.txt"), "own/data/0.txt, which it read, has changed"),
    "a file added to its data": (add("own/data/9.txt"), "own/data/9.txt is new in a folder that it listed"),
    "a file removed from its data": (remove("own/data/1.txt"), "own/data/1.txt, which it read, is gone"),
    "a module of another of its processes": (append("own/prepare.py"), "own/prepare.py, which it read, has changed"),
    "a file opened from another folder": (
        append("own/inner/rate.txt"),
        "own/inner/rate.txt, which it read, has changed",
    ),
}
CASES = [("reader", name) for name in OF_MODEL] + [("script", name) for name in OF_SCRIPT]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A model and a script that read much, measured twice, as the script reads what it left the first time."""
    project = copy(tmp_path_factory.mktemp("reading") / "project", READING)
    shutil.copytree(READERS, project.root, dirs_exist_ok=True)
    lists = project.root / "lists"
    (lists / "chosen").symlink_to("one.txt")
    np.save(lists / "values.npy", np.zeros(4, dtype=np.float32))
    torch.save({"w": torch.zeros(2)}, lists / "state.pt")
    save_file({"w": torch.zeros(2)}, lists / "state.safetensors")
    with (lists / "large.bin").open("wb") as file:
        file.truncate(LARGE_BYTES)
    project.snakemake(*READ)
    project.snakemake(READ[1], "--force")
    return project


@pytest.fixture
def reading(measured: Project) -> Iterator[Project]:
    """The same; what a test changes of its programs is put back."""
    kept = measured.root.parent / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    names = sorted({path.name for path in READERS.iterdir()})
    kept.mkdir()
    for name in names:
        place = measured.root / name
        shutil.copytree(place, kept / name, symlinks=True) if place.is_dir() else shutil.copy2(place, kept / name)
    yield measured
    for name in [*names, "override.json"]:
        place = measured.root / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    shutil.copytree(kept, measured.root, symlinks=True, dirs_exist_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "name"), CASES)
def test_what_is_changed_of_what_it_reads_is_measured_again_and_named(reading: Project, model: str, name: str) -> None:
    change, said = (OF_MODEL if model == "reader" else OF_SCRIPT)[name]
    change(reading.root)
    planned = reading.snakemake(*READ, "-n")
    assert said in planned.stdout + planned.stderr
    assert re.search(rf"models: .*\b{model}\b", planned.stdout + planned.stderr), planned


@pytest.mark.slow
def test_what_a_program_reads_is_in_its_record_and_what_it_writes_is_not(measured: Project) -> None:
    """Its second run has read the checkpoint and listed the logs of the first one; each run adds a log of its own."""
    assert measured.dry(*READ) == []
    told = json.loads(measured.read(f"{READ[1]}.json"))
    written = [path for path in told["read"] if path.endswith((".pt", ".log", "left", "prepared.txt"))]
    assert written == [] and {"own/left/state.pt", "own/prepared.txt"} <= set(told["written"])
    assert told["read"]["own/data"] == ["0.txt", "1.txt", "2.txt"]
    installed = [
        path for model in READ for path in json.loads(measured.read(f"{model}.json"))["read"] if "torch/" in path
    ]
    assert installed == []


@pytest.mark.slow
def test_replaced_weights_run_again_what_reads_them(fresh: Project, recorded: Path) -> None:
    fresh.recording = recorded
    fresh.replace("models/lstm.py", "WORKLOADS = {", 'FILES = ("lstm.bin",)\nWORKLOADS = {')
    weights = fresh.root / "models/lstm.bin"
    weights.write_text("one")
    fresh.snakemake(*TARGETS)
    assert fresh.dry(*TARGETS) == []
    weights.write_text("two")
    # Older than all that was made, as an archive may leave it.
    os.utime(weights, ns=(0, 0))
    planned = fresh.dry(*TARGETS)
    assert rules(planned) == {"time_training"} and models(planned) == {"lstm"}
    weights.unlink()
    refused = fresh.snakemake(TARGETS[0], "--dry-run", ok=False)
    lines = [line for line in (refused.stdout + refused.stderr).splitlines() if "lstm.bin" in line]
    assert refused.returncode and len(lines) == 1, refused.stdout + refused.stderr
    assert "model 'lstm' names 'lstm.bin' in FILES, and there is no such file in " in lines[0]
