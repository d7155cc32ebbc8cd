"""Rows of ncu found among the launches of the census, their totals, and the census as it is read."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import export, export_schema
from profzoo.tools.ncu.estimates import GPU_TIME, Window
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

FIRST = ["--filter-mode", "per-launch-config", "--launch-count", "1", "--kernel-name-base", "mangled"]


def census(kernels: str, times: Any) -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"id": range(len(kernels)), "mangled": list(kernels), GPU_TIME: times, "range": ""})
    return table.assign(function=table["mangled"] + "_kernel", launches=1, **dict.fromkeys(KEYS[1:], 1))


def of(kernel: str, numbers: str) -> list[str]:
    return ["--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({kernel})$:^({numbers})$"]


def taken(table: pd.DataFrame, *places: int) -> pd.DataFrame:
    """Launches that a run profiled, as ncu numbers it."""
    return table.iloc[list(places)].assign(id=range(len(places))).reset_index(drop=True)


TABLE = census("abcabcabc", [1e4, 2e4, 3e4, 1e4, 2e4, 3e4, 1e4, 2e4, 3e4])


def matched(table: pd.DataFrame, *runs: tuple[pd.DataFrame | None, list[str]]) -> tuple[pd.DataFrame, list[str]]:
    """Rows of runs, each with the words that it was asked by, found in a census."""
    there = {number: rows for number, (rows, _) in enumerate(runs, 1) if rows is not None}
    return export.match_runs(there, [words for _, words in runs], Window(table))


def test_numbers_of_further_runs_go_on() -> None:
    """Three of the first run, from 0; one of the second; the third goes on from the largest of all."""
    first = taken(TABLE, 0, 1, 2)
    table, other = matched(TABLE, (first, FIRST), (taken(TABLE, 4), of("b", "2")), (taken(TABLE, 8), of("c", "3")))
    assert table["id"].tolist() == [0, 1, 2, 3, 4] and table["run"].tolist() == [1, 1, 1, 2, 3]
    assert table["launch"].tolist() == [0, 1, 2, 4, 8] and table["as_planned"].all() and other == []
    assert table.index.tolist() == [0, 1, 2, 3, 4]
    assert table["multiplicity"].tolist() == [3, 1.5, 1.5, 1.5, 1.5]
    place = list(table.columns).index("launches")
    assert list(table.columns[place + 1 : place + 7]) == export.COLUMNS
    assert sorted(table.columns) == sorted([*TABLE.columns, *export.COLUMNS])
    # Numbers of the first run stay as details name them.
    table, _ = matched(TABLE, (first.assign(id=[7, 3, 5]), FIRST), (taken(TABLE, 4), of("b", "2")))
    assert table["id"].tolist() == [7, 3, 5, 8]
    # A first run that left nothing.
    table, other = matched(TABLE, (None, FIRST), (taken(TABLE, 4).assign(id=[2]), of("b", "2")))
    assert table[["id", "run", "launch"]].to_numpy().tolist() == [[2, 2, 4]]
    assert other == ["a_kernel", "b_kernel", "c_kernel"]


def test_times_of_a_stratum_are_the_longest_over_the_shortest() -> None:
    """Of a, 10, 12 and 23.45678 us; of b and c like ones."""
    table = census("abcabcabc", [1e4, 2e4, 3e4, 1.2e4, 2e4, 3e4, 23456.78, 2e4, 3e4])
    found, _ = matched(table, (taken(table, 0, 1, 2), FIRST))
    assert found["time_spread"].tolist() == [2.3457, 1, 1] and found["stratum"].is_unique


def test_functions_are_those_that_were_profiled_otherwise() -> None:
    """a once more than asked for, z in place of b, which the census lacks; c as asked for."""
    odd = taken(TABLE, 0, 3, 2, 1)
    odd.loc[3, ["mangled", "function"]] = ["z", "z_kernel"]
    table, other = matched(TABLE, (odd, FIRST))
    assert other == ["a_kernel", "b_kernel"]
    assert table["as_planned"].tolist() == [False, False, True, False]
    # The launches of a are taken to be its first two; there is no launch of z.
    assert table["launch"].astype(object).where(table["launch"].notna(), None).tolist() == [0, 3, 2, None]
    assert table["multiplicity"].isna().tolist() == [False, False, False, True]


def test_what_launches_of_several_runs_stand_for() -> None:
    """Kernel a takes 10 us at odd and 50 us at even places; b and c take like times."""
    table = census("abacabacab", [1e4, 2e4, 5e4, 3e4, 1e4, 2e4, 5e4, 3e4, 1e4, 2e4])
    first = taken(table, 0, 1, 3)
    found, other = matched(table, (first, FIRST), (taken(table, 2, 6), of("a", "2|4")))
    assert found["launch"].tolist() == [0, 1, 3, 2, 6] and found["as_planned"].all() and not other
    # The two long launches of a stand for themselves, and the first one for the three short ones.
    assert found["multiplicity"].tolist() == [3, 3, 2, 1, 1]
    assert (found["time_spread"] == 1).all() and found["stratum"].is_unique
    alone = matched(table, (first, FIRST))[0].set_index("mangled")
    assert alone["multiplicity"].to_dict() == {"a": 5, "b": 3, "c": 2} and alone["time_spread"]["a"] == 5
    # A launch that two runs profile counts once.
    twice, _ = matched(table, (first, FIRST), (taken(table, 1), of("b", "1")))
    assert twice.loc[twice["mangled"] == "b", "multiplicity"].tolist() == [1.5, 1.5]
    # The second run launches a once less, so that only one of its launches is found.
    found, other = matched(table, (first, FIRST), (taken(table, 2), of("a", "2|4")))
    assert other == ["a_kernel"] and found["as_planned"].tolist() == [True, True, True, False]
    assert found["launch"].tolist()[-1] == 0 and found["multiplicity"].sum() == len(table)


def test_intervals_of_totals() -> None:
    """Of ten launches of 50 us one counts 100: 1,000 in all, off by 10 * 100 times 0.25 and 0.05 %, as by 1 + 1/10.

    Of two degrees, half of an interval is 2.9105 standard errors by the four terms of the expansion.
    """
    counted = {"x__y.sum": 100.0, "x__y.avg": 3.0, "x__word.sum": "n", "x__none.sum": float("nan")}
    table = census("a" * 10, 5e4)
    found, _ = matched(table, (taken(table.assign(**counted), 0), FIRST))
    said = export.estimate_totals(found, Window(table), list(counted))
    half = 2.9105 * 1000 * sqrt((0.0025**2 + 0.0005**2) * 1.1)
    assert list(said) == ["x__y.sum"] and said["x__y.sum"][0] == 1000
    assert list(said["x__y.sum"]) == pytest.approx([1000, 1000 - half, 1000 + half], abs=0.01)


def test_totals_are_not_below_nothing() -> None:
    """Of a launch of 10 us 100 bytes were counted, so that next to nothing is known of those of 300 and 900 us."""
    table = census("aaa", [1e4, 3e5, 9e5])
    found, _ = matched(table, (taken(table.assign(**{"dram__bytes_read.sum": 100.0}), 0), FIRST))
    total, low, high = export.estimate_totals(found, Window(table), ["dram__bytes_read.sum"])["dram__bytes_read.sum"]
    assert (total, low) == (300, 0) and high > 2 * total


BYTES = "lts__t_bytes.sum"
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def test_half_widths_of_totals() -> None:
    """Reads of 60 by 6 and writes of 40 by 10 are 100 by 16; fused operations count twice, of both kinds."""
    totals = {
        "dram__bytes_read.sum": [60.0, 54.0, 66.0],
        "dram__bytes_write.sum": [40.0, 30.0, 50.0],
        **{SASS.format(name): [10.0, 9.0, 11.0] for name in ("hadd", "hmul", "dadd", "dmul")},
        SASS.format("hfma"): [30.0, 25.0, 35.0],
        SASS.format("dfma"): [5.0, 2.0, 8.0],
        "lts__t_sectors.sum": [0.0, 0.0, 4.0],
    }
    found = export.relative_half_widths(totals)
    of_all = pytest.approx((4 * 1 + 2 * 5 + 2 * 3) / (4 * 10 + 2 * 30 + 2 * 5))
    assert found == {"dram_bytes": 0.16, "operations": of_all}
    # Next to none of one kind does not count by itself.
    rare = {"sm__ops_path_tensor_src_bf16_dst_fp32.sum": [1.0, 0.0, 2.0]}
    assert export.relative_half_widths(totals | rare)["operations"] == pytest.approx(21 / 111)
    assert export.relative_half_widths({}) == {}


@pytest.mark.parametrize(("expected", "said"), [(0.125, False), (0.12, True), (None, False)])
def test_totals_that_came_out_clearly_less_sure(expected: float | None, said: bool) -> None:
    """Within 18.75 %, one and a half times of 12.5 %."""
    totals = {"lts__t_bytes.sum": [64.0, 52.0, 76.0], "dram__bytes.sum": [64.0, 60.0, 68.0]}
    note = export.describe_wider_intervals(totals, expected)
    assert (note is not None) == said and (note or "totals of l2_bytes").startswith("totals of l2_bytes")
    assert export.describe_wider_intervals({}, 0.1) is None


def test_operations_that_a_plan_knows_are_in_the_table(recording: Callable, tmp_path: Path) -> None:
    """One launch of each configuration, none of which counted operations; the plan knows those of one in two."""
    pages = [str(recording(f"ncu/launch.raw.{names}.csv")) for names in ("mangled", "demangled")]
    every = export.tabulate_report({1: pages}, {"command": []}, None, "all").table
    census_csv = tmp_path / "train.ncu.launch.csv"
    write_csv(every, census_csv)
    told = every.drop_duplicates(KEYS)[KEYS].iloc[::2]
    metric = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    rows = [[*row, 1000 + place] for place, row in enumerate(told.astype(object).to_numpy().tolist())]
    known = {"columns": [*KEYS, metric], "rows": rows, "units": {metric: "inst"}, "sources": ["a/train.ncu.survey.csv"]}
    facts: Any = {
        "command": ["ncu", "--launch-count", str(len(every))],
        "plan": {"options": [], "joined": 0, "known": known},
    }
    found = export.tabulate_report({1: pages}, facts, str(census_csv), "sampled")
    assert found.units[metric] == "inst" and len(found.table) == len(every)
    expected = every[KEYS].merge(told.assign(operations=range(1000, 1000 + len(told))), how="left", on=KEYS)
    values = found.table.sort_values("launch")[metric]
    assert values.isna().any() and values.notna().any()
    assert values.fillna(0).tolist() == expected["operations"].fillna(0).tolist()


@pytest.mark.parametrize(
    ("half", "expected", "said"),
    [(2.4, 0.0, False), (4.4, 0.029, False), (4.4, 0.0, False), (30, 0.0, False), (4.6, 0.001, True)],
)
def test_what_a_launch_differs_by_from_itself_needs_no_note(half: float, expected: float, said: bool) -> None:
    """All launches of a small cell were counted on an H100, and their DRAM bytes hold to 2.4 %: nothing is left to count."""
    note = export.describe_wider_intervals({BYTES: [100, 100 - half, 100 + half]}, expected)
    assert (note is not None) == said


CENSUS = pd.DataFrame({"id": [1, 0, 2], "kernel": "k", "mangled": "k", "function": "k", "range": "", "stream": 7})
CENSUS = CENSUS.assign(**dict.fromkeys(KEYS[1:], 1), launches=3, **{"gpu__time_duration.sum": [2.5, 3.5, 4.5]})


def test_a_census_is_read_in_the_order_of_its_launches(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    more = {"multiplicity": [1.5, 2.5, None], "time_spread": 1.5, "run": 1, "launch": [0, 1, None]}
    CENSUS.assign(**more, stratum=0, as_planned=True).to_csv(path, index=False)
    found = export_schema.read_census(path)
    assert found["id"].tolist() == [0, 1, 2] and found.index.tolist() == [0, 1, 2]
    assert found["gpu__time_duration.sum"].tolist() == [3.5, 2.5, 4.5]


OTHERS = {
    "x 1 1": ["multiplicity", "time_spread", "stratum", "smem_static_bytes", "dram__bytes_read.sum", "stream"],
    "nan 1 1": ["gpu__time_duration.sum"],
    "1.5 1 1": ["run"],
    "-1 1 1": ["launch"],
    "perhaps True True": ["as_planned"],
    "nan 3 3": ["launches"],
    "3 3 2": ["launches"],
    "2 3 3": ["launches"],
    "3 0 2": ["id"],
    "1 1 2": ["id"],
}


@pytest.mark.parametrize(("values", "name"), [(values, name) for values, names in OTHERS.items() for name in names])
def test_a_census_with_other_values_is_refused(tmp_path: Path, values: str, name: str) -> None:
    path = tmp_path / "x.csv"
    CENSUS.assign(**{name: values.replace("nan", "").split(" ")}).to_csv(path, index=False)
    with pytest.raises(DataError):
        export_schema.read_census(path)
    CENSUS.assign(launches=[3, 3, 4]).to_csv(path, index=False)
    with pytest.raises(DataError, match="of launch 2 there are not 4 alike"):
        export_schema.read_census(path)
