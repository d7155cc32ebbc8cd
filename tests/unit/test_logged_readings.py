"""Waits for logging are told from waits of the computation, with what it gains to read less often."""

from typing import Any

import pytest

from profzoo.verdicts.feasibility import Feasibility
from profzoo.verdicts.logged_readings import LOGGING, advise_logging, find_logged
from profzoo.verdicts.verdict import Verdict
from profzoo.verdicts.wait_costs import SYNCHRONISATION


def line(operation: str = ".item()", calls: int = 1, where: str = "") -> Any:
    return {"file": "train.py", "line": 84, "function": "log", "text": "", "operation": operation, "range": where,
            "calls": calls}  # fmt: skip


def verdict(about: str, gain: float = 2.0) -> Verdict:
    return Verdict("cell", about, "share", 0.5, "trace", "avoid waiting", gain=gain, about=about)


@pytest.mark.parametrize(
    ("lines", "logs"),
    [
        ([line()], True),
        ([line("float()"), line("print()", 2)], True),
        ([line(calls=62)], False),
        ([line(), line("x[mask]")], False),
        ([line(where="forward")], False),
        ([], False),
        (None, False),
    ],
)
def test_a_few_readings_outside_of_the_network_are_for_logging(lines: Any, logs: bool) -> None:
    assert bool(find_logged(lines)) is logs


def test_reading_every_tenth_step_leaves_a_tenth_of_the_cost() -> None:
    (row,) = advise_logging([verdict(LOGGING)], Feasibility(lines=[line()]))
    # Half of the step is lost; of a twentieth in its place, 1 / (1 - 0.45) is gained.
    assert row.next_step.startswith(".item() at train.py:84, once per step: ") and "1.82 times as fast" in row.next_step
    (row,) = advise_logging([verdict(SYNCHRONISATION)], Feasibility(lines=[line()]))
    assert row.next_step.startswith("avoid waiting; ") and "every 10 steps" in row.next_step


def test_one_verdict_on_waits_is_enough_and_others_stay_as_they_are() -> None:
    both, other = [verdict(LOGGING), verdict(SYNCHRONISATION)], verdict("idle_input")
    logs, computes = Feasibility(lines=[line()]), Feasibility(lines=[line(calls=62)])
    assert [row.about for row in advise_logging([*both, other], logs)] == [SYNCHRONISATION, "idle_input"]
    assert list(advise_logging([*both, other], computes)) == [both[1], other]
    assert list(advise_logging([verdict(LOGGING)], Feasibility(lines=None))) == []
