"""harness/data: the same samples for the same seed, epochs, adapters of image data sets, one line for what does not fit."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from models import mobilenetv2, spade
from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import data_loading, interface, tensor_trees
from profzoo.harness.tasks import segmentation
from tests import zoo

CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last
SHAPE = SimpleNamespace(size=8, classes=10)


def batches(name: str, phase: str = "train", **given: object) -> list:
    """All batches of a small cell."""
    small = {"size": 32, "batch": 2} if name != "lstm" else {"sequence_length": 4, "batch": 2}
    checked = config.normalise_config({"warmup": 0, "window": 2, "settings": {name: {**small, **given}}})
    cell = settings.resolve_cell(name, phase, "time", checked)
    return list(data_loading.iterate_batches(cell, interface.load_functions(cell["module"])))


def images(folder: Path, **labels: int) -> str:
    """An image folder with so many images of each label."""
    for label, count in labels.items():
        (folder / label).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (20, 12), (index * 40 % 256, 0, 255)).save(folder / label / f"{index}.png")
    return str(folder)


def synthetic(count: int, distinct: int, seed: int = 0) -> data_loading.SyntheticDataset:
    """Synthetic images."""
    return data_loading.SyntheticDataset(mobilenetv2.sample, SHAPE, count, distinct, seed)


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


def labels_of(phase: str, **given: object) -> list[int]:
    """Labels in the order of the batches."""
    return torch.cat([labels for _, labels in batches("mobilenetv2", phase, **given)]).tolist()


@pytest.mark.parametrize("phase", settings.PHASES)
def test_samples_come_from_all_over_a_folder(tmp_path: Path, phase: str) -> None:
    """Folders are read class by class; the first sixteen images would all be of the first."""
    source = {"source": "folder", "root": images(tmp_path, a=40, b=40, c=40, d=40)}
    found = labels_of(phase, window=8, data=source)
    assert len(found) == 16 and set(found) == {0, 1, 2, 3}
    # Nor class after class.
    assert found != sorted(found)
    assert sorted(labels_of(phase, window=80, data=source)) == sorted([0, 1, 2, 3] * 40)


def test_the_seed_says_which_samples(tmp_path: Path) -> None:
    source = {"source": "folder", "root": images(tmp_path, a=20, b=20)}
    one, same, other = (labels_of("inference", window=8, data=source, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    # Training goes through the same samples in another order.
    trained = labels_of("train", window=8, data=source, seed=1)
    assert trained != one and sorted(trained) == sorted(one)


def test_images_become_scaled_tensors_of_the_models_size(tmp_path: Path) -> None:
    source = {"source": "folder", "root": images(tmp_path, a=4)}
    pixels, labels = batches("mobilenetv2", "inference", data=source)[0]
    assert pixels.shape == (2, 3, 32, 32) and pixels.dtype == torch.float32 and labels.tolist() == [0, 0]
    # Green 0 and blue 255, by the mean and deviation of ImageNet.
    assert pixels[:, 1].allclose(torch.tensor(-0.456 / 0.224)) and pixels[:, 2].allclose(torch.tensor(0.594 / 0.225))


# Of a black and a white image, what the network takes: [0, 1] unless its authors scaled otherwise.
RANGES = {
    **dict.fromkeys(("mobilenetv2", "vgg16", "vgg19", "resnetv2_50", "resnetv2_152"), (-2.1179, 2.64)),
    **dict.fromkeys(("inceptionv3", "inceptionv4", "inceptionresnetv2"), (-1, 1)),
    **dict.fromkeys(("deeplab", "pspnet", "icnet"), (-2.1179, 2.64)),
    "unet": (-0.449 / 0.226, 0.551 / 0.226),
    **dict.fromkeys(("srcnn", "srgan", "pixelrnn"), (0, 1)),
    "dped": (0.25, 0.75),
}
# The same of images that are to be made.
MADE = {"srcnn": (0, 1), "srgan": (-1, 1), "dped": (0, 1), "spade": (-1, 1)}


def adapted(name: str, grey: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An image of one colour, and a mask of class 0, through the adapter of a model."""
    cell = settings.resolve_cell(name, "train", "time", config.normalise_config({}))
    picture, mask = Image.new("RGB", (40, 40), (grey,) * 3), Image.new("L", (40, 40), 0)
    model, masked = interface.load_functions(cell["module"]), {"unet", "deeplab", "pspnet", "icnet", "spade"}
    return model.adapt((picture, mask if name in masked else 0), SimpleNamespace(**cell["shape"]))


@pytest.mark.parametrize("name", sorted(RANGES | MADE))
def test_pixels_have_the_range_of_the_models_authors(name: str) -> None:
    (black, black_target), (white, white_target) = (adapted(name, grey) for grey in (0, 255))
    if name in RANGES:
        assert (black.min(), white.max()) == pytest.approx(RANGES[name], abs=1e-3)
    if name in MADE:
        assert (black_target.min(), white_target.max()) == pytest.approx(MADE[name], abs=1e-3)


@pytest.mark.parametrize("name", sorted(RANGES | MADE))
def test_random_images_have_the_range_of_real_ones(name: str) -> None:
    cell = settings.resolve_cell(name, "train", "time", config.normalise_config({}))
    drawn = interface.load_functions(cell["module"]).sample(
        SimpleNamespace(**cell["shape"]), torch.Generator().manual_seed(0)
    )
    for part, known in zip(drawn, (RANGES, MADE), strict=True):
        if name in known:
            low, high = known[name]
            # Bicubic enlargement goes a little beyond.
            beyond, near = 0.05 * (high - low), 0.25 * (high - low)
            assert low - beyond <= part.min() < low + near
            assert high - near < part.max() <= high + beyond


def test_every_adapter_of_the_zoo_is_looked_at() -> None:
    adapting = {
        name for name, model in registry.shipped_models().items() if interface.load_functions(model.module).adapt
    }
    assert adapting == set(RANGES | MADE)


def masks(values: np.ndarray, shape: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor]:
    """A white image and a mask through the adapter of segmentation."""
    return segmentation.adapt((Image.new("RGB", (6, 6), "white"), Image.fromarray(values.astype("uint8"))), shape)


def test_masks_become_classes_of_the_model() -> None:
    values = np.zeros((4, 4))
    values[:2] = 1
    image, target = masks(values, SimpleNamespace(size=4, classes=3, channels=1))
    assert image.shape == (1, 4, 4) and image.unique().numel() == 1
    assert target.dtype == torch.int64 and target.shape == (4, 4)
    assert target[:2].eq(1).all() and target[2:].eq(0).all()


def test_pixels_without_a_class_teach_nothing() -> None:
    values = np.zeros((4, 4))
    values[3, 3] = 255
    _, target = masks(values, SHAPE)
    scores = torch.randn(1, SHAPE.classes, 8, 8, requires_grad=True)
    torch.nn.functional.cross_entropy(scores, target[None]).backward()
    void = target == segmentation.IGNORED
    assert void.sum() == 4 and scores.grad[0, :, void].eq(0).all() and scores.grad[0, :, ~void].ne(0).all()


@pytest.mark.parametrize("name", ["unet", "deeplab", "pspnet", "icnet"])
def test_losses_leave_pixels_without_a_class_out(name: str) -> None:
    tiny = zoo.cell(name)
    trainer, (inputs, target) = zoo.trainer(tiny, zoo.network(tiny)), zoo.batch(tiny)
    # All of a block that is seen at any resolution.
    target[:, :16, :16] = segmentation.IGNORED
    with torch.no_grad():
        outputs = trainer.network(inputs)
    before = trainer.model.loss(outputs, target)
    poisoned = tensor_trees.map_leaves(lambda scores: scores.clone(), outputs)
    for scores in tensor_trees.find_tensors(poisoned):
        ratio = target.shape[1] // scores.shape[2]
        scores[:, 0, : 16 // ratio, : 16 // ratio] += 100
    torch.testing.assert_close(trainer.model.loss(poisoned, target), before)


def test_spade_has_a_class_for_pixels_without_one() -> None:
    values = np.full((32, 32), 255, dtype="uint8")
    shape = SimpleNamespace(size=32, classes=5)
    mask, _ = spade.adapt((Image.new("RGB", (32, 32)), Image.fromarray(values)), shape)
    assert mask.eq(4).all() and spade.one_hot(mask[None], 5, torch.float32)[0, 4].eq(1).all()


def test_a_class_beyond_the_models_is_named() -> None:
    with pytest.raises(ConfigError, match="class 10 of a mask is not one of the model's 10: set classes"):
        masks(np.full((4, 4), 10), SHAPE)


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
    (image, text), mask, vector = moved = data_loading.move_to_device(batch, torch.device("cpu"), memory_format)
    assert type(moved) is list and text == "name" and torch.equal(image, batch[0][0])
    assert image.is_contiguous(memory_format=memory_format) and mask.is_contiguous() and vector.is_contiguous()
