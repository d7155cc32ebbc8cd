"""Images and texts on disk are inputs of the cells that use them, and of no others."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import slow, zoo
from tests.unit import test_tokens
from tests.workflow.project import TINY, Project, copy, models, rules

CONFIG = (
    TINY.replace("models: [lstm, unet]", "models: [lstm, mobilenetv2]")
    + """\
  mobilenetv2: {size: 32, batch: 2, data: {source: folder, root: images}}
"""
)
TARGETS = [
    f"results/{model}/{end}" for model in ("lstm", "mobilenetv2") for end in ("train.torch.csv", "inference.time.csv")
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Project:
    """One model that runs on images, and one without that was recorded."""
    project = copy(tmp_path_factory.mktemp("images") / "project", CONFIG)
    project.recording = recorded
    for label in ("cat", "dog"):
        (project.root / "images" / label).mkdir(parents=True)
        for index in range(4):
            draw(project.root / "images" / label / f"{index}.png", index)
    project.snakemake(*TARGETS)
    return project


def draw(path: Path, seed: int) -> None:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)


@pytest.mark.slow
def test_replaced_and_added_images_run_again_what_used_them(trained: Project) -> None:
    assert trained.dry(*TARGETS) == []
    images = trained.root / "images"
    draw(images / "dog" / "3.png", 7)
    jobs = trained.dry(*TARGETS)
    assert models(jobs) == {"mobilenetv2"}
    assert rules(jobs) == {"time_inference", "profile_torch", "export_torch"}
    trained.snakemake(*TARGETS)
    assert trained.dry(*TARGETS) == []
    os.link(images / "dog" / "3.png", images / "dog" / "4.png")
    assert models(trained.dry(*TARGETS)) == {"mobilenetv2"}
    (images / "dog" / "4.png").unlink()
    assert trained.dry(*TARGETS) == []


@pytest.mark.parametrize(
    "words", slow.first([["all"], ["results/mobilenetv2/train.time.csv", "--config", "models=lstm"]])
)
def test_a_folder_that_is_not_there_is_named_before_any_job(tmp_path: Path, words: list[str]) -> None:
    project = copy(tmp_path / "project", CONFIG)
    run = project.snakemake(*words, ok=False)
    line = "mobilenetv2: data.root = 'images' is not a folder: name the one that holds your images"
    assert run.returncode and (run.stdout + run.stderr).splitlines().count(line) == 1
    assert not project.files()


def on_texts(root: Path, name: str, **files: str) -> Project:
    """A project whose one model runs on texts that two workers load."""
    given = {**zoo.TINY[name], "vocabulary": 150, "workers": 2, "data": {"source": "text", "root": "texts"}}
    general = TINY.partition("settings:")[0].replace("[lstm, unet]", name)
    project = copy(root / "project", f"{general}settings: {json.dumps({name: given})}\n")
    project.variables = {"PYTHONPATH": test_tokens.FOLDER or ""}
    test_tokens.write(project.root / "texts", **files)
    return project


@pytest.mark.slow
@test_tokens.needs_library
@pytest.mark.parametrize("name", ["gnmt", "gpt"])
def test_texts_are_loaded_by_workers_and_read_again_when_they_change(tmp_path: Path, name: str) -> None:
    project, cell = on_texts(tmp_path, name, **test_tokens.SHIPPED[name]), f"results/{name}/train.time.csv"
    project.snakemake(cell)
    facts = json.loads(project.read(f"{cell}.json"))
    assert (facts["input"]["from"], facts["ran_with"]["workers"], facts["steps"]) == ("text", 2, 2)
    assert len(project.files("results/vocabularies")) == 1
    assert project.dry(cell) == []
    (path,) = (project.root / "texts").iterdir()
    path.write_text(path.read_text() * 2)
    assert rules(project.dry(cell)) == {"time_training"}


@pytest.mark.slow
@test_tokens.needs_library
def test_texts_that_are_too_few_are_named(tmp_path: Path) -> None:
    project = on_texts(tmp_path, "gpt", a_txt="The quick brown fox jumps over the lazy dog.")
    run = project.snakemake("results/gpt/train.time.csv", ok=False)
    why = "gpt: data.root = 'texts' has 1 samples, 6 are needed: add more, or lower samples, batch, warmup or window"
    assert run.returncode and f"    why      {why}, or raise epochs\n" in run.stdout + run.stderr
