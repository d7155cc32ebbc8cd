"""Observes warm-up steps of a script: where they wait for the GPU, where the host spends them, and repeated calls."""

from typing import TYPE_CHECKING, Any

import torch

from profzoo.harness import blocking_lines, host_samples, repeated_calls
from profzoo.harness.ranges import Ranges
from profzoo.harness.single_step import SingleStep

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine


class StepWaits:
    """The step of a script that is observed, from its beginning to its end."""

    def __init__(self, warmup: int, ranges: Ranges) -> None:
        """warmup: steps before the window."""
        self._gpu = False
        self._waits: SingleStep[list[BlockingLine]] = SingleStep(
            blocking_lines.step_to_observe(warmup), lambda: blocking_lines.BlockingLines(ranges) if self._gpu else None
        )
        self._sampled = host_samples.SampledStep(warmup, ranges)
        self._again = repeated_calls.RepeatedStep(warmup, ranges)

    def begin_step(self, index: int, device: torch.device) -> None:
        """Begin to observe if this step of the warm-up, which follows now, is the one to observe."""
        # Only the script decides about the device, and perhaps not before its first step.
        self._gpu = device.type == "cuda"
        self._waits.begin(index)
        self._sampled.begin(index)
        self._again.begin(index)

    def end_step(self) -> None:
        """Stop observing, if the step that ends now was observed."""
        self._sampled.end()
        self._again.end()
        self._waits.end()

    def facts(self) -> dict[str, Any]:
        """Lines at which a step waited and at which the host spent it, and repeated calls; only what was looked at."""
        found: dict[str, Any] = {"blocking_lines": self._waits.found, "host_lines": self._sampled.found}
        found["repeated_calls"] = self._again.found
        return {name: known for name, known in found.items() if known is not None}
