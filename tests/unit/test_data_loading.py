"""harness/batches and tasks: the same samples for the same seed, adapters of image data sets, one line for what does not fit."""

import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import cbook
from PIL import Image
from torch import nn
from torch.utils.data import IterableDataset

from models import spade
from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import inspection, interface
from profzoo.harness.step import batches
from profzoo.harness.step.batches import iterate_batches
from profzoo.harness.tasks import adversarial, classification, images, restoration, segmentation
from profzoo.harness.variants import batch_size
from tests import slow, zoo
from tests.harness_cells import cell, functions


def all_batches(name: str, phase: str = "train", **given: object) -> list:
    """All batches of a small cell."""
    small = {"size": 32, "batch": 2} if name != "lstm" else {"sequence_length": 4, "batch": 2}
    checked = config.normalise_config({"warmup": 0, "window": 2, "settings": {name: {**small, **given}}})
    cell = settings.resolve_cell(name, phase, "time", checked)
    return list(iterate_batches(cell, interface.load_functions(cell["module"])))


def image_folder(folder: Path, **labels: int) -> str:
    """An image folder with so many images of each label."""
    for label, count in labels.items():
        (folder / label).mkdir(parents=True)
        for index in range(count):
            Image.new("RGB", (20, 12), (index * 40 % 256, 0, 255)).save(folder / label / f"{index}.png")
    return str(folder)


def test_batches_are_whole_come_epoch_after_epoch_and_are_those_of_workers() -> None:
    for given, count in (({}, 2), ({"samples": 5, "epochs": 3}, 6), ({"epochs": 2}, 2)):
        found = all_batches("lstm", **given)
        assert len(found) == count and all(len(classes) == 2 for _, classes in found)
    grouped = all_batches("lstm", accumulate=3)
    assert [len(step) for step in grouped] == [3, 3] and all(len(one) == 2 for step in grouped for _, one in step)
    alone, helped = (all_batches("mobilenetv2", workers=workers) for workers in (0, 1))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(alone, helped, strict=True))


def labels_of(phase: str, **given: object) -> list[int]:
    """Labels in the order of the batches."""
    return torch.cat([labels for _, labels in all_batches("mobilenetv2", phase, **given)]).tolist()


@pytest.mark.parametrize("phase", slow.first(settings.PHASES))
def test_samples_come_from_all_over_a_folder(tmp_path: Path, phase: str) -> None:
    """Folders are read class by class; the first sixteen images would all be of the first."""
    source = {"source": "folder", "root": image_folder(tmp_path, a=40, b=40, c=40, d=40)}
    found = labels_of(phase, window=8, data=source)
    assert len(found) == 16 and set(found) == {0, 1, 2, 3}
    # Nor class after class.
    assert found != sorted(found)
    assert sorted(labels_of(phase, window=80, data=source)) == sorted([0, 1, 2, 3] * 40)


def test_the_seed_says_which_samples(tmp_path: Path) -> None:
    source = {"source": "folder", "root": image_folder(tmp_path, a=20, b=20)}
    one, same, other = (labels_of("inference", window=8, data=source, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    # Training goes through the same samples in another order.
    trained = labels_of("train", window=8, data=source, seed=1)
    assert trained != one and sorted(trained) == sorted(one)


# Photographs and drawings that matplotlib ships.
SHIPPED = ("grace_hopper.jpg", "logo2.png", "Minduka_Present_Blue_Pack.png")


def shipped_images(folder: Path, worse: bool) -> str:
    """A folder of images without classes; worse: of pairs instead, each of a small dark image and the image."""
    for name in SHIPPED:
        with cbook.get_sample_data(name, asfileobj=True) as file, Image.open(file) as read:
            image = read.convert("RGB").resize((32, 32))
        parts = (
            {"input": image.resize((16, 16)).point(lambda level: level // 2), "target": image} if worse else {"": image}
        )
        for part, one in parts.items():
            (folder / part).mkdir(parents=True, exist_ok=True)
            one.save(folder / part / f"{Path(name).stem}.png")
    return str(folder)


@pytest.mark.parametrize("name", ["srcnn", "srgan", "dped", "pixelrnn"])
def test_images_need_no_classes_where_the_model_has_none(tmp_path: Path, name: str) -> None:
    source = {"source": "folder", "root": shipped_images(tmp_path / "a", False)}
    tiny = zoo.cell(name, batch=3, data=source)
    (inputs, target), (known, known_target) = zoo.batch(tiny), zoo.batch(zoo.cell(name, batch=3))
    assert inputs.shape == known.shape and target.shape == known_target.shape
    assert len({round(float(one.float().mean()), 4) for one in inputs}) == 3


@pytest.mark.parametrize("name", ["srcnn", "srgan", "dped"])
def test_pairs_of_a_worse_and_a_better_image_are_what_is_learnt(tmp_path: Path, name: str) -> None:
    source = {"source": "folder", "root": shipped_images(tmp_path / "a", True)}
    worse, better = zoo.batch(zoo.cell(name, batch=3, data=source))
    known, known_better = zoo.batch(zoo.cell(name, batch=3))
    assert worse.shape == known.shape and better.shape == known_better.shape
    # The better one is twice as bright; srgan's is scaled to [-1, 1].
    better = better / 2 + 0.5 if name == "srgan" else better
    assert worse.mean((1, 2, 3)) * 2 == pytest.approx(better.mean((1, 2, 3)), rel=0.1)


@pytest.mark.parametrize("kind", ["flat", "pairs", "classes"])
def test_what_is_hidden_is_no_image(tmp_path: Path, kind: str) -> None:
    folder = Path(image_folder(tmp_path, a=1, b=2) if kind == "classes" else shipped_images(tmp_path, kind == "pairs"))
    (folder / ".thumbnails").mkdir()
    for place in (folder, *folder.iterdir()):
        if place.is_dir():
            (place / "._a.png").write_bytes(b"none")
    known = ["a", "b", "b"] if kind == "classes" else [None] * 3
    found = [one[1] for one in map(images.open_folder(str(folder)).__getitem__, range(3))]
    assert kind == "pairs" or found == [("a", "b").index(one) if one else None for one in known]


def test_pairs_may_be_an_image_and_its_mask(tmp_path: Path) -> None:
    source = {"source": "folder", "root": shipped_images(tmp_path / "a", True)}
    for path in (tmp_path / "a" / "target").iterdir():
        Image.new("L", (32, 32), 1).save(path)
    _, mask = zoo.batch(zoo.cell("unet", data=source))
    assert mask.eq(1).all()
    Image.new("RGB", (32, 32)).save(path)
    with pytest.raises(ConfigError, match="a mask has 3 channels: give masks of one"):
        zoo.batch(zoo.cell("unet", batch=3, data=source))


def test_training_reads_train_and_inference_test_or_a_share(tmp_path: Path) -> None:
    for part, count in (("train", 6), ("test", 4)):
        image_folder(tmp_path / "a" / part, x=count, y=count)
    source = {"source": "folder", "root": str(tmp_path / "a")}
    assert len(labels_of("train", window=6, data=source)) == 12
    assert sorted(labels_of("inference", window=4, data=source)) == [0] * 4 + [1] * 4
    # A class has one number in both.
    shutil.rmtree(tmp_path / "a" / "test" / "x")
    (tmp_path / "a" / "test").rename(tmp_path / "a" / "val")
    assert labels_of("inference", window=2, data=source) == [1] * 4
    shared = {"source": "folder", "root": str(tmp_path / "a" / "train"), "test": 0.34}
    assert sorted(labels_of("inference", window=2, data=shared)) == [0, 0, 1, 1]
    with pytest.raises(ConfigError, match="has 8 samples, 10 are needed"):
        labels_of("train", window=5, data=shared)


# Of a black and a white image, what the network takes: [0, 1] unless its authors scaled otherwise.
RANGES = {
    **dict.fromkeys(("mobilenetv2", "vgg16", "vgg19", "resnetv2_50", "resnetv2_152"), (-2.1179, 2.64)),
    **dict.fromkeys(("inceptionv3", "inceptionv4", "inceptionresnetv2"), (-1, 1)),
    **dict.fromkeys(("deeplab", "pspnet", "icnet"), (-2.1179, 2.64)),
    "unet": (-0.449 / 0.226, 0.551 / 0.226),
    **dict.fromkeys(("srcnn", "srgan", "pixelrnn"), (0, 1)),
    "dped": (0.25, 0.75),
}


# The same of image_folder that are to be made.
MADE = {"srcnn": (0, 1), "srgan": (-1, 1), "dped": (0, 1), "spade": (-1, 1)}


@pytest.mark.parametrize("name", sorted(RANGES | MADE))
def test_pixels_have_the_range_of_the_models_authors_and_random_ones_too(name: str) -> None:
    cell = settings.resolve_cell(name, "train", "time", config.normalise_config({}))
    model, shape = interface.load_functions(cell["module"]), SimpleNamespace(**cell["shape"])
    target = Image.new("L", (40, 40), 0) if name in ("unet", "deeplab", "pspnet", "icnet", "spade") else 0
    adapted = [model.adapt((Image.new("RGB", (40, 40), (grey,) * 3), target), shape) for grey in (0, 255)]
    drawn = model.sample(shape, torch.Generator().manual_seed(0))
    for place, known in enumerate((RANGES, MADE)):
        if name in known:
            low, high = known[name]
            black, white = (one[place] for one in adapted)
            assert (black.min(), white.max()) == pytest.approx((low, high), abs=1e-3)
            # Bicubic enlargement goes a little beyond.
            beyond, near = 0.05 * (high - low), 0.25 * (high - low)
            assert low - beyond <= drawn[place].min() < low + near
            assert high - near < drawn[place].max() <= high + beyond


def test_every_adapter_of_the_zoo_is_looked_at() -> None:
    adapters = {name: interface.load_functions(model.module).adapt for name, model in registry.shipped_models().items()}
    # Several models may share one.
    assert {one for one in adapters.values() if one} == {adapters[name] for name in RANGES | MADE}


@pytest.mark.parametrize("name", slow.first(["unet", "icnet", "deeplab", "pspnet"]))
def test_losses_leave_pixels_without_a_class_out(name: str) -> None:
    tiny = zoo.cell(name)
    trainer, (inputs, target) = zoo.trainer(tiny, zoo.network(tiny)), zoo.batch(tiny)
    # All of a block that is seen at any resolution.
    target[:, :16, :16] = segmentation.IGNORED
    with torch.no_grad():
        outputs = trainer.network(inputs)
    before = trainer.model.loss(outputs, target)
    poisoned = inspection.map_leaves(lambda scores: scores.clone(), outputs)
    for scores in inspection.find_tensors(poisoned):
        ratio = target.shape[1] // scores.shape[2]
        scores[:, 0, : 16 // ratio, : 16 // ratio] += 100
    torch.testing.assert_close(trainer.model.loss(poisoned, target), before)


def test_spade_has_a_class_for_pixels_without_one() -> None:
    values = np.full((32, 32), 255, dtype="uint8")
    shape = SimpleNamespace(size=32, classes=5)
    mask, _ = spade.adapt((Image.new("RGB", (32, 32)), Image.fromarray(values)), shape)
    assert mask.eq(4).all() and spade.one_hot(mask[None], 5, torch.float32)[0, 4].eq(1).all()


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("mobilenetv2", {"source": "dataset"}, "data.name = None is not a dataset of torchvision"),
        ("mobilenetv2", {"source": "dataset", "name": "fakedata"}, "did you mean 'FakeData'"),
        ("mobilenetv2", {"source": "folder", "root": None}, "data.root = None is not a folder"),
        ("mobilenetv2", {"source": "folder", "root": "none"}, "data.root = 'none' is not a folder"),
        ("mobilenetv2", {"source": "dataset", "name": "MNIST"}, "data.name = MNIST, data.root = 'here'"),
        ("mobilenetv2", {"source": "dataset", "name": "FakeData", "arguments": {"sise": 1}}, "sise"),
        ("mobilenetv2", {"source": "dataset", "name": "FakeData", "arguments": {"size": 2}}, "has 2 samples, 4 are needed"),
        ("mobilenetv2", {"source": "dataset", "name": "MNIST", "arguments": {"download": True}},
         "profzoo downloads nothing; put MNIST under 'here'"),
        ("unet", {"source": "dataset", "name": "FakeData"}, "needs masks"),
        ("lstm", {"source": "dataset", "name": "FakeData"}, "lstm takes no image data set"),
        ("mobilenetv2", {"source": "folder"}, "data.root = 'here' holds no image: name a folder with files such as"),
        ("mobilenetv2", {"source": "folder", "root": "flat"}, "put the images into a folder for each class"),
        ("srcnn", {"source": "folder", "root": "pairs"}, "odd is not in both of input and target: add it, or remove"),
        ("unet", {"source": "dataset", "name": "VOCSegmentation", "arguments": {"year": "3000"}}, "data.name = VOCSegmentation"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: dict, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    shipped_images(tmp_path / "flat", False)
    Image.new("L", (8, 8)).save(tmp_path / "flat" / "other.png")
    shipped_images(tmp_path / "pairs", True)
    Image.new("L", (8, 8)).save(tmp_path / "pairs" / "input" / "odd.png")
    with pytest.raises(ConfigError, match=words):
        all_batches(name, data={"root": "here", **source})


def test_a_label_beyond_the_models_classes_is_named(tmp_path: Path) -> None:
    source = {"source": "folder", "root": image_folder(tmp_path, a=1, b=1, c=4)}
    with pytest.raises(ConfigError, match="label 2 is not one of the model's 2 classes"):
        all_batches("mobilenetv2", "inference", classes=2, data=source)


def drawn(shape: SimpleNamespace, generator: torch.Generator) -> tuple[int, int]:
    return int(torch.randint(10**9, (), generator=generator)), 0


def test_two_batches_of_samples_are_made_and_come_in_turn() -> None:
    made, generator = batches.SyntheticDataset(drawn, SimpleNamespace(), 7, 4, 5), torch.Generator()
    seeds = [drawn(SimpleNamespace(), generator.manual_seed(5 * 1_000_003 + n))[0] for n in range(4)]
    assert [made[n][0] for n in range(7)] == [*seeds, *seeds[:3]] and len(made) == 7
    # No more than there are.
    assert len(batches.SyntheticDataset(drawn, SimpleNamespace(), 2, 4, 5)._pool) == 2
    for index in (-1, 7):
        with pytest.raises(IndexError):
            made[index]


def test_where_samples_come_from_is_told() -> None:
    mine, own = functions(dataset=lambda shape: [1]), functions(sample=drawn)
    from_disk = {"source": "x", "name": "CIFAR10"}
    for one, model, told in (
        (cell(), own, ("sample", 6)), (cell(samples=5), own, ("sample", 5)), (cell(), mine, ("dataset", None)),
        (cell(data=from_disk), mine, ("CIFAR10", None)),
        (cell(data={"source": "folder", "name": None}), functions(), ("folder", None)),
    ):  # fmt: skip
        found = batches.describe_source(one, model)
        assert (found["from"], found["pool"]) == told


@pytest.mark.parametrize("there", [True, False])
def test_memory_is_pinned_where_a_gpu_is_and_the_cell_wants_it(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    asked: list[dict] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(batches, "DataLoader", lambda dataset, **given: asked.append(given) or [len(dataset)])
    model = functions(sample=drawn)
    of_workers = {"workers": 1, "prefetch_factor": 3, "persistent_workers": False}
    # Memory is taken stock of without workers.
    alone = cell(**{**of_workers, "workers": 0})
    for one in (cell(pin_memory=True), cell(workers=1, phase="inference"), cell(**of_workers), alone):
        assert list(batches.iterate_batches(one, model)) == [7, 7]
    assert [one["pin_memory"] for one in asked] == [there, False, False, False]
    assert [one["shuffle"] for one in asked] == [True, False, True, True]
    keys = ("num_workers", "persistent_workers", "prefetch_factor")
    found = [tuple(one[key] for key in keys) for one in asked]
    assert found == [(0, False, None), (1, True, None), (1, False, 3), (0, False, None)]
    assert all(one["drop_last"] and one["batch_size"] == 3 and one["sampler"] is None for one in asked)
    assert asked[0]["generator"].initial_seed() == 1


def test_loading_that_waits_keeps_no_core_busy_and_the_rest_of_the_step_does() -> None:
    """Of 20 ms in each step, half are loading; the first steps, which fill caches, do not count."""

    def source(asleep: bool) -> Iterator[torch.Tensor]:
        for number in range(8):
            spend(number < batches.FIRST_STEPS or not asleep)
            yield torch.zeros(3, 5)

    def spend(computes: bool) -> None:
        until = time.thread_time() + 0.01
        if not computes:
            time.sleep(0.01)
        while computes and time.thread_time() < until:
            pass

    for asleep in (True, False):
        found, samples = batches.BatchLoading(), source(asleep)
        while found.take(samples) is not None:
            spend(asleep)
        noted = found.read()["loading"]
        waits, computes = noted["loading_cores"], noted["step_cores"]
        assert max(waits, computes) > 2 * min(waits, computes) and (waits < computes) == asleep
    short = batches.BatchLoading()
    for _ in range(batches.FIRST_STEPS + 1):
        assert short.read() == {}
        short.take(iter([{"a": torch.zeros(3, 5), "b": torch.zeros(2, dtype=torch.int64)}]))
    assert short.read(workers=2) == {"loading": {"workers": 2}}
    short.begin()
    noted = short.read()["loading"]
    assert set(noted) == {"loading_cores", "step_cores", "batch_bytes"}
    assert noted["batch_bytes"] == 60 + 16


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(())


@pytest.mark.parametrize(
    ("found", "gpus", "said"),
    [
        ([1, 2, 3], 1, None), ([1, 2], 1, "has 2 samples, too few for one batch of 3:"),
        (list(range(6)), 2, None), (list(range(5)), 2, "has 5 samples, too few for one batch of 3 in each of 2"),
        (Endless(), 1, None), (Endless(), 2, "is an IterableDataset, which 2 processes cannot share"),
        ({1}, 1, "returned set: return a torch Dataset"), (SimpleNamespace(), 1, "returned SimpleNamespace"),
    ],
)  # fmt: skip
def test_a_data_set_has_a_batch_for_each_process(found: Any, gpus: int, said: str | None) -> None:
    one, model = cell(gpus=gpus), functions(dataset=lambda shape: found)
    if said is None:
        assert batches.make_dataset(one, model) is found
    else:
        with pytest.raises(ConfigError, match=said):
            batches.make_dataset(one, model)


def test_a_data_set_comes_again_shuffled_by_its_epoch() -> None:
    epochs: list[int] = []
    share = SimpleNamespace(set_epoch=epochs.append)
    coming = batches.repeat_batches([0, None, 2], share, cell())  # type: ignore[arg-type]
    assert [next(coming) for _ in range(7)] == [0, None, 2, 0, None, 2, 0] and epochs == [0, 1, 2]
    with pytest.raises(ConfigError, match="ended before one batch of 3"):
        next(batches.repeat_batches([], None, cell()))  # type: ignore[arg-type]


def test_processes_see_their_samples_in_another_order_in_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    coming = iterate_batches(cell(gpus=2, batch=2, samples=40), functions(sample=drawn))
    first, second = ([str(next(coming)) for _ in range(10)] for _ in range(2))
    assert first != second


def test_a_batch_is_a_pair_or_a_mapping() -> None:
    one, model, named = cell(), functions(sample=drawn), {"x": 1}
    assert batches.split_batch((1, 2), one, model) == batches.split_batch([1, 2], one, model) == (1, 2)
    assert batches.split_batch(named, one, model) == (named, named)
    for batch, words in ((torch.ones(2, 3), "one tensor of 2 x 3"), (torch.ones(()), "one tensor of one number"),
                         ((1, 2, 3), "a tuple of 3"), ("ab", "of type str")):  # fmt: skip
        with pytest.raises(ConfigError, match=f"a batch is {words}, where .* sample.* give one$"):
            batches.split_batch(batch, one, model)
    network: Any = lambda *given, **named: (given, named)  # noqa: E731
    assert [batches.call_network(network, given, 5) for given in (named, (1, 2))] == [((), {"x": 1}), ((5,), {})]
    makers = [
        batches.name_batch_maker(one, functions(collate=list)), batches.name_batch_maker(cell(data={"source": "folder"}), model),
        batches.name_batch_maker(one, functions(dataset=list)), batches.name_batch_maker(one, model),
    ]  # fmt: skip
    assert makers == ["collate(samples)", "adapt(sample, shape)", "dataset(shape)", "sample(shape, generator)"]


def test_a_batch_is_halved_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_size.gc, "collect", lambda: None)
    tried: list[int] = []

    def rehearsal(most: int) -> Callable[[Any], None]:
        def rehearse(one: Any) -> None:
            tried.append(one["batch"])
            if one["batch"] > most:
                raise RuntimeError("CUDA out of memory. Tried")

        return rehearse

    for most, fits, tries in ((10, 10, 1), (9, 5, 2), (4, 2, 3), (1, 1, 4)):
        tried.clear()
        assert batch_size.fit_batch(cell(batch=10), rehearsal(most))["batch"] == fits
        assert tried == [10, 5, 2, 1][:tries]
    with pytest.raises(ConfigError, match="runs out of memory at batch 1"):
        batch_size.fit_batch(cell(batch=1), rehearsal(0))
    told = [batch_size.is_out_of_memory(error) for error in (
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when"), RuntimeError("CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("can't allocate memory: you"), torch.OutOfMemoryError("x"), MemoryError(), RuntimeError("memory"),
    )]  # fmt: skip
    assert told == [True] * 5 + [False]


def test_labels_and_masks_are_of_the_models_classes() -> None:
    image, shape = Image.new("RGB", (8, 6), (255, 0, 51)), SimpleNamespace(size=4, classes=3)
    tensor, label = classification.symmetric_adapt((image, 2), shape)
    assert label == 2 and tensor.shape == (3, 4, 4) and tensor[:, 0, 0].tolist() == pytest.approx([1.0, -1.0, -0.6])
    scaled, _ = classification.adapt((image, 0), shape)
    by_hand = [(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]
    assert scaled[:, 1, 1].tolist() == pytest.approx(by_hand, abs=1e-5)
    for wrong in (3, -1, "a"):
        with pytest.raises(ConfigError, match="is not one of the model's 3 classes"):
            classification.adapt((image, wrong), shape)
    mask = Image.new("L", (8, 6), 2)
    mask.putpixel((0, 0), 255)
    _, found = segmentation.adapt((image, mask), SimpleNamespace(height=6, width=8, classes=3))
    assert found.shape == (6, 8) and int(found[0, 0]) == -100 and int(found.sum()) == 2 * 47 - 100
    with pytest.raises(ConfigError, match="class 2 of a mask is not one of the model's 2"):
        segmentation.adapt((image, mask), SimpleNamespace(height=6, width=8, classes=2))


def test_classes_of_a_random_mask_go_by_its_first_channel() -> None:
    shape = SimpleNamespace(height=20, width=24, classes=4, channels=2)
    image, mask = segmentation.drawn(shape, torch.Generator().manual_seed(0))
    assert image.shape == (2, 20, 24) and torch.equal(mask, (image[0] * 4).floor().long()) and mask.max() <= 3
    assert torch.equal(images.random(shape, torch.Generator().manual_seed(0)), image)
    # Of two channels, both have the mean of the three means, and of the deviations.
    expected = (image - (0.485 + 0.456 + 0.406) / 3) / ((0.229 + 0.224 + 0.225) / 3)
    assert torch.allclose(segmentation.sample(shape, torch.Generator().manual_seed(0))[0], expected, atol=1e-5)
    # A free choice of colour every eight pixels, and two more: that many are drawn.
    coarse = torch.rand(1, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    drawn = nn.functional.interpolate(coarse, size=(20, 24), mode="bilinear", align_corners=False)[0]
    assert torch.equal(drawn, image)


def test_an_auxiliary_head_counts_by_its_weight() -> None:
    scores, other = torch.zeros(1, 2, 1, 1), torch.tensor([[[[0.0]], [[math.log(3)]]]])
    # Of two classes that are as likely, ln 2; of one that is a quarter, ln 4.
    found = segmentation.with_auxiliary(scores, other, torch.zeros(1, 1, 1).long(), 0.25)
    assert float(found) == pytest.approx(math.log(2) + 0.25 * math.log(4))


def test_a_worse_image_has_means_of_pixels() -> None:
    worse, better = restoration._pair(torch.arange(16.0).reshape(1, 4, 4), SimpleNamespace(scale=2))
    assert worse.tolist() == [[[2.5, 4.5], [10.5, 12.5]]] and better.shape == (1, 4, 4)
    same, better = restoration._pair(torch.ones(1, 4, 4), SimpleNamespace(scale=1))
    assert same is better and float(restoration.loss(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]))) == 5


def test_weights_are_drawn_by_the_inputs_of_a_unit() -> None:
    torch.manual_seed(0)
    # 64 * 3 * 5 inputs; in groups of four a fourth; with strides of 2 and 3 a sixth of 64 * 6 * 6.
    cases = [
        (nn.Conv2d(64, 256, (3, 5)), 64 * 15), (nn.Conv2d(64, 256, (3, 5), groups=4), 16 * 15),
        (nn.ConvTranspose2d(64, 64, 6, stride=(2, 3)), 64 * 36 / 6), (nn.Conv2d(64, 256, 3, stride=2, bias=False), 64 * 9),
    ]  # fmt: skip
    for layer, inputs in cases:
        images.he(nn.Sequential(layer))
        assert float(layer.weight.std()) == pytest.approx(math.sqrt(2 / inputs), rel=0.02)
        assert abs(float(layer.weight.mean())) < 0.02 * math.sqrt(2 / inputs) * 2
        assert layer.bias is None or not layer.bias.any()


def test_features_are_of_the_convolutions_named() -> None:
    features = adversarial.Features("conv1_1", "conv2_1", scale=((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
    # conv1_1 and its ReLU; conv1_2, ReLU, pool, conv2_1 and its ReLU.
    assert [len(part) for part in features.parts] == [2, 5]
    assert not any(one.requires_grad for one in features.parameters())
    image = torch.rand(1, 3, 8, 8)
    first, second = features(image)
    assert first.shape == (1, 64, 8, 8) and second.shape == (1, 128, 4, 4)
    assert torch.allclose(first, features.parts[0]((image - 0.5) / 0.25))
    features.scaled = False
    assert torch.equal(features(image)[0], features.parts[0](image))
    line = nn.Linear(1, 1)
    with adversarial.frozen(line):
        assert not line.weight.requires_grad
    assert line.weight.requires_grad
