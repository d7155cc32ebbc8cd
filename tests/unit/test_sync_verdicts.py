"""Gradients that are sent in each of several backward passes: simulated steps, whose twins send them once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profzoo.cell.job_types import GradientSync
from profzoo.what_if import predicted_gains
from tests import simulated_waits, slow
from tests.simulated import Act
from tests.simulated_waits import operator

SYNC: GradientSync = {
    "networks": 1, "bucket_bytes": [2**20] * 2, "find_unused_parameters": False, "communication_ns": 2, "overlap_ns": 1,
}  # fmt: skip
FOUND, BOUND = "repeated gradient synchronisation", "communication-bound"
COMPUTE, SENDING = 7, 20
PASSES = 4


def bucket(ns: float, part: str = "backward") -> list[Act]:
    """A bucket is complete on the stream that computes, and is sent on another one."""
    small = {"step": 0, "part": part, "before": 500.0, "call": 1500.0}
    return [
        Act("record", **small, stream=COMPUTE, event=1),
        Act("wait", **small, stream=SENDING, event=1),
        Act("kernel", 0, part, 2e3, 4e3, stream=SENDING, ns=ns, group=-1),
    ]


def micro_batch(sends: bool, ns: float = 2e5, last: float = 3e5) -> list[Act]:
    """Forward and backward pass: of two buckets that are sent, one is hidden behind the rest of the backward pass."""
    forward = [operator(3e4, part="forward") for _ in range(6)]
    backward = [operator(4e4, part="backward") for _ in range(10)]
    if not sends:
        return [*forward, *backward]
    waits = [
        Act("record", 0, "backward", 500, 1500, stream=SENDING, event=2),
        Act("wait", 0, "backward", 500, 1500, stream=COMPUTE, event=2),
    ]
    return [*forward, *backward[:4], *bucket(ns), *backward[4:], *bucket(last), *waits]


OPTIMIZER = [operator(2e4, part="optimizer") for _ in range(3)]
WASTEFUL = [*micro_batch(True) * PASSES, *OPTIMIZER]
MENDED = [*micro_batch(False) * (PASSES - 1), *micro_batch(True), *OPTIMIZER]


def told(inside: Any, folder: Path, sync: GradientSync | None = SYNC) -> dict[str, Any]:
    found = simulated_waits.told(inside, folder, sync=sync, every_rule=True).of_cell
    return {row["verdict"]: row for row in found.to_dict("records")}


def test_what_all_passes_but_the_last_leave_exposed_is_gained(tmp_path: Path) -> None:
    found = told(WASTEFUL, tmp_path)
    row, measured = found[FOUND], simulated_waits.step_ns(WASTEFUL) / simulated_waits.step_ns(MENDED)
    assert row["gain"] == pytest.approx(measured, rel=0.02) and measured > 1.2
    # Such advice was never tried, so that its interval is too wide to be told.
    assert np.isnan(row["gain_low"]) and measured <= row["gain_high"]
    assert row["next_step"].startswith(
        "gradients of the same weights are sent in 4 backward passes of a step: run all but"
    )
    # It explains most of what communication costs, and comes first.
    assert list(found).index(FOUND) < list(found).index(BOUND)


@pytest.mark.parametrize(
    ("inside", "sending"),
    [
        (MENDED, 1),
        ([*micro_batch(True), *OPTIMIZER], 1),
        # A network is updated in between, as in a GAN: each time gradients are used.
        ([*micro_batch(True), *OPTIMIZER] * PASSES, PASSES),
        # What is sent outside of backward passes, such as a loss for a log.
        ([*[*micro_batch(False), *bucket(2e5, "loss")] * PASSES, *micro_batch(True), *OPTIMIZER], 1),
        ([*micro_batch(False) * PASSES, *OPTIMIZER], 0),
    ],
    ids=["no_sync", "no accumulation", "an update each", "a loss", "nothing is sent"],
)
def test_gradients_that_are_needed_are_no_finding(inside: list[Act], sending: int, tmp_path: Path) -> None:
    program, _ = simulated_waits.traced(inside, tmp_path)
    assert not predicted_gains.find_early_sends(program).any()
    assert predicted_gains.count_sending_passes(program) == sending


@pytest.mark.slow
def test_without_early_ones_there_is_no_verdict(tmp_path: Path) -> None:
    assert FOUND not in told([*micro_batch(True), *OPTIMIZER] * PASSES, tmp_path)


@pytest.mark.parametrize("sync", slow.first([SYNC | {"networks": 2}, None, SYNC | {"networks": 0}], 2))
def test_what_is_sent_has_to_be_the_gradients_of_one_network(sync: GradientSync | None, tmp_path: Path) -> None:
    assert FOUND not in told(WASTEFUL, tmp_path, sync)


def test_sending_beside_the_backward_pass_costs_little(tmp_path: Path) -> None:
    hidden = [*micro_batch(True, ns=3e4, last=1e3) * PASSES, *OPTIMIZER]
    assert FOUND not in told(hidden, tmp_path)


def test_all_that_is_sent_before_the_last_pass_of_each_update_is_early(tmp_path: Path) -> None:
    """Two updates after three and two passes that send two buckets each: two passes of the first are early, one of the other."""
    inside = [*micro_batch(True) * 3, *OPTIMIZER, *micro_batch(True) * 2, *OPTIMIZER]
    program, _ = simulated_waits.traced(inside, tmp_path)
    early = predicted_gains.find_early_sends(program)
    steps = program.host["step"].to_numpy()[program.gpu["host"]]
    assert np.bincount(steps[early]).tolist() == [6] * program.steps
    talks = program.gpu["talking"].to_numpy(dtype=bool)
    assert early[talks][:10].tolist() == [True] * 4 + [False] * 2 + [True] * 2 + [False] * 2
    assert predicted_gains.count_sending_passes(program) == 5
    # What is left out is not found again.
    assert not predicted_gains.find_early_sends(predicted_gains.send_once(program)).any()


def test_backward_passes_in_a_row_are_not_told_apart(tmp_path: Path) -> None:
    """Two losses of one forward pass, of which a trace does not tell whether they are of the same weights."""
    first, second = ([replace(act, part="backward") for act in micro_batch(True)] for _ in range(2))
    program, _ = simulated_waits.traced([operator(3e4), *first, *second, *OPTIMIZER], tmp_path)
    assert not predicted_gains.find_early_sends(program).any()
