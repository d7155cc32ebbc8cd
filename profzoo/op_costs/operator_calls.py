"""Reads what a torch.profiler trace says of the inputs of an operator's call."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

# Bytes of an element, by the names of types that torch.profiler writes.
ITEM_BYTES = {
    "double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
    "long int": 8, "long": 8, "int": 4, "short int": 2, "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
Shape = tuple[int, ...]


class Needed(NamedTuple):
    """The cost of a call: operations of products (matrices, convolutions, attention), other operations, and bytes."""

    product_flop: int
    other_flop: int
    bytes: int

    @property
    def flop(self) -> int:
        """Return all operations."""
        return self.product_flop + self.other_flop


class UnknownError(ValueError):
    """The trace lacks something that a formula needs."""


@dataclass(frozen=True)
class Call:
    """One call of an operator, with its inputs.

    operator: its name, as `aten::mm`. names: of its inputs, as torch has them. shapes, types, values: by input,
    as in a trace: `Input Dims`, `Input type`, `Concrete Inputs`.
    """

    operator: str
    names: Sequence[str]
    shapes: Sequence[Any]
    types: Sequence[str]
    values: Sequence[str]

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor; UnknownError without one."""
        index = self._index(name)
        if index is None or not self._is_tensor(index):
            raise UnknownError(f"no tensor {name}")
        return tuple(self.shapes[index])

    def has(self, name: str) -> bool:
        """Return whether a tensor was given for this input."""
        index = self._index(name)
        return index is not None and self._is_tensor(index)

    def shapes_of(self, name: str) -> list[Shape]:
        """Return the shapes of a list of tensors; a trace leaves out those of long lists."""
        index = self._index(name)
        if index is None or self.types[index] != "TensorList" or not self.shapes[index]:
            raise UnknownError(f"no shapes of {name}")
        return [tuple(shape) for shape in self.shapes[index]]

    def value(self, name: str, default: Any = None) -> Any:
        """Return a number, a flag or a list of these; the default where it was left out."""
        index = self._index(name)
        if index is None or index >= len(self.values) or not self.values[index]:
            if default is None:
                raise UnknownError(f"no value of {name}")
            return default
        try:
            return ast.literal_eval(self.values[index])
        except (ValueError, SyntaxError):
            raise UnknownError(f"{name} is {self.values[index]}") from None

    def item_bytes(self, name: str) -> int:
        """Return the bytes per element of a tensor; of a list of tensors, whose type is not recorded, float32's."""
        index = self._index(name)
        kind = "" if index is None else self.types[index]
        return ITEM_BYTES.get("float" if kind == "TensorList" else kind, 0)

    def bytes_of(self, *names: str) -> int:
        """Return the bytes of those of these inputs that were given."""
        return sum(prod(self.shape(name)) * self.item_bytes(name) for name in names if self.has(name))

    def every_bytes(self) -> int:
        """Return the bytes of all tensors among the inputs."""
        total = 0
        for kind, shape in zip(self.types, self.shapes, strict=False):
            lists = shape if kind == "TensorList" else [shape]
            size = ITEM_BYTES.get("float" if kind == "TensorList" else kind, 0)
            total += sum(prod(one) * size for one in lists)
        return total

    def tensors(self) -> list[tuple[Shape, int]]:
        """Return shape and bytes per element of each tensor among the inputs, without those in lists."""
        return [(tuple(shape), ITEM_BYTES[kind]) for kind, shape in zip(self.types, self.shapes, strict=False)
                if kind in ITEM_BYTES]  # fmt: skip

    def widest(self) -> int:
        """Return the most bytes per element of any tensor, which results have too."""
        return max((ITEM_BYTES[kind] for kind in self.types if kind in ITEM_BYTES), default=0)

    def _index(self, name: str) -> int | None:
        index = self.names.index(name) if name in self.names else len(self.types)
        return index if index < len(self.types) else None

    def _is_tensor(self, index: int) -> bool:
        return self.types[index] in ITEM_BYTES
