"""harness/data: the same samples for the same seed, epochs, adapters of image data sets, one line for what does not fit."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from models import mobilenetv2
from models.harness import data, interface, settings
from models.harness.tasks import segmentation
from workflow.scripts.lib import config
from workflow.scripts.lib.schema import ConfigError

CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last
SHAPE = SimpleNamespace(size=8, classes=10)


def batches(name: str, phase: str = "train", **given: object) -> list:
    """All batches of a small cell."""
    small = {"size": 32, "batch": 2} if name != "lstm" else {"sequence_length": 4, "batch": 2}
    checked = config.normalise({"warmup": 0, "window": 2, "settings": {name: {**small, **given}}})
    cell = settings.resolve(name, phase, "time", checked)
    return list(data.batches(cell, interface.load(cell["module"])))


def images(folder: Path, **labels: int) -> str:
    """An image folder with so many images of each label."""
    for label, count in labels.items():
        (folder / label).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (20, 12), (index * 40, 0, 255)).save(folder / label / f"{index}.png")
    return str(folder)


def synthetic(count: int, distinct: int, seed: int = 0) -> data.Synthetic:
    """Synthetic images."""
    return data.Synthetic(mobilenetv2.sample, SHAPE, count, distinct, seed)


def test_a_few_synthetic_samples_come_again_and_again() -> None:
    source = synthetic(count=7, distinct=3)
    assert len(source) == len(list(source)) == 7
    assert torch.equal(source[0][0], source[3][0]) and not torch.equal(source[0][0], source[1][0])


@pytest.mark.parametrize("index", [-1, 7])
def test_there_is_no_sample_beyond_the_last(index: int) -> None:
    with pytest.raises(IndexError):
        synthetic(count=7, distinct=3)[index]


@pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
def test_synthetic_samples_depend_on_the_seed_alone(seed: int, same: bool) -> None:
    assert torch.equal(synthetic(4, 4)[2][0], synthetic(9, 5, seed)[2][0]) == same


@pytest.mark.parametrize(("given", "count"), [({}, 2), ({"samples": 5, "epochs": 3}, 6), ({"epochs": 2}, 2)])
def test_batches_are_whole_and_come_epoch_after_epoch(given: dict, count: int) -> None:
    found = batches("lstm", **given)
    assert len(found) == count and all(len(classes) == 2 for _, classes in found)


def test_workers_load_the_same_batches() -> None:
    alone, helped = (batches("mobilenetv2", workers=workers) for workers in (0, 1))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(alone, helped, strict=True))


def test_training_shuffles_and_inference_does_not(tmp_path: Path) -> None:
    source = {"source": "folder", "root": images(tmp_path, a=8, b=8)}
    orders = {
        phase: torch.cat([labels for _, labels in batches("mobilenetv2", phase, window=8, data=source)]).tolist()
        for phase in settings.PHASES
    }
    assert orders["inference"] == [0] * 8 + [1] * 8 != orders["train"]
    assert sorted(orders["train"]) == orders["inference"]


def test_images_become_scaled_tensors_of_the_models_size(tmp_path: Path) -> None:
    source = {"source": "folder", "root": images(tmp_path, a=4)}
    pixels, labels = batches("mobilenetv2", "inference", data=source)[0]
    assert pixels.shape == (2, 3, 32, 32) and pixels.dtype == torch.float32 and labels.tolist() == [0, 0]
    assert pixels[:, 2].eq(1).all() and pixels[0, 0].eq(0).all()


def masks(values: np.ndarray, shape: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor]:
    """A white image and a mask through the adapter of segmentation."""
    return segmentation.adapt((Image.new("RGB", (6, 6), "white"), Image.fromarray(values.astype("uint8"))), shape)


def test_masks_become_classes_of_the_model() -> None:
    values = np.zeros((4, 4))
    values[:2], values[3, 3] = 1, 255
    image, target = masks(values, SimpleNamespace(size=4, classes=3, channels=1))
    assert image.shape == (1, 4, 4) and image.eq(1).all()
    assert target.dtype == torch.int64 and target.shape == (4, 4)
    assert target[:2].eq(1).all() and target[2].eq(0).all() and target.max() < 3


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("mobilenetv2", {"source": "dataset"}, "data.name = None is no dataset of torchvision"),
        ("mobilenetv2", {"source": "dataset", "name": "fakedata"}, "did you mean 'FakeData'"),
        ("mobilenetv2", {"source": "folder"}, "data.root = None is no folder"),
        (
            "mobilenetv2",
            {"source": "dataset", "name": "MNIST", "root": "here"},
            "data.name = MNIST, data.root = 'here'",
        ),
        ("mobilenetv2", {"source": "dataset", "name": "FakeData", "arguments": {"sise": 1}}, "sise"),
        (
            "mobilenetv2",
            {"source": "dataset", "name": "MNIST", "root": "here", "arguments": {"download": True}},
            "profzoo downloads nothing; put MNIST under 'here'",
        ),
        ("unet", {"source": "dataset", "name": "FakeData"}, "needs masks"),
        ("lstm", {"source": "dataset", "name": "FakeData"}, "lstm takes no image data set"),
        ("mobilenetv2", {"source": "folder", "root": "empty"}, "data.root = 'empty'"),
        (
            "unet",
            {"source": "dataset", "name": "VOCSegmentation", "root": "here", "arguments": {"year": "3000"}},
            "data.name = VOCSegmentation",
        ),
    ],
)
def test_data_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: dict, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("here", "empty"):
        (tmp_path / folder).mkdir()
    with pytest.raises(ConfigError, match=words):
        batches(name, data=source)


def test_a_label_beyond_the_models_classes_is_named(tmp_path: Path) -> None:
    source = {"source": "folder", "root": images(tmp_path, a=1, b=1, c=4)}
    with pytest.raises(ConfigError, match="label 2 is not one of the model's 2 classes"):
        batches("mobilenetv2", "inference", classes=2, data=source)


def test_too_few_images_say_how_many_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 3 samples, 4 are needed"):
        batches("mobilenetv2", data={"source": "folder", "root": images(tmp_path, a=3)})


@pytest.mark.parametrize("memory_format", [CONTIGUOUS, CHANNELS_LAST])
def test_to_device_keeps_structure_and_lays_out_images_only(memory_format: torch.memory_format) -> None:
    batch = [(torch.rand(2, 3, 4, 4), "name"), torch.ones(2, 3, 4, 4, dtype=torch.int64), torch.rand(2, 3)]
    (image, text), mask, vector = moved = data.to_device(batch, torch.device("cpu"), memory_format)
    assert type(moved) is list and text == "name" and torch.equal(image, batch[0][0])
    assert image.is_contiguous(memory_format=memory_format) and mask.is_contiguous() and vector.is_contiguous()
