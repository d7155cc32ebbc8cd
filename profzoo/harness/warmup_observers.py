"""Observes single steps of a cell's warm-up: waits, lines of the host, and repeated calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from profzoo.harness import blocking_lines, host_samples, repeated_calls
from profzoo.harness.ranges import Ranges

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


class WarmupObservers:
    """Observes warm-up steps of a loop by their indices; `facts` tells afterwards what was seen."""

    def __init__(self, cell: "CellSettings", device: torch.device, ranges: Ranges, loop: CodeType) -> None:
        """loop: the code that runs the steps, beyond which no frame is the program's."""
        self._waits = observe_waits(cell, device, ranges, loop)
        self._host = host_samples.SampledStep(cell["warmup"], ranges, loop)
        # Sums of outputs would be captured, too.
        plain = not (cell.get("graph") or cell["compile"])
        self._repeated = repeated_calls.RepeatedStep(cell["warmup"], ranges, loop, plain)

    @contextmanager
    def during(self, index: int) -> Iterator[None]:
        """Observe the body if it is one of the steps to observe; restores everything, also when the body raises."""
        with self._waits.during(index), self._host.during(index), self._repeated.during(index):
            yield

    def facts(self) -> dict[str, Any]:
        """What was seen, by the names of the facts; without what was not observed."""
        found = {
            "blocking_lines": self._waits.found,
            "host_lines": self._host.found,
            "repeated_calls": self._repeated.found,
        }
        return {name: known for name, known in found.items() if known is not None}


def observe_waits(
    cell: "CellSettings", device: torch.device, ranges: Ranges, loop: CodeType
) -> blocking_lines.ObservedStep:
    """Observer of the lines at which a warm-up step waits for the GPU; loop: the code that runs the steps.

    A step that is captured in a CUDA graph cannot wait.
    """
    waits = device.type == "cuda" and not cell.get("graph")
    return blocking_lines.ObservedStep(blocking_lines.BlockingLines(ranges, loop) if waits else None, cell["warmup"])
