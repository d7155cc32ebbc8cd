"""Which settings a cell cannot run with, by its lines that wait and by its settings alone; and the table of lines."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.catalog import csv_files
from profzoo.io.scripts import write_csv
from profzoo.verdicts.causes import verdict_table, verdicts
from profzoo.verdicts.rules import feasibility, rule_evaluation
from profzoo.verdicts.rules.feasibility import judge_feasibility
from profzoo.what_if.program import read_programs, write_programs
from tests import known_rules, simulated_waits
from tests.known_rules import a_verdict
from tests.simulated_waits import item, operator
from tests.unit.test_wait_costs import line

MODEL = {"graph": False, "compile": False}


def test_lines_of_the_step_forbid_a_graph_without_any_trace() -> None:
    found = judge_feasibility(MODEL, None, [line(calls=62), line(line=90, operation="x[mask]", calls=1)]).refused
    assert found == {
        "graph=true": "the step waits for the GPU 63 times per step (.item() at train.py:84, 62 times per step; "
        "x[mask] at train.py:90, once per step)"
    }


def test_nothing_is_forbidden_where_nothing_is_known_or_nothing_waits() -> None:
    for part in ("data", "transfer"):
        found = judge_feasibility(MODEL, None, [line(range=part)])
        assert found.refused == {} and found.lines == []
    assert judge_feasibility(MODEL).refused == judge_feasibility(MODEL, None, []).refused == {}
    # It runs as a graph already.
    assert judge_feasibility({"graph": True}, None, [line()]).refused == {}


def test_emptied_caches_are_told_apart_from_waits() -> None:
    empties = line(operation="torch.cuda.empty_cache()", calls=4, line=7)
    found = judge_feasibility(MODEL, None, [empties, line(calls=2)])
    assert [(one.kind, one.per_step) for one in found.obstacles] == [("waits", 2)]
    assert found.refusal("graph=true") == (
        "the step waits for the GPU 2 times per step (.item() at train.py:84, 2 times per step)"
    )
    assert judge_feasibility(MODEL, None, [empties]).refused == {}
    stalls = a_verdict("allocator stalls", about="allocations_removed", next_step="do")
    said = feasibility.add_wait_texts(stalls, found).next_step
    assert said == "torch.cuda.empty_cache() at train.py:7, 4 times per step: do"


def test_a_script_takes_no_graph() -> None:
    found = judge_feasibility(MODEL | {"command": "python train.py"}, None, [line()])
    why = found.refusal("graph=true precision=bf16")
    assert why and why.startswith("only a script itself can capture") and ".item() at train.py:84" in why
    assert found.refusal("precision=bf16") is None and found.refusal(None) is None


def test_three_lines_are_named_and_the_rest_counted() -> None:
    said = feasibility.describe_lines([line(line=number) for number in range(5)])
    assert said.count("train.py:") == 3 and said.endswith("; 2 more lines")
    assert feasibility.describe_lines([line(line=number) for number in range(4)]).endswith("; 1 more line")
    assert feasibility.describe_lines([line(operation="")]) == "a wait at train.py:84, 60 times per step"


def test_hints_at_graphs_are_dropped_where_none_is_possible() -> None:
    """Each is still in the texts that it is about."""
    texts = [one["next"] for rule in known_rules.load()["rules"] for one in rule["advice"]]
    texts.append(rule_evaluation.LAUNCH_LESS)
    assert all(any(hint in text for text in texts) for hint in feasibility.GRAPH_TEXTS)
    cannot, can = judge_feasibility(MODEL, None, [line()]), judge_feasibility(MODEL, None, [])
    hinting = [text for text in texts if any(hint in text for hint in feasibility.GRAPH_TEXTS)]
    assert len(hinting) == 3
    for text in hinting:
        assert "CUDA graph" not in feasibility.drop_graph_texts(text, cannot)
        assert feasibility.drop_graph_texts(text, can) == text


def names(*rows: Any, feasible: feasibility.Feasibility) -> list[str]:
    explanations = known_rules.load(every=True)["explanations"]
    return [row.verdict for row in verdicts.rank_verdicts(rows, explanations, feasible)]


WAITS, LAUNCH, SHORT = "synchronisation-bound", "launch-bound", "latency-bound (short kernels)"
MEMORY, COPY, INPUT = "memory-bound", "copy-bound", "input-bound"


def test_what_prevents_a_graph_comes_before_what_one_would_cure() -> None:
    waits, launch, short = a_verdict(WAITS, gain=1.2), a_verdict(LAUNCH, gain=2.0), a_verdict(SHORT, gain=2.5)
    other, lower = a_verdict(MEMORY, gain=3.0), a_verdict(COPY, gain=1.1)
    cannot, can = judge_feasibility(MODEL, None, [line()]), judge_feasibility(MODEL, None, [])
    rows = [lower, waits, launch, short, other]
    assert names(*rows, feasible=cannot) == [MEMORY, WAITS, SHORT, LAUNCH, COPY]
    assert names(*rows, feasible=can) == [MEMORY, SHORT, LAUNCH, WAITS, COPY]
    assert names(lower, waits, other, feasible=cannot) == [MEMORY, WAITS, COPY]
    # A verdict without a gain is not a cause.
    assert names(launch, a_verdict(WAITS), feasible=cannot) == [LAUNCH, WAITS]


@pytest.mark.parametrize(
    "cause",
    [
        "allocator stalls", "allocator retries", "host work", "GIL contention", "code loading within the window",
        "tuning for changing shapes", "recompilation",
    ],
)  # fmt: skip
def test_what_else_the_host_does_comes_before_launches_whatever_is_possible(cause: str) -> None:
    mine, between = a_verdict(cause, gain=1.2), a_verdict(INPUT, gain=1.5)
    launch, other = a_verdict(LAUNCH, gain=2.0), a_verdict(MEMORY, gain=3.0)
    for lines in ([], [line()]):
        feasible = judge_feasibility(MODEL, None, lines)
        assert names(launch, mine, between, other, feasible=feasible) == [MEMORY, cause, LAUNCH, INPUT]


@pytest.mark.parametrize("cause", ["tuning for changing shapes", "recompilation"])
def test_what_shapes_make_libraries_do_comes_before_its_consequences(cause: str) -> None:
    mine, launch = a_verdict(cause, gain=1.2), a_verdict(LAUNCH, gain=3.0)
    stalls, loading = a_verdict("allocator stalls", gain=1.5), a_verdict("code loading within the window", gain=1.4)
    unknown = a_verdict("undecided", potential=4.0)
    found = names(loading, mine, launch, stalls, unknown, feasible=judge_feasibility(MODEL, None, []))
    assert found == [cause, "undecided", "allocator stalls", "code loading within the window", LAUNCH]


def programs(inside: Any, folder: Path) -> Any:
    """What is read of the file of a program with such steps, by cell."""
    program, _ = simulated_waits.traced(inside, folder)
    write_programs([program], folder / "p.npz")
    return {simulated_waits.CELL: read_programs(folder / "p.npz")}


def test_the_only_line_of_a_part_has_the_time_of_its_waits(tmp_path: Path) -> None:
    """Each wait of the program's twelve lasts from the copy's call until its product of 100 us is done."""
    inside = [one for _ in range(12) for one in (operator(1e5), *item())]
    lines = {simulated_waits.CELL: [line(calls=12), line(calls=3, range="data")]}
    known = programs(inside, tmp_path)
    table = verdict_table.tabulate_waits(lines, known)
    first, second = table["wait_ns"]
    assert first == pytest.approx(12 * 1e5, rel=0.1) and np.isnan(second)
    two = {simulated_waits.CELL: [line(calls=6), line(calls=6, line=90)]}
    assert verdict_table.tabulate_waits(two, known)["wait_ns"].isna().all()
    fewer = {simulated_waits.CELL: [line(calls=9)]}
    assert verdict_table.tabulate_waits(fewer, known)["wait_ns"].isna().all()


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = verdict_table.tabulate_waits({simulated_waits.CELL: [line(), line(range="", line=2, calls=1)]}, {})
    write_csv(table, tmp_path / "waits.csv")
    found = csv_files.read_table("waits", tmp_path / "waits.csv")
    own = found[["file", "line", "operation", "calls"]].to_numpy().tolist()
    assert own == [["train.py", 84, ".item()", 60], ["train.py", 2, ".item()", 1]]
    write_csv(verdict_table.tabulate_waits({}, {}), tmp_path / "none.csv")
    assert isinstance(csv_files.read_table("waits", tmp_path / "none.csv"), pd.DataFrame)
