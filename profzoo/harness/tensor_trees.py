"""Traverses nested structures of tensors: sequences, mappings, dataclasses and other objects."""

import array
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Set
from typing import Any

from torch import Tensor

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
    waiting, seen = [value], {}
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        # Kept alive, so that no other object gets the same id.
        seen[id(part)] = part
        if isinstance(part, Tensor):
            yield part
        elif not isinstance(part, type):
            parts = _parts(part)
            held = list((_attributes(part) if parts is None else parts).values())
            waiting += reversed(held)


def has_to_method(value: Any) -> bool:
    """Whether an object has a `to` method, as tensors and PackedSequence do."""
    return not isinstance(value, type) and callable(getattr(value, "to", None))


def _parts(value: Any) -> dict[Any, Any] | None:
    """Parts of a structure by key, index or attribute; None if the value is no structure."""
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
