"""Which launch of one step is which of another's: small steps, whose pairs are told by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest

from profzoo.launches import alignment, cross_tool
from profzoo.launches.alignment import align
from profzoo.launches.cross_tool import align_launches, aligned_shares
from profzoo.launches.myers_diff import NONE


def launches(kernels: str, **columns: object) -> pd.DataFrame:
    """A launch of each of these kernels, all in one configuration."""
    table = pd.DataFrame({"mangled": list(kernels), "kernel": list(kernels)})
    sizes = dict.fromkeys(cross_tool.GRID, 1)
    table = table.assign(**sizes, smem_static_bytes=0, smem_dynamic_bytes=0, function=table["kernel"], range="")
    return table.assign(**columns)


def test_launches_that_differ_in_anything_have_numbers_of_their_own() -> None:
    """All combinations of three names and three sizes in each of two dimensions and of shared memory."""
    rows = [*itertools.product("abc", (1, 2, 3), (1, 2, 3), (0, 16, 32))]
    columns = ["mangled", "grid_y", "block_x", "smem_dynamic_bytes"]
    first = launches("a" * len(rows)).assign(**dict(zip(columns, zip(*rows, strict=True), strict=True)))
    second = first.iloc[::-1].iloc[:50]
    codes, others = cross_tool.number_launch_keys(first, second)
    assert len(set(codes.tolist())) == len(rows) == 81 and len(others) == 50
    assert others.tolist() == codes[::-1][:50].tolist()


def test_shared_memory_is_the_sum_of_its_parts() -> None:
    """torch tells one number, ncu and nsys two."""
    parts = launches("aa").assign(smem_static_bytes=[10, 20], smem_dynamic_bytes=[20, 40])
    whole = parts.drop(columns=cross_tool.PARTS_OF_SMEM).assign(smem_bytes=[60, 30])
    assert align_launches(whole, parts.iloc[::-1]).partner.tolist() == [0, 1]
    # Where one is unknown of any launch, it tells none of them apart.
    for unknown in (whole.assign(smem_bytes=[60, None]), whole.assign(smem_bytes=[None, 30])):
        assert align_launches(unknown, parts).partner.tolist() == [0, 1]
    some = parts.assign(smem_dynamic_bytes=[20, None])
    assert align_launches(some, parts.assign(smem_static_bytes=99)).partner.tolist() == [0, 1]


def test_a_kernel_without_a_mangled_name_goes_by_its_other_name() -> None:
    first = launches("12", mangled=["_Z1av", ""], kernel=["a()", "b()"])
    second = launches("12", mangled=["_Z1av", "_Z1bv"], kernel=["a ( )", "b ( )"])
    assert align_launches(first, second).partner.tolist() == [0, 1]
    assert align_launches(second, first.assign(mangled=["", None])).partner.tolist() == [0, 1]


def on_streams(kernels: str, streams: str) -> pd.DataFrame:
    """A launch of each of these kernels, on the stream of the digit below it."""
    return launches(kernels, stream=[int(digit) for digit in streams])


@pytest.mark.parametrize(
    ("first", "second", "partners"),
    [
        # One stream is as long as it was, the other lost its second x: by streams alone either could be it.
        (("xyx", "121"), ("xy", "12"), [0, 1, NONE]),
        # Streams that have one launch in common are one, whatever their numbers.
        (("xyab", "1212"), ("yxcd", "8787"), [1, 0, NONE, NONE]),
        # Of two with as many launches in common, it is the one of the same number.
        (("xay", "112"), ("yax", "212"), [NONE, 1, 0]),
        # One stream, of which the other run made two: the one that has more of it.
        (("xyz", "555"), ("xyz", "112"), [0, 1, NONE]),
        (("xyz", "112"), ("xyz", "555"), [0, 1, NONE]),
        # Three streams in the one, of which two are in the other.
        (("xyzxyz", "123123"), ("zxzx", "5656"), [1, NONE, 0, 3, NONE, 2]),
    ],
)
def test_streams_that_are_one(first: tuple[str, str], second: tuple[str, str], partners: list[int]) -> None:
    assert align_launches(on_streams(*first), on_streams(*second)).partner.tolist() == partners


def test_a_stream_that_is_too_unlike_leaves_the_others_alone() -> None:
    """One stream ran 5,100 launches that the other run did not make, which is beyond what is tried."""
    first = on_streams("x" * 5101 + "yzw", "1" * 5101 + "222")
    found = align_launches(first, on_streams("xyw", "122"))
    assert found.edits == NONE and (found.partner[:5101] == NONE).all() and not found.ambiguous.any()
    assert found.partner[5101:].tolist() == [1, NONE, 2] and found.of_second.tolist() == [NONE, 5101, 5103]


def test_edits_of_all_streams_count() -> None:
    """Each of two streams lost two launches, and they run in another order than before."""
    found = align_launches(on_streams("abcdxyzw", "11112222"), on_streams("xwad", "2211"))
    assert found.edits == 4 and found.partner.tolist() == [2, NONE, NONE, 3, 0, NONE, NONE, 1]
    assert found.of_second.tolist() == [4, 7, 0, 3] and not found.ambiguous.any()


def test_coverage_of_launches_and_of_time() -> None:
    assert aligned_shares(pd.Series([True, False, False]), pd.Series([10, 20, 50])) == (1 / 3, 0.125)
    assert aligned_shares(pd.Series([True, True]), pd.Series([30, 30])) == (1, 1)
    share, time = aligned_shares(pd.Series([True, False]), pd.Series([0, 0]))
    assert share == 0.5 and np.isnan(time)


def test_what_stands_between_pairs() -> None:
    found = align(np.array([1, 2, 3, 4]), np.array([1, 3, 4, 5]))
    assert found.partner.tolist() == [0, NONE, 1, 2] and found.of_second.tolist() == [0, 2, 3, NONE]
    assert [gaps.tolist() for gaps in found.gaps] == [[0, 1, 1, 2], [0, 1, 2, 3]]
    same = align(np.array([4, 4]), np.array([4, 4]))
    assert same.edits == 0 and not same.ambiguous.any() and not same.second_ambiguous.any()


@pytest.mark.parametrize(
    ("first", "second", "most", "edits"),
    [("abcde", "ac", 3, 3), ("abcde", "ac", 2, NONE), ("abc", "xyz", 6, 6), ("abc", "xyz", 5, NONE), ("", "ab", 2, 2),
     ("ab", "", 1, NONE), ("axb", "ayb", 2, 2), ("axb", "ayb", 1, NONE), ("axb", "ayb", 0, NONE)],
)  # fmt: skip
def test_no_more_edits_than_are_allowed(first: str, second: str, most: int, edits: int) -> None:
    found = align(*(np.array([ord(one) for one in text], dtype=np.int64) for text in (first, second)), most)
    assert found.edits == edits and len(found.partner) == len(found.ambiguous) == len(first)
    if edits == NONE:
        assert (found.partner == NONE).all() and (found.of_second == NONE).all()
        assert not found.ambiguous.any() and not found.second_ambiguous.any()


def around(run: list[int], before: tuple[int, int], after: tuple[int, int], length: int) -> tuple[np.ndarray, ...]:
    """Two sequences of so many launches together, both of which have the run between launches that they share.

    before, after: how many launches either alone has before the run and behind it.
    """
    alone = iter(range(10_000, 20_000))
    shared = length - sum(before) - sum(after) - 2 * len(run)
    assert shared % 4 == 0
    head, tail = [*range(1000, 1000 + shared // 4)], [*range(5000, 5000 + shared // 4)]
    return tuple(
        np.array([*head, *itertools.islice(alone, before[own]), *run, *itertools.islice(alone, after[own]), *tail])
        for own in range(2)
    )


@pytest.mark.parametrize(
    ("run", "before", "after", "length", "said"),
    [
        # One launch, 2 of the N in both: at 3 x 3 places, 18 / N is below a hundredth from 1800 on.
        ([7], (1, 1), (1, 1), 1798, False),
        ([7], (1, 1), (1, 1), 1806, True),
        # At (2 + 1 + 1) x (0 + 3 + 1) places: 32 / N, from 3200 on.
        ([7], (2, 0), (1, 3), 3196, False),
        ([7], (2, 0), (1, 3), 3204, True),
        # At (0 + 3 + 1) x (4 + 1 + 1): 48 / N, from 4800 on.
        ([7], (0, 4), (3, 1), 4798, False),
        ([7], (0, 4), (3, 1), 4806, True),
        # Two launches, each with a share of 2 / N, at 4 x 4 places: 64 / N^2 is below it from 80 on.
        ([7, 8], (2, 2), (1, 1), 78, False),
        ([7, 8], (2, 2), (1, 1), 82, True),
        # Two of one kind have each a share of 4 / N: 4 x 4 x 16 / N^2, from 160 on.
        ([7, 7], (2, 2), (1, 1), 158, False),
        ([7, 7], (2, 2), (1, 1), 162, True),
        # As many edits beside it as the run has pairs, or a gap on one side alone: not asked, whatever the chance.
        ([7, 8, 9, 7], (1, 1), (1, 1), 16, True),
        ([7], (3, 3), (0, 0), 24, True),
        ([7], (0, 0), (3, 3), 24, True),
        # One edit on either side, and one pair.
        ([7], (1, 0), (0, 1), 40, False),
        ([7, 8], (1, 0), (0, 1), 18, True),
        ([7], (1, 0), (1, 0), 40, False),
    ],
)
def test_a_run_that_chance_would_make_is_not_said(
    run: list[int], before: tuple[int, int], after: tuple[int, int], length: int, said: bool
) -> None:
    first, second = around(run, before, after, length)
    assert len(first) + len(second) == length and alignment.CHANCE == 0.01
    found = align(first, second)
    places = np.flatnonzero(np.isin(first, run))
    assert (found.partner[places] != NONE).tolist() == [said] * len(run)
    assert found.ambiguous[places].tolist() == [not said] * len(run)
    # All that both have around it is said.
    shared = (first >= 1000) & (first < 10_000)
    assert (second[found.partner[shared]] == first[shared]).all() and (found.partner[shared] != NONE).all()
    assert (found.partner[first >= 10_000] == NONE).all() and found.edits == sum(before) + sum(after)


@pytest.mark.parametrize(("shared", "said"), [(397, False), (399, True)])
def test_a_run_at_the_beginning_is_asked_for_too(shared: int, said: bool) -> None:
    """One launch before it in the one run, one behind it in the other: 2 x 2 places, 8 / N, from 800 on."""
    both = range(100, 100 + shared)
    first, second = np.array([7, 1, *both]), np.array([2, 7, *both])
    for found in (align(first, second), align(second, first)):
        assert (found.partner != NONE).sum() == shared + said and found.edits == 2
