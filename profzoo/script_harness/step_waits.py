"""Observes warm-up steps of a script: where they wait for the GPU, where the host spends them, and repeated calls."""

from typing import TYPE_CHECKING, Any

import torch

from profzoo.harness import blocking_lines, host_samples, repeated_calls
from profzoo.harness.ranges import Ranges

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine


class StepWaits:
    """The step of a script that is observed, from its beginning to its end."""

    def __init__(self, warmup: int, ranges: Ranges) -> None:
        """warmup: steps before the window."""
        self._index, self._ranges = blocking_lines.step_to_observe(warmup), ranges
        self._lines: blocking_lines.BlockingLines | None = None
        self._found: list[BlockingLine] | None = None
        self._sampled = host_samples.SampledStep(warmup, ranges)
        self._again = repeated_calls.RepeatedStep(warmup, ranges)

    def begin_step(self, index: int, device: torch.device) -> None:
        """Begin to observe if this step of the warm-up, which follows now, is the one to observe."""
        if index == self._index and device.type == "cuda":
            self._lines = blocking_lines.BlockingLines(self._ranges)
            self._lines.start()
        self._sampled.begin(index)
        self._again.begin(index)

    def end_step(self) -> None:
        """Stop observing, if the step that ends now was observed."""
        self._sampled.end()
        self._again.end()
        if self._lines:
            self._found, self._lines = self._lines.stop(), None

    def facts(self) -> dict[str, Any]:
        """Lines at which a step waited and at which the host spent it, and repeated calls; only what was looked at."""
        found: dict[str, Any] = {"blocking_lines": self._found, "host_lines": self._sampled.found}
        found["repeated_calls"] = self._again.found
        return {name: known for name, known in found.items() if known is not None}
