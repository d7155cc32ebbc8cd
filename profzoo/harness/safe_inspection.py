"""Inspects a run without ever failing it: whatever cannot be read becomes a warning.

A line that begins with `Warning:` is taken from the log into the sidecar (collect/failure_causes.py).
"""

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

T = TypeVar("T")
# Methods that return the dense parts of a tensor, by sparse layout.
COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    # `indices` and `values` refuse a tensor that holds an index twice, such as the gradient of an embedding.
    torch.sparse_coo: ("_indices", "_values"),
}


def attempt(what: str, look: Callable[[], T], otherwise: T) -> T:
    """Result of `look`; if it raises, print a one-line warning that begins with `what` and return `otherwise`."""
    try:
        return look()
    except Exception as error:
        print_warning(f"{what}: {type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")
        return otherwise


def print_warning(line: str) -> None:
    """Print a warning, which is also kept in the job's sidecar."""
    print(f"Warning: {line}", file=sys.stderr, flush=True)


def strided_tensors(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the dense tensors inside a tensor: itself, or the parts of a sparse, nested or wrapper tensor.

    An uninitialised parameter, which gets its shape in the first forward pass, yields no tensor.
    """
    if is_lazy(tensor):
        return
    tensor = tensor.detach()
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        inner = [getattr(tensor, name) for name in names]
    elif tensor.layout in COMPRESSED:
        inner = [getattr(tensor, name)() for name in COMPRESSED[tensor.layout]]
    elif tensor.is_nested:
        inner = [tensor.values()]
    else:
        yield tensor
        return
    for one in inner:
        yield from strided_tensors(one)
