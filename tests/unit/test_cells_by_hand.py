"""Cells of a window and what stands for them, where many launches are alike but for what came before."""

import numpy as np
import pandas as pd
import pytest

from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window, group_like_times, number_histories


def census(kernels: str, times: list[float] | float, ranges: list[str] | str = "") -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"mangled": list(kernels), GPU_TIME: times, "range": ranges})
    return table.assign(**dict.fromkeys(KEYS[1:], 1))


def cells_of(window: Window, kernel: str) -> int:
    return len(np.unique(window.cells[window.launches["mangled"] == kernel]))


@pytest.mark.parametrize(("kernels", "cells"), [(100, 100), (101, 1)])
def test_a_configuration_of_more_than_a_hundred_cells_is_told_by_less(kernels: int, cells: int) -> None:
    """Kernel e follows each of the others once, so that nothing but its own times is left to tell its cells by."""
    others = [chr(0x4E00 + number) for number in range(kernels)]
    window = Window(census("".join(f"{other}e" for other in others), 2e4))
    assert cells_of(window, "e") == cells
    assert all(cells_of(window, other) == 1 for other in others) and len(window.sizes) == kernels + cells


def ternary(prime: int) -> str:
    """The digits of 1 / prime to the base of 3, whose period is prime - 1: any six of them in a row are there once."""
    rest, digits = 1, []
    for _ in range(prime - 1):
        digits.append("pqr"[3 * rest // prime])
        rest = 3 * rest % prime
    assert rest == 1
    return "".join(digits)


@pytest.mark.parametrize(("prime", "cells"), [(101, 100), (113, 9)])
def test_histories_are_shortened_to_four_launches_first(prime: int, cells: int) -> None:
    """Kernel e alternates with p, q and r: of the twelve launches before, six tell, and of four, two, in nine ways."""
    window = Window(census("".join(f"{digit}e" for digit in ternary(prime)), 2e4))
    assert cells_of(window, "e") == cells
    # The others are told by all of what came before.
    assert sum(cells_of(window, other) for other in "pqr") == prime - 1


def test_histories_are_shortened_to_two_launches_next() -> None:
    """Of eleven kernels each follows each once, with e between them: 121 ways of the last two, eleven of the last."""
    letters, left = "abcdfghijkl", {one: list("abcdfghijkl") for one in "abcdfghijkl"}
    # A walk that takes each pair once: the last that is left goes first, and closes the circle.
    walk, stack = [], ["a"]
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    window = Window(census("".join(f"{one}e" for one in walk[1:]), 2e4))
    assert len(walk) == 122 and cells_of(window, "e") == len(letters)


def test_long_and_short_launches_stay_apart_where_histories_do_not_tell() -> None:
    """Kernel e follows each of 120 others once, the first ten times for three times as long, the next in another part."""
    others = [chr(0x4E00 + number) for number in range(120)]
    times = [time for place in range(120) for time in (2e4, 6e4 if place < 10 else 2e4)]
    ranges = [part for place in range(120) for part in ("", "loss" if 10 <= place < 15 else "")]
    window = Window(census("".join(f"{other}e" for other in others), times, ranges))
    own = window.cells[1::2]
    assert len(np.unique(own)) == 3
    assert len(set(own[:10])) == len(set(own[10:15])) == len(set(own[15:])) == 1


def test_sequences_of_two_launches_before() -> None:
    """Before the first came the last two: 3 then 9, 9 then 5, 5 then 7, 7 then 5, 5 then 7, 7 then 3."""
    found = number_histories(np.array([5, 7, 5, 7, 3, 9]), 2).tolist()
    assert found[2] == found[4] and len(set(found)) == 5


def test_times_are_alike_within_a_group_alone() -> None:
    times, groups = np.array([100.0, 100.0, 111.0, 130.0, 100.0]), np.array([1, 0, 1, 1, 0])
    found = group_like_times(times, groups, 1.1, 1.0).tolist()
    assert found == [1, 0, 1, 2, 0]


def test_times_of_cells_are_means() -> None:
    """Of a, 10 and 11 us, three times each in turns with b; c once."""
    window = Window(census("abababc", [1e4, 2e4, 1.1e4, 2e4, 1.02e4, 2e4, 5e4]))
    of_launch = dict(zip(window.launches["mangled"], window.cells, strict=True))
    assert window.sizes.sum() == 7 and len(window.parts) == 3
    assert window.sizes[of_launch["c"]] == 1 and window.times[of_launch["c"]] == 5e4
    assert window.moved[of_launch["c"]] == 4e4 and window.moved[of_launch["b"]] == 2e4
    of_a = window.cells[:5:2]
    assert (window.sizes[of_a] @ window.times[of_a]) / window.sizes[of_a].sum() == pytest.approx(3.12e4 / 3, rel=0.05)
    assert [sorted(part) for part in window.parts] == [
        sorted(np.unique(window.cells[window.launches["mangled"] == kernel])) for kernel in "abc"
    ]


def test_two_alike_launches_of_a_step_have_their_mean() -> None:
    window = Window(census("abab", [1e4, 2e4, 1.05e4, 2.08e4]))
    assert window.sizes.tolist() == [2, 2] and sorted(window.times) == [1.025e4, 2.04e4]


def test_empty_keys_are_a_configuration_of_their_own() -> None:
    table = census("aab", [1e4, 1e4, 2e4])
    window = Window(table.assign(smem_static_bytes=pd.array([pd.NA, 16, pd.NA], dtype="Int64"), range=[None, "", None]))
    assert len(window.parts) == 3 and window.configurations.max() == 2


def test_what_is_most_alike_stands_for_a_cell() -> None:
    """Of launches of 10, 20, 31 and 60 us the first and third are profiled: 20 us are nearer to 10, 60 to 31."""
    window = Window(census("aaaa", [1e4, 2e4, 3.1e4, 6e4]))
    of_time = window.cells
    samples = np.zeros(4, dtype=int)
    samples[of_time[[0, 2]]] = 1
    by = window.standing(0, samples)
    assert by is not None
    assert by[of_time].tolist() == of_time[[0, 0, 2, 2]].tolist()
    assert window.standing(0, np.zeros(4, dtype=int)) is None


def test_how_unlike_cells_are_is_in_parts_of_the_totals() -> None:
    """10 us apart in work, of 10 + 20 us less 16; and all that came before apart in traffic of 10 us, of 30."""
    window = Window(census("aa", [1e4, 2e4]))
    work = 2 * np.sqrt(1e4**2 - 2 * 100.0**2 - 2 * 100.0**2)
    traffic = 1e4 * np.sqrt(0.17**2 + 0.05**2 + 0.05**2 + 0.15**2)
    apart = window.apart(0)
    assert apart[0, 1] == pytest.approx((work / 1.4e4) ** 2 + (traffic / 3e4) ** 2, rel=1e-12)
    assert apart[0, 0] == apart[1, 1] == 0 and apart[1, 0] == apart[0, 1]
