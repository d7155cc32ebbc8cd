"""profzoo.what_if: what it reads and tells apart, on the recording of an H200 and on simulated traces."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.tables import replays_across, schemas
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.what_if import (
    blocking_calls,
    changes,
    communication_overlap,
    host_time,
    predicted_gains,
    simulator,
    tables,
    trace_events,
)
from profzoo.what_if import program as programs
from profzoo.what_if.program import Program
from tests import simulated
from tests.conftest import DATA
from tests.simulated import Act


@pytest.fixture(scope="module")
def trace(recording) -> Path:
    return recording("nsys/train.sqlite")


@pytest.fixture(scope="module")
def recorded(trace: Path) -> Program:
    """The program of the recorded steps."""
    (program,) = tables.read_programs(trace)
    return program


def of(folder: Path, acts: list[Act], name: str = "t.sqlite", told: bool = True) -> Program:
    """The program of what a simulated CPU does; told: whether the trace has events."""
    (program,) = tables.read_programs(simulated.record(simulated.simulate(acts), folder / name, told))
    return program


def steps(inside: list[Act], count: int = 4) -> list[Act]:
    """As many steps of these."""
    acts = []
    for step in range(count):
        acts += [Act("begin", step), *(replace(act, step=step) for act in inside), Act("end", step, before=1e3)]
    return acts


LAUNCH = Act("kernel", 0, "forward", 5e3, 6e3, ns=4e3)


def test_the_recorded_step_is_replayed_as_it_was_measured(trace: Path, recorded: Program) -> None:
    step, starts = simulator.simulation_error(recorded)
    assert abs(step) < 0.03 and starts < 5_000
    counted = nsys_steps.where_time_goes(trace).iloc[0]
    assert (
        simulator.step_times(recorded, simulator.measured_times(recorded)).sum()
        == counted["wall_ns"] * counted["steps"]
    )
    assert (recorded.host["kind"] == programs.CALL).sum() == 9_642 - 2  # Start and end of the profiler.
    assert len(recorded.gpu) == 4_750 + 350 + 50 and recorded.steps == 10


def test_parts_of_the_recorded_hosts_time_close(trace: Path, recorded: Program) -> None:
    found = host_time.host_time_parts(recorded)
    assert sum(found[f"{name}_ns"] for name in host_time.PARTS) == pytest.approx(found["cpu_ns"], rel=1e-9)
    counted = nsys_steps.where_time_goes(trace).iloc[0]
    assert found["cpu_ns"] == pytest.approx(counted["wall_ns"], rel=0.05)
    assert found["busy_ns"] == pytest.approx(counted["busy_ns"], rel=1e-6)
    assert found["latency_ns"] == pytest.approx(counted["launch_latency_ns"], rel=0.03)
    assert found["balance"] > 5 and found["launch_ns"] > 30 * found["library_ns"] > 0 == found["waiting_ns"]


def test_parts_of_the_hosts_time(tmp_path: Path) -> None:
    """Known parts: 100 us of input, calls of 6 us that launch, others of 1 us, and a wait for 300 us of kernels."""
    inside = [
        Act("copy", 0, "transfer", 1e5, 6e3, ns=1e3),
        *[replace(LAUNCH, ns=1e5)] * 3,
        replace(LAUNCH, kind="other", before=2e3, call=1e3, ns=0),
        replace(LAUNCH, kind="sync", before=0, call=2e3, ns=0),
    ]
    found = host_time.host_time_parts(of(tmp_path, steps(inside)))
    assert found["input_ns"] == pytest.approx(1e5, rel=0.01)
    assert found["launch_ns"] == pytest.approx(4 * 6e3, rel=0.01)
    assert found["framework_ns"] == pytest.approx(3 * 5e3 + 2e3 + 1e3, rel=0.01)
    assert found["library_ns"] == pytest.approx(1e3, abs=5e3)
    assert found["waiting_ns"] == pytest.approx(3e5 - 3e4, rel=0.05)
    assert found["launches"] == 4 and found["steps"] == 3


def test_what_the_trace_says_of_cudnn_and_cublas_is_the_librarys(tmp_path: Path) -> None:
    path = simulated.record(simulated.simulate(steps([LAUNCH] * 10)), tmp_path / "t.sqlite")
    (before,) = tables.read_programs(path)
    starts = before.host.loc[before.host["kind"] == programs.CALL, "start"]
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE CUDNN_EVENTS (start, end, eventClass, globalTid, nameId)")
        rows = [(int(start) - 2_000, int(start) + 1_000, 1, simulated.MAIN, 1) for start in starts]
        database.executemany("INSERT INTO CUDNN_EVENTS VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    (after,) = tables.read_programs(path)
    assert host_time.host_time_parts(after)["library_ns"] - host_time.host_time_parts(before)[
        "library_ns"
    ] == pytest.approx(10 * 2_000)
    assert host_time.host_time_parts(after)["cpu_ns"] == host_time.host_time_parts(before)["cpu_ns"]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("kind", "wait"), [("sync", blocking_calls.ALL), ("stream_sync", blocking_calls.STREAM),
                                            ("pageable", blocking_calls.OPERATION)])  # fmt: skip
def test_what_a_call_waits_for(tmp_path: Path, kind: str, wait: int, told: bool) -> None:
    inside = [*[replace(LAUNCH, ns=5e4)] * 5, replace(LAUNCH, kind=kind, ns=1e3, call=3e3)]
    program = of(tmp_path, steps(inside), told=told)
    waits = program.host[program.host["wait"] != blocking_calls.NOTHING]
    assert len(waits) == 4 and set(waits["wait"]) == {wait} and (waits["waited"] > 1e5).all()
    gain = predicted_gains.predict_gain(program, changes.remove_waits(program))
    assert gain.gain > 1.05 and gain.low <= gain.gain <= gain.high


def test_a_copy_waits_for_the_one_before_to_leave_its_buffer(tmp_path: Path) -> None:
    """The GPU is the limit, though the CPU is never idle between its calls: faster kernels shorten the step."""
    copies = [Act("staged", 0, "transfer", 1e4, 5e4, ns=2e4)] * 2
    inside = [*copies, *[replace(LAUNCH, ns=1e6)] * 4]
    program = of(tmp_path, steps(inside, 6))
    waits = program.host[program.host["wait"] != blocking_calls.NOTHING]
    # That of the first step finds the buffer free.
    assert set(waits["wait"]) == {blocking_calls.BEFORE} and len(waits) == 5 and (waits["waited"] > 3e6).all()
    assert host_time.host_time_parts(program)["launch_ns"] == pytest.approx(2 * 5e4 + 4 * 6e3, rel=0.02)
    faster = changes.speed_up_kernels(program, (program.gpu["kind"] == 0).to_numpy(), 2)
    true = simulated.simulate(steps([*copies, *[replace(LAUNCH, ns=5e5)] * 4], 6)).step_ns()
    assert simulator.step_times(faster, simulator.simulate(faster)).mean() == pytest.approx(true, rel=0.01)


def test_a_large_copys_call_waits_until_the_gpu_comes_to_it(tmp_path: Path) -> None:
    """One copy a step, of 0.4 ms, behind 6 ms of kernels: its call returns just before it is done."""
    copy, kernels = Act("fed", 0, "transfer", 1e4, 4e5, ns=4.1e5), [replace(LAUNCH, ns=1e6)] * 6
    program = of(tmp_path, steps([copy, *kernels], 6))
    waits = program.host[program.host["wait"] != blocking_calls.NOTHING]
    # That of the first step finds nothing before it.
    assert set(waits["wait"]) == {blocking_calls.BEFORE} and len(waits) == 5 and (waits["waited"] > 5e6).all()
    found = host_time.host_time_parts(program)
    assert found["launch_ns"] == pytest.approx(4e5 + 6 * 6e3, rel=0.02) and found["balance"] < 0.2
    faster = changes.speed_up_kernels(program, (program.gpu["kind"] == 0).to_numpy(), 2)
    true = simulated.simulate(steps([copy, *[replace(LAUNCH, ns=5e5)] * 6], 6)).step_ns()
    assert simulator.step_times(faster, simulator.simulate(faster)).mean() == pytest.approx(true, rel=0.01)


def test_a_copys_long_call_is_no_full_queue(tmp_path: Path) -> None:
    acts = steps([*[replace(LAUNCH, before=1e3, ns=2e4)] * 200, Act("copy", 0, "forward", 1e3, 2e5, ns=1e4)], count=2)
    program = of(tmp_path, acts)
    assert (program.gpu["room"] == 1024).all() and host_time.host_time_parts(program)["waiting_ns"] == 0


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    acts = steps([replace(LAUNCH, before=1e3, ns=2e4)] * 700, count=3)
    program = of(tmp_path, acts)
    waited = program.host["waited"].to_numpy()[program.gpu["host"]] > 0
    assert waited.sum() > 100 and (program.gpu["room"][waited] == 1024).all() and program.gpu["room"].min() == 1024
    assert host_time.host_time_parts(program)["waiting_ns"] > 1e6
    # The GPU is the limit: a faster CPU would only wait for longer.
    assert predicted_gains.predict_gain(program, changes.speed_up_host(program, 3)).gain == pytest.approx(1, abs=0.01)


def test_an_operation_waits_for_another_stream(tmp_path: Path) -> None:
    inside = [
        LAUNCH,
        replace(LAUNCH, stream=20, ns=2e5, group=-1),
        replace(LAUNCH, kind="record", stream=20, event=1, ns=0),
        replace(LAUNCH, kind="wait", stream=7, event=1, ns=0),
        LAUNCH,
    ]
    for told in (True, False):
        program = of(tmp_path, steps(inside, 8), f"{told}.sqlite", told)
        later = program.gpu.groupby("host").head(1).iloc[2::3]
        assert (program.gpu["stream"].to_numpy()[later["dep"]] == 20).all()
        half = changes.speed_up_kernels(program, program.gpu["talking"].to_numpy(dtype=bool), 2)
        # The other stream is busy throughout, but for the gap between its operations.
        assert predicted_gains.predict_gain(program, half).gain == pytest.approx(
            (2e5 + 1.1e3) / (1e5 + 1.1e3), rel=0.01
        )


@pytest.mark.parametrize("back", [1, 32])
@pytest.mark.parametrize("ns", [2e4, 2e5])
def test_a_queue_takes_fewer_launches_of_many_arguments(tmp_path: Path, ns: float, back: int) -> None:
    """400 launches that take a place each, and 100 that take eight: 128 to 1,024 find room, which comes back by so many."""
    inside = [*[replace(LAUNCH, before=1e3, ns=ns)] * 400, *[replace(LAUNCH, before=1e3, ns=ns, places=8)] * 100]
    made = simulated.simulate(steps(inside, 4), back=back)
    (program,) = tables.read_programs(simulated.record(made, tmp_path / "t.sqlite"))
    assert simulator.step_times(program, simulator.simulate(program)).mean() == pytest.approx(made.step_ns(), rel=1e-3)
    # The CPU makes a step's calls in 500 x 7 us, and waits for the rest.
    waited = host_time.host_time_parts(program)["waiting_ns"]
    assert waited == pytest.approx(made.step_ns() - 500 * 7e3, rel=0.03)
    for times in (1.5, 4):
        faster = changes.speed_up_kernels(program, (program.gpu["kind"] == 0).to_numpy(), times)
        shorter = [replace(act, ns=act.ns / times) for act in inside]
        true = simulated.simulate(steps(shorter, 4), back=back).step_ns()
        assert simulator.step_times(faster, simulator.simulate(faster)).mean() == pytest.approx(true, rel=0.01)


def test_a_faster_cpu_is_as_far_ahead_as_the_queue_lets_it(tmp_path: Path) -> None:
    """A CPU six times as fast is held up where it was not, by launches that it is too slow for in the trace."""
    heavy = replace(LAUNCH, before=1e3, ns=4e4, places=8)
    inside = [*[heavy] * 300, *[replace(heavy, before=1e4, ns=5e3)] * 1000, *[replace(LAUNCH, before=1e6, ns=2e3)] * 60]
    program = of(tmp_path, steps(inside, 4))
    quicker = [replace(act, before=act.before / 6, call=act.call / 6) for act in steps(inside, 4)]
    lean = changes.speed_up_host(program, 6)
    assert simulator.step_times(lean, simulator.simulate(lean)).mean() == pytest.approx(
        simulated.simulate(quicker).step_ns(), rel=0.01
    )


def test_calls_that_take_long_now_and_then_are_no_full_queue(tmp_path: Path) -> None:
    """80 launches ahead at the end of each step; every 150th call takes ten times as long, whatever the queue holds."""
    inside = [replace(LAUNCH, before=1e3, ns=1e4, call=6e4 if number % 150 == 100 else 6e3) for number in range(300)]
    inside.append(Act("sync", 0, "optimizer", 1e3, 2e3))
    program = of(tmp_path, steps(inside, 6))
    assert (program.gpu["room"] == 1024).all()
    quicker = [replace(act, before=act.before / 2, call=act.call / 2) for act in steps(inside, 6)]
    lean = changes.speed_up_host(program, 2)
    assert simulator.step_times(lean, simulator.simulate(lean)).mean() == pytest.approx(
        simulated.simulate(quicker).step_ns(), rel=0.01
    )


def test_kernels_that_leave_each_other_no_room_wait_for_each_other(tmp_path: Path) -> None:
    """As those that cuDNN has on streams of its own: the GPU is busy, so that a graph gains nothing."""
    inside = [replace(LAUNCH, ns=1e5, stream=stream) for stream in (7, 20, 7, 20, 21, 7)]
    made = simulated.simulate(steps(inside, 6), crowded=True)
    (program,) = tables.read_programs(simulated.record(made, tmp_path / "t.sqlite", events=False))
    assert (program.gpu["dep"] >= 0).sum() > len(program.gpu) / 2
    assert predicted_gains.predict_gain(program, changes.capture_as_graph(program)).gain == pytest.approx(1, abs=0.03)
    assert predicted_gains.predict_gain(program, changes.speed_up_host(program, 2)).gain == pytest.approx(1, abs=0.03)
    everything = np.full(len(program.gpu), True)
    assert predicted_gains.predict_gain(
        program, changes.speed_up_kernels(program, everything, 2)
    ).gain == pytest.approx(2, abs=0.06)


def test_a_graph_gains_no_more_than_the_gpu_of_a_recorded_step_idles(tmp_path: Path) -> None:
    """On streams of its own cuDNN has kernels of U-Net that leave each other no room."""
    for model, streams in (("unet", 3), ("bert", 1), ("mobilenetv2", 1)):
        path = simulated.from_torch(DATA / f"torch/{model}.train.trace.json.gz", tmp_path / f"{model}.sqlite")
        (program,) = tables.read_programs(path)
        assert program.gpu["stream"].nunique() == streams and abs(simulator.simulation_error(program)[0]) < 0.03
        found = predicted_gains.predict_gain(program, changes.capture_as_graph(program))
        assert 1 < found.gain <= found.step_ns / host_time.host_time_parts(program)["busy_ns"]
        assert (
            predicted_gains.predict_gain(program, changes.fuse(program, np.full(len(program.gpu), False), 0)).gain == 1
        )


def test_what_follows_waits_for_what_one_that_is_gone_waited_for(tmp_path: Path) -> None:
    inside = [
        replace(LAUNCH, stream=20, ns=2e5),
        replace(LAUNCH, kind="record", stream=20, event=1, ns=0),
        replace(LAUNCH, kind="wait", stream=7, event=1, ns=0),
        LAUNCH,
        replace(LAUNCH, ns=5e4),
        replace(LAUNCH, kind="record", stream=7, event=2, ns=0),
        replace(LAUNCH, kind="wait", stream=20, event=2, ns=0),
    ]
    program = of(tmp_path, steps(inside, 6))
    gone = program.gpu["ns"].between(3_000, 5_000).to_numpy()
    found = predicted_gains.predict_gain(program, changes.fuse(program, gone))
    assert gone.sum() == 6 and found.predicted_ns == pytest.approx(2e5 + 5e4 + 2 * 2e3, rel=0.01)


def test_graphs_traced_whole_are_operations(tmp_path: Path) -> None:
    nodes = tuple((0, 1e4, 900.0) for _ in range(20))
    path = simulated.record(
        simulated.simulate(steps([replace(LAUNCH, kind="graph", nodes=nodes)])), tmp_path / "t.sqlite"
    )
    (by_node,) = tables.read_programs(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, correlationId, globalPid, graphId)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT min(start), max(end), correlationId, "
                         "globalPid, 3 FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY correlationId")  # fmt: skip
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
    (whole,) = tables.read_programs(path)
    assert len(by_node.gpu) == 80 and len(whole.gpu) == 4 and (whole.gpu["kind"] == trace_events.GRAPH).all()
    for program in (by_node, whole):
        assert abs(simulator.simulation_error(program)[0]) < 1e-6
    assert changes.node_gap(by_node) == pytest.approx(900, abs=2)


def test_calls_within_calls_and_of_threads_that_launch_nothing_are_no_rows(tmp_path: Path) -> None:
    path = simulated.record(simulated.simulate(steps([LAUNCH] * 20)), tmp_path / "t.sqlite")
    (before,) = tables.read_programs(path)
    with closing(sqlite3.connect(path)) as database:
        # As the driver's call within the runtime's, under an ID of its own, by which the kernel goes.
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT start + 100, end - 100, correlationId + 5000, "
                         f"globalTid, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid = {simulated.MAIN}")  # fmt: skip
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = correlationId + 5000")
        database.commit()
    (after,) = tables.read_programs(path)
    assert len(before.host) == len(after.host) == 4 * (20 + 2)
    assert list(before.gpu["host"]) == list(after.gpu["host"])


def test_calls_of_two_threads_that_overlap_keep_their_offset(tmp_path: Path) -> None:
    path = simulated.record(simulated.simulate(steps([LAUNCH] * 20)), tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start - 7000, globalTid = globalTid + 1 "
                         "WHERE correlationId % 2 = 0")  # fmt: skip
        database.commit()
    (program,) = tables.read_programs(path)
    assert program.host["overlaps"].sum() >= 30
    assert abs(simulator.simulation_error(program)[0]) < 1e-6
    assert sum(host_time.host_time_parts(program)[f"{name}_ns"] for name in host_time.PARTS) == pytest.approx(
        host_time.host_time_parts(program)["cpu_ns"]
    )


def test_kernels_are_chosen_by_configuration_and_range(recorded: Program) -> None:
    packs = recorded.gpu.loc[recorded.gpu["kind"] == trace_events.KERNEL, programs.PACKS].drop_duplicates()
    assert programs.choose_operations(recorded, packs).sum() == 4_750
    parts = {
        part: programs.choose_operations(recorded, packs, part).sum()
        for part in ("forward", "backward", "optimizer", "data")
    }
    assert parts["data"] == 0 and sum(parts.values()) == 4_750 - programs.choose_operations(recorded, packs, "").sum()
    one = programs.choose_operations(recorded, packs.iloc[:1])
    assert 0 < one.sum() < 4_750 and recorded.gpu.loc[one, programs.PACKS].drop_duplicates().shape[0] == 1


def test_what_is_fused_leaves_its_share_to_the_operation_before(tmp_path: Path) -> None:
    program = of(tmp_path, steps([replace(LAUNCH, ns=4e4)] * 10))
    second = np.arange(len(program.gpu)) % 2 == 1
    fused = changes.fuse(program, second, share=0.25)
    assert fused.gpu["ns"].sum() == pytest.approx(program.gpu["ns"].sum() * (1 - 0.25 / 2))
    assert (fused.gpu.loc[second, "ns"] == 0).all()
    assert changes.fuse(program, np.full(len(second), False)).gpu["ns"].equals(program.gpu["ns"].astype(float))
    assert (program.gpu["ns"] > 0).all(), "the program itself has changed"


def test_work_of_the_cpu_before_what_is_fused_stays(tmp_path: Path) -> None:
    """A millisecond of Python between two operators is none that fusing them saves, but for what one may take."""
    busy = replace(LAUNCH, before=1e6)
    program = of(tmp_path, steps([LAUNCH] * 10 + [busy, LAUNCH]))
    gone = np.arange(len(program.gpu)) % 12 == 10
    found = predicted_gains.predict_gain(program, changes.fuse(program, gone))
    assert found.step_ns - found.predicted_ns == pytest.approx(100_000 + 6_000, rel=0.02)
    usual = predicted_gains.predict_gain(program, changes.fuse(program, np.roll(gone, 1)))
    assert usual.step_ns - usual.predicted_ns == pytest.approx(LAUNCH.before + LAUNCH.call, rel=0.02)


def walls_as_graph(folder: Path, launch: Act, count: int) -> list[float]:
    """What each step takes, if the kernels of it are a graph."""
    changed = changes.capture_as_graph(of(folder, steps([launch] * count), f"{launch.gap}-{count}.sqlite"))
    return simulator.step_times(changed, simulator.simulate(changed)).tolist()


def test_a_graph_of_a_gpu_that_is_the_limit_takes_its_nodes_and_what_is_between_them(tmp_path: Path) -> None:
    """Ten kernels of 5 us, 1.5 us after each other on their stream: as nodes 1 us, so that a step takes 10 times 6 us."""
    ahead = replace(LAUNCH, before=0, call=1e3, ns=5e3)
    assert walls_as_graph(tmp_path, replace(ahead, gap=1.5e3), 10) == pytest.approx([60e3] * 3, abs=1)
    # Nothing is added between those that are closer than that: ten times 5.2 us.
    assert walls_as_graph(tmp_path, replace(ahead, gap=200), 10) == pytest.approx([52e3] * 3, abs=1)


def test_a_graph_of_a_cpu_that_is_the_limit_takes_its_launch(tmp_path: Path) -> None:
    """Kernels of 2 ns with nothing between them: 2.5 us to launch them, and 1 ns for each."""
    short = replace(LAUNCH, before=0, call=1, ns=2, gap=0)
    assert walls_as_graph(tmp_path, short, 500) == pytest.approx([3_000] * 3, abs=1)
    assert walls_as_graph(tmp_path, short, 1_000) == pytest.approx([3_500] * 3, abs=1)


def test_the_interval_holds_the_spread_of_steps_and_the_error_of_advice() -> None:
    before, after = np.array([10.0, 12.0, 11.0, 9.0]), np.array([5.0, 5.5, 6.0, 5.0])
    narrow, wide = predicted_gains.gain_of_steps(before, after), predicted_gains.gain_of_steps(before, after, error=0.3)
    assert narrow.gain == wide.gain == pytest.approx(42 / 21.5)
    assert wide.low < narrow.low < narrow.gain < narrow.high < wide.high
    assert predicted_gains.gain_of_steps(before, after, confidence=0.5).high < narrow.high
    assert wide.high > narrow.gain * 1.3
    assert np.isnan(predicted_gains.gain_of_steps(before[:1], after[:1]).low)


def test_the_cpu_is_as_fast_as_without_a_tracer(recorded: Program) -> None:
    lean, slowdown = predicted_gains.remove_tracing(recorded, 15e6)
    assert slowdown == pytest.approx(24.04 / 15, rel=0.01)
    assert simulator.step_times(lean, simulator.simulate(lean)).mean() == pytest.approx(15e6, rel=0.005)
    assert predicted_gains.remove_tracing(recorded, 30e6)[1] == 1
    # No CPU would make a step of 1 ms of it: as slow as leaves it as fast as it can be.
    assert predicted_gains.remove_tracing(recorded, 1e6)[1] == pytest.approx(5, rel=0.05)


def test_a_gpu_that_is_the_limit_does_not_hide_what_tracing_took(tmp_path: Path) -> None:
    """Kernels a tenth as long leave the CPU as the limit, which a tracer had made half as slow again."""

    def acts(slower: float, ns: float) -> list[Act]:
        launch = Act("kernel", 0, "forward", 3e3 * slower, 4e3 * slower, ns=ns)
        inside = [
            [Act("begin", step), *[replace(launch, step=step)] * 50, Act("end", step, before=1e3)] for step in range(5)
        ]
        return [act for acts in inside for act in acts]

    step_ns, faster_ns = (simulated.simulate(acts(1, ns)).step_ns() for ns in (2e4, 2e3))
    traced = simulated.record(simulated.simulate(acts(1.5, 2e4)), tmp_path / "t.sqlite", True)
    # The window's first step finds the GPU idle, and its last waits for it.
    alone = 50 * 7e3 + 1e3
    host_ns = tables.host_step_ns(pd.DataFrame({"wall_ns": [alone, step_ns, step_ns, 2 * step_ns]}))
    _, host, _ = tables.make_tables(traced, step_ns, host_ns=host_ns)
    assert host.loc[0, "slowdown"] == pytest.approx(1.5, rel=0.03)
    (program,) = tables.read_programs(traced)
    for known, holds in ((1.5, True), (1.0, False)):
        lean, slowdown = predicted_gains.remove_tracing(program, step_ns, known)
        tenth = changes.speed_up_kernels(lean, (lean.gpu["kind"] == trace_events.KERNEL).to_numpy(), 10)
        off = simulator.step_times(tenth, simulator.simulate(tenth)).mean() / faster_ns - 1
        assert slowdown == known and (abs(off) < 0.03) == holds
    # A step that would be shorter by it says otherwise.
    (short,) = tables.read_programs(simulated.record(simulated.simulate(acts(1.5, 2e3)), tmp_path / "s.sqlite", True))
    assert predicted_gains.remove_tracing(short, faster_ns, 4.0)[1] == pytest.approx(1.5, rel=0.03)
    assert tables.host_step_ns(pd.DataFrame({"wall_ns": [1]})) is None


def test_tables_of_the_recorded_cell_are_what_is_declared(trace: Path, tmp_path: Path) -> None:
    write_json({"capture": "window"}, tmp_path / "rep.json")
    write_json({"step_ns": 2e7}, tmp_path / "time.json")
    rows = pd.DataFrame({"step": [0, 1], "wall_ns": 20_000_000, "gpu_ns": 20_000_000, "items": 8})
    write_csv(rows, tmp_path / "time.csv")
    out = [tmp_path / name for name in ("replay.csv", "host.csv")]
    outputs = dict(zip(("changes", "host"), map(str, out), strict=True)) | {"program": str(tmp_path / "program.npz")}
    tables.main(*map(str, (trace, *(tmp_path / name for name in ("rep.json", "time.csv", "time.json")))), outputs)
    found, host = reading.read(out[0], tables.GAINS), reading.read(out[1], tables.TAX)
    assert list(found["change"]) == list(predicted_gains.PANEL) and set(found["process"]) == {1082}
    gain = found.set_index("change")["gain"]
    # Idle for four fifths of its time, the GPU waits for the CPU.
    assert gain["graph"] > 3 and gain["host_2x"] == pytest.approx(2, rel=0.02)
    assert gain["kernels_2x"] == gain["input_ready"] == 1 == gain["waits_removed"]
    assert np.allclose(found["gain"], found["step_ns"] / found["predicted_ns"], rtol=1e-12)
    (row,) = host.to_dict("records")
    assert row["helps"] == "graph" and row["slowdown"] == pytest.approx(1.2, abs=0.01) and row["steps"] == 9
    assert (
        row["cpu_ns"] + row["ahead_ns"] == pytest.approx(row["traced_ns"])
        and abs(row["ahead_ns"]) < 0.05 * row["traced_ns"]
    )
    assert row["replayed_ns"] == pytest.approx(row["traced_ns"], rel=0.03)
    write_csv(host.assign(launch_ns=0.0), out[1])
    with pytest.raises(ValueError, match="launch_ns, waiting_ns do not add up to cpu_ns"):
        reading.read(out[1], tables.TAX)


def test_communication_on_the_same_stream_can_overlap(tmp_path: Path) -> None:
    program = of(tmp_path, steps([*[replace(LAUNCH, ns=4e4)] * 9, replace(LAUNCH, ns=2e5, group=-1)], 6))
    gain = predicted_gains.predict_gain(program, communication_overlap.overlap_communication(program))
    assert gain.step_ns == pytest.approx(9 * 4e4 + 2e5 + 10 * 1.1e3, rel=0.01)
    assert gain.predicted_ns == pytest.approx(9 * (4e4 + 1.1e3), rel=0.02)


def test_a_long_wait_before_counted_steps_is_no_gain_of_overlap(tmp_path: Path) -> None:
    """A process that waits for the others in its first step does not compute counted steps meanwhile."""
    acts = steps([*[replace(LAUNCH, ns=4e4)] * 9, replace(LAUNCH, ns=2e5, group=-1)], 6)
    first = next(index for index, act in enumerate(acts) if act.group == -1)
    acts[first] = replace(acts[first], ns=2e6)
    made = of(tmp_path, acts)
    gain = predicted_gains.predict_gain(made, communication_overlap.overlap_communication(made))
    assert gain.predicted_ns == pytest.approx(9 * (4e4 + 1.1e3), rel=0.02)


def test_every_process_has_a_program(tmp_path: Path) -> None:
    path = simulated.record(simulated.simulate(steps([LAUNCH] * 20)), tmp_path / "t.sqlite")
    columns = {"RUNTIME": "globalTid", "KERNEL": "globalPid"}
    with closing(sqlite3.connect(path)) as database:
        for table, column in [*((f"CUPTI_ACTIVITY_KIND_{name}", found) for name, found in columns.items()),
                              ("NVTX_EVENTS", "globalTid")]:  # fmt: skip
            database.execute(f"CREATE TABLE other AS SELECT * FROM {table}")
            database.execute(f"UPDATE other SET {column} = {column} + {1 << 24}, start = start + 50, end = end + 50")
            database.execute(f"INSERT INTO {table} SELECT * FROM other")
            database.execute("DROP TABLE other")
        database.commit()
    found, host, _ = tables.make_tables(path, 1e9)
    assert list(host["process"]) == [7, 8] and len(found) == 2 * len(predicted_gains.PANEL)
    first, second = (rows.drop(columns="process").reset_index(drop=True) for _, rows in found.groupby("process"))
    pd.testing.assert_frame_equal(first, second)


def test_cells_are_joined_in_tables_across_the_zoo(trace: Path, tmp_path: Path) -> None:
    changed, host, _ = tables.make_tables(trace, 2e7)
    homes = [tmp_path / model for model in ("one", "two@bf16")]
    for home in homes:
        home.mkdir()
        write_csv(changed, home / "train.replay.csv")
        write_csv(host, home / "train.host.csv")
    both = [[str(home / f"train.{name}.csv") for home in homes] for name in ("replay", "host")]
    outputs = {"changes": str(tmp_path / "replay.csv"), "host": str(tmp_path / "host.csv")}
    replays_across.main(*both, outputs)
    found = schemas.read_table("replay", outputs["changes"])
    assert list(found["model"].unique()) == ["one", "two@bf16"] and len(found) == 2 * len(predicted_gains.PANEL)
    assert list(schemas.read_table("host", outputs["host"])["helps"]) == ["graph", "graph"]


def test_a_trace_without_calls_has_no_program(tmp_path: Path) -> None:
    """As on a CPU: ranges alone."""
    path = tmp_path / "t.sqlite"
    simulated.record(simulated.simulate(steps([LAUNCH])), path)
    names = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY")
    for name in names:
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"DELETE FROM {name}")
            database.commit()
    assert not list(tables.read_programs(path))
    with closing(sqlite3.connect(path)) as database:
        for name in names:
            database.execute(f"DROP TABLE {name}")
    found, host, _ = tables.make_tables(path, 1e6)
    assert found.empty and host.empty
    for frame, table in ((found, tables.GAINS), (host, tables.TAX)):
        write_csv(frame, tmp_path / "t.csv")
        assert isinstance(reading.read(tmp_path / "t.csv", table), pd.DataFrame)
