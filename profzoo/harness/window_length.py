"""Determines the length of a window: the configured steps, and more if it must last longer."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from profzoo.harness import distributed
from profzoo.harness.recorders import Recorder

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


if TYPE_CHECKING:
    pass


# Number of epochs for a data set that is repeated until the steps end.
ENDLESS = 10**9


def extend_epochs(cell: "CellSettings", recorder: Recorder) -> "CellSettings":
    """Cell settings with as many epochs as its window may need."""
    return {**cell, "epochs": ENDLESS} if recorder.least_s else cell


def step_indices(cell: "CellSettings", recorder: Recorder) -> Iterator[int]:
    """Yield step numbers, including those by which the window is extended."""
    index = cell["steps"]
    yield from range(index)
    while more := _more(cell, recorder):
        yield from range(index, index + more)
        index += more


def _more(cell: "CellSettings", recorder: Recorder) -> int:
    """Number of further steps that the window needs, estimated from past steps; equal in all processes."""
    if not recorder.least_s:
        return 0
    # Wait for the device: the host may be many steps ahead.
    recorder.clock.wait()
    lasted_s = max(recorder.clock.now() - recorder.window_began_ns, 1) / 1e9
    own = math.ceil((recorder.least_s - lasted_s) / lasted_s * recorder.steps) if lasted_s < recorder.least_s else 0
    return max(int(each["steps"]) for each in distributed.gather_facts(cell, {"steps": own}))
