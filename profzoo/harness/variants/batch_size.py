"""Finds the largest batch that fits into memory, by halving the requested batch size."""

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from profzoo.errors import ConfigError

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


# Names of torch's exceptions, and messages of cuBLAS, cuDNN and the CPU's allocator, which raise plain RuntimeErrors.
KINDS = ("OutOfMemoryError", "MemoryError")
PHRASES = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that GPU or host memory was exhausted."""
    return type(error).__name__ in KINDS or any(phrase in str(error) for phrase in PHRASES)


def fit_batch(cell: "CellSettings", rehearse: Callable[["CellSettings"], None]) -> "CellSettings":
    """The cell with the first batch of batch, batch / 2, batch / 4, ... 1 whose rehearsal does not run out of memory.

    rehearse: function that runs some steps of a cell; its exceptions tell whether the batch fits.

    Raises:
        ConfigError: not even one sample fits.
    """
    batch = cell["batch"]
    while not _fits({**cell, "batch": batch}, rehearse):
        batch //= 2
        if not batch:
            raise ConfigError(f"{cell['model']} {cell['phase']} runs out of memory at batch 1: take smaller shapes")
    return {**cell, "batch": batch}


def _fits(cell: "CellSettings", rehearse: Callable[["CellSettings"], None]) -> bool:
    try:
        rehearse(cell)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        fits = False
    else:
        fits = True
    # Only now: the exception's frames held tensors until it was gone.
    _release()
    return fits


def _release() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
