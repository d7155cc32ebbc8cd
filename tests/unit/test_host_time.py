"""The parts of the host's time, of programs written row by row, and the table of them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.what_if import host_time, tables
from tests.written_programs import BEGINS, ENDS, call, kernel, program


def at(start: float, end: float, **more: Any) -> dict[str, Any]:
    """A call that was measured from then to then."""
    return {"start": start, "end": end, **more}


def test_every_moment_of_the_cpus_time_is_one_part() -> None:
    """Two steps of 100 ns, of which the first does not count; in the second each part is another number of ns."""
    first = [BEGINS | at(0, 0), call(**at(0, 30)), ENDS | at(100, 100)]
    second = [BEGINS | at(100, 100), call(**at(110, 120, input=7)), call(**at(125, 145, waited=12, library=2)),
              call(**at(130, 150)), call(**at(160, 162, input=9, library=9)), ENDS | at(170, 170)]  # fmt: skip
    gpu = [kernel(1, **at(5, 99)), kernel(4, **at(112, 132)), kernel(6, **at(140, 149)), kernel(6, **at(145, 155))]
    found = host_time.host_time_parts(program(first + second, gpu))
    assert found["steps"] == 1 and found["cpu_ns"] == 70
    # From 100: 3 of 10 ns, then 3 of 5, 1 of the 10 that 9 of input leave, and 8 to the end.
    assert found["input_ns"] == 7 + 9 and found["waiting_ns"] == 12
    # The first call launches, the second does not, the third does from 145 on, and the last does not.
    assert found["launch_ns"] == 10 + 5 and found["library_ns"] == 2 + 1 + 8 + 2
    assert found["framework_ns"] == 3 + 3 + 0 + 8
    assert sum(found[f"{part}_ns"] for part in host_time.PARTS) == 70
    # The GPU is busy from 112 to 132, and from 140 to 155: 35 ns, while the CPU works 58.
    assert found["busy_ns"] == 35 and found["balance"] == pytest.approx(58 / 35)
    # Calls of 10 and 20 ns launch; the first finds the GPU idle, and 2 ns after it begins that works.
    assert found["launches"] == 2 and found["launch_call_ns"] == 15 and found["latency_ns"] == 2


def test_time_is_per_step_that_counts() -> None:
    """Three steps of 100 ns; in the two that count kernels of 10 and 30 ns, 4 ns after calls of 20 ns, and 6 of 40."""
    rows: list[dict[str, Any]] = []
    for step, took in enumerate((77, 20, 40)):
        begin = 100 * step
        rows += [
            BEGINS | at(begin, begin),
            call(**at(begin + 10, begin + 10 + took)),
            ENDS | at(begin + 100, begin + 100),
        ]
    gpu = [kernel(1, **at(11, 19)), kernel(4, **at(114, 124)), kernel(7, **at(216, 246))]
    found = host_time.host_time_parts(program(rows, gpu))
    assert (found["steps"], found["cpu_ns"], found["busy_ns"], found["launches"]) == (2, 100, 20, 1)
    assert (found["launch_ns"], found["framework_ns"]) == (30, 70)
    assert (found["launch_call_ns"], found["latency_ns"], found["balance"]) == (30, 5, 5)


def test_what_began_before_the_steps_that_count_is_none_of_theirs() -> None:
    """A call of another thread from 90 to 130, when the second step begins at 100 and its own call at 120 ends at 140."""
    rows = [BEGINS | at(0, 0), call(**at(90, 130)), ENDS | at(100, 100), BEGINS | at(100, 100), call(**at(120, 140)),
            ENDS | at(150, 150)]  # fmt: skip
    found = host_time.host_time_parts(program(rows, [kernel(4, **at(141, 142))]))
    assert (found["launch_ns"], found["framework_ns"], found["cpu_ns"]) == (20, 30, 50)


def test_a_single_step_counts_and_a_gpu_that_does_nothing_has_no_balance() -> None:
    rows = [BEGINS | at(10, 10), call(**at(20, 25)), ENDS | at(40, 40)]
    found = host_time.host_time_parts(program(rows, []))
    assert (found["steps"], found["cpu_ns"], found["busy_ns"], found["launches"]) == (1, 30, 0, 0)
    assert all(np.isnan(found[name]) for name in ("balance", "launch_call_ns", "latency_ns"))
    assert (found["library_ns"], found["framework_ns"]) == (5, 25)


def test_calls_that_take_longer_than_100_us_are_waits_and_busy_gpus_tell_no_latency() -> None:
    rows = [BEGINS | at(0, 0), call(**at(0, 100_000)), call(**at(200_000, 300_001)), call(**at(400_000, 400_010)),
            ENDS | at(500_000, 500_000)]  # fmt: skip
    gpu = [kernel(1, **at(7, 200_000)), kernel(2, **at(200_011, 400_001)), kernel(3, **at(400_500, 400_600))]
    found = host_time.host_time_parts(program(rows, gpu))
    # 100,000 and 10 ns; 7 ns and 11, as the second found the GPU just done, and the third did not.
    assert found["launch_call_ns"] == 50_005 and found["latency_ns"] == 9
    gpu[1]["node"] = True
    assert host_time.host_time_parts(program(rows, gpu))["latency_ns"] == 7


@pytest.mark.parametrize(("gain", "best"), [(1.05, "graph"), (1.049, "none"), (1.07, "graph")])
def test_a_twentieth_is_worth_a_change(gain: float, best: str) -> None:
    assert host_time.best_host_change({"graph": gain, "host_2x": 1.0, "kernels_2x": 9.0}) == best
    assert host_time.best_host_change({"kernels_2x": 9.0}) == "none"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"cpu_ns": 101.0, "traced_ns": 201.0}, None),
        (
            {"cpu_ns": [100.0, 98.9]},
            "row 2: framework_ns, input_ns, library_ns, launch_ns, waiting_ns do not add up to cpu_ns",
        ),
        ({"ahead_ns": 102.0}, "row 1: cpu_ns, ahead_ns do not add up to traced_ns"),
    ],
)
def test_parts_of_the_cpus_time_add_up(changed: dict[str, Any], said: str | None) -> None:
    """100 ns in five parts and 100 more until the GPU is done; one ns is rounding."""
    whole = dict.fromkeys(tables.PARTS, 20.0) | {"cpu_ns": 100.0, "ahead_ns": 100.0, "traced_ns": 200.0}
    holds = tables.TAX.holds
    assert holds is not None and holds(pd.DataFrame(whole | changed, index=[0, 1])) == said
    # Of a second a microsecond and one ns more.
    for off, closes in ((1_000.9, True), (1_002.0, False)):
        second = dict.fromkeys(tables.PARTS, 2e8) | {"cpu_ns": 1e9 + off, "ahead_ns": -off, "traced_ns": 1e9}
        assert (holds(pd.DataFrame(second, index=[0])) is None) == closes


def test_what_the_cpu_takes_is_told_by_steps_but_the_last() -> None:
    steps = pd.DataFrame({"process": [0, 0, 0, 1, 1, 2, 2, 3], "wall_ns": [8, 9, 1, 20, 1, 11, 1, 5]})
    assert tables.host_step_ns(steps) == 11 and tables.host_step_ns(steps.iloc[-1:]) is None
    assert tables.host_step_ns(steps.iloc[:3].drop(columns="process")) == 8
    assert tables.process_spread({"processes": [{"step_ns": 9.0}]}) == 0
    # Of two the logarithms lie 0.2 apart: 6.3138 times their deviation, 0.1414, by the square root of 2 over 2.
    two = {"processes": [{"step_ns": ns} for ns in (1.0, np.exp(0.2))]}
    assert tables.process_spread(two) == pytest.approx(6.3138 * 0.141421, rel=1e-4)
