"""What a measured process noted of its work and its GPU: padding, compilations, the allocator's retries, clocks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.tools.sample.clock_readings import read_clocks

if TYPE_CHECKING:
    from profzoo.cell.job_types import AllocatorFacts, ClockReading, Compilation, PaddedRows, RepeatedCall, Sidecar

CellKey = tuple[str, str]
# So many lines are named.
NAMED = 3


@dataclass(frozen=True)
class Padding:
    """Padding of the batches' most padded tensor: its shape, the value, and shares of its places.

    padded: share that is padding. behind: share behind the longest row, which is left out by shorter batches.
    """

    rows: int
    places: int
    value: int
    padded: float
    behind: float


@dataclass(frozen=True)
class NotedFacts:
    """What was noted of a cell's work: in its unprofiled run, and of its operators.

    window_ns: duration of the window, 0 where it is unknown. activities: operators with their host time by
    torch.profiler; None without. allocator: what the first process' allocator did in its window. clocks: readings at
    both ends of the window, of all processes. repeated: modules that a step called again on the same inputs.
    """

    padding: "Sequence[PaddedRows]" = ()
    compilations: "Sequence[Compilation]" = ()
    window_ns: float = 0.0
    activities: pd.DataFrame | None = None
    allocator: "AllocatorFacts | None" = None
    clocks: "Sequence[ClockReading]" = ()
    repeated: "Sequence[RepeatedCall]" = ()

    def most_padded(self) -> Padding | None:
        """Return the tensor with the largest share of padding; None if no batch is padded."""
        groups: dict[tuple[int, int, int], list[PaddedRows]] = {}
        for one in self.padding:
            groups.setdefault((one["rows"], one["places"], one["value"]), []).append(one)
        found = [
            Padding(
                *key,
                padded=sum(one["padded"] for one in own) / (key[0] * key[1] * len(own)),
                behind=1 - sum(one["longest"] for one in own) / (key[1] * len(own)),
            )
            for key, own in groups.items()
        ]
        return max(found, key=lambda one: one.padded, default=None)

    def compiling_share(self) -> float:
        """Return the share of the window in which code was compiled; 0 where it is unknown."""
        seconds = sum(one["seconds"] for one in self.compilations if one["in_window"])
        return min(seconds * 1e9 / self.window_ns, 1.0) if self.window_ns else 0.0

    def describe_compilations(self) -> str:
        """Describe where code was compiled again within the window, and why.

        >>> made = {"function": "f", "file": "a.py", "line": 3, "resumed": False, "seconds": 1.0, "in_window": True}
        >>> NotedFacts((), [made | {"why_again": "k == 3"}, made | {"why_again": "k == 4"}]).describe_compilations()
        'f (a.py:3) was compiled 2 times, as these did not hold: k == 3; k == 4'
        """
        again = [one for one in self.compilations if one["in_window"]]
        texts = []
        for (function, file, line), times in _places(again).most_common(NAMED):
            own = [one for one in again if (one["function"], one["file"], one["line"]) == (function, file, line)]
            why = "; ".join(list(dict.fromkeys(one["why_again"] for one in own if one["why_again"]))[:NAMED])
            count = f"{times} times" if times > 1 else "once"
            because = f", as {'these' if times > 1 else 'this'} did not hold: {why}" if why else ""
            texts.append(f"{function} ({file}:{line}) was compiled {count}{because}")
        return "; ".join(texts)

    def graph_breaks(self) -> list[str]:
        """Return the lines of graph breaks, each once, in the order of their first compilation."""
        return list(dict.fromkeys(f"{one['file']}:{one['line']}" for one in self.compilations if one["resumed"]))


def _places(compilations: "Sequence[Compilation]") -> Counter[tuple[str, str, int]]:
    return Counter((one["function"], one["file"], one["line"]) for one in compilations)


def read_noted(facts: "Sidecar") -> NotedFacts:
    """Return what a sidecar says."""
    return NotedFacts(
        facts.get("padding", ()),
        facts.get("compilations", ()),
        float(facts.get("window_wall_ns", 0) or 0),
        allocator=facts.get("allocator"),
        clocks=read_clocks(facts),
        repeated=facts.get("repeated_calls", ()),
    )


def add_activities(
    noted: Mapping[CellKey, NotedFacts], activities: Mapping[CellKey, pd.DataFrame]
) -> dict[CellKey, NotedFacts]:
    """Return what was noted of all cells, with the operators of those that have any."""
    return {
        cell: replace(noted.get(cell, NotedFacts()), activities=activities.get(cell))
        for cell in dict.fromkeys((*noted, *activities))
    }
