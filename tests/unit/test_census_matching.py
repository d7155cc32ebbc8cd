"""What was profiled, found among the launches of the census: in several runs, and where they launch otherwise."""

import pandas as pd
import pytest

from profzoo.tools.ncu import census_matching, launch_selection
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window

FIRST = ["--filter-mode", "per-launch-config", "--launch-count", "1", "--kernel-name-base", "mangled"]
SECOND_OF_A = ["--kernel-name-base", "mangled", "--kernel-id", "::regex:^(a)$:^(2|4)$"]


@pytest.fixture
def census() -> pd.DataFrame:
    """Kernel a takes 10 us at odd and 50 us at even places; b and c take like times."""
    table = pd.DataFrame({"mangled": list("abacabacab"), "range": "forward"})
    times = {0: 1e4, 1: 2e4, 2: 5e4, 3: 3e4}
    table[GPU_TIME] = [times[place % 4] for place in table.index]
    return table.assign(id=table.index, function=table["mangled"] + "_kernel", launches=1, **dict.fromkeys(KEYS[1:], 1))


def profiled(census: pd.DataFrame, *words: list[str]) -> dict[int, pd.DataFrame]:
    """What runs with these words profile, as ncu numbers it."""
    taken = [launch_selection.profiled_launches(census, own).reset_index(drop=True) for own in words]
    return {number: rows.assign(id=rows.index) for number, rows in enumerate(taken, 1)}


def test_rows_of_all_runs_are_found(census: pd.DataFrame) -> None:
    table, other = census_matching.match_runs(
        profiled(census, FIRST, SECOND_OF_A), [FIRST, SECOND_OF_A], Window(census)
    )
    assert table["launch"].tolist() == [0, 1, 3, 2, 6] and table["run"].tolist() == [1, 1, 1, 2, 2]
    assert table["as_planned"].all() and table["multiplicity"].sum() == len(census)
    # The two long launches of a stand for themselves, and the first one for the three short ones.
    assert table["multiplicity"].tolist() == [3, 3, 2, 1, 1]
    assert (table["time_spread"] == 1).all() and table["stratum"].is_unique
    assert not other


def test_one_launch_stands_for_its_configuration_however_unlike(census: pd.DataFrame) -> None:
    table = census_matching.match_runs(profiled(census, FIRST), [FIRST], Window(census))[0].set_index("mangled")
    assert table["multiplicity"].to_dict() == {"a": 5, "b": 3, "c": 2} and table["time_spread"]["a"] == 5


def test_a_launch_that_two_runs_profile_counts_once(census: pd.DataFrame) -> None:
    again = ["--kernel-name-base", "mangled", "--kernel-id", "::regex:^(b)$:^(1)$"]
    table, _ = census_matching.match_runs(profiled(census, FIRST, again), [FIRST, again], Window(census))
    assert table.loc[table["mangled"] == "b", "multiplicity"].tolist() == [1.5, 1.5]


def test_another_sequence_of_launches_is_told(census: pd.DataFrame) -> None:
    """The second run launches a once less, so that only one of its launches is found."""
    runs = profiled(census, FIRST, SECOND_OF_A)
    runs[2] = runs[2].iloc[:1]
    table, other = census_matching.match_runs(runs, [FIRST, SECOND_OF_A], Window(census))
    assert other == ["a_kernel"]
    assert table["as_planned"].tolist() == [True, True, True, False]
    assert table["launch"].tolist()[-1] == 0 and table["multiplicity"].sum() == len(census)


def test_a_run_that_left_no_report_is_told(census: pd.DataFrame) -> None:
    runs = profiled(census, FIRST, SECOND_OF_A)
    del runs[2]
    table, other = census_matching.match_runs(runs, [FIRST, SECOND_OF_A], Window(census))
    assert other == ["a_kernel"] and table["multiplicity"].sum() == len(census)


def test_kernels_that_the_census_lacks_stand_for_nothing(census: pd.DataFrame) -> None:
    runs = profiled(census, FIRST)
    runs[1].loc[2, "mangled"] = "z"
    table, _ = census_matching.match_runs(runs, [FIRST], Window(census))
    assert table["multiplicity"].isna().tolist() == [False, False, True] and pd.isna(table["launch"][2])
    # Nothing was profiled of c, for which nothing stands.
    assert table["multiplicity"].sum() == (census["mangled"] != "c").sum()


def test_totals_are_those_of_the_window(census: pd.DataFrame) -> None:
    runs = profiled(census.assign(**{"x__y.sum": census[GPU_TIME] / 100, "x__y.avg": 1.0}), FIRST, SECOND_OF_A)
    window = Window(census)
    table, _ = census_matching.match_runs(runs, [FIRST, SECOND_OF_A], window)
    total, low, high = census_matching.estimate_totals(table, window, ["x__y.sum", "x__y.avg"])["x__y.sum"]
    assert total == pytest.approx(census[GPU_TIME].sum() / 100) and 0.95 * total < low < total < high < 1.05 * total
    assert list(census_matching.estimate_totals(table, window, ["x__y.avg"])) == []
