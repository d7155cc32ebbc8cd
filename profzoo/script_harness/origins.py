"""Keeps the lines of a script's own files that make its networks, optimizers and loaders, and call networks."""

from collections import Counter
from collections.abc import Iterable, MutableMapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.weak import WeakIdKeyDictionary

from profzoo.harness.source_places import PlaceFinder

if TYPE_CHECKING:
    from profzoo.cell.job_types import MadeObject

MODEL, OPTIMIZER, LOADER, CALL = "model", "optimizer", "loader", "call"
Line = tuple[str, int]


class Origins:
    """Where the objects of a process were made."""

    def __init__(self) -> None:
        self._places = PlaceFinder()
        # By identity, as a module's own hash may need what its constructor sets, or change later.
        self._lines: MutableMapping[Any, Line] = WeakIdKeyDictionary()
        self._calls: MutableMapping[nn.Module, Line] = WeakIdKeyDictionary()
        self._batches: Counter[Line] = Counter()

    def note(self, kind: str, made: Any, frame: FrameType | None) -> None:
        """Note where an object is made; frame: of what has called its constructor, which may be another one of it."""
        while frame is not None and _constructs(frame, made):
            frame = frame.f_back
        # A package that makes a network does so for the script. Its loaders and optimizers are its own.
        if line := self._places.find_own_line(frame, through_packages=kind == MODEL):
            self._lines.setdefault(made, line)

    def note_loader(self, loader: DataLoader[Any]) -> None:
        """Note that a loader has been made; one that a package makes anew has the line of the script's own one."""
        if loader not in self._lines:
            others = (one for one in self._lines if isinstance(one, DataLoader) and one.dataset is loader.dataset)
            if (own := next(others, None)) is not None:
                self.hand_on(own, loader)

    def hand_on(self, made: Any, other: Any) -> None:
        """Note that an object, such as a loader, has made another one, such as its iterator, which may outlive it."""
        if made in self._lines:
            self._lines[other] = self._lines[made]

    def note_batch(self, iterator: Any) -> None:
        """Note that a loader's iterator has given a batch."""
        if iterator in self._lines:
            self._batches[self._lines[iterator]] += 1

    def note_call(self, network: nn.Module, frame: FrameType | None) -> None:
        """Note where a network is called, in place of what was noted of it before."""
        if line := self._places.find_own_line(frame, through_packages=False):
            self._calls[network] = line

    def describe(
        self, networks: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer]
    ) -> "list[MadeObject]":
        """Return the lines of what the loop uses: these networks and optimizers, and the loader of most batches."""
        used = [*((MODEL, one) for one in networks), *((OPTIMIZER, one) for one in optimizers)]
        found = [(kind, _name(one), self._lines[one]) for kind, one in used if one in self._lines]
        found += [(LOADER, "", line) for line, _ in self._batches.most_common(1)]
        found += [(CALL, "", line) for line in self._calls.values()]
        once = dict.fromkeys(found)
        return [{"kind": kind, "name": name, "file": file, "line": line} for kind, name, (file, line) in once]


def _constructs(frame: FrameType, made: Any) -> bool:
    """Whether a frame is a constructor of this object."""
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is made


def _name(one: Any) -> str:
    """Class of an optimizer of torch's own; empty for others."""
    own = isinstance(one, torch.optim.Optimizer) and getattr(torch.optim, type(one).__name__, None) is type(one)
    return type(one).__name__ if own else ""
