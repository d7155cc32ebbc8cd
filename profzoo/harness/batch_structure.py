"""Splits a batch into input and target; a mapping of the network's arguments serves as both."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from profzoo.errors import ConfigError
from profzoo.harness.interface import ModelFunctions

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


if TYPE_CHECKING:
    pass


FORMS = "a pair (input, target), or a mapping of the network's arguments"


def split_batch(batch: Any, cell: "CellSettings", model: ModelFunctions) -> tuple[Any, Any]:
    """Input and target of a batch; a mapping is returned as both.

    Raises:
        ConfigError: the batch is neither a pair nor a mapping; the message names the function that made the batch.
    """
    if isinstance(batch, Mapping):
        return batch, batch
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise ConfigError(
        f"{cell['model']}: a batch is {_described(batch)}, where {FORMS} is needed: "
        f"have {name_batch_maker(cell, model)} of "
        f"{cell['module']} {'return that' if model.collate else 'give one'}"
    )


def name_batch_maker(cell: "CellSettings", model: ModelFunctions) -> str:
    """Name of the function in the model's file that determines the form of batches or samples."""
    if model.collate:
        return "collate(samples)"
    if cell["data"]["source"] != "synthetic":
        return "adapt(sample, shape)"
    return "dataset(shape)" if model.dataset else "sample(shape, generator)"


def call_network(network: nn.Module, batch: Any, inputs: Any) -> Any:
    """Outputs of the network for a batch; a mapping is passed as keyword arguments."""
    return network(**batch) if isinstance(batch, Mapping) else network(inputs)


def _described(batch: Any) -> str:
    """Describe the form of a batch in a few words.

    >>> _described([1, 2, 3]), _described("text")
    ('a list of 3', 'of type str')
    """
    if isinstance(batch, Tensor):
        return f"one tensor of {' x '.join(map(str, batch.shape)) or 'one number'}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"of type {type(batch).__name__}"
