"""harness/trees: every tensor of any nesting is moved and looked at; structures keep their types and what else they hold."""

import collections
import dataclasses
import random
import types
import typing
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from profzoo.errors import ConfigError
from profzoo.harness import data_loading, step_loop, tensor_trees

META = torch.device("meta")


class Pair(typing.NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Batch:
    images: Any
    more: Any = None
    name: str = "batch"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    inner: Any


@dataclasses.dataclass
class Derived:
    inner: Any
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.length += 1
        self.cached = torch.ones(1)


class Attributes(dict):
    """A mapping with an attribute of its own."""

    kept = "none"


class Opaque:
    """An object of a kind that nobody knows."""

    def __init__(self, held: Any) -> None:
        self.held = held


class Movable(Opaque):
    def to(self, device: torch.device) -> "Movable":
        return Movable(self.held.to(device))


class MovesInPlace(Opaque):
    def to(self, *arguments: Any, **options: Any) -> None:
        self.held = self.held.to(*arguments, **options)


WRAPPERS: list[typing.Callable[[Any], Any]] = [
    lambda part: [part, 3],
    lambda part: ("text", part),
    lambda part: {"key": part, 7: None},
    lambda part: Pair(part, torch.ones(2)),
    lambda part: Batch(part, {"deep": torch.zeros(1)}),
    lambda part: Frozen(part),
    lambda part: Derived(part),
    lambda part: collections.OrderedDict(a=part),
    lambda part: collections.defaultdict(list, a=part),
    lambda part: collections.UserDict({"a": part}),
    lambda part: Attributes(a=part),
    lambda part: types.MappingProxyType({"a": part}),
    lambda part: collections.deque([part, 1], maxlen=4),
    lambda part: collections.UserList([part]),
]


def nested(seed: int) -> Any:
    """A structure of some depth around a tensor."""
    chosen = random.Random(seed)
    value: Any = torch.full((2, 2), float(seed))
    for _ in range(chosen.randint(0, 5)):
        value = chosen.choice(WRAPPERS)(value)
    return value


@pytest.mark.parametrize("seed", range(60))
def test_every_tensor_is_moved_and_structures_stay_what_they_are(seed: int) -> None:
    value = nested(seed)
    moved = data_loading.move_to_device(value, META, torch.contiguous_format)
    before, after = list(tensor_trees.find_tensors(value)), list(tensor_trees.find_tensors(moved))
    assert len(after) == len(before) > 0
    assert all(tensor.device == META for tensor in after) and all(tensor.device.type == "cpu" for tensor in before)
    shown = [str(tensor_trees.map_leaves(lambda leaf: type(leaf).__name__, one)) for one in (value, moved)]
    assert shown[0] == shown[1] and type(moved) is type(value)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_not_finite_is_found_at_any_depth(seed: int) -> None:
    value = nested(seed)
    cell = {"phase": "inference"}
    assert step_loop._finite(collections.deque([value]), cell) == [None]
    poisoned = tensor_trees.map_leaves(lambda leaf: leaf * float("nan") if isinstance(leaf, Tensor) else leaf, value)
    with pytest.raises(step_loop.NotFiniteError):
        step_loop._finite(collections.deque([poisoned]), cell)


@pytest.mark.parametrize(
    "output", [Opaque([torch.tensor([1.0, float("inf")])]), {"a": Frozen(Opaque({"b": torch.tensor(float("nan"))}))},
               torch.tensor([complex(0, float("nan"))])],
)  # fmt: skip
def test_an_output_in_an_object_of_any_kind_is_looked_at(output: Any) -> None:
    with pytest.raises(step_loop.NotFiniteError):
        step_loop._finite(collections.deque([output]), {"phase": "inference"})


def test_a_dataclass_is_not_made_anew() -> None:
    moved = data_loading.move_to_device(Derived(torch.ones(2)), META, torch.contiguous_format)
    assert moved.length == 1 and moved.inner.device == moved.cached.device == META


def test_a_packed_sequence_moves_itself() -> None:
    packed = pack_padded_sequence(torch.rand(2, 3, 4), torch.tensor([3, 1]), batch_first=True)
    moved = data_loading.move_to_device({"words": packed}, META, torch.contiguous_format)["words"]
    assert isinstance(moved, PackedSequence) and moved.data.device == META
    # Where torch wants the lengths.
    assert moved.batch_sizes.device.type == "cpu"


@pytest.mark.parametrize("kind", [Movable, MovesInPlace])
def test_objects_that_know_how_are_asked_to_move(kind: type) -> None:
    moved = data_loading.move_to_device([kind(torch.ones(2))], META, torch.contiguous_format)[0]
    assert type(moved) is kind and moved.held.device == META


def test_a_tensor_that_would_stay_behind_is_named() -> None:
    batch = {"graph": Opaque([torch.ones(2)])}
    with pytest.raises(
        ConfigError, match=r"holds tensors on cpu in an object of type Opaque: give it a method to\(dev"
    ):
        data_loading.move_to_device(batch, META, torch.contiguous_format)
    assert data_loading.move_to_device(batch, torch.device("cpu"), torch.contiguous_format)["graph"] is batch["graph"]


def test_walking_ends_where_objects_hold_each_other() -> None:
    first, second = Opaque(torch.ones(1)), Opaque(torch.ones(2))
    first.other, second.other = second, first
    assert sorted(len(tensor) for tensor in tensor_trees.find_tensors([first, second, first])) == [1, 2]


@pytest.mark.parametrize("value", [None, 3, "text", b"bytes", bytearray(8), range(4), float, torch.float32])
def test_plain_values_pass(value: Any) -> None:
    assert (
        data_loading.move_to_device(value, META, torch.contiguous_format) is value
        and list(tensor_trees.find_tensors(value)) == []
    )
