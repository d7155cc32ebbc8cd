"""Retries of the allocator and memory that nothing uses are found by known numbers, and their twins' numbers are fine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from profzoo.cell.job_types import AllocatorFacts
from profzoo.harness import allocator_state, recorders
from profzoo.verdicts import memory_verdicts, rules, verdicts
from profzoo.verdicts.noted_facts import NotedFacts, read_noted
from tests import simulated_waits
from tests.simulated import Act
from tests.simulated_waits import operator

GIB = 2**30
FINE: AllocatorFacts = {
    "retries": 0, "failures": 0, "driver_allocations": 0, "driver_frees": 0, "reserved_bytes": 70 * GIB,
    "used_peak_bytes": 66 * GIB, "stuck_bytes": 0, "limit_bytes": 80 * GIB,
}  # fmt: skip
RETRIED: AllocatorFacts = FINE | {"retries": 16, "driver_allocations": 32, "driver_frees": 32}
FRAGMENTED: AllocatorFacts = FINE | {"used_peak_bytes": 40 * GIB}
RETRIES, STALLS, FRAGMENTS = "allocator retries", "allocator stalls", "fragmented memory"
WORK = [operator(2e4) for _ in range(40)]
# What a retry does in each step: free blocks are given back, which waits for the GPU, and another one is taken.
RETRY = [Act("free", 0, "forward", 2e3, 6e4)] * 2 + [Act("allocate", 0, "forward", 2e3, 8e4)]
SLOWED = [*WORK[:20], *RETRY, *WORK[20:], *RETRY]


def told(inside: Any, folder: Path, allocator: AllocatorFacts | None, **ran_with: Any) -> dict[str, Any]:
    """Verdicts on such a cell by their names."""
    noted = NotedFacts(allocator=allocator)
    found = simulated_waits.told(inside, folder, noted=noted, every_rule=True, **ran_with).of_cell
    return {row["verdict"]: row for row in found.to_dict("records")}


def test_retries_cost_what_the_steps_gain_without_them(tmp_path: Path) -> None:
    found = told(SLOWED, tmp_path, RETRIED)
    row, measured = found[RETRIES], simulated_waits.step_ns(SLOWED) / simulated_waits.step_ns(WORK)
    assert row["gain"] == pytest.approx(measured, rel=0.05) and measured > 1.3
    assert row["gain_low"] <= measured <= row["gain_high"]
    assert row["next_step"].startswith(
        "within the window the allocator found no block that fits and no more memory 16 "
    )
    assert "expandable_segments:True" in row["next_step"] and "run the largest batch first" in row["next_step"]
    # One finding, not two of the same time.
    assert STALLS not in found and FRAGMENTS not in found


def test_memory_given_back_by_the_program_is_no_retry(tmp_path: Path) -> None:
    found = told(SLOWED, tmp_path, FINE)
    assert STALLS in found and RETRIES not in found
    assert STALLS in told(SLOWED, tmp_path, None)


def test_retries_that_cost_nothing_are_no_finding(tmp_path: Path) -> None:
    assert not {RETRIES, STALLS} & set(told(WORK, tmp_path, RETRIED | {"retries": 1}))


def test_retries_are_told_without_a_gain_where_no_steps_were_traced(tmp_path: Path) -> None:
    row = simulated_waits.told(WORK, tmp_path).row
    judged = verdicts.judge_cell(row.to_frame().T.infer_objects(), simulated_waits.GIVEN, rules.load_rules(), {}, {})
    (found,) = memory_verdicts.judge_memory(judged, RETRIED)
    assert (found.verdict, found.value, found.gain) == (RETRIES, 16, None)
    assert not list(memory_verdicts.judge_memory(judged, FINE)) + list(memory_verdicts.judge_memory(judged, None))


def test_memory_that_no_tensor_used_is_told_without_a_gain(tmp_path: Path) -> None:
    row = told(WORK, tmp_path, FRAGMENTED)[FRAGMENTS]
    assert row["value"] == pytest.approx(3 / 7) and not row["gain"] > 0
    assert row["next_step"].startswith(
        "the allocator holds 70.0 GiB of the 80.0 GiB that the process may take, and tensors never used more than 40.0 "
    )


@pytest.mark.parametrize(
    ("allocator", "ran_with"),
    [
        (FINE, {}),
        (FRAGMENTED | {"limit_bytes": 160 * GIB}, {}),
        (FRAGMENTED | {"limit_bytes": 0}, {}),
        (FRAGMENTED, {"graph": True}),
        (FRAGMENTED, {"compile": "reduce-overhead"}),
    ],
    ids=["used", "there is enough", "unknown limit", "kept for a graph", "kept for compiled graphs"],
)
def test_memory_that_is_used_or_kept_on_purpose_is_no_finding(
    allocator: AllocatorFacts, ran_with: dict[str, Any], tmp_path: Path
) -> None:
    assert FRAGMENTS not in told(WORK, tmp_path, allocator, **ran_with)


def statistics(**counts: int) -> dict[str, int]:
    names = {**allocator_state.COUNTS, "reserved": allocator_state.RESERVED, "used": allocator_state.USED}
    return {own: counts.get(name, 0) for name, own in names.items()}


def test_only_what_happened_within_the_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_state, "_read_limit", lambda device: 80)
    before = statistics(retries=5, driver_allocations=30, driver_frees=20, reserved=60, used=10)
    after = statistics(retries=7, driver_allocations=33, driver_frees=21, failures=1, reserved=50, used=40)
    found = allocator_state.describe_allocator(before, after, torch.device("cuda"))
    assert found == {
        "retries": 2, "failures": 1, "driver_allocations": 3, "driver_frees": 1, "reserved_bytes": 60,
        "used_peak_bytes": 40, "stuck_bytes": 0, "limit_bytes": 80,
    }  # fmt: skip
    assert allocator_state.describe_allocator(before, {}, torch.device("cuda")) is None


def test_a_cpu_has_no_such_allocator(tmp_path: Path) -> None:
    timer = recorders.StepTimer(torch.device("cpu"), tmp_path / "steps.csv")
    timer.start()
    timer.step(1)
    timer.stop()
    assert not {"allocator", "clocks"} & set(recorders.describe_window(timer))
    assert {"step_ns", "window_wall_ns", "cpu_taken_share", "shifts"} <= set(recorders.describe_window(timer))


def test_noted_facts_hold_the_allocator_of_the_first_process() -> None:
    assert read_noted({"allocator": RETRIED}).allocator == RETRIED
    assert read_noted({}).allocator is None and replace(NotedFacts(), allocator=FINE).clocks == ()
