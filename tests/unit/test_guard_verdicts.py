"""Time in guards: code that torch.compile made with many guards, and a twin of the same operations with few."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from profzoo.verdicts import guard_verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.guard_verdicts import LOOKUP, GuardTime

RULES = verdict_rules.load_rules()["rules"]
VERDICT = "time in guards"
STEPS = 20
TABLE = list(range(4_000))


def guarded(x: torch.Tensor) -> torch.Tensor:
    """Each number of the table is a guard, as the compiled code holds their sum."""
    return x * sum(TABLE)


def free(x: torch.Tensor) -> torch.Tensor:
    return x * 7_998_000


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[[], None]:
    """A step that calls the compiled function once; it has been called before."""
    made, x = torch.compile(function, backend="eager"), torch.ones(4)
    for _ in range(3):
        assert made(x)[0] == function(x)[0]
    return lambda: made(x)


def activities(step: Callable[[], None]) -> pd.DataFrame:
    """Operators of such steps as profzoo's trace of torch.profiler has them."""
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(STEPS):
            step()
    rows = [{"kind": "operator", "name": one.key, "count": one.count, "cpu_ns": one.cpu_time_total * 1e3}
            for one in profiler.key_averages()]  # fmt: skip
    return pd.DataFrame([*rows, {"kind": "range", "name": "step", "count": STEPS, "cpu_ns": 0.0}])


def fastest_ns(step: Callable[[], None]) -> float:
    times = []
    for _ in range(50):
        began = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - began)
    return float(min(times))


def test_guards_cost_what_the_twin_without_them_gains() -> None:
    wasteful, mended = compiled(guarded), compiled(free)
    rounds = []
    # The machine's speed changes, so times and traces are taken in turn, and of the rounds the middle one counts.
    for _ in range(5):
        took, left = fastest_ns(wasteful), fastest_ns(mended)
        found = min(
            filter(None, (guard_verdicts.find_guards(activities(wasteful)) for _ in range(2))), key=lambda one: one.ns
        )
        rounds.append((found.ns / (took - left), took, found))
    ratio, took, found = sorted(rounds, key=lambda one: one[0])[2]
    print(f"guards take {found.ns / 1e3:.0f} us, {ratio:.2f} times what the twin takes less")
    assert found.calls == 1 and ratio == pytest.approx(1, rel=0.5)
    (row,) = guard_verdicts.judge_guards(RULES, found, {}, took + 4 * found.ns, took + 4 * found.ns)
    assert row.verdict == VERDICT and row.gain == pytest.approx(5 / 4, rel=0.2)
    assert row.next_step.startswith("torch.compile checks guards once per step, which takes ")


def test_few_guards_are_no_finding() -> None:
    found = guard_verdicts.find_guards(activities(compiled(free)))
    assert found and found.calls == 1
    # As in a step of a millisecond.
    assert not list(guard_verdicts.judge_guards(RULES, found, {}, 1e6, 1e6))
    assert guard_verdicts.find_guards(activities(lambda: free(torch.ones(4)))) is None
    assert guard_verdicts.find_guards(None) is None


@pytest.mark.parametrize(("idle", "right"), [(5e5, 0.2), (1e5, 0.1), (1e4, None)])
def test_a_gpu_that_works_meanwhile_loses_nothing(idle: float, right: float | None) -> None:
    found = list(guard_verdicts.judge_guards(RULES, GuardTime(2e5, 8.0), {}, 1e6, idle))
    assert [row.share for row in found] == ([] if right is None else [pytest.approx(right)])
    assert all(
        row.gain == pytest.approx(1 / (1 - (right or 0))) and "8 times per step" in row.next_step for row in found
    )


def test_trace_without_steps_tells_nothing() -> None:
    row = {"kind": "operator", "name": LOOKUP, "count": 3, "cpu_ns": 3e6}
    assert guard_verdicts.find_guards(pd.DataFrame([row])) is None
