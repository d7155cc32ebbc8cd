"""Inspects a run without ever failing it: its tensors, in whatever structure they are."""

import array
import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Set
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

# Inspects a run without ever failing it: whatever cannot be read becomes a warning.
#
# A line that begins with `Warning:` is taken from the log into the sidecar (collect/failures.py).

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


# Traverses nested structures of tensors: sequences, mappings, dataclasses and other objects.

# Sequence types that never hold a tensor.
FLAT = (str, bytes, bytearray, array.array)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Copy of a structure with the function applied to each leaf; the original stays unchanged.

    Sequences, named tuples, sets, mappings and dataclasses are taken apart and keep their types. Everything else is a
    leaf: tensors, and also objects with a method `to`, such as torch's PackedSequence, which move themselves.
    """
    parts = None if has_to_method(value) else _parts(value)
    if parts is None:
        return function(value)
    return _rebuilt(value, {key: map_leaves(function, part) for key, part in parts.items()})


def find_tensors(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in a structure once, including attributes of any objects."""
    return (tensor for _, tensor in find_named_tensors(value))


def find_named_tensors(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in a structure once, with the innermost key or attribute that is a text; empty without any."""
    waiting: list[tuple[str, Any]] = [("", value)]
    seen: dict[int, Any] = {}
    while waiting:
        name, part = waiting.pop()
        if id(part) in seen:
            continue
        # Kept alive, so that no other object gets the same id.
        seen[id(part)] = part
        if isinstance(part, Tensor):
            yield name, part
        elif not isinstance(part, type):
            parts = _parts(part)
            held = (_attributes(part) if parts is None else parts).items()
            waiting += [(key if isinstance(key, str) else name, one) for key, one in reversed(list(held))]


def has_to_method(value: Any) -> bool:
    """Whether an object has a `to` method, as tensors and PackedSequence do."""
    return not isinstance(value, type) and callable(getattr(value, "to", None))


def _parts(value: Any) -> dict[Any, Any] | None:
    """Parts of a structure by key, index or attribute; None if the value is not a structure."""
    if isinstance(value, (Tensor, type, *FLAT)):
        return None
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, tuple | MutableSequence | Set):
        return dict(enumerate(value))
    return _attributes(value) if dataclasses.is_dataclass(value) else None


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes of an object, including slots."""
    slots = [getattr(kind, "__slots__", ()) for kind in type(value).__mro__]
    names = [name for slot in slots for name in ([slot] if isinstance(slot, str) else slot)]
    held = {name: getattr(value, name) for name in names if name != "__dict__" and hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def _rebuilt(value: Any, parts: dict[Any, Any]) -> Any:
    """Make a structure of the same type from other parts."""
    kind = type(value)
    if hasattr(value, "_make"):
        return value._make(parts.values())
    if isinstance(value, tuple | Set):
        return kind(list(parts.values()))
    if isinstance(value, Mapping) and not isinstance(value, MutableMapping):
        return kind(parts)
    other = copy.copy(value)
    for key, part in parts.items():
        if isinstance(value, MutableMapping | MutableSequence):
            other[key] = part
        else:
            # Works for frozen dataclasses too.
            object.__setattr__(other, key, part)
    return other
