"""Notes how much of the first batches is padding: rows of numbers that end in the same value again and again.

Only whole numbers, booleans and masks are looked at, in tensors of two dimensions: rows by places. The value that most
rows end in counts as padding where a row repeats it at its end.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from profzoo.harness import tensor_trees

if TYPE_CHECKING:
    from profzoo.cell.job_types import PaddedRows

# So many batches are looked at, and tensors of at least so many places.
BATCHES, PLACES = 2, 16
WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)


class BatchPadding:
    """Padding of the first batches of a run; call `note` between steps of the warm-up, and `read` after the run."""

    def __init__(self) -> None:
        """Nothing is noted yet."""
        self._left = BATCHES
        self._found: list[tuple[tuple[int, int], Tensor]] = []

    def note(self, batch: Any) -> None:
        """Note a batch, on whatever device it is; numbers stay there until they are read."""
        if self._left:
            self._left -= 1
            with suppress(Exception):
                self._found += [((rows.shape[0], rows.shape[1]), _count(rows)) for rows in _rows(batch)]

    def read(self) -> "list[PaddedRows]":
        """Return the padded tensors of the noted batches that end in one value, without those that do not."""
        found: list[PaddedRows] = []
        with suppress(Exception):
            for (rows, places), counts in self._found:
                value, padded, longest = (int(one) for one in counts.tolist())
                if padded:
                    found.append({"rows": rows, "places": places, "value": value, "padded": padded, "longest": longest})
        return found


def _rows(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors that may be padded, the same values once."""
    for one in tensor_trees.find_tensors(batch):
        if one.dim() == 2 and one.shape[1] >= PLACES and one.shape[0] and one.dtype in WHOLE:
            yield one.detach()


def _count(rows: Tensor) -> Tensor:
    """Return the value that most rows end in, the padded places, and the places of the longest row without padding."""
    ends = rows[:, -1].long()
    value = ends.mode().values
    same = rows.flip(1).long() == value
    trailing = same.cumprod(1).sum(1)
    # A last word that is there once is no padding.
    trailing = torch.where(trailing > 1, trailing, 0)
    return torch.stack([value, trailing.sum(), rows.shape[1] - trailing.min()])
