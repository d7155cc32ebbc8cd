"""Provides a cell's batches through a DataLoader: synthetic samples, the model's own data set, or torchvision's."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from profzoo.errors import ConfigError, suggest_nearest
from profzoo.harness import batch_structure, distributed, own_dataset, tensor_trees
from profzoo.harness.interface import ModelFunctions

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


Sample = tuple[Any, Any]
# Number of batches of distinct synthetic samples.
DISTINCT_BATCHES = 2


class SyntheticDataset(Dataset[Sample]):
    """Random samples, the same for the same seed and index.

    A few samples are made before the first step and used in turn. Drawing random numbers in every step would take
    longer than the step of a small model, and would be profiled with it. The time to make a sample is therefore in no
    step: a model whose samples are costly to make defines `dataset` instead.
    """

    def __init__(self, sample: Callable[..., Sample], shape: SimpleNamespace, count: int, distinct: int, seed: int):
        """sample: the model file's function of (shape, generator); distinct: samples made beforehand."""
        generators = (torch.Generator().manual_seed(seed * 1_000_003 + index) for index in range(min(distinct, count)))
        self._pool = [sample(shape, generator) for generator in generators]
        if any(one is None for one in self._pool):
            raise ConfigError(
                f"sample(shape, generator) of {sample.__module__} returned None: return {batch_structure.FORMS}"
            )
        self._count = count

    def __len__(self) -> int:
        """Number of samples per epoch."""
        return self._count

    def __getitem__(self, index: int) -> Sample:
        """Sample with that index."""
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._pool[index % len(self._pool)]


class AdaptedDataset(Dataset[Sample]):
    """A torchvision data set with samples converted to the form that the model's task takes."""

    def __init__(self, dataset: Any, adapt: Callable[..., Sample], shape: SimpleNamespace) -> None:
        """adapt: from ((PIL image, label or mask), shape) to (input, target)."""
        self._dataset, self._adapt, self._shape = dataset, adapt, shape

    def __len__(self) -> int:
        """Number of samples in the data set."""
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        """Sample with that index, converted."""
        return self._adapt(self._dataset[index], self._shape)


def iterate_batches(cell: "CellSettings", model: ModelFunctions) -> Iterator[Any]:
    """Yield the cell's batches from one DataLoader, for its number of epochs; endless for a model's own data set.

    Raises:
        ConfigError: the data set does not exist, is too small, or does not fit the model's task.
    """
    own = own_dataset.make_dataset(cell, model) if own_dataset.uses_own_dataset(cell, model) else None
    dataset = _dataset(cell, model) if own is None else own
    streamed = isinstance(dataset, IterableDataset)
    share = None if streamed else distributed.make_sampler(dataset, cell)
    loader: DataLoader[Sample] = DataLoader(
        dataset,
        batch_size=cell["batch"],
        shuffle=cell["phase"] == "train" and share is None and not streamed,
        sampler=share,
        drop_last=True,
        num_workers=cell["workers"],
        pin_memory=cell["pin_memory"] and torch.cuda.is_available(),
        persistent_workers=cell["workers"] > 0,
        collate_fn=model.collate,
        generator=torch.Generator().manual_seed(cell["seed"]),
    )
    if own is not None:
        return own_dataset.repeat_batches(loader, share, cell)
    return itertools.chain.from_iterable(itertools.repeat(loader, cell["epochs"]))


def describe_source(cell: "CellSettings", model: ModelFunctions) -> dict[str, Any]:
    """Source of the samples (`from`) and number made beforehand (`pool`; None if each is read when needed)."""
    if own_dataset.uses_own_dataset(cell, model):
        return {"from": "dataset", "pool": None}
    if cell["data"]["source"] != "synthetic":
        return {"from": cell["data"]["name"] or cell["data"]["source"], "pool": None}
    return {"from": "sample", "pool": min(DISTINCT_BATCHES * cell["batch"], cell["samples"])}


def move_to_device(batch: Any, device: torch.device, memory_format: torch.memory_format) -> Any:
    """Move a batch's tensors to the device; 4-d floating-point ones also get the memory format.

    Raises:
        ConfigError: an object of an unknown type holds tensors; they would stay on the host.
    """

    def placed(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            if part.layout is torch.strided and part.dim() == 4 and part.is_floating_point():
                return part.to(device, non_blocking=True, memory_format=memory_format)
            return part.to(device, non_blocking=True)
        if tensor_trees.has_to_method(part):
            moved = part.to(device, **_without_waiting(part.to))
            return part if moved is None else moved
        for tensor in tensor_trees.find_tensors(part):
            if tensor.device.type != device.type:
                raise ConfigError(
                    f"the batch holds tensors on {tensor.device} in an object of type {type(part).__name__}: give it a "
                    "method to(device), make it a dataclass, or define `transfer` in the model's file"
                )
        return part

    return tensor_trees.map_leaves(placed, batch)


def _without_waiting(to: Callable[..., Any]) -> dict[str, bool]:
    """Keyword that makes a `to` method copy asynchronously, if the method accepts it."""
    taken = inspect.signature(to).parameters.values()
    known = any(one.name == "non_blocking" or one.kind is one.VAR_KEYWORD for one in taken)
    return {"non_blocking": True} if known else {}


def _dataset(cell: "CellSettings", model: ModelFunctions) -> Dataset[Sample]:
    data: Mapping[str, Any] = cell["data"]
    source, name, root, arguments = (data[key] for key in ("source", "name", "root", "arguments"))
    shape = SimpleNamespace(**cell["shape"])
    if source == "synthetic":
        return SyntheticDataset(model.sample, shape, cell["samples"], DISTINCT_BATCHES * cell["batch"], cell["seed"])

    if model.adapt is None:
        raise ConfigError(f"{cell['model']} takes no image data set: set data.source to synthetic")
    from torchvision import datasets

    if source == "folder":
        if not root or not Path(root).is_dir():
            raise ConfigError(f"data.root = {root!r} is no folder: name the one that holds your images")
        try:
            raw: Any = datasets.ImageFolder(root)
        except FileNotFoundError as error:
            raise ConfigError(f"data.root = {root!r}: {error}; it must hold a folder of images a class") from error
    else:
        known = [key for key in datasets.__all__ if isinstance(getattr(datasets, key), type)]
        if name not in known:
            raise ConfigError(f"data.name = {name!r} is no dataset of torchvision: {suggest_nearest(name, known)}")
        if arguments.get("download"):
            raise ConfigError(f"data.arguments.download: profzoo downloads nothing; put {name} under {root!r} yourself")
        place = {} if name == "FakeData" else {"root": root}
        try:
            raw = getattr(datasets, name)(**place, **arguments)
        except (RuntimeError, TypeError, ValueError, OSError) as error:
            raise ConfigError(f"data.name = {name}, data.root = {root!r}: {error}") from error
    if len(raw) < cell["samples"]:
        raise ConfigError(
            f"the data set has {len(raw)} samples, {cell['samples']} are needed: "
            "lower samples, batch, warmup or window, or raise epochs"
        )
    # Take samples from the whole data set: folders are read class by class, so the first samples share one class.
    order = torch.randperm(len(raw), generator=torch.Generator().manual_seed(cell["seed"]))
    return Subset(AdaptedDataset(raw, model.adapt, shape), order[: cell["samples"]].tolist())
