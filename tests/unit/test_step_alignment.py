"""Steps that launch differently are laid over one another; the answers are planted or counted another way."""

import numpy as np
import pandas as pd
import pytest

from profzoo.launches import step_alignment
from profzoo.launches.cross_tool import GRID
from profzoo.launches.step_alignment import lay_steps, pair_launches, steps_differ


def launches(*steps: str, grids: dict[int, list[int]] | None = None) -> pd.DataFrame:
    """Steps as texts, a letter per kernel; grids: of the launches of a step, 1 where not given."""
    rows = [(step, name, (grids or {}).get(step, [1] * len(own))[at]) for step, own in enumerate(steps)
            for at, name in enumerate(own)]  # fmt: skip
    ones = dict.fromkeys([name for name in GRID if name != "grid_x"], 1)
    return pd.DataFrame(rows, columns=["step", "kernel", "grid_x"]).assign(**ones)


def counted(frame: pd.DataFrame) -> dict[str, list[int]]:
    """In how many steps each place is, by kernel, in order."""
    laid = lay_steps(frame)
    kernels = frame.assign(place=laid.places).drop_duplicates("place").sort_values("place")
    found: dict[str, list[int]] = {}
    for name, steps in zip(kernels["kernel"], laid.in_steps[kernels["place"]], strict=True):
        found.setdefault(name, []).append(int(steps))
    return found


def test_launches_of_some_steps_have_places_of_their_own() -> None:
    frame = launches("abcdz", "abxcdz", "abcdz", "acdyz")
    assert counted(frame) == {"a": [4], "b": [3], "x": [1], "c": [4], "d": [4], "y": [1], "z": [4]}


def test_the_same_kernel_in_another_shape_shares_its_place() -> None:
    frame = launches("abc", "abc", grids={0: [1, 8, 1], 1: [1, 9, 1]})
    laid = lay_steps(frame)
    assert laid.places.tolist() == [0, 1, 2, 0, 1, 2] and laid.configurations[1] != laid.configurations[4]
    assert steps_differ(frame)


def test_of_equal_kernels_the_one_of_the_same_shape_is_the_like() -> None:
    frame = launches("aab", "ab", grids={0: [7, 8, 1], 1: [8, 1]})
    assert lay_steps(frame).places.tolist() == [0, 1, 2, 1, 2]


def test_a_part_of_the_step_is_part_of_a_launch() -> None:
    frame = launches("ab", "ab").assign(range=["forward", "forward", "forward", "backward"])
    assert lay_steps(frame).count == 2 and len(lay_steps(frame).in_steps) == 3


def test_another_order_alone_is_no_difference() -> None:
    assert not steps_differ(launches("abc", "cab")) and steps_differ(launches("abc", "abb"))
    assert not steps_differ(launches()) and len(lay_steps(launches()).places) == 0


def longest_common(first: str, second: str) -> int:
    """The length of a longest common subsequence, by the textbook's recursion (Cormen et al., 15.4)."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@pytest.mark.parametrize("seed", range(10))
def test_as_many_launches_are_paired_as_can_be(seed: int) -> None:
    generator = np.random.default_rng(seed)
    texts = ["".join(generator.choice([*"abcd"], generator.integers(0, 40))) for _ in range(2)]
    codes = [np.array([ord(letter) for letter in text], dtype=np.int64) for text in texts]
    partner = pair_launches((codes[0], codes[0]), (codes[1], codes[1]))
    paired = partner[partner >= 0]
    assert len(paired) == longest_common(*texts)
    assert (np.diff(paired) > 0).all() and (codes[0][partner >= 0] == codes[1][paired]).all()


def test_long_steps_are_aligned_between_pairs_of_which_there_is_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    first = np.concatenate([[1000 + block, *generator.integers(0, 5, 20)] for block in range(20)])
    second = np.delete(first, generator.choice(len(first), 40, replace=False))
    whole = pair_launches((first, first), (second, second))
    monkeypatch.setattr(step_alignment, "MOST_CELLS", 2_000)
    parts = pair_launches((first, first), (second, second))
    assert (parts >= 0).sum() == (whole >= 0).sum() == len(second)


def test_what_cannot_be_aligned_in_time_stays_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_alignment, "MOST_CELLS", 4)
    frame = launches("abababab", "babababa")
    assert lay_steps(frame).in_steps.tolist() == [1] * 16
