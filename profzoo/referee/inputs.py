"""Inputs that nobody can know before their seed is drawn, and results that are given where they are asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from profzoo.harness import inspection

# Numbers by which inputs are mixed are read from one pool, at places that are so many numbers apart.
SPACE, APART = 1 << 16, 64
# Whole inputs of one value, with which a program is tried besides.
PROBES = {"zeros": 0.0, "ones": 1.0}
# Bound before judged code is imported.
_addcmul, _where, _empty, _from, _gather = torch.addcmul, torch.where, torch.empty, torch.from_numpy, torch.gather
_cos, _sin, _cat, _make_generator, _draw = torch.cos, torch.sin, torch.cat, torch.Generator, np.random.default_rng


def list_mixable(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch from which inputs are mixed, in the order in which structures are traversed."""
    found: list[Tensor] = []

    def look(leaf: Any) -> Any:
        if _is_mixable(leaf):
            found.append(leaf)
        return leaf

    inspection.map_leaves(look, batch)
    return found


class Inputs:
    """Makes inputs that nobody could know before a seed was drawn: mixed from base batches, on the device.

    A number of an input is that of one batch times a cosine plus that of another one times the sine of an angle. The
    angle is drawn for each number of each step. This keeps mean squares. Whole numbers are chosen from either batch.
    Batches are shifted along their first dimension by a number of samples that is drawn too. It costs two launches.
    """

    def __init__(self, given: Sequence[Any], device: torch.device, double: bool) -> None:
        """given: two batches of the reference's, of one form."""
        self._form, self._device, self._double = given[0], device, double
        leaves = [list_mixable(batch) for batch in given]
        # Each batch twice, so that one that is shifted is a part of it.
        self._pairs = [(_doubled(one, device), _doubled(other, device)) for one, other in zip(*leaves, strict=True)]
        self._whole = [_is_whole(one) and _is_whole(other) for one, other in zip(*leaves, strict=True)]
        self._largest = max([one.numel() for one in leaves[0]], default=0)
        self._generator = _make_generator(device)
        self._pools: tuple[Tensor, Tensor, Tensor] | None = None
        self._probe: float | None = None
        self._places = np.zeros((0, 0, 3), dtype=np.int64)

    @property
    def has_numbers(self) -> bool:
        """Whether an input has numbers that are not whole."""
        return not all(self._whole)

    def begin(self, seed: int, steps: int, probe: str) -> None:
        """Draw by a seed what so many steps need; probe: name of a value of all numbers instead, empty for none."""
        self._probe = PROBES[probe] if probe else None
        drawn = _empty(self._largest + SPACE, device=self._device).uniform_(generator=self._generator.manual_seed(seed))
        self._pools = _cos(2 * np.pi * drawn), _sin(2 * np.pi * drawn), drawn < 0.5
        most = [SPACE // APART, 1 << 30, 1 << 30]
        self._places = _draw(seed).integers(0, most, (steps, max(len(self._pairs), 1), 3))

    def mix(self, step: int) -> Any:
        """Return the batch of a step."""
        leaf = iter(range(len(self._pairs)))
        return inspection.map_leaves(
            lambda value: self._mix(next(leaf), step) if _is_mixable(value) else value, self._form
        )

    def _mix(self, leaf: int, step: int) -> Tensor:
        assert self._pools
        place, *shifts = self._places[step][leaf].tolist()
        one, other = (_shifted(batch, shift) for batch, shift in zip(self._pairs[leaf], shifts, strict=True))
        cosine, sine, chosen = (
            pool[place * APART : place * APART + one.numel()].view(one.shape) for pool in self._pools
        )
        if self._whole[leaf]:
            mixed = _where(chosen, one, other)
        elif self._probe is not None:
            mixed = one * 0 + self._probe
        else:
            mixed = _addcmul(cosine.to(one.dtype) * one, sine.to(one.dtype), other)
        return mixed.double() if self._double and mixed.is_floating_point() else mixed


def _is_mixable(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.layout is torch.strided and bool(leaf.numel())


def _is_whole(leaf: Tensor) -> bool:
    numbers = leaf.is_floating_point() or leaf.is_complex()
    return not numbers or (not leaf.is_complex() and bool((leaf == leaf.round()).all()))


def _doubled(leaf: Tensor, device: torch.device) -> Tensor:
    placed = leaf.contiguous().to(device)
    return _cat([placed, placed]) if placed.dim() else placed


def _shifted(doubled: Tensor, shift: int) -> Tensor:
    if not doubled.dim():
        return doubled
    count = len(doubled) // 2
    return doubled[shift % count : shift % count + count]


class Values:
    """Results of steps, which are copied as they come and handed over when the referee asks for some of them."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._kept: list[Tensor] = []

    def begin(self, like: Sequence[Tensor], steps: int) -> None:
        """Make room for so many steps of results like these."""
        self._kept = [_empty((steps, *one.shape), dtype=one.dtype, device=one.device) for one in like]

    def keep(self, row: int, results: Sequence[Tensor]) -> None:
        """Copy the results of a step.

        Raises:
            ValueError: they have another form.
        """
        if [one.shape for one in results] != [one.shape[1:] for one in self._kept]:
            raise ValueError("its results change their number or shape from step to step")
        for kept, result in zip(self._kept, results, strict=True):
            kept[row].copy_(result)

    def hold(self, tensors: Sequence[Tensor]) -> None:
        """Keep tensors as they are, after those of steps."""
        self._kept += [one.detach()[None] for one in tensors]

    def give(self, asked: Sequence[Mapping[str, Any]], content: bytes) -> bytes:
        """Return the values that are asked for: of a result, in some steps or all (`rows` None), at places or all.

        content: the places, of 8 bytes each.
        """
        places, found, at = np.frombuffer(content, dtype=np.int64), [], 0
        for one in asked:
            kept = self._kept[one["leaf"]]
            flat = kept.reshape(len(kept), -1)
            flat = flat if one["rows"] is None else flat[one["rows"]]
            if one["count"]:
                size = len(flat) * one["count"]
                chosen = _from(places[at : at + size].reshape(len(flat), -1).copy()).to(flat.device)
                flat, at = _gather(flat, 1, chosen), at + size
            found.append(_to_array(flat).tobytes())
        return b"".join(found)

    def describe(self) -> list[dict[str, Any]]:
        """Return size and type of each result."""
        return [{"size": one[0].numel(), "shape": list(one.shape[1:]), "dtype": str(one.dtype)} for one in self._kept]


def _to_array(values: Tensor) -> Any:
    """Return values as an array of 8 bytes each: whole numbers, or in double precision."""
    plain = torch.view_as_real(values) if values.is_complex() else values
    return plain.detach().to(torch.float64 if plain.is_floating_point() else torch.int64).cpu().numpy()


def _pairs(given: Sequence[Any]) -> list[tuple[Tensor, ...]]:
    return list(zip(*([one for one in inspection.find_tensors(batch) if _is_mixable(one)] for batch in given),
                    strict=True))  # fmt: skip


def _varies(*tensors: Tensor) -> bool:
    return bool((tensors[0] != tensors[1]).any() or (tensors[0] != tensors[0].flatten()[0]).any())


def vary_constants(given: Sequence[Any], generator: torch.Generator) -> tuple[list[Any], bool]:
    """Replace numbers of inputs that are all alike by random ones; returns the batches, and whether one was replaced.

    Nothing is replaced if another number of the batches varies.
    """
    inputs = [batch if isinstance(batch, Mapping) else batch[0] for batch in given]
    pairs = _pairs(inputs)
    if any(_varies(*pair) for pair in pairs) or not any(one.is_floating_point() for one, _ in pairs):
        return list(given), False

    def drawn(leaf: Any) -> Any:
        plain = _is_mixable(leaf) and leaf.is_floating_point()
        return torch.randn(leaf.shape, generator=generator).to(leaf.dtype) if plain else leaf

    varied = [inspection.map_leaves(drawn, one) for one in inputs]
    return [one if isinstance(batch, Mapping) else (one, *batch[1:]) for one, batch in
            zip(varied, given, strict=True)], True  # fmt: skip
