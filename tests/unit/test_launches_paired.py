"""Pairs of launches of two tools' steps, and what follows from them: small steps, whose pairs are told by hand."""

import itertools

import numpy as np
import pandas as pd
import pytest

from profzoo.tables import alignment, owned, same_launches
from profzoo.tables.alignment import align
from profzoo.tables.edit_graph import NONE
from profzoo.tables.same_launches import align_launches, coverage, of_steps
from profzoo.tables.step_launches import BY, joined, owners_of, times_of, totals
from profzoo.tools.ncu.metrics import GPU_TIME


def launches(kernels: str, **columns: object) -> pd.DataFrame:
    """A launch of each of these kernels, all in one configuration."""
    table = pd.DataFrame({"mangled": list(kernels), "kernel": list(kernels)})
    sizes = dict.fromkeys(same_launches.GRID, 1)
    table = table.assign(**sizes, smem_static_bytes=0, smem_dynamic_bytes=0, function=table["kernel"], range="")
    return table.assign(**columns)


def told(found: pd.DataFrame) -> tuple[str, str]:
    """The owner of each launch, and how it came by it, a letter each; a dot for none."""
    return (
        "".join(found["owner"].fillna(".").replace("", ".")),
        "".join({"launch": "l", "gap": "g", "": "."}[how] for how in found[BY]),
    )


# --- owners and times


@pytest.mark.parametrize(
    ("kernels", "owners", "census", "owner", "by"),
    [
        # What stands for x at the end, or at the beginning, of a step.
        (["abc"], ["PQR"], "abx", "PQR", "llg"),
        (["abc"], ["PQR"], "xbc", "PQR", "gll"),
        # Nothing stands for it.
        (["ab"], ["PQ"], "abx", "PQ.", "ll."),
        (["abx"], ["PQR"], "ab", "PQ", "ll"),
        # Three launches of one owner stand for two, and two of two owners for none.
        (["acdeb"], ["PRRRQ"], "axyb", "PRRQ", "lggl"),
        (["acdb"], ["PRSQ"], "axyb", "P..Q", "l..l"),
        # In the first step two owners could be it, in the second one alone.
        (["aefb", "acb"], ["PUVQ", "PRQ"], "axb", "PRQ", "lgl"),
        # Steps that name two owners for the gap.
        (["acb", "acb"], ["PRQ", "PSQ"], "axb", "P.Q", "l.l"),
        # Steps differ on b; c, which only torch has before it, is none of its.
        (["acb", "acb"], ["PXQ", "PXR"], "ab", "P.", "l."),
        # A step that lacks the launch does not speak against the other.
        (["ab", "acb"], ["PQ", "PRQ"], "acb", "PRQ", "lll"),
    ],
)
def test_owners_of_a_step(kernels: list[str], owners: list[str], census: str, owner: str, by: str) -> None:
    steps = [launches(own, step=at, owner=list(of)) for at, (own, of) in enumerate(zip(kernels, owners, strict=True))]
    assert told(owners_of(launches(census), pd.concat(steps, ignore_index=True), ["owner"])) == (owner, by)


def test_launches_of_no_step_say_nothing() -> None:
    """Before the first step a ran for another owner, and took longer."""
    rows = launches("abab", step=[np.nan, np.nan, 0, 0], owner=list("XYPQ"), ns=[50.0, 60.0, 5.0, 6.0])
    assert told(owners_of(launches("ab"), rows, ["owner"])) == ("PQ", "ll")
    assert times_of(launches("ab"), rows)["nsys_ns"].tolist() == [5, 6]
    found = of_steps(rows, launches("ab"))
    assert found["launch"].fillna(-1).tolist() == [-1, -1, 0, 1] and not found["ambiguous"].any()


def test_an_owner_of_which_something_is_unknown_is_one_nevertheless() -> None:
    rows = launches("abc", step=0, owner=list("PQR"), shapes=["[1]", None, "[3]"])
    found = owners_of(launches("abc"), rows, ["owner", "shapes"])
    assert told(found) == ("PQR", "lll") and found["shapes"].fillna("").tolist() == ["[1]", "", "[3]"]


def test_steps_of_two_processes_are_steps_of_their_own() -> None:
    """Both have a step 0, of which one lacks b."""
    rows = launches("abcac", step=0, process=[1, 1, 1, 2, 2], ns=[10.0, 20.0, 30.0, 14.0, 36.0])
    found = times_of(launches("abc"), rows)
    assert found["nsys_steps"].tolist() == [2, 1, 2] and found["nsys_ns"].tolist() == [12, 20, 33]


def test_a_launch_that_nsys_has_not_takes_what_ncu_says() -> None:
    census = launches("abx").assign(**{GPU_TIME: [100.0, 200.0, 300.0]}, id=[5, 6, 7])
    rows = launches("ab", step=0, ns=[90.0, 80.0])
    table = joined(census, nsys=rows)
    assert table["ns"].tolist() == [90, 80, 300] and table["ncu_ns"].tolist() == [100, 200, 300]
    assert table["launch"].tolist() == [0, 1, 2] and joined(census)["ns"].tolist() == [100, 200, 300]
    by_hand = totals(table.assign(owner=["Q", "P", "Q"], half=["u", "u", "v"]), ["owner"])
    assert by_hand["owner"].tolist() == ["Q", "P"] and by_hand["launches"].tolist() == [2, 1]
    # Of 390 ns of Q nsys has 90.
    assert by_hand["total_ns"].tolist() == [390, 80] and by_hand["nsys_share"].tolist() == pytest.approx([90 / 390, 1])
    both = totals(table.assign(owner=["Q", "P", "Q"], half=["u", "u", "v"]), ["owner", "half"])
    assert both[["owner", "half", "total_ns"]].to_numpy().tolist() == [["Q", "u", 90], ["P", "u", 80], ["Q", "v", 300]]
    assert totals(joined(census).assign(owner="P"), ["owner"])["nsys_share"].tolist() == [0]


def torchs(kernels: str, owners: str, step: object = 0) -> pd.DataFrame:
    """Rows of the table of owners: a module for each letter."""
    table = launches(kernels, step=step).rename(columns={"kernel": "name"}).drop(columns=["mangled", "function"])
    fixed = {"kind": "kernel", "operator": "aten::mm", "shapes": "", "caller": "", "type": "", "direction": "forward"}
    return table.assign(**fixed, module=list(owners))


def test_the_step_of_nsys_is_the_first_of_those_with_as_many_launches_as_most() -> None:
    """Steps of 3, 2, 2 and 1 launches: two have 2, of which the first took 7 + 8 ns, and both (9 + 10) / 2 for b."""
    rows = launches(
        "abcababa", step=[0, 0, 0, 1, 1, 2, 2, 3], ns=[50.0, 50.0, 50.0, 7.0, 8.0, 9.0, 10.0, 5.0], process=4
    )
    found = owned.of_nsys(rows, torchs("ab", "PQ"))
    assert found.steps == 1 and found.launches["kernel"].tolist() == ["a", "b"]
    # Each has its mean over all steps that have the launch.
    assert found.launches["ns"].tolist() == [(50 + 7 + 9 + 5) / 4, (50 + 8 + 10) / 3]
    assert found.launches["module"].tolist() == ["P", "Q"]


def test_owners_before_the_steps_and_of_copies_are_none_of_kernels() -> None:
    """A window of two steps: each of torch's steps stands for both, and c of none has no like."""
    census = launches("abcabc", id=range(6), **{GPU_TIME: [1.0, 2.0, 3.0] * 2}).assign(range=["", "", "loss"] * 2)
    rows = pd.concat([torchs("ab", "XY", step=np.nan), torchs("ab", "PQ"), torchs("ab", "PQ", step=1),
                      torchs("c", "Z").assign(kind="memcpy")], ignore_index=True)  # fmt: skip
    found = owned.of_ncu(census, 2, [], rows, None)
    assert found.launches["module"].tolist() == ["P", "Q", owned.UNALIGNED] * 2
    assert found.launches["direction"].tolist() == ["forward", "forward", "loss"] * 2
    assert found.launches["ns"].tolist() == [1, 2, 3] * 2
    sums = owned.totals(found, ["module"])
    assert sums[["module", "launches", "total_ns", "mean_ns"]].to_numpy().tolist() == [
        ["P", 1, 1, 1], ["Q", 1, 2, 2], [owned.UNALIGNED, 1, 3, 3],
    ]  # fmt: skip
    traced = launches("abcabc", step=[0] * 3 + [1] * 3, ns=[10.0, 20.0, 30.0, 12.0, 24.0, 36.0])
    timed = owned.of_ncu(census, 2, [], rows, traced)
    assert timed.launches["ns"].tolist() == [11, 22, 33] * 2


def test_what_torch_alone_saw_is_grouped_by_owner_kernel_and_grid() -> None:
    rows = torchs("babab", "QPQPQ").assign(ns=[5.0, 7.0, 6.0, 9.0, 10.0], shapes=["", None, "", None, ""])
    rows.loc[4, "grid_x"] = 2
    found = owned.of_torch(rows.astype({"module": pd.CategoricalDtype(["A", "P", "Q"])}), 2)
    assert found[["module", "kernel", "grid_x", "launches", "total_ns", "mean_ns"]].to_numpy().tolist() == [
        ["Q", "b", 1, 1, 5.5, 5.5], ["P", "a", 1, 1, 8, 8], ["Q", "b", 2, 0.5, 5, 10],
    ]  # fmt: skip


# --- which launch is which


def test_launches_that_differ_in_anything_have_numbers_of_their_own() -> None:
    """All combinations of three names and three sizes in each of two dimensions and of shared memory."""
    rows = [*itertools.product("abc", (1, 2, 3), (1, 2, 3), (0, 16, 32))]
    columns = ["mangled", "grid_y", "block_x", "smem_dynamic_bytes"]
    first = launches("a" * len(rows)).assign(**dict(zip(columns, zip(*rows, strict=True), strict=True)))
    second = first.iloc[::-1].iloc[:50]
    codes, others = same_launches.keys(first, second)
    assert len(set(codes.tolist())) == len(rows) == 81 and len(others) == 50
    assert others.tolist() == codes[::-1][:50].tolist()


def test_shared_memory_is_the_sum_of_its_parts() -> None:
    """torch tells one number, ncu and nsys two."""
    parts = launches("aa").assign(smem_static_bytes=[10, 20], smem_dynamic_bytes=[20, 40])
    whole = parts.drop(columns=same_launches.PARTS_OF_SMEM).assign(smem_bytes=[60, 30])
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
    assert coverage(pd.Series([True, False, False]), pd.Series([10, 20, 50])) == (1 / 3, 0.125)
    assert coverage(pd.Series([True, True]), pd.Series([30, 30])) == (1, 1)
    share, time = coverage(pd.Series([True, False]), pd.Series([0, 0]))
    assert share == 0.5 and np.isnan(time)


# --- alignment


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
