"""step_shares: parts of the unprofiled step, worked out by hand from what nsys saw."""

import pandas as pd
import pytest

from profzoo.tables import step_shares

# 75 ns of work under nsys, 5 of them waiting: 15 of communication alone, 12 of copies, 8 of them to the host, 35 more.
STEP = {"busy_share": 0.6, "busy_ns": 75.0, "idle_ns": 25.0, "communication_ns": 40.0, "overlap_ns": 20.0,
        "waiting_ns": 5.0, "copy_ns": 20.0, "transfer_ns": 8.0, "idle_input_ns": 10.0, "idle_host_ns": 9.0,
        "idle_launch_ns": 4.0, "idle_latency_ns": 2.0, "idle_synchronisation_ns": 0.0}  # fmt: skip


def shares(**changes: float) -> pd.Series:
    return step_shares.step_shares(pd.DataFrame([STEP | changes])).iloc[0]


def test_parts_of_a_step() -> None:
    found = shares()
    work = {"kernels": 35, "copy": 12, "transfer": 8, "communication": 15}
    assert {name: found[name] for name in work} == pytest.approx({name: 0.6 * ns / 70 for name, ns in work.items()})
    # The other 40 % of the step go by the 30 ns in which the GPU has nothing to do.
    rest = {"waiting": 5, "idle_input": 10, "idle_host": 9, "idle_launch": 4, "idle_latency": 2, "idle_unknown": 0}
    assert {name: found[name] for name in rest} == pytest.approx({name: 0.4 * ns / 30 for name, ns in rest.items()})
    assert found.sum() == pytest.approx(1) and tuple(found.index) == step_shares.PARTS


def test_idleness_that_nsys_did_not_see_has_no_cause() -> None:
    none = {name: 0.0 for name in STEP if name.startswith("idle")}
    found = shares(waiting_ns=0.0, **none)
    assert found["idle_unknown"] == pytest.approx(0.4) and found[list(step_shares.UNOCCUPIED)].sum() == 0


def test_communication_alone_is_never_less_than_nothing() -> None:
    """10 ns of it, 5 beside other kernels and 8 waiting: of 67 ns of work none is communication, 20 are copies."""
    found = shares(communication_ns=10.0, overlap_ns=5.0, waiting_ns=8.0)
    assert found["communication"] == 0 and found["kernels"] == pytest.approx(0.6 * 47 / 67)


def test_a_step_without_work_is_idle() -> None:
    none = dict.fromkeys(("busy_share", "busy_ns", "communication_ns", "overlap_ns", "waiting_ns", "copy_ns"), 0.0)
    found = shares(**none, transfer_ns=0.0)
    assert found[list(step_shares.WORK)].sum() == 0 and found["idle_input"] == pytest.approx(10 / 25)


def test_what_a_graph_cures() -> None:
    found = step_shares.launch_wait_share(step_shares.step_shares(pd.DataFrame([STEP]))).iloc[0]
    assert found == pytest.approx(0.4 * (9 + 4 + 2) / 30)


def test_the_least_that_a_cause_takes_is_what_others_leave() -> None:
    """Idle for 0.4 of 100 ns; waiting, and all idleness but for the host's, took 21 ns under nsys: 19 are left."""
    step, parts = STEP | {"step_ns": 100.0}, shares().to_dict()
    assert step_shares.least(step, parts, ["idle_host"]) == pytest.approx(0.4 - 0.21)
    assert step_shares.least(step, parts, ["idle_host", "idle_input"]) == pytest.approx(0.4 - 0.11)
    assert step_shares.least(step | {"step_ns": 40.0}, parts, ["idle_host"]) == 0


@pytest.mark.parametrize(("share", "cured", "times"), [(0.5, 0.5, 4 / 3), (0.2, 1.0, 1.25), (0.0, 1.0, 1.0)])
def test_amdahls_law(share: float, cured: float, times: float) -> None:
    assert step_shares.amdahl(share, cured) == pytest.approx(times)
