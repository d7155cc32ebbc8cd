"""What a cell is fed with, and what of it is kept: data sets, samples, images, weights, tensors, blocks, optimizers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset

from profzoo.errors import ConfigError
from profzoo.harness import (
    activation_checkpointing,
    batch_size,
    batch_structure,
    cpu_contention,
    cuda_graph,
    cuda_graph_trace,
    data_loading,
    distributed,
    interface,
    memory_blocks,
    optimizers,
    output_samples,
    own_dataset,
    peak_memory,
    ranges,
    step_loop,
    tensor_trees,
    training_step,
    window_length,
)  # fmt: skip
from profzoo.harness.memory_blocks import KnownAddresses
from profzoo.harness.tasks import adversarial, classification, images, restoration, segmentation, weights
from tests.unit.test_harness_by_hand import move, span

CPU = torch.device("cpu")


def functions(**given: Any) -> interface.ModelFunctions:
    return interface.ModelFunctions(**{"build": lambda shape: nn.Linear(1, 1), **given})


def cell(**given: Any) -> dict[str, Any]:
    return {
        "model": "m", "module": "mine", "phase": "train", "batch": 3, "samples": 7, "epochs": 2, "workers": 0, "seed": 1,
        "pin_memory": False, "gpus": 1, "nodes": 1, "shape": {}, "channels_last": False, "precision": "fp32",
        "data": {"source": "synthetic", "name": None, "root": None, "arguments": {}}, **given,
    }  # fmt: skip


# Data.


def drawn(shape: SimpleNamespace, generator: torch.Generator) -> tuple[int, int]:
    return int(torch.randint(10**9, (), generator=generator)), 0


def test_two_batches_of_samples_are_made_and_come_in_turn() -> None:
    made = data_loading.SyntheticDataset(drawn, SimpleNamespace(), 7, 4, 5)
    seeds = [
        int(torch.randint(10**9, (), generator=torch.Generator().manual_seed(5 * 1_000_003 + n))) for n in range(4)
    ]
    assert [made[n][0] for n in range(7)] == [*seeds, *seeds[:3]] and len(made) == 7
    # No more than there are.
    assert len(data_loading.SyntheticDataset(drawn, SimpleNamespace(), 2, 4, 5)._pool) == 2
    for index in (-1, 7):
        with pytest.raises(IndexError):
            made[index]


def test_where_samples_come_from_is_told() -> None:
    mine, from_disk = functions(dataset=lambda shape: [1]), {"source": "torchvision", "name": "CIFAR10"}
    told = [
        data_loading.describe_source(cell(), functions(sample=drawn)), data_loading.describe_source(cell(samples=5), functions(sample=drawn)),
        data_loading.describe_source(cell(), mine), data_loading.describe_source(cell(data=from_disk), mine),
        data_loading.describe_source(cell(data={"source": "folder", "name": None}), functions()),
    ]  # fmt: skip
    assert [(one["from"], one["pool"]) for one in told] == [
        ("sample", 6), ("sample", 5), ("dataset", None), ("CIFAR10", None), ("folder", None),
    ]  # fmt: skip


@pytest.mark.parametrize("there", [True, False])
def test_memory_is_pinned_where_a_gpu_is_and_the_cell_wants_it(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    asked: list[dict] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(data_loading, "DataLoader", lambda dataset, **given: asked.append(given) or [len(dataset)])
    model = functions(sample=drawn)
    for one in (cell(pin_memory=True), cell(workers=1, phase="inference")):
        assert list(data_loading.iterate_batches(one, model)) == [7, 7]
    assert [one["pin_memory"] for one in asked] == [there, False]
    assert [one["shuffle"] for one in asked] == [True, False]
    assert [(one["num_workers"], one["persistent_workers"]) for one in asked] == [(0, False), (1, True)]
    assert all(one["drop_last"] and one["batch_size"] == 3 and one["sampler"] is None for one in asked)
    assert asked[0]["generator"].initial_seed() == 1


class Moving:
    """Notes how it is asked to move."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def to(self, device: torch.device, non_blocking: bool = False) -> None:
        self.asked.append(non_blocking)


class Blocking:
    def to(self, device: torch.device) -> str:
        return f"on {device}"


class Any2:
    def to(self, device: torch.device, **more: Any) -> dict:
        return more


def test_what_moves_itself_goes_on_meanwhile_where_it_can() -> None:
    mine = Moving()
    found = data_loading.move_to_device({"a": mine, "b": Blocking(), "c": Any2()}, CPU, torch.channels_last)
    # One that returns nothing has moved itself in place.
    assert found == {"a": mine, "b": "on cpu", "c": {"non_blocking": True}} and mine.asked == [True]


def test_images_alone_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4), torch.ones(2, 3, 4, 4, dtype=torch.int64),
             torch.ones(2, 3, 4, 4).to_sparse()]  # fmt: skip
    found = data_loading.move_to_device(given, CPU, torch.channels_last)
    assert [one.is_contiguous(memory_format=torch.channels_last) for one in (found[0], found[2])] == [True, False]
    assert found[1].shape == (2, 3, 4) and found[3].layout is torch.sparse_coo


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
        assert own_dataset.make_dataset(one, model) is found
    else:
        with pytest.raises(ConfigError, match=said):
            own_dataset.make_dataset(one, model)


def test_a_data_set_comes_again_shuffled_by_its_epoch() -> None:
    epochs: list[int] = []
    share = SimpleNamespace(set_epoch=epochs.append)
    coming = own_dataset.repeat_batches([0, None, 2], share, cell())  # type: ignore[arg-type]
    assert [next(coming) for _ in range(7)] == [0, None, 2, 0, None, 2, 0] and epochs == [0, 1, 2]
    with pytest.raises(ConfigError, match="ended before one batch of 3"):
        next(own_dataset.repeat_batches([], None, cell()))  # type: ignore[arg-type]


def test_a_batch_is_a_pair_or_a_mapping() -> None:
    one, model = cell(), functions(sample=drawn)
    assert batch_structure.split_batch((1, 2), one, model) == batch_structure.split_batch([1, 2], one, model) == (1, 2)
    named = {"x": 1}
    assert batch_structure.split_batch(named, one, model) == (named, named)
    said = [(torch.ones(2, 3), "one tensor of 2 x 3"), (torch.ones(()), "one tensor of one number"),
            ((1, 2, 3), "a tuple of 3"), ("ab", "of type str")]  # fmt: skip
    for batch, words in said:
        with pytest.raises(ConfigError, match=f"a batch is {words}, where .* sample.* give one$"):
            batch_structure.split_batch(batch, one, model)
    network = lambda *given, **named: (given, named)  # noqa: E731
    assert batch_structure.call_network(network, named, 5) == ((), {"x": 1}) and batch_structure.call_network(
        network, (1, 2), 5
    ) == (
        (5,),
        {},
    )  # type: ignore[arg-type]
    makers = [
        batch_structure.name_batch_maker(one, functions(collate=list)), batch_structure.name_batch_maker(cell(data={"source": "folder"}), model),
        batch_structure.name_batch_maker(one, functions(dataset=list)), batch_structure.name_batch_maker(one, model),
    ]  # fmt: skip
    assert makers == ["collate(samples)", "adapt(sample, shape)", "dataset(shape)", "sample(shape, generator)"]


def test_a_batch_is_halved_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_size.gc, "collect", lambda: None)
    for most, fits in ((10, 10), (9, 5), (4, 2), (1, 1)):
        tried: list[int] = []

        def rehearse(one: Any) -> None:
            tried.append(one["batch"])  # noqa: B023
            if one["batch"] > most:  # noqa: B023
                raise RuntimeError("CUDA out of memory. Tried")

        assert batch_size.fit_batch(cell(batch=10), rehearse)["batch"] == fits == tried[-1]
        assert tried == [10, 5, 2, 1][: len(tried)]
    with pytest.raises(ConfigError, match="runs out of memory at batch 1"):
        batch_size.fit_batch(cell(batch=1), lambda one: (_ for _ in ()).throw(MemoryError()))
    told = [batch_size.is_out_of_memory(error) for error in (
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when"), RuntimeError("CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("can't allocate memory: you"), torch.OutOfMemoryError("x"), MemoryError(), RuntimeError("memory"),
    )]  # fmt: skip
    assert told == [True] * 5 + [False]


# Outputs.


def test_a_sample_of_outputs_is_64_numbers_shared_by_tensors() -> None:
    assert output_samples.sample_outputs(torch.arange(128.0)) == [float(2 * n) for n in range(64)]
    assert output_samples.sample_outputs(torch.arange(5.0)) == [0, 1, 2, 3, 4]
    # 32 each of 64 and of 33; 33 * n // 32 is n up to the last but none beyond.
    two = output_samples.sample_outputs([torch.arange(64.0), torch.arange(33.0)])
    assert two == [*range(0, 64, 2), *(33 * n // 32 for n in range(32))]
    assert output_samples.sample_outputs([torch.full((3,), float(n)) for n in range(70)]) == list(range(64))
    given = [torch.ones(2, dtype=torch.complex64), torch.ones(0), torch.ones(2, dtype=torch.int64), torch.tensor(7.0)]
    assert output_samples.sample_outputs(given) == [7]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.complex64, torch.float8_e5m2])
def test_one_number_that_is_not_finite_is_found(dtype: torch.dtype) -> None:
    fine, bad = torch.ones(4).to(dtype), torch.tensor([1.0, math.inf, 1.0]).to(dtype)
    assert output_samples.is_finite(
        [fine, torch.ones(0), torch.ones(2, dtype=torch.int64)]
    ) and not output_samples.is_finite([bad, fine])
    assert not output_samples.is_finite([fine, torch.tensor([math.nan, 1.0]).to(dtype)])


class Slots:
    __slots__ = ("a", "missing")

    def __init__(self, a: Any) -> None:
        self.a = a


class Both(Slots):
    __slots__ = ("__dict__", "single")

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a)
        self.b = b


class One:
    __slots__ = "held"

    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: int


def test_tensors_are_found_in_slots_and_attributes_in_order_each_once() -> None:
    first, second, third = torch.ones(1), torch.ones(2), torch.ones(3)
    found = list(
        tensor_trees.find_tensors([Both(first, second), One(third), first, torch.Tensor, "text", {"x": (second,)}])
    )
    assert [id(one) for one in found] == [id(first), id(second), id(third)]


def test_structures_keep_their_types_and_order() -> None:
    given = {"a": (1, [2, {3}]), "b": Frozen(4, 5), "c": frozenset([6]), "d": b"x"}
    found = tensor_trees.map_leaves(lambda leaf: leaf * 2, given)
    assert found == {"a": (2, [4, {6}]), "b": Frozen(8, 10), "c": frozenset([12]), "d": b"xx"}
    assert (
        given["b"] == Frozen(4, 5)
        and tensor_trees.has_to_method(first := torch.ones(1))
        and not tensor_trees.has_to_method(type(first))
    )


# Training.


def test_a_network_is_placed_in_the_memory_format_of_its_cell() -> None:
    for last in (True, False):
        placed = training_step.place_network(nn.Conv2d(3, 4, 3), cell(channels_last=last), CPU)
        assert placed.weight.is_contiguous(memory_format=torch.channels_last) == last
    assert isinstance(training_step.place_network(nn.LazyConv2d(4, 3), cell(), CPU), nn.LazyConv2d)
    with pytest.raises(ConfigError, match="has lazy modules"):
        training_step.place_network(nn.LazyConv2d(4, 3), cell(channels_last=True), CPU)


@pytest.mark.parametrize(
    ("kind", "asked", "graph", "held"),
    [
        (torch.optim.Adam, "auto", False, {"foreach": None, "fused": None, "capturable": False}),
        (torch.optim.Adam, "auto", True, {"foreach": None, "fused": None, "capturable": True}),
        (torch.optim.Adam, "for_loop", False, {"foreach": False, "fused": False, "capturable": False}),
        (torch.optim.Adam, "foreach", False, {"foreach": True, "fused": False, "capturable": False}),
        (torch.optim.Adam, "fused", False, {"foreach": False, "fused": True, "capturable": False}),
        (torch.optim.SGD, "foreach", True, {"foreach": True, "fused": False}),
        # It has no fused one, and does without it where none is asked for.
        (torch.optim.RMSprop, "foreach", False, {"foreach": True, "capturable": False}),
        (torch.optim.RMSprop, "fused", False, None),
    ],
)
def test_optimizers_are_made_by_the_implementation_asked_for(
    kind: Any, asked: str, graph: bool, held: dict[str, Any] | None
) -> None:
    before = kind(nn.Linear(2, 2).parameters(), lr=0.25)
    one = cell(optimizer=asked, graph=graph)
    if held is None:
        with pytest.raises(ConfigError, match="RMSprop of m has no such implementation"):
            optimizers.choose_implementation(before, one)
        return
    found = optimizers.choose_implementation(before, one)
    assert type(found) is kind and (found is before) == (asked == "auto" and not graph)
    (group,) = found.param_groups
    assert {name: group[name] for name in held} == held and group["lr"] == 0.25 and len(group["params"]) == 2


def test_sparse_embeddings_have_an_optimizer_of_their_own() -> None:
    network = nn.ModuleDict({"a": nn.Embedding(3, 2, sparse=True), "b": nn.Linear(2, 2), "c": nn.Embedding(3, 2)})
    dense, sparse = optimizers.make_optimizers(network, interface.make_adam)
    assert type(sparse) is torch.optim.SparseAdam and sparse.param_groups[0]["lr"] == 1e-3
    assert [one.shape for one in sparse.param_groups[0]["params"]] == [(3, 2)]
    assert len(dense.param_groups[0]["params"]) == 3 and dense.param_groups[0]["lr"] == 1e-3
    assert (
        len(optimizers.make_optimizers(network["a"], interface.make_adam))
        == 1
        == len(optimizers.make_optimizers(network["b"], interface.make_adam))
    )
    (own,) = optimizers.make_optimizers(network, lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    assert type(own) is torch.optim.SGD and len(own.param_groups[0]["params"]) == 4


class InPlace(nn.Module):
    inplace = True


def test_what_is_checkpointed_is_in_runs_that_begin_with_nothing_in_place() -> None:
    lines = [nn.Linear(1, 1) for _ in range(9)]
    assert [len(run) for run in activation_checkpointing.group_modules(lines)] == [3, 3, 3]
    assert [len(run) for run in activation_checkpointing.group_modules(lines[:2])] == [1, 1]
    mixed = [nn.Linear(1, 1), nn.Linear(1, 1), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(1, 1)), nn.Linear(1, 1)]
    assert [len(run) for run in activation_checkpointing.group_modules(mixed)] == [3, 1]
    relu = nn.ReLU(inplace=True)
    listed = nn.ModuleList([nn.Linear(1, 1), relu, nn.Linear(1, 1)])
    network = nn.ModuleDict({"a": listed, "b": nn.ModuleList([nn.Linear(1, 1)]), "c": nn.Sequential(nn.Linear(1, 1))})
    assert list(activation_checkpointing._sequences(network, set())) == [listed[0], listed[2]]
    pair = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    assert list(
        activation_checkpointing._sequences(nn.ModuleList([pair, pair, nn.ModuleList([pair, lines[0]])]), set())
    ) == [
        pair,
        lines[0],
    ]
    outer = nn.Module()
    outer.a, outer.b, outer.c, outer.d = (
        nn.Linear(1, 1),
        nn.Sequential(nn.Linear(1, 1)),
        nn.ModuleList([pair]),
        InPlace(),
    )
    assert list(activation_checkpointing._blocks(outer)) == [outer.b]


def test_checkpointed_networks_have_the_same_gradients() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    inputs = torch.ones(2, 2, requires_grad=True)
    network(inputs).sum().backward()
    plain = [inputs.grad.clone(), *(one.grad.clone() for one in network.parameters())]  # type: ignore[union-attr]
    network.zero_grad()
    inputs.grad = None
    calls: list[int] = []
    network[0].register_forward_hook(lambda *_: calls.append(1))
    activation_checkpointing.insert_checkpoints(network, "m")
    network(inputs).sum().backward()
    assert len(calls) == 2
    found = [inputs.grad, *(one.grad for one in network.parameters())]
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))  # type: ignore[arg-type]


# Tasks.


def test_labels_and_masks_are_of_the_models_classes() -> None:
    from PIL import Image

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
    again, normal = (
        images.random(shape, torch.Generator().manual_seed(0)),
        segmentation.sample(shape, torch.Generator().manual_seed(0)),
    )
    assert torch.equal(again, image)
    # Of two channels, both have the mean of the three means, and of the deviations.
    expected = (image - (0.485 + 0.456 + 0.406) / 3) / ((0.229 + 0.224 + 0.225) / 3)
    assert torch.allclose(normal[0], expected, atol=1e-5)
    # A free choice of colour every eight pixels, and two more: that many are drawn.
    coarse = torch.rand(1, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    assert image.max() <= coarse.max() and image.min() >= coarse.min()
    size = (20, 24)
    assert torch.equal(nn.functional.interpolate(coarse, size=size, mode="bilinear", align_corners=False)[0], image)


def test_an_auxiliary_head_counts_by_its_weight() -> None:
    scores, other, target = (
        torch.zeros(1, 2, 1, 1),
        torch.tensor([[[[0.0]], [[math.log(3)]]]]),
        torch.zeros(1, 1, 1).long(),
    )
    # Of two classes that are as likely, ln 2; of one that is a quarter, ln 4.
    found = segmentation.with_auxiliary(scores, other, target, 0.25)
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
        weights.he(nn.Sequential(layer))
        assert float(layer.weight.std()) == pytest.approx(math.sqrt(2 / inputs), rel=0.02)
        assert abs(float(layer.weight.mean())) < 0.02 * math.sqrt(2 / inputs) * 2
        assert layer.bias is None or not layer.bias.any()


def test_features_are_of_the_convolutions_named() -> None:
    features = adversarial.Features("conv1_1", "conv2_1", scale=((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
    # conv1_1 and its ReLU; conv1_2, ReLU, pool, conv2_1 and its ReLU.
    assert [len(part) for part in features.parts] == [2, 5] and not any(
        one.requires_grad for one in features.parameters()
    )
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


# Captured steps.


def test_a_capture_lies_a_millisecond_before_its_window_under_numbers_of_its_own() -> None:
    def event(at: float, long: float | None, category: str, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "ts": at, **({} if long is None else {"dur": long}), **more}

    window = [
        event(5000, 10, "cpu_op", args={"External id": 4}), event(4900, 5, "kernel", args={"correlation": 6}),
        {"ph": "s", "cat": "fwdbwd", "ts": 4000, "id": 2}, {"ph": "M", "name": "x"},
    ]  # fmt: skip
    capture = [
        event(100, 20, "cpu_op", args={"External id": 1, "correlation": 3, "more": "x"}), event(150, 1, "kernel"),
        {"ph": "f", "cat": "fwdbwd", "ts": 125, "id": 1}, {"ph": "M", "name": "y"}, event(110, 2, "cpu_op"),
    ]  # fmt: skip
    moved = cuda_graph_trace.join_capture(window, capture)
    assert moved[3:] == window and len(moved) == 7
    # It ends at 125, and is to at 4900 - 1000.
    assert [one["ts"] for one in moved[:3]] == [100 + 3775, 3900, 110 + 3775]
    assert moved[0]["args"] == {"External id": 1 + 5, "correlation": 3 + 7, "more": "x"}
    assert moved[1]["id"] == 1 + 3 and "args" not in moved[2]


def test_inputs_of_a_graph_are_copied_where_they_were() -> None:
    inputs = cuda_graph.StaticInputs(CPU)
    held = inputs.take({"x": torch.ones(2), "n": 3})
    assert inputs.take({"x": torch.full((2,), 5.0), "n": 3}) is held and held["x"].tolist() == [5, 5]
    with pytest.raises(ConfigError, match="sees plain values of a batch once"):
        inputs.take({"x": torch.ones(2), "n": 4})
    with pytest.raises(ConfigError, match="after batches of 2 comes one of 1:"):
        inputs.take({"x": torch.ones(()), "n": 3})
    other = cuda_graph.StaticInputs(torch.device("cuda"))
    other.take(torch.ones(2))
    other.take(torch.ones(2))
    with pytest.raises(ConfigError, match="sees a tensor on the CPU of a batch once"):
        other.take(torch.zeros(2))


def test_a_thread_that_pins_memory_does_not_end_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    assert [cuda_graph.CudaGraphs(CPU, pins)._mode for pins in (True, False)] == ["thread_local", "global"]


# Memory.


def test_sizes_are_of_storages_each_once() -> None:
    whole = torch.zeros(10)
    found = peak_memory._sizes([whole, whole[2:4], torch.zeros(3, dtype=torch.int64)], CPU)
    assert sorted(found.values()) == [24, 40] and peak_memory._sizes([whole], torch.device("cuda")) == {}
    network, optimizer = nn.BatchNorm1d(4), None
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9)
    network(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    # Weight, bias and two running values of four numbers, and a count of eight bytes; momentum of the first two.
    before = peak_memory._before([network], [optimizer], {"x": torch.zeros(5)}, CPU)
    assert before == {"weights": 4 * 16 + 8, "optimizer": 2 * 16, "inputs": 20}


def user(name: str, at: float, long: float) -> dict[str, Any]:
    return span(f"profzoo:{name}", at, long, "user_annotation")


def held(
    events: list[dict], known: list[KnownAddresses] | None = None, before: dict[str, int] | None = None
) -> list[dict]:
    found = memory_blocks.memory_rows(events, 0, before or {}, known or [])
    return [{key.removesuffix("_bytes"): value for key, value in row.items() if value} for row in found]


def test_bounds_of_ranges_and_operators_belong_to_them() -> None:
    # What comes as a range begins is behind its beginning; as it ends, within it.
    assert held([user("step", 10, 10), move(10, 1, 4), move(20, 2, 8), move(20.5, 3, 16)]) == [
        {"range": "step", "peak": 12, "end": 12, "activations": 12}
    ]
    # What its operator gives back as it ends is its workspace; later it is not.
    for at, kind in ((15, "workspace"), (15.5, "activations")):
        (row,) = held([user("step", 0, 20), span("aten::mm", 10, 5), move(10, 1, 4), move(at, 1, -4)])
        assert row == {"range": "step", "peak": 4, kind: 4}
    # As the optimizer begins and as it ends, what is taken is its workspace.
    for at, kind in ((9.5, "activations"), (10, "workspace"), (15, "workspace"), (15.5, "activations")):
        row, *_ = held([user("step", 0, 20), user("optimizer", 10, 5), move(at, 1, 4)])
        assert row == {"range": "step", "peak": 4, "end": 4, kind: 4}


def test_of_what_is_known_counts_who_is_there_at_that_moment() -> None:
    """Two ranges of one name end at 5 and at 15; at address 1 one block follows another."""
    events = [user("step", 0, 20), user("backward", 1, 4), user("backward", 11, 4)]
    for begin, end, number, kind in (
        (5, None, 0, "gradients"), (5.5, None, 0, "activations"), (5.5, None, 1, "gradients"), (2, 5, 0, "activations"),
        (2, 5.5, 0, "gradients"), (2, 15, 1, "activations"), (2, 16, 1, "gradients"),
    ):  # fmt: skip
        moves = [move(begin, 1, 4), *([move(end, 1, -4)] if end else [])]
        row, *_ = held([*events, *moves], [KnownAddresses("gradients", "backward", number, {1})])
        assert row[kind] == 4 == row["peak"]
    row, *_ = held([*events, move(2, 2, 4)], [KnownAddresses("gradients", "backward", 0, {1})])
    assert row["activations"] == 4


def test_ranges_that_begin_together_are_told_the_longer_first_and_the_first_peak_counts() -> None:
    events = [
        user("data", 0, 5),
        user("step", 0, 20),
        user("later", 30, 1),
        span("profzoo:other", 0, 9, "gpu_user_annotation"),
    ]
    events += [move(1, 1, 4), move(2, 1, -4), move(3, 2, 4), move(4, 9, -3)]
    found = held(events, [KnownAddresses("inputs", "data", 0, {2})], {"other": 10})
    # 14 with either block; at the first, of activations, though inputs come up to it.
    assert [(row["range"], row.get("order", 0)) for row in found] == [("step", 0), ("data", 1), ("later", 2)]
    assert found[0] == {"range": "step", "begin": 10, "peak": 14, "end": 11, "other": 10, "activations": 4}
    assert found[2] == {"order": 2, "range": "later", "begin": 11, "peak": 11, "end": 11, "other": 7, "inputs": 4}


def test_of_operators_within_each_other_the_innermost_that_does_more_than_allocate_owns() -> None:
    events = [user("step", 0, 50), span("aten::linear", 0, 30), span("aten::mm", 5, 10), span("aten::empty", 6, 1)]
    other = {**span("aten::add", 6, 40), "tid": 2}
    (row,) = held([*events, other, move(6.5, 1, 8), move(16, 1, -8), move(20, 2, 2), move(29, 2, -2), move(31, 3, 1)])
    # The first is given back behind mm, which took it; the second within linear.
    assert row == {"range": "step", "peak": 8, "end": 1, "activations": 8}
    (row,) = held([*events, other, move(20, 2, 2), move(29, 2, -2)])
    assert row == {"range": "step", "peak": 2, "workspace": 2}


def test_a_byte_is_a_block() -> None:
    (row,) = held([user("step", 0, 9), move(5, 1, 1)], [KnownAddresses("inputs", "step", 0, {1})])
    assert row == {"range": "step", "peak": 1, "end": 1, "inputs": 1}


def test_what_happens_at_one_moment_goes_by_its_number() -> None:
    given = move(5, 1, -4)
    given["args"]["Ev Idx"] = 1
    # One without a number is the first: 4 are taken, and given back behind it.
    (row,) = held([user("step", 0, 9), given, move(5, 1, 4)])
    assert row == {"range": "step", "peak": 4, "activations": 4}


# Steps and processes.


def test_a_window_has_a_step_more_for_each_that_it_lacks() -> None:
    clock = SimpleNamespace(now=lambda: 400_000_000, wait=lambda: None)
    recorder = SimpleNamespace(least_s=1.0, steps=2, window_began_ns=0, clock=clock)
    # 0.6 s are missing, of steps of 0.2 s.
    assert window_length._more(cell(), recorder) == 3  # type: ignore[arg-type]
    recorder.least_s = 1.01
    assert window_length._more(cell(), recorder) == 4  # type: ignore[arg-type]
    for recorder.least_s in (0.0, 0.4, 0.3):
        assert window_length._more(cell(), recorder) == 0  # type: ignore[arg-type]
    assert window_length.extend_epochs(cell(), recorder)["epochs"] == 10**9  # type: ignore[arg-type]
    recorder.least_s = 0.0
    assert window_length.extend_epochs(cell(), recorder)["epochs"] == 2  # type: ignore[arg-type]


def test_numbers_of_processes_are_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert distributed.read_rank(cell()) == distributed.read_local_rank(cell()) == 0
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    two = cell(gpus=2, nodes=2)
    assert (distributed.read_rank(two), distributed.read_local_rank(two)) == (3, 1)
    with pytest.raises(ConfigError, match="take 1 processes, and 4 started"):
        distributed.read_rank(cell())
    share = distributed.make_sampler([0] * 10, two)  # type: ignore[arg-type]
    assert share and (share.rank, share.num_replicas, share.shuffle, share.drop_last, share.seed) == (
        3,
        4,
        True,
        True,
        1,
    )
    assert distributed.make_sampler([0] * 10, cell(gpus=1)) is None  # type: ignore[arg-type]
    assert distributed.gather_facts(cell(), {"a": 1}) == [{"a": 1}]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(step_loop.devices, "choose_device", lambda asked, number: torch.device("cuda", number))
    with pytest.raises(ConfigError, match="torch sees 1: lower gpus"):
        step_loop.choose_cell_device({**two, "device": "cuda"})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert step_loop.choose_cell_device({**two, "device": "cuda"}) == torch.device("cuda", 1)


def test_ticks_of_all_kinds_of_work_are_what_was_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_contention, "COUNTED", tmp_path / "stat")
    monkeypatch.setattr(cpu_contention, "SCHEDULED", tmp_path / "schedstat")
    clock = iter((0, 1000, 0, 1000, 0, 1000, 0, 0))
    monkeypatch.setattr(cpu_contention.time, "perf_counter_ns", lambda: next(clock))
    (tmp_path / "stat").write_text("cpu 0 0 0 0 0 0 0 0\n")
    (tmp_path / "schedstat").write_text("7 100 3\n")
    taken = cpu_contention.CpuContention()
    # user, nice, system, irq, softirq and steal of 1 + 2 + 3 + 6 + 7 + 1 ticks; idle and iowait are no work.
    (tmp_path / "stat").write_text("cpu 1 2 3 400 500 6 7 1 90 90\n")
    (tmp_path / "schedstat").write_text("7 300 3\n")
    # 200 of the 1000 - 600 ns that were not rested.
    assert taken.share(600) == pytest.approx(200 / 400 + 1 / 20)
    taken = cpu_contention.CpuContention()
    (tmp_path / "schedstat").write_text("7 9300 3\n")
    assert taken.share() == 1.0
    # Nobody wanted anything; and in no time at all there are ticks alone to go by.
    assert cpu_contention.CpuContention().share() == 0.0 == cpu_contention.CpuContention().share()
    (tmp_path / "stat").write_text("cpu 1 2 3 400 500 6 7\n")
    assert cpu_contention._ticks() == []
    (tmp_path / "stat").write_text("cpu 1 2 3 4 5 6 7 8\n")
    assert cpu_contention._ticks() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_ranges_are_told_as_they_end() -> None:
    found, closed = ranges.Ranges(), list[str]()
    found.closed = closed.append
    with found("forward"), found("loss"):
        assert closed == []
    assert closed == ["loss", "forward"]
    with pytest.raises(ValueError, match="x"), found("backward"):
        raise ValueError("x")
    assert closed[-1] == "backward"


def test_losses_are_looked_at_step_by_step() -> None:
    results = [torch.tensor([1.0]), torch.tensor(math.nan), torch.tensor(3.0)]
    with pytest.raises(step_loop.NotFiniteError, match="the loss is nan at step 1 of 3"):
        step_loop._finite(results, cell())  # type: ignore[arg-type]
    assert step_loop._finite(results[::2], cell()) == [1.0, 3.0]  # type: ignore[arg-type]
    assert step_loop._finite([torch.ones(1)], cell(phase="inference")) == [None]  # type: ignore[arg-type]
    with pytest.raises(step_loop.NotFiniteError):
        step_loop._finite([results[1]], cell(phase="inference"))  # type: ignore[arg-type]
