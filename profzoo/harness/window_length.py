"""How many steps a window takes: those that it is to have, and as many more as it takes to last long enough."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from profzoo.harness import distributed
from profzoo.harness.recorders import Recorder

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


# Of a data set that is gone through for as long as there are steps.
ENDLESS = 10**9


def extend_epochs(cell: "CellSettings", recorder: Recorder) -> "CellSettings":
    """The cell with as many epochs as its window may take."""
    return {**cell, "epochs": ENDLESS} if recorder.least_s else cell


def step_indices(cell: "CellSettings", recorder: Recorder) -> Iterator[int]:
    """The numbers of the cell's steps, and of those by which its window, which comes last, grows."""
    index = cell["steps"]
    yield from range(index)
    while more := _more(cell, recorder):
        yield from range(index, index + more)
        index += more


def _more(cell: "CellSettings", recorder: Recorder) -> int:
    """Steps that the window still takes, by the time of those so far; the same in all processes of the cell."""
    if not recorder.least_s:
        return 0
    # The host may be many steps ahead.
    recorder.clock.wait()
    lasted_s = max(recorder.clock.now() - recorder.window_began_ns, 1) / 1e9
    own = math.ceil((recorder.least_s - lasted_s) / lasted_s * recorder.steps) if lasted_s < recorder.least_s else 0
    return max(int(each["steps"]) for each in distributed.gather_facts(cell, {"steps": own}))
