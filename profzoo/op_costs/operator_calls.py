"""Reads what a torch.profiler trace says of the inputs of an operator's call."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

# Bytes per element, by torch.profiler's name of the type.
ITEM_BYTES = {
    "double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "c10::complex<float>": 8, "c10::complex<double>": 16,
    "long int": 8, "long": 8, "int": 4, "short int": 2, "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
# A trace does not tell the type of tensors in lists. Names of kernels do, by type or by size; of float without one.
LISTED = "float"
OF_SIZE = {1: "bool", 2: "c10::Half", 4: LISTED, 8: "double", 16: "c10::complex<double>"}
IN_KERNEL = re.compile(r"OpaqueType<(\d+)|Functor<(c10::complex<\w+>|(?:c10::)?\w+)")
Shape = tuple[int, ...]


@cache
def find_listed_type(kernel: str) -> str:
    """Return the type of the tensors in an operator's lists, or one as large, by the name of its kernel.

    >>> find_listed_type("void CatArrayBatchedCopy_vectorized<OpaqueType<2u>, unsigned int, 2, 128, 1, 16, 8>(char*)")
    'c10::Half'
    >>> find_listed_type("void multi_tensor_apply_kernel<TensorListMetadata<2>, CopyFunctor<double, float, 2>>")
    'double'
    """
    found = IN_KERNEL.search(kernel)
    kind = (found[2] or OF_SIZE.get(int(found[1]), LISTED)) if found else LISTED
    return kind if kind in ITEM_BYTES else LISTED


def count_stored(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements a tensor stores: one for all along an expanded dimension, whose stride is 0.

    >>> count_stored([2, 8, 5], [5, 0, 1]), count_stored([2, 8, 5], [])
    (10, 80)
    """
    if len(strides) != len(shape):
        return prod(shape)
    return prod(size for size, stride in zip(shape, strides, strict=True) if stride)


def pair_strides(shapes: Sequence[Any], strides: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Return shape and strides of each tensor of a list; empty strides where the trace does not tell them."""
    return zip(shapes, strides if len(strides) == len(shapes) else [[]] * len(shapes), strict=True)


class Needed(NamedTuple):
    """The cost of a call.

    Attributes:
        product_flop: floating-point operations of matrix products, convolutions and attention.
        other_flop: all other floating-point operations.
        bytes: bytes read and written.
    """

    product_flop: int
    other_flop: int
    bytes: int

    @property
    def flop(self) -> int:
        """Return the number of all floating-point operations."""
        return self.product_flop + self.other_flop


class UnknownError(ValueError):
    """The trace lacks something that a formula needs."""


@dataclass(frozen=True)
class Call:
    """One call of an operator, with its inputs.

    Attributes:
        operator: name of the operator, such as `aten::mm`.
        names: names of its inputs, from torch's schema.
        shapes, types, values: one entry per input, from the fields `Input Dims`, `Input type` and `Concrete Inputs` of
            a torch.profiler trace.
        listed: type of the tensors in lists.
        strides: of each input, from the field `Input Strides`; empty where the trace does not tell them.
    """

    operator: str
    names: Sequence[str]
    shapes: Sequence[Any]
    types: Sequence[str]
    values: Sequence[str]
    listed: str = LISTED
    strides: Sequence[Any] = ()

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor.

        Raises:
            UnknownError: the input is missing, or is not a tensor.
        """
        index = self._index(name)
        if index is None or not self._is_tensor(index):
            raise UnknownError(f"no tensor {name}")
        return tuple(self.shapes[index])

    def has(self, name: str) -> bool:
        """Return whether a tensor was given for this input."""
        index = self._index(name)
        return index is not None and self._is_tensor(index)

    def shapes_of(self, name: str) -> list[Shape]:
        """Return the shapes of a list of tensors.

        Raises:
            UnknownError: the input is not a list of tensors, or the trace omits its shapes, as it does for long lists.
        """
        index = self._index(name)
        if index is None or self.types[index] != "TensorList" or not self.shapes[index]:
            raise UnknownError(f"no shapes of {name}")
        return [tuple(shape) for shape in self.shapes[index]]

    def value(self, name: str, default: Any = None) -> Any:
        """Return an input that is a number, a flag or a list of these; `default` if the trace has no value.

        Raises:
            UnknownError: there is neither a value nor a default, or the value is not a Python literal.
        """
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
        """Return the bytes per element of a tensor, or of tensors in a list; 0 if unknown."""
        index = self._index(name)
        return 0 if index is None else self._size_of(self.types[index])

    def bytes_of(self, *names: str) -> int:
        """Return the stored bytes of all named inputs that are tensors of this call."""
        places = [place for name in names if (place := self._index(name)) is not None and self._is_tensor(place)]
        return sum(self.stored(place) * self._size_of(self.types[place]) for place in places)

    def every_bytes(self) -> int:
        """Return the stored bytes of all tensors among the inputs, including tensors in lists."""
        sizes = enumerate(map(self._size_of, self.types[: len(self.shapes)]))
        return sum(self.stored(place) * size for place, size in sizes)

    def tensors(self) -> list[tuple[Shape, int, int]]:
        """Return shape, bytes per element and stored elements of each tensor among the inputs, but not of lists."""
        return [(tuple(shape), ITEM_BYTES[kind], self.stored(place)) for place, (kind, shape) in
                enumerate(zip(self.types, self.shapes, strict=False)) if kind in ITEM_BYTES]  # fmt: skip

    def strides_of(self, name: str) -> Sequence[Any]:
        """Return the strides of an input; empty where the trace does not tell them."""
        index = self._index(name)
        return () if index is None else self._strides_at(index)

    def stored(self, place: int) -> int:
        """Return the elements that an input stores, of a list all together."""
        shape, steps = self.shapes[place], self._strides_at(place)
        pairs = pair_strides(shape, steps) if self.types[place] == "TensorList" else [(shape, steps)]
        return sum(count_stored(*pair) for pair in pairs)

    def widest(self) -> int:
        """Return the most bytes per element of any input tensor; results are taken to have as many."""
        return max((ITEM_BYTES[kind] for kind in self.types if kind in ITEM_BYTES), default=0)

    def _strides_at(self, place: int) -> Sequence[Any]:
        return self.strides[place] if place < len(self.strides) else ()

    def _size_of(self, kind: str) -> int:
        return ITEM_BYTES.get(self.listed if kind == "TensorList" else kind, 0)

    def _index(self, name: str) -> int | None:
        index = self.names.index(name) if name in self.names else len(self.types)
        return index if index < len(self.types) else None

    def _is_tensor(self, index: int) -> bool:
        return self.types[index] in ITEM_BYTES
