"""harness/inspection: every tensor of any nesting is moved and looked at; structures keep their types and what else they hold."""

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
from profzoo.harness import inspection
from profzoo.harness.step import batches, step_loop

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


WRAPPERS: list[typing.Callable[[Any], Any]] = [
    lambda part: [part, 3],
    lambda part: ("text", part),
    lambda part: {"key": part, 7: None},
    lambda part: Pair(part, torch.ones(2)),
    lambda part: Batch(part, {"deep": torch.zeros(1)}),
    *(Frozen, Derived, lambda part: collections.UserList([part])),
    lambda part: collections.OrderedDict(a=part),
    lambda part: collections.defaultdict(list, a=part),
    lambda part: collections.UserDict({"a": part}),
    lambda part: Attributes(a=part),
    lambda part: types.MappingProxyType({"a": part}),
    lambda part: collections.deque([part, 1], maxlen=4),
    lambda part: [(part,), None],
]


def nested(seed: int) -> Any:
    """A structure of some depth around a tensor."""
    chosen = random.Random(seed)
    value: Any = torch.full((2, 2), float(seed))
    for _ in range(chosen.randint(0, 5)):
        value = chosen.choice(WRAPPERS)(value)
    return value


@pytest.mark.parametrize("seed", range(30))
def test_every_tensor_is_moved_and_looked_at_and_structures_stay_what_they_are(seed: int) -> None:
    value = nested(seed)
    moved = batches.move_to_device(value, META, torch.contiguous_format)
    before, after = list(inspection.find_tensors(value)), list(inspection.find_tensors(moved))
    assert len(after) == len(before) > 0
    assert all(tensor.device == META for tensor in after) and all(tensor.device.type == "cpu" for tensor in before)
    shown = [str(inspection.map_leaves(lambda leaf: type(leaf).__name__, one)) for one in (value, moved)]
    assert shown[0] == shown[1] and type(moved) is type(value)
    cell = {"phase": "inference"}
    assert step_loop._finite(collections.deque([value]), cell) == [None]
    poisoned = inspection.map_leaves(lambda leaf: leaf * float("nan") if isinstance(leaf, Tensor) else leaf, value)
    with pytest.raises(step_loop.NotFiniteError, match="holds NaN or infinity"):
        step_loop._finite(collections.deque([poisoned]), cell)


@pytest.mark.parametrize("output", [
    Opaque([torch.tensor([1.0, float("inf")])]), {"a": Frozen(Opaque({"b": torch.tensor(float("nan"))}))},
    torch.tensor([complex(0, float("nan"))]),
])  # fmt: skip
def test_an_output_in_an_object_of_any_kind_is_looked_at(output: Any) -> None:
    with pytest.raises(step_loop.NotFiniteError):
        step_loop._finite(collections.deque([output]), {"phase": "inference"})


def test_a_dataclass_is_not_made_anew() -> None:
    moved = batches.move_to_device(Derived(torch.ones(2)), META, torch.contiguous_format)
    assert moved.length == 1 and moved.inner.device == moved.cached.device == META


def test_a_packed_sequence_moves_itself() -> None:
    packed = pack_padded_sequence(torch.rand(2, 3, 4), torch.tensor([3, 1]), batch_first=True)
    moved = batches.move_to_device({"words": packed}, META, torch.contiguous_format)["words"]
    assert isinstance(moved, PackedSequence) and moved.data.device == META
    # Where torch wants the lengths.
    assert moved.batch_sizes.device.type == "cpu"


def test_a_tensor_that_would_stay_behind_is_named() -> None:
    batch = {"graph": Opaque([torch.ones(2)])}
    said = r"holds tensors on cpu in an object of type Opaque: give it a method to\(dev"
    with pytest.raises(ConfigError, match=said):
        batches.move_to_device(batch, META, torch.contiguous_format)
    assert batches.move_to_device(batch, torch.device("cpu"), torch.contiguous_format)["graph"] is batch["graph"]


def test_walking_ends_where_objects_hold_each_other() -> None:
    first, second = Opaque(torch.ones(1)), Opaque(torch.ones(2))
    first.other, second.other = second, first
    assert sorted(len(tensor) for tensor in inspection.find_tensors([first, second, first])) == [1, 2]


@pytest.mark.parametrize("value", [None, 3, "text", b"bytes", bytearray(8), range(4), float, torch.float32])
def test_plain_values_pass(value: Any) -> None:
    assert batches.move_to_device(value, META, torch.contiguous_format) is value
    assert list(inspection.find_tensors(value)) == []


class Slots:
    __slots__ = ("a", "missing")

    def __init__(self, a: Any) -> None:
        self.a = a


class Both(Slots):
    __slots__ = ("__dict__", "single")

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a)
        self.b = b


class One:
    __slots__ = "held"

    def __init__(self, held: Any) -> None:
        self.held = held


def test_tensors_are_found_in_slots_and_attributes_in_order_each_once() -> None:
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    found = inspection.find_tensors([Both(one, two), One(three), one, torch.Tensor, "text", {"x": (two,)}])
    assert [len(tensor) for tensor in found] == [1, 2, 3]


def test_structures_keep_their_types_and_order() -> None:
    given = {"a": (1, [2, {3}]), "b": Frozen(4), "c": frozenset([6]), "d": b"x"}
    found = inspection.map_leaves(lambda leaf: leaf * 2, given)
    assert found == {"a": (2, [4, {6}]), "b": Frozen(8), "c": frozenset([12]), "d": b"xx"} and given["b"] == Frozen(4)
    assert inspection.has_to_method(first := torch.ones(1)) and not inspection.has_to_method(type(first))


class Moving:
    """Moves itself in place, returns nothing, and notes how it is asked to."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def to(self, device: torch.device, non_blocking: bool = False) -> None:
        self.asked.append((device, non_blocking))


def test_what_moves_itself_goes_on_meanwhile_where_it_can() -> None:
    mine = Moving()
    blocking = types.SimpleNamespace(to=lambda device: f"on {device}")
    other = types.SimpleNamespace(to=lambda device, **more: more)
    found = batches.move_to_device({"a": mine, "b": blocking, "c": other}, META, torch.channels_last)
    assert found == {"a": mine, "b": "on meta", "c": {"non_blocking": True}} and mine.asked == [(META, True)]


def test_images_alone_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4), torch.ones(2, 3, 4, 4, dtype=torch.int64),
             torch.ones(2, 3, 4, 4).to_sparse()]  # fmt: skip
    found = batches.move_to_device(given, torch.device("cpu"), torch.channels_last)
    assert [one.is_contiguous(memory_format=torch.channels_last) for one in (found[0], found[2])] == [True, False]
    assert found[1].shape == (2, 3, 4) and found[3].layout is torch.sparse_coo
