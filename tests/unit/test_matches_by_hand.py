"""Rows of several runs of ncu found among the launches of the census, with numbers worked out by hand."""

from math import sqrt

import pandas as pd
import pytest

from profzoo.tools.ncu import census_matching
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window

FIRST = ["--filter-mode", "per-launch-config", "--launch-count", "1", "--kernel-name-base", "mangled"]


def census(kernels: str, times: list[float] | float) -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"id": range(len(kernels)), "mangled": list(kernels), GPU_TIME: times, "range": ""})
    return table.assign(function=table["mangled"] + "_kernel", launches=1, **dict.fromkeys(KEYS[1:], 1))


def of(kernel: str, number: int) -> list[str]:
    return ["--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({kernel})$:^({number})$"]


def taken(table: pd.DataFrame, *places: int) -> pd.DataFrame:
    """Launches that a run profiled, as ncu numbers it."""
    return table.iloc[list(places)].assign(id=range(len(places))).reset_index(drop=True)


TABLE = census("abcabcabc", [1e4, 2e4, 3e4, 1e4, 2e4, 3e4, 1e4, 2e4, 3e4])


def test_numbers_of_further_runs_go_on() -> None:
    """Three of the first run, from 0; one of the second; the third goes on from the largest of all."""
    runs = {1: taken(TABLE, 0, 1, 2), 2: taken(TABLE, 4), 3: taken(TABLE, 8)}
    table, other = census_matching.match_runs(runs, [FIRST, of("b", 2), of("c", 3)], Window(TABLE))
    assert table["id"].tolist() == [0, 1, 2, 3, 4] and table["run"].tolist() == [1, 1, 1, 2, 3]
    assert table["launch"].tolist() == [0, 1, 2, 4, 8] and table["as_planned"].all() and other == []
    assert table.index.tolist() == [0, 1, 2, 3, 4]
    assert table["multiplicity"].tolist() == [3, 1.5, 1.5, 1.5, 1.5]


def test_numbers_of_the_first_run_stay_as_details_name_them() -> None:
    first = taken(TABLE, 0, 1, 2).assign(id=[7, 3, 5])
    table, _ = census_matching.match_runs({1: first, 2: taken(TABLE, 4)}, [FIRST, of("b", 2)], Window(TABLE))
    assert table["id"].tolist() == [7, 3, 5, 8]


def test_numbers_where_the_first_run_left_nothing() -> None:
    table, other = census_matching.match_runs({2: taken(TABLE, 4).assign(id=[2])}, [FIRST, of("b", 2)], Window(TABLE))
    assert table["id"].tolist() == [2] and table["run"].tolist() == [2] and table["launch"].tolist() == [4]
    assert other == ["a_kernel", "b_kernel", "c_kernel"]


def test_where_the_columns_stand() -> None:
    table, _ = census_matching.match_runs({1: taken(TABLE, 0, 1, 2)}, [FIRST], Window(TABLE))
    place = list(table.columns).index("launches")
    assert list(table.columns[place + 1 : place + 7]) == census_matching.COLUMNS
    assert sorted(table.columns) == sorted([*TABLE.columns, *census_matching.COLUMNS])


def test_times_of_a_stratum_are_the_longest_over_the_shortest() -> None:
    """Of a, 10, 12 and 23.45678 us; of b and c like ones."""
    table = census("abcabcabc", [1e4, 2e4, 3e4, 1.2e4, 2e4, 3e4, 23456.78, 2e4, 3e4])
    found, _ = census_matching.match_runs({1: taken(table, 0, 1, 2)}, [FIRST], Window(table))
    assert found["time_spread"].tolist() == [2.3457, 1, 1] and found["stratum"].is_unique


def test_functions_are_those_that_were_profiled_otherwise() -> None:
    """a once more than asked for, z in place of b, which the census lacks; c as asked for."""
    odd = taken(TABLE, 0, 3, 2, 1)
    odd.loc[3, ["mangled", "function"]] = ["z", "z_kernel"]
    table, other = census_matching.match_runs({1: odd}, [FIRST], Window(TABLE))
    assert other == ["a_kernel", "b_kernel"]
    assert table["as_planned"].tolist() == [False, False, True, False]
    # The launches of a are taken to be its first two; there is no launch of z.
    assert table["launch"].astype(object).where(table["launch"].notna(), None).tolist() == [0, 3, 2, None]
    assert table["multiplicity"].isna().tolist() == [False, False, False, True]


def test_intervals_of_totals() -> None:
    """Of ten launches of 50 us one counts 100: 1,000 in all, off by 10 * 100 times 0.25 and 0.05 %, as by 1 + 1/10.

    Of two degrees, half of an interval is 2.9105 standard errors by the four terms of the expansion.
    """
    table = census("a" * 10, 5e4)
    row = taken(
        table.assign(**{"x__y.sum": 100.0, "x__y.avg": 3.0, "x__word.sum": "n", "x__none.sum": float("nan")}), 0
    )
    window = Window(table)
    found, _ = census_matching.match_runs({1: row}, [FIRST], window)
    said = census_matching.estimate_totals(found, window, ["x__y.sum", "x__y.avg", "x__word.sum", "x__none.sum"])
    assert list(said) == ["x__y.sum"]
    total, low, high = said["x__y.sum"]
    half = 2.9105 * 1000 * sqrt((0.0025**2 + 0.0005**2) * 1.1)
    assert (
        total == 1000 and high == pytest.approx(1000 + half, abs=0.01) and low == pytest.approx(1000 - half, abs=0.01)
    )


def test_totals_are_not_below_nothing() -> None:
    """Of a launch of 10 us 100 bytes were counted, so that next to nothing is known of those of 300 and 900 us."""
    table = census("aaa", [1e4, 3e5, 9e5])
    row = taken(table.assign(**{"dram__bytes_read.sum": 100.0}), 0)
    window = Window(table)
    found, _ = census_matching.match_runs({1: row}, [FIRST], window)
    total, low, high = census_matching.estimate_totals(found, window, ["dram__bytes_read.sum"])["dram__bytes_read.sum"]
    assert (total, low) == (300, 0) and high > 2 * total
