"""Which steps count: the cut that leaves the least variance over as many steps, worked out by hand."""

import numpy as np
import pytest

from profzoo.statistics.steady_state import drop_warmup


@pytest.mark.parametrize(
    ("times", "counted"),
    [
        # After the first, variances over steps of all seven, the last six and the last five: 714, 243 and 80.
        ([999, 300, 200, 150, 100, 100, 100, 100], [150, 100, 100, 100, 100]),
        # Without a trend none is cut but the first: a variance of 1 over twelve steps is less than over eleven.
        ([99, *[1, 3] * 6], [1, 3] * 6),
        # Up to the middle, however much it falls.
        ([99, 90, 80, 70, 60, 50, 40, 30, 20, 10, 10, 10, 10], [30, 20, 10, 10, 10, 10]),
        # Five or fewer stay as they are.
        ([9, 8, 1, 1, 1, 1], [8, 1, 1, 1, 1]),
        ([9, 8, 1], [8, 1]),
        ([9, 8], [8]),
        ([9], [9]),
        # Of cuts that leave as little, the first.
        ([9, *[5] * 12], [5] * 12),
    ],
)
def test_the_steadiest_rest_counts(times: list[int], counted: list[int]) -> None:
    assert drop_warmup(np.array(times, dtype=float)).tolist() == counted
