"""Takes a batch apart: a pair of input and target, or a mapping of the network's arguments, which is both."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from profzoo.errors import ConfigError
from profzoo.harness.interface import ModelFunctions

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


FORMS = "a pair (input, target), or a mapping of the network's arguments"


def split_batch(batch: Any, cell: "CellSettings", model: ModelFunctions) -> tuple[Any, Any]:
    """Input and target of a batch; of a mapping, all of it is both.

    Raises:
        ConfigError: it is neither a pair nor a mapping; the message names the function that made it.
    """
    if isinstance(batch, Mapping):
        return batch, batch
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise ConfigError(
        f"{cell['model']}: a batch is {_described(batch)}, where {FORMS} is needed: have {name_batch_maker(cell, model)} of "
        f"{cell['module']} {'return that' if model.collate else 'give one'}"
    )


def name_batch_maker(cell: "CellSettings", model: ModelFunctions) -> str:
    """The function of the model's file that gives batches or samples their form."""
    if model.collate:
        return "collate(samples)"
    if cell["data"]["source"] != "synthetic":
        return "adapt(sample, shape)"
    return "dataset(shape)" if model.dataset else "sample(shape, generator)"


def call_network(network: nn.Module, batch: Any, inputs: Any) -> Any:
    """What a network makes of a batch, which is given as arguments by name where it is a mapping."""
    return network(**batch) if isinstance(batch, Mapping) else network(inputs)


def _described(batch: Any) -> str:
    """A batch in a few words.

    >>> _described([1, 2, 3]), _described("text")
    ('a list of 3', 'of type str')
    """
    if isinstance(batch, Tensor):
        return f"one tensor of {' x '.join(map(str, batch.shape)) or 'one number'}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"of type {type(batch).__name__}"
