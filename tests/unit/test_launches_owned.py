"""Owners, times and groups of a step's launches: small steps of three tools, whose result is told by hand."""

import numpy as np
import pandas as pd
import pytest

from profzoo.launches import joined_step
from profzoo.launches.joined_step import BY, join_launches, join_totals, owners_of, times_of
from profzoo.tools.ncu.estimates import GPU_TIME
from tests.unit.test_cross_tool import launches


def told(found: pd.DataFrame) -> tuple[str, str]:
    """The owner of each launch, and how it came by it, a letter each; a dot for none."""
    return (
        "".join(found["owner"].fillna(".").replace("", ".")),
        "".join({"launch": "l", "gap": "g", "": "."}[how] for how in found[BY]),
    )


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
    rows = launches("abab", step=[np.nan, np.nan, 0, 0], owner=list("XYPQ"), ns=[50.0, 60.0, 5.0, 6.0])
    assert told(owners_of(launches("ab"), rows, ["owner"])) == ("PQ", "ll")
    assert times_of(launches("ab"), rows)["nsys_ns"].tolist() == [5, 6]


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
    table = join_launches(census, nsys=rows)
    assert table["ns"].tolist() == [90, 80, 300] and table["ncu_ns"].tolist() == [100, 200, 300]
    assert table["launch"].tolist() == [0, 1, 2] and join_launches(census)["ns"].tolist() == [100, 200, 300]
    assert set(table.columns) == {*census.columns, "launch", "ncu_ns", "ns", "nsys_ns", "nsys_steps"}
    by_hand = join_totals(table.assign(owner=["Q", "P", "Q"], half=["u", "u", "v"]), ["owner"])
    assert by_hand["owner"].tolist() == ["Q", "P"] and by_hand["launches"].tolist() == [2, 1]
    # Of 390 ns of Q nsys has 90.
    assert by_hand["total_ns"].tolist() == [390, 80] and by_hand["nsys_share"].tolist() == pytest.approx([90 / 390, 1])
    both = join_totals(table.assign(owner=["Q", "P", "Q"], half=["u", "u", "v"]), ["owner", "half"])
    assert both[["owner", "half", "total_ns"]].to_numpy().tolist() == [["Q", "u", 90], ["P", "u", 80], ["Q", "v", 300]]
    assert join_totals(join_launches(census).assign(owner="P"), ["owner"])["nsys_share"].tolist() == [0]


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
    found = joined_step.join_nsys_launches(rows, torchs("ab", "PQ"))
    assert found.steps == 1 and found.launches["kernel"].tolist() == ["a", "b"]
    # Each has its mean over all steps that have the launch.
    assert found.launches["ns"].tolist() == [(50 + 7 + 9 + 5) / 4, (50 + 8 + 10) / 3]
    assert found.launches["module"].tolist() == ["P", "Q"]


def test_of_two_processes_the_one_that_began_is_taken() -> None:
    rows = launches(
        "abab", step=0, process=[9, 9, 4, 4], range=["data", "data", "loss", "loss"], ns=[1.0, 2.0, 3.0, 4.0]
    )
    found = joined_step.join_nsys_launches(rows, torchs("ab", "PQ")).launches
    assert found["range"].tolist() == ["data", "data"] and found["ns"].tolist() == [2, 3]


def test_rates_are_those_of_the_configuration_and_sums_of_the_owner_alone() -> None:
    """Of three launches a set counted two, without saying which stand for the third: nothing adds up over owners.

    Percentages of time are by time: of 1 ns at 20 and 2 ns at 60 they are 140 / 3.
    """
    census = launches("aab", id=range(3), **{GPU_TIME: [1.0, 2.0, 3.0]})
    counted = census.iloc[:2].assign(
        **{"lts__t_bytes.sum": [10.0, 30.0], "sm__throughput.avg.pct_of_peak_sustained_elapsed": [20.0, 60.0]}
    )
    found = joined_step.kernels(
        joined_step.join_ncu_launches(census, 1, [counted], torchs("aab", "PQQ"), None)
    ).set_index(["module", "kernel"])
    expected = pytest.approx({("P", "a"): 140 / 3, ("Q", "a"): 140 / 3, ("Q", "b"): -1})
    assert found["sm_pct"].fillna(-1).to_dict() == expected
    assert found["l2_bytes"].isna().all() and found["total_ns"].tolist() == [1, 2, 3]
    every = joined_step.kernels(
        joined_step.join_ncu_launches(census[:2], 1, [counted], torchs("aa", "PQ"), None)
    ).set_index("module")
    # Where all were counted each owner has its own.
    assert every["l2_bytes"].to_dict() == {"P": 10, "Q": 30} and every["sm_pct"].to_dict() == {"P": 20, "Q": 60}


def test_owners_before_the_steps_and_of_copies_are_none_of_kernels() -> None:
    """A window of two steps: each of torch's steps stands for both, and c of none has no like."""
    census = launches("abcabc", id=range(6), **{GPU_TIME: [1.0, 2.0, 3.0] * 2}).assign(range=["", "", "loss"] * 2)
    rows = pd.concat([torchs("ab", "XY", step=np.nan), torchs("ab", "PQ"), torchs("ab", "PQ", step=1),
                      torchs("c", "Z").assign(kind="memcpy")], ignore_index=True)  # fmt: skip
    found = joined_step.join_ncu_launches(census, 2, [], rows, None)
    assert found.launches["module"].tolist() == ["P", "Q", joined_step.UNALIGNED] * 2
    assert found.launches["direction"].tolist() == ["forward", "forward", "loss"] * 2
    assert found.launches["ns"].tolist() == [1, 2, 3] * 2
    sums = joined_step.totals(found, ["module"])
    assert sums[["module", "launches", "total_ns", "mean_ns"]].to_numpy().tolist() == [
        ["P", 1, 1, 1], ["Q", 1, 2, 2], [joined_step.UNALIGNED, 1, 3, 3],
    ]  # fmt: skip
    traced = launches("abcabc", step=[0] * 3 + [1] * 3, ns=[10.0, 20.0, 30.0, 12.0, 24.0, 36.0])
    timed = joined_step.join_ncu_launches(census, 2, [], rows, traced)
    assert timed.launches["ns"].tolist() == [11, 22, 33] * 2


def test_what_torch_alone_saw_is_grouped_by_owner_kernel_and_grid() -> None:
    rows = torchs("babab", "QPQPQ").assign(ns=[5.0, 7.0, 6.0, 9.0, 10.0], shapes=["", None, "", None, ""])
    rows.loc[4, "grid_x"] = 2
    found = joined_step.sum_torch_launches(rows.astype({"module": pd.CategoricalDtype(["A", "P", "Q"])}), 2)
    assert found[["module", "kernel", "grid_x", "launches", "total_ns", "mean_ns"]].to_numpy().tolist() == [
        ["Q", "b", 1, 1, 5.5, 5.5], ["P", "a", 1, 1, 8, 8], ["Q", "b", 2, 0.5, 5, 10],
    ]  # fmt: skip


def test_launches_and_times_of_torch_are_per_step_and_copies_are_what_is_no_kernel() -> None:
    """Of two steps, four launches of 100, 200, 300 and 400 ns: two per step, 500 ns together, 250 each."""
    rows = torchs("ffffcs", "hhhhhh").assign(ns=[100.0, 200.0, 300.0, 400.0, 50.0, 60.0])
    rows["name"] = ["void a::f<1>(int)"] * 4 + ["c", "s"]
    rows["kind"] = ["kernel"] * 4 + ["memcpy", "memset"]
    (row,) = joined_step.sum_torch_launches(rows, 2).to_dict("records")
    assert (row["launches"], row["total_ns"], row["mean_ns"]) == (2, 500, 250)
    assert row["function"] == "f" and row["module"] == "h"
    assert joined_step.select_copies(rows)["name"].tolist() == ["c", "s"]
