"""Reads a model's own data set: each sample is read when needed, so that reading is measured."""

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from profzoo.cell.process_count import batch_count
from profzoo.errors import ConfigError
from profzoo.harness.interface import ModelFunctions

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


def uses_own_dataset(cell: "CellSettings", model: ModelFunctions) -> bool:
    """Whether the cell uses the model's own data set; False if the configuration names another."""
    return model.dataset is not None and cell["data"]["source"] == "synthetic"


def make_dataset(cell: "CellSettings", model: ModelFunctions) -> Any:
    """Make the data set of a cell for which `uses_own_dataset` is true.

    Raises:
        ConfigError: the result is no data set, has no length, is too short for one batch, or cannot be split over the
            processes.
    """
    assert model.dataset is not None
    found, where, count = model.dataset(SimpleNamespace(**cell["shape"])), _where(cell), batch_count(cell)
    kind = type(found).__name__
    if isinstance(found, IterableDataset):
        if count > 1:
            raise ConfigError(
                f"{where} is an IterableDataset, which {count} processes cannot share: return one with a length, or "
                "set gpus and nodes to 1"
            )
        return found
    if not callable(getattr(found, "__getitem__", None)):
        raise ConfigError(f"{where} returned {kind}: return a torch Dataset")
    try:
        length = len(found)
    except (TypeError, NotImplementedError):
        why = "which has no length: give it __len__, or make it an IterableDataset"
        raise ConfigError(f"{where} returned {kind}, {why}") from None
    if length // count < cell["batch"]:
        each = f" in each of {count} processes" if count > 1 else ""
        few = f"too few for one batch of {cell['batch']}{each}"
        raise ConfigError(f"{where} has {length} samples, {few}: lower batch, or give it more")
    return found


def repeat_batches(
    loader: DataLoader[Any], share: DistributedSampler[Any] | None, cell: "CellSettings"
) -> Iterator[Any]:
    """Yield batches and start over at the data set's end; share: sampler of this process among several.

    Raises:
        ConfigError: the data set ends before its first batch.
    """
    for epoch in itertools.count():
        if share is not None:
            share.set_epoch(epoch)
        batch = None
        for batch in loader:
            yield batch
        if batch is None:
            raise ConfigError(f"{_where(cell)} ended before one batch of {cell['batch']}: lower batch, or give it more")


def _where(cell: "CellSettings") -> str:
    return f"dataset(shape) of {cell['module']}"
