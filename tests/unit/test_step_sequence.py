"""sequence and census: the launches of a step as nsys traced them, by which ncu is planned and matched."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.config import configuration as config
from profzoo.errors import ConfigError, DataError
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import export_schema, launch_selection
from profzoo.tools.ncu import files as ncu_files
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.ncu.estimates import GPU_TIME, Window
from profzoo.tools.ncu.export import Exported, match_runs
from profzoo.tools.nsys.steps import step_sequence
from tests.unit.test_nsys_tables import ONE, TWO, export, kernel, shuffled

KEYS = ncu_tables.CONFIGURATION


def trace(path: Path, *steps: Sequence[tuple[int, int]], process: int = ONE, **given: list) -> Path:
    """An export of steps of 1000 ns each, whose launches are of a grid and take so many ns."""
    kernels, calls, ranges = [], [], []
    for number, launches in enumerate(steps):
        ranges += [(1000 * number, 1000 * number + 900, process + 1, "step")]
        ranges += [(1000 * number + 5, 1000 * number + 30, process + 1, "forward")]
        for place, (grid, ns) in enumerate(launches):
            at, correlation = 1000 * number + 10 + 20 * place, 100 * number + place
            kernels.append(kernel(at + 5, at + 5 + ns, correlation, process, (grid, 1, 1)))
            calls.append((at, correlation, process + 1))
    return export(path, kernels + given.get("kernels", []), calls + given.get("calls", []), ranges)


@pytest.fixture(scope="module")
def traced(recording: Callable) -> pd.DataFrame:
    return step_sequence.read_step_launches(recording("nsys/train.sqlite"), 1)


def test_launches_are_those_that_ncu_counted_in_the_same_program(
    recording: Callable, traced: pd.DataFrame, tmp_path: Path
) -> None:
    page, units = ncu_tables.read_raw(recording("ncu/defaultdomain.raw.csv"))
    counted, _ = ncu_tables.tidy_launches(page, units, page, None)
    # The page is by demangled names.
    same = ["function", *KEYS[1:]]
    assert len(traced) == 475 and (traced["steps"] == 10).all()
    assert traced[same].astype(str).equals(counted[same].astype(str))
    times = counted[GPU_TIME].astype(float)
    assert np.corrcoef(times, traced["ns"])[0, 1] > 0.99 and (traced["ns"] < 1.1 * times + 2000).all()
    assert traced.groupby("range").size().to_dict() == {"backward": 249, "forward": 206, "optimizer": 20}
    # The order of rows does not matter.
    other = shuffled(recording("nsys/train.sqlite"), tmp_path / "b.sqlite", 3)
    pd.testing.assert_frame_equal(step_sequence.read_step_launches(other, 1), traced)
    # A table of launches that was cut off is refused.
    path = tmp_path / "train.nsys-launches.csv"
    two = step_sequence.read_step_launches(recording("nsys/train.sqlite"), 2)
    for damaged in (two.drop(index=7), two.iloc[:-1]):
        write_csv(damaged, path)
        with pytest.raises(DataError, match="rows are missing"):
            export_schema.read_census(path)


def test_times_are_medians_over_the_steps_in_the_order_of_calls(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.sqlite", [(1, 10), (2, 20)], [(1, 30), (2, 20)], [(1, 11), (2, 26)])
    table = step_sequence.read_step_launches(path, 1)
    assert table["grid_x"].tolist() == [1, 2] and table["ns"].tolist() == [11, 20]
    assert table["min_ns"].tolist() == [10, 20] and table["max_ns"].tolist() == [30, 26]
    assert table["range"].tolist() == ["forward", ""]
    twice = step_sequence.read_step_launches(path, 2)
    assert twice["id"].tolist() == [0, 1, 2, 3] and twice["step"].tolist() == [0, 0, 1, 1]
    assert twice["ns"].tolist() == [11, 20, 11, 20]


OTHERWISE = "of {0} launches other kernels than step 1, from its launch 2 on (k)"
UNTOLD = [
    ([[(1, 5), (2, 5)], [(1, 5), (3, 5)]], f"step 2 {OTHERWISE.format(2)}"),
    ([[(1, 5), (2, 5)], [(1, 5)]], f"step 2 {OTHERWISE.format(2)}"),
    ([[(1, 5)], [(1, 5)], [(1, 5), (1, 5)]], f"step 3 {OTHERWISE.format(3)}"),
    ([[]], "holds no launch in a step of the window"),
    ([], "holds no step of the window"),
]


@pytest.mark.parametrize(("steps", "why"), UNTOLD)
def test_what_the_trace_does_not_tell_is_counted_otherwise_or_refused(steps: list, why: str, tmp_path: Path) -> None:
    path, report, csv = trace(tmp_path / "a.sqlite", *steps), tmp_path / "r.json", tmp_path / "l.csv"
    report.write_text(json.dumps({"capture": "window"}))
    said: list[str] = []
    made = 1, str(csv), f"{csv}.json"
    assert ncu_census.read_untold_reason(made[2]) is None
    step_sequence.main(str(path), str(report), *made, True, said.append)
    assert csv.read_text().strip() == ",".join(step_sequence.COLUMNS)
    assert why in str(ncu_census.read_untold_reason(made[2])) and "set ncu.census" not in said[0]
    assert why in said[0] and said[0].endswith(": ncu records the launches itself")
    with pytest.raises(step_sequence.UntoldError, match=re.escape(why)) as refused:
        step_sequence.main(str(path), str(report), *made, False, said.append)
    assert "\n" not in str(refused.value) and ("trace cuda and nvtx" in str(refused.value)) == (steps == [[]])
    path.write_text("no database")
    with pytest.raises(DataError) as error:
        step_sequence.main(str(path), str(report), *made, True)
    assert not isinstance(error.value, step_sequence.UntoldError)


def test_launches_between_steps_are_refused_but_not_those_before_the_window(tmp_path: Path) -> None:
    between = {"kernels": [kernel(1960, 1970, 950, ONE)], "calls": [(1950, 950, ONE + 1)]}
    path = trace(tmp_path / "a.sqlite", [(1, 5)], [(1, 5)], **between)
    with pytest.raises(DataError, match="1 launches of the window are outside its steps, so the trace does not show"):
        step_sequence.read_step_launches(path, 1)
    assert len(step_sequence.read_step_launches(path, 1, whole_run=True)) == 1
    # Another process does not count.
    other = {"kernels": [kernel(40, 50, 7, TWO)], "calls": [(30, 7, TWO + 1)]}
    assert len(step_sequence.read_step_launches(trace(tmp_path / "b.sqlite", [(1, 5)], [(1, 5)], **other), 1)) == 1


def test_graphs_that_were_traced_whole_are_refused(tmp_path: Path) -> None:
    path = export(tmp_path / "a.sqlite", [], [(10, 1, ONE + 1)], [(0, 900, ONE + 1, "step")], [(20, 30, 1, ONE, 4)])
    with pytest.raises(DataError, match=r"CUDA graphs as one launch each, .*nsys.cuda_graph: node"):
        step_sequence.read_step_launches(path, 1)


def test_kernels_of_a_graph_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    """A replay launches them all by one call, and the export may list them in any order."""
    kernels, calls, ranges = [], [], []
    for number in range(2):
        at = 1000 * number
        ranges += [(at, at + 900, ONE + 1, "step"), (at + 5, at + 30, ONE + 1, "graph")]
        calls.append((at + 10, number, ONE + 1))
        begins = [(40, 3), (20, 1), (30, 2)] if number else [(20, 1), (30, 2), (40, 3)]
        kernels += [kernel(at + begin, at + begin + 5, number, ONE, (grid, 1, 1)) for begin, grid in begins]
    table = step_sequence.read_step_launches(export(tmp_path / "a.sqlite", kernels, calls, ranges), 1)
    assert table["grid_x"].tolist() == [1, 2, 3] and set(table["range"]) == {"graph"}


def test_kernels_of_a_graph_that_run_side_by_side_are_in_the_order_of_its_nodes(tmp_path: Path) -> None:
    """Which of two branches begins first differs from replay to replay."""
    kernels, calls, ranges = [], [], []
    for number in range(2):
        at = 1000 * number
        ranges.append((at, at + 900, ONE + 1, "step"))
        calls.append((at + 10, number, ONE + 1))
        begins = [(20, 1), (21, 2), (22, 3)] if number else [(20, 1), (21, 3), (23, 2)]
        # Numbers that are one to a float.
        kernels += [(*kernel(at + begin, at + 30, number, ONE, (node, 1, 1)), 2**62 + node) for begin, node in begins]
    table = step_sequence.read_step_launches(export(tmp_path / "a.sqlite", kernels, calls, ranges), 1)
    assert table["grid_x"].tolist() == [1, 2, 3] and table["ns"].tolist() == [10.0, 8.0, 8.5]


def test_a_run_that_launches_otherwise_than_the_trace_is_told(traced: pd.DataFrame) -> None:
    census = traced.rename(columns={"ns": GPU_TIME}).assign(launches=1)
    words = ["--filter-mode", "per-launch-config", "--launch-count", "1", "--kernel-name-base", "mangled"]
    taken = launch_selection.profiled_launches(census, words).reset_index(drop=True)
    other = taken.assign(grid_x=taken["grid_x"].where(taken.index != 5, 12345))
    table, functions = match_runs({1: other}, [words], Window(census))
    assert functions == [taken["function"][5]] and table["as_planned"].sum() == len(taken) - 1
    (cured,), (said,) = (Exported(pd.DataFrame(), {}, [], functions, by_nsys=one).notes() for one in (True, False))
    assert cured.endswith(f"; with `ncu.census: ncu`, ncu records all launches instead of nsys: {functions[0]}")
    assert "ncu.census" not in said


SURVEY = {"tool": "ncu,nsys", "ncu": {"set": "survey"}}


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({}, "ncu"),
        (SURVEY, "auto"),
        (SURVEY | {"ncu": {"set": "survey", "census": "nsys"}}, "nsys"),
        (SURVEY | {"tool": "ncu"}, "ncu"),
        (SURVEY | {"ncu": {"set": "ranges"}}, "ncu"),
        (SURVEY | {"ncu": {"set": "survey", "census": "ncu"}}, "ncu"),
        ({"tool": "ncu", "ncu": {"census": "nsys"}}, "nsys"),
        (SURVEY | {"ncu": {"set": "survey", "devices": [0]}}, "ncu"),
        (SURVEY | {"nsys": {"traces": ["cuda"], "capture": "run"}}, "ncu"),
    ],
)
def test_where_the_census_comes_from(given: dict, source: str) -> None:
    checked = config.normalise_config(given)
    own = checked["ncu"]
    assert own["census"] == source == config.normalise_config(checked)["ncu"]["census"]
    assert (ncu.CENSUS in ncu.launch_sets(own)) == (source == "ncu" or own["set"] == ncu.CENSUS)
    found = ncu_files.table_inputs(own)
    assert ("ncu" in found) == (source == "ncu")
    # Else versions come from what was counted by the default set, where that is of launches.
    assert (ncu_files.COUNTED in found) == (source != "ncu" and own["set"] in ncu.launch_sets(own))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"ncu": {"census": "nsys", "devices": [1]}}, "ncu.devices may leave out launches that nsys traces"),
        ({"ncu": {"census": "nsys", "target_processes": "application-only"}}, "ncu.target_processes may leave out"),
        ({"ncu": {"census": "nsys"}, "nsys": {"traces": ["nvtx"]}}, "nsys.traces does not contain cuda"),
    ],
)
def test_a_census_that_nsys_cannot_take_is_refused(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.normalise_config(given)
    assert str(error.value).startswith(f"ncu.census = 'nsys', but {line}")
