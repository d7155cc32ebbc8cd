"""profzoo.what_if: what it reads and tells apart, on the recording of an H200 and on simulated traces."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.tables import across_cells, schemas
from profzoo.tools.nsys.events.trace import open_trace
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.what_if import changes, dependencies, host_time, predicted_gains, simulator, tables, trace_events
from profzoo.what_if import program as programs
from profzoo.what_if.program import Program
from tests import simulated, slow
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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of four steps of five launches."""
    path = tmp_path_factory.mktemp("small") / "t.sqlite"
    return simulated.record(simulated.simulate(steps([LAUNCH] * 5)), path)


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


def seen_step_ns(program: Program) -> float:
    """What a step of a program takes as it is simulated."""
    return simulator.step_times(program, simulator.simulate(program)).mean()


@pytest.mark.parametrize(
    ("copies", "kernels", "waited_ns"),
    [
        ([Act("staged", 0, "transfer", 1e4, 5e4, ns=2e4)] * 2, 4, 3e6),
        # Of 0.4 ms, behind 6 ms of kernels: its call returns just before it is done.
        ([Act("fed", 0, "transfer", 1e4, 4e5, ns=4.1e5)], 6, 5e6),
    ],
)
def test_a_copy_waits_for_buffer_or_gpu(tmp_path: Path, copies: list[Act], kernels: int, waited_ns: float) -> None:
    """The GPU is the limit, though the CPU is never idle between its calls: faster kernels shorten the step."""
    program = of(tmp_path, steps([*copies, *[replace(LAUNCH, ns=1e6)] * kernels], 6))
    waits = program.host[program.host["wait"] != dependencies.NOTHING]
    # That of the first step finds nothing before it.
    assert set(waits["wait"]) == {dependencies.BEFORE} and len(waits) == 5 and (waits["waited"] > waited_ns).all()
    found, calls_ns = host_time.host_time_parts(program), sum(copy.call for copy in copies)
    assert found["launch_ns"] == pytest.approx(calls_ns + kernels * 6e3, rel=0.02) and found["balance"] < 0.2
    faster = changes.speed_up_kernels(program, (program.gpu["kind"] == 0).to_numpy(), 2)
    true = simulated.simulate(steps([*copies, *[replace(LAUNCH, ns=5e5)] * kernels], 6)).step_ns()
    assert seen_step_ns(faster) == pytest.approx(true, rel=0.01)


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


@pytest.mark.parametrize(("ns", "back"), slow.first([(2e4, 32), (2e4, 1), (2e5, 1), (2e5, 32)]))
def test_a_queue_takes_fewer_launches_of_many_arguments(tmp_path: Path, ns: float, back: int) -> None:
    """400 launches that take a place each, and 100 that take eight: 128 to 1,024 find room, which comes back by so many."""
    inside = [*[replace(LAUNCH, before=1e3, ns=ns)] * 400, *[replace(LAUNCH, before=1e3, ns=ns, places=8)] * 100]
    made = simulated.simulate(steps(inside, 4), back=back)
    (program,) = tables.read_programs(simulated.record(made, tmp_path / "t.sqlite"))
    assert seen_step_ns(program) == pytest.approx(made.step_ns(), rel=1e-3)
    # The CPU makes a step's calls in 500 x 7 us, and waits for the rest.
    waited = host_time.host_time_parts(program)["waiting_ns"]
    assert waited == pytest.approx(made.step_ns() - 500 * 7e3, rel=0.03)
    for times in (1.5, 4):
        faster = changes.speed_up_kernels(program, (program.gpu["kind"] == 0).to_numpy(), times)
        shorter = [replace(act, ns=act.ns / times) for act in inside]
        true = simulated.simulate(steps(shorter, 4), back=back).step_ns()
        assert seen_step_ns(faster) == pytest.approx(true, rel=0.01)


def test_calls_that_take_long_now_and_then_are_no_full_queue(tmp_path: Path) -> None:
    """80 launches ahead at the end of each step; every 150th call takes ten times as long, whatever the queue holds."""
    inside = [replace(LAUNCH, before=1e3, ns=1e4, call=6e4 if number % 150 == 100 else 6e3) for number in range(300)]
    inside.append(Act("sync", 0, "optimizer", 1e3, 2e3))
    program = of(tmp_path, steps(inside, 6))
    assert (program.gpu["room"] == 1024).all()
    quicker = [replace(act, before=act.before / 2, call=act.call / 2) for act in steps(inside, 6)]
    true = simulated.simulate(quicker).step_ns()
    assert seen_step_ns(changes.speed_up_host(program, 2)) == pytest.approx(true, rel=0.01)


def test_kernels_that_leave_each_other_no_room_wait_for_each_other(tmp_path: Path) -> None:
    """As those that cuDNN has on streams of its own: the GPU is busy, so that a graph gains nothing."""
    inside = [replace(LAUNCH, ns=1e5, stream=stream) for stream in (7, 20, 7, 20, 21, 7)]
    made = simulated.simulate(steps(inside, 6), crowded=True)
    (program,) = tables.read_programs(simulated.record(made, tmp_path / "t.sqlite", events=False))
    assert (program.gpu["dep"] >= 0).sum() > len(program.gpu) / 2
    everything = np.full(len(program.gpu), True)
    for changed, gain in ((changes.capture_as_graph(program), 1), (changes.speed_up_host(program, 2), 1),
                          (changes.speed_up_kernels(program, everything, 2), 2)):  # fmt: skip
        assert predicted_gains.predict_gain(program, changed).gain == pytest.approx(gain, rel=0.03)


@pytest.mark.parametrize(("model", "streams"), slow.first([("unet", 3), ("bert", 1), ("mobilenetv2", 1)]))
def test_a_graph_gains_no_more_than_the_gpu_of_a_recorded_step_idles(tmp_path: Path, model: str, streams: int) -> None:
    """On streams of its own cuDNN has kernels of U-Net that leave each other no room."""
    path = simulated.from_torch(DATA / f"torch/{model}.train.trace.json.gz", tmp_path / "t.sqlite")
    (program,) = tables.read_programs(path)
    assert program.gpu["stream"].nunique() == streams and abs(simulator.simulation_error(program)[0]) < 0.03
    found = predicted_gains.predict_gain(program, changes.capture_as_graph(program))
    assert 1 < found.gain <= found.step_ns / host_time.host_time_parts(program)["busy_ns"]
    unchanged = changes.fuse(program, np.full(len(program.gpu), False), 0)
    assert predicted_gains.predict_gain(program, unchanged).gain == 1


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


@pytest.mark.parametrize(
    ("launch", "count", "step_ns"),
    [
        # The GPU is the limit: 5 us each, and 1 us between nodes that were 1.5 us apart, or 0.2 us as it was.
        (replace(LAUNCH, before=0, call=1e3, ns=5e3, gap=1.5e3), 10, 60e3),
        (replace(LAUNCH, before=0, call=1e3, ns=5e3, gap=200), 10, 52e3),
        # The CPU is the limit: 2.5 us to launch the graph, and 1 ns for each kernel of 2 ns.
        (replace(LAUNCH, before=0, call=1, ns=2, gap=0), 100, 2_600),
    ],
)
def test_a_graph_takes_its_launch_or_nodes_and_gaps(tmp_path: Path, launch: Act, count: int, step_ns: float) -> None:
    changed = changes.capture_as_graph(of(tmp_path, steps([launch] * count)))
    assert simulator.step_times(changed, simulator.simulate(changed)) == pytest.approx([step_ns] * 3, abs=1)


def test_the_cpu_is_as_fast_as_without_a_tracer(recorded: Program) -> None:
    lean, slowdown = predicted_gains.remove_tracing(recorded, 15e6)
    assert slowdown == pytest.approx(24.04 / 15, rel=0.01) and seen_step_ns(lean) == pytest.approx(15e6, rel=0.005)


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
        assert slowdown == known and (abs(seen_step_ns(tenth) / faster_ns - 1) < 0.03) == holds
    # A step that would be shorter by it says otherwise.
    (short,) = tables.read_programs(simulated.record(simulated.simulate(acts(1.5, 2e3)), tmp_path / "s.sqlite", True))
    assert predicted_gains.remove_tracing(short, faster_ns, 4.0)[1] == pytest.approx(1.5, rel=0.03)
    assert tables.host_step_ns(pd.DataFrame({"wall_ns": [1]})) is None


def test_tables_of_the_recorded_cell_are_what_is_declared(trace: Path, small: Path, tmp_path: Path) -> None:
    write_json({"capture": "window"}, tmp_path / "rep.json")
    write_json({"step_ns": 2e7}, tmp_path / "time.json")
    rows = pd.DataFrame({"step": [0, 1], "wall_ns": 20_000_000, "gpu_ns": 20_000_000, "items": 8})
    write_csv(rows, tmp_path / "time.csv")
    out = [tmp_path / name for name in ("replay.csv", "host.csv")]
    outputs = dict(zip(("changes", "host"), map(str, out), strict=True)) | {"program": str(tmp_path / "program.npz")}
    given = [str(tmp_path / name) for name in ("rep.json", "time.csv", "time.json")]
    tables.main(str(trace), *given, outputs)
    found, host = reading.read(out[0], tables.GAINS), reading.read(out[1], tables.TAX)
    assert list(found["change"]) == list(predicted_gains.PANEL) and set(found["process"]) == {1082}
    gain = found.set_index("change")["gain"]
    # Idle for four fifths of its time, the GPU waits for the CPU.
    assert gain["graph"] > 3 and gain["host_2x"] == pytest.approx(2, rel=0.02)
    assert gain["kernels_2x"] == gain["input_ready"] == 1 == gain["waits_removed"]
    assert np.allclose(found["gain"], found["step_ns"] / found["predicted_ns"], rtol=1e-12)
    (row,) = host.to_dict("records")
    assert row["helps"] == "graph" and row["slowdown"] == pytest.approx(1.2, abs=0.01) and row["steps"] == 9
    assert row["cpu_ns"] + row["ahead_ns"] == pytest.approx(row["traced_ns"])
    assert abs(row["ahead_ns"]) < 0.05 * row["traced_ns"]
    assert row["replayed_ns"] == pytest.approx(row["traced_ns"], rel=0.03)
    # Where no step repeats, nothing is gained per step.
    write_json({"step_ns": 2e7, "imported": {"whole": True}}, tmp_path / "time.json")
    tables.main(str(small), *given, outputs)
    assert reading.read(out[0], tables.GAINS).empty
    assert reading.read(out[1], tables.TAX)["helps"].fillna("").tolist() == [""]
    write_csv(host.assign(launch_ns=0.0), out[1])
    with pytest.raises(ValueError, match="launch_ns, waiting_ns do not add up to cpu_ns"):
        reading.read(out[1], tables.TAX)


def test_a_long_wait_before_counted_steps_is_no_gain_of_overlap(tmp_path: Path) -> None:
    """A process that waits for the others in its first step does not compute counted steps meanwhile."""
    acts = steps([*[replace(LAUNCH, ns=4e4)] * 9, replace(LAUNCH, ns=2e5, group=-1)], 6)
    first = next(index for index, act in enumerate(acts) if act.group == -1)
    acts[first] = replace(acts[first], ns=2e6)
    made = of(tmp_path, acts)
    gain = predicted_gains.predict_gain(made, changes.overlap_communication(made))
    assert gain.predicted_ns == pytest.approx(9 * (4e4 + 1.1e3), rel=0.02)


def test_every_process_has_a_program(small: Path, tmp_path: Path) -> None:
    path = shutil.copy(small, tmp_path / "t.sqlite")
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


def test_cells_are_joined_in_tables_across_the_zoo(small: Path, tmp_path: Path) -> None:
    changed, host, _ = tables.make_tables(small, 1e9)
    homes = [tmp_path / model for model in ("one", "two@bf16")]
    for home in homes:
        home.mkdir()
        write_csv(changed, home / "train.replay.csv")
        write_csv(host, home / "train.host.csv")
    both = [[str(home / f"train.{name}.csv") for home in homes] for name in ("replay", "host")]
    outputs = {"changes": str(tmp_path / "replay.csv"), "host": str(tmp_path / "host.csv")}
    across_cells.tabulate_replays(*both, outputs)
    found = schemas.read_table("replay", outputs["changes"])
    assert list(found["model"].unique()) == ["one", "two@bf16"] and len(found) == 2 * len(predicted_gains.PANEL)
    assert list(schemas.read_table("host", outputs["host"])["process"]) == [7, 7]


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


def test_a_script_takes_the_programs_that_the_one_before_made_of_the_same_trace(trace: Path, tmp_path: Path) -> None:
    traced = str(shutil.copy(trace, tmp_path))
    write_json({"capture": "window"}, tmp_path / "n.json")
    write_json({"step_ns": 15e6}, tmp_path / "t.csv.json")
    rows = [f"{step},{15_000_000 + step},,8," for step in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(["step,wall_ns,gpu_ns,items,peak_memory_bytes", *rows]) + "\n")
    given = traced, *(str(tmp_path / name) for name in ("n.json", "t.csv", "t.csv.json"))
    fresh = tables.read_lean_programs(*given)
    tables.main(*given, {name: str(tmp_path / name) for name in ("changes", "host", "program")})
    with open_trace(traced) as opened:
        (kept,) = tables._leans[opened][1]
    ((number, taken),) = tables.read_lean_programs(*given).items()
    assert taken.host is kept.host and fresh.keys() == {number}
    pd.testing.assert_frame_equal(taken.host, fresh[number].host)
    pd.testing.assert_frame_equal(taken.gpu, fresh[number].gpu)
    # Another unprofiled step makes other programs.
    write_json({"step_ns": 10e6}, tmp_path / "t.csv.json")
    assert tables.read_lean_programs(*given)[number].host["gap"].sum() < taken.host["gap"].sum()
