"""Tables of threads and idle time of the GPU by call of the operating system, on traces whose answers are known."""

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tables import step_timeline
from profzoo.tools.nsys.events.host_events import LACKING
from profzoo.tools.nsys.host import host_schema, host_tables
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.nsys.steps.steps import CAUSES
from tests import slow
from tests.written_threads import AUTOGRAD, HOLDER, MAIN, RUNS, SLEEPS, WORKER, Trace

LAUNCH, SYNCHRONIZE = "cudaLaunchKernel_v7000", "cudaDeviceSynchronize_v3020"
LOCKS = [
    ("sem_wait@@GLIBC_2", "libc.so.6"),
    ("PyThread_acquire_lock_timed", "libpython3.12.so.1.0"),
    ("main", "python"),
]


def idle_of(path: Path, whole_run: bool = False) -> pd.DataFrame:
    return host_tables.make_tables(str(path), whole_run)[0]["idle"]


def by_call(table: pd.DataFrame) -> dict[tuple[str, int, str], float]:
    keys = zip(table["cause"], table["thread"], table["os_call"], strict=True)
    return dict(zip(keys, table["idle_ns"].round(6), strict=True))


def agrees(table: pd.DataFrame, path: Path, whole_run: bool = False) -> None:
    """Rows add up to what is known of the idle time without them."""
    for row in nsys_steps.where_time_goes(path, whole_run).itertuples():
        own = table[table["process"] == row.process].groupby("cause")["idle_ns"].sum()
        for cause in CAUSES:
            assert own.get(cause, 0) == pytest.approx(getattr(row, f"idle_{cause}_ns"), abs=1e-3), cause
        assert own.sum() == pytest.approx(row.idle_ns)


def test_idle_time_of_gpus_that_work_in_turn_adds_up_too(tmp_path: Path) -> None:
    trace = Trace(
        ranges=[("step", 0, 100, MAIN)],
        os_calls=[("clock_nanosleep", 10, 40, MAIN)],
        calls=[(LAUNCH, 1, 3, 1, MAIN), (LAUNCH, 46, 48, 2, MAIN)],
        kernels=[(5, 50, 1), (50, 95, 2)],
        names={MAIN: "python3"},
    )
    path = trace.write(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN deviceId")
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = correlationId")
        database.commit()
    table = idle_of(path)
    agrees(table, path)
    # The second GPU waits from 5 to 50 for the first, of which the thread sleeps 30 ns; the first from 50 to 95.
    assert by_call(table)["turn", 7, "clock_nanosleep"] == 15 and by_call(table)["turn", 7, ""] == 7.5 + 22.5


def test_each_moment_counts_for_the_call_of_the_thread_that_launches_next(tmp_path: Path) -> None:
    # The main thread sleeps, waits for a lock, and launches; then it waits until autograd's thread has read and launched.
    trace = Trace(
        ranges=[("step", 0, 1000, MAIN), ("data", 0, 100, MAIN)],
        os_calls=[
            ("clock_nanosleep", 50, 200, MAIN),
            ("sem_wait", 210, 500, MAIN, LOCKS),
            ("pthread_cond_signal", 490, 495, HOLDER),
            ("pthread_cond_wait", 620, 1000, MAIN),
            ("read", 640, 790, AUTOGRAD),
            ("mmap64", 650, 660, AUTOGRAD),
        ],
        calls=[(LAUNCH, 550, 560, 1, MAIN), (LAUNCH, 800, 810, 2, AUTOGRAD)],
        kernels=[(570, 600, 1), (820, 900, 2)],
        names={MAIN: "python3", AUTOGRAD: "pt_autograd_0"},
    )
    path = trace.write(tmp_path / "t.sqlite")
    table = idle_of(path)
    # Idle: 0-570, 600-820, 900-1000. To 560 the main thread's call decides, to 810 autograd's, then the main one's.
    assert by_call(table) == {
        ("input", 7, ""): 50,
        ("input", 7, "clock_nanosleep"): 50,
        ("host", 7, "sem_wait"): 290,
        ("host", 7, "clock_nanosleep"): 100,
        ("host", 7, "pthread_cond_wait"): 100,
        ("host", 7, ""): 10 + 50,
        ("host", 8, "read"): 150,
        ("host", 8, ""): 40 + 10,
        ("launch", 7, ""): 10,
        ("launch", 8, ""): 10,
        ("latency", 8, ""): 10,
        ("latency", 7, "pthread_cond_wait"): 10,
    }
    agrees(table, path)
    rows = table.set_index(["cause", "thread", "os_call"])
    lock = rows.loc[("host", 7, "sem_wait")]
    assert (lock["name"], lock["kind"], lock["calls"], lock["woken_by"]) == ("python3", "lock", 1, 11)
    # The C library waits on behalf of who called it.
    assert (lock["caller"], lock["caller_module"]) == LOCKS[1]
    read = rows.loc[("host", 8, "read")]
    assert (read["kind"], read["caller"]) == ("file", "") and pd.isna(read["woken_by"])
    assert table["off_ns"].isna().all()


def test_time_off_the_cpu_is_told_where_switches_were_traced(tmp_path: Path) -> None:
    trace = Trace(
        ranges=[("step", 0, 1000, MAIN)],
        os_calls=[("read", 100, 400, MAIN)],
        # It leaves within the read, and is taken from the CPU at 600.
        switches=[
            (110, MAIN, 0, False, SLEEPS), (390, MAIN, 1, True, 0), (600, MAIN, 1, False, RUNS), (700, MAIN, 0, True, 0),
        ],
    )  # fmt: skip
    table = idle_of(trace.write(tmp_path / "t.sqlite"))
    rows = table.set_index("os_call")
    assert rows.loc["read", ["idle_ns", "off_ns"]].tolist() == [300, 280]
    assert rows.loc["", ["idle_ns", "off_ns"]].tolist() == [700, 100]


def test_the_first_step_is_left_out_and_times_are_per_step(tmp_path: Path) -> None:
    steps = [("step", start, start + 100, MAIN) for start in (0, 100, 200)]
    calls = [("poll", start + 10, start + 10 + long, MAIN) for start, long in ((0, 80), (100, 20), (200, 40))]
    table = idle_of(Trace(ranges=steps, os_calls=calls).write(tmp_path / "t.sqlite"))
    assert by_call(table) == {("host", 7, "poll"): 30, ("host", 7, ""): 70}
    assert table.set_index("os_call")["calls"].to_dict() == {"poll": 1, "": 0}


def test_what_counts_as_synchronisation_takes_its_calls_along(tmp_path: Path) -> None:
    # The host waits 10 for a busy GPU, so that 10 of the 45 without queued work count as synchronisation.
    trace = Trace(
        ranges=[("step", 0, 100, MAIN), ("data", 0, 20, MAIN)],
        calls=[(LAUNCH, 30, 35, 1, MAIN), (SYNCHRONIZE, 50, 75, 2, MAIN)],
        kernels=[(40, 60, 1)],
        os_calls=[("ioctl", 62, 70, MAIN), ("sem_wait", 80, 95, MAIN)],
    )
    path = trace.write(tmp_path / "t.sqlite")
    table = idle_of(path)
    agrees(table, path)
    moved = 10 / 45
    found = by_call(table)
    assert found["host", 7, "sem_wait"] == pytest.approx(15 * (1 - moved))
    assert found["synchronisation", 7, "sem_wait"] == pytest.approx(15 * moved)
    assert found["synchronisation", 7, "ioctl"] == 8


def test_who_ended_a_wait_acted_within_it(tmp_path: Path) -> None:
    """A wait for data may end by itself, so that what was written long before its end has nothing to do with it."""
    late = 1_000_000
    trace = Trace(
        ranges=[("step", 0, 9 * late, MAIN)],
        os_calls=[("sem_wait", 100, late, MAIN), ("poll", 2 * late, 4 * late, MAIN), ("read", 5 * late, 6 * late, MAIN),
                  ("pthread_mutex_lock", 7 * late, 8 * late, MAIN),
                  # Before the lock was waited for; within; long before the end; just before it; of another kind.
                  ("sem_post", 50, 60, AUTOGRAD), ("sem_post", 200, 210, HOLDER), ("write", 2 * late, 2 * late + 9, HOLDER),
                  ("write", 6 * late - 1000, 6 * late - 900, AUTOGRAD), ("write", 8 * late - 10, 8 * late - 5, AUTOGRAD)],
    )  # fmt: skip
    table = idle_of(trace.write(tmp_path / "t.sqlite")).set_index("os_call")["woken_by"]
    assert (table["sem_wait"], table["read"]) == (11, 8)
    assert table[["poll", "pthread_mutex_lock", ""]].isna().all()


def test_a_file_is_named_where_it_took_most_of_the_time(tmp_path: Path) -> None:
    trace = Trace(
        ranges=[("step", 0, 1000, MAIN)],
        os_calls=[("read", 100, 400, MAIN), ("read", 500, 600, MAIN), ("write", 700, 800, MAIN), ("poll", 850, 900, MAIN)],
        # Of another thread, of this one, and of the calls that are too short.
        files=[("/a/other.bin", 90, 410, HOLDER), ("/a/images.tar", 105, 390, MAIN), ("/a/log", 505, 590, MAIN),
               ("/a/log", 860, 880, MAIN)],
    )  # fmt: skip
    path = trace.write(tmp_path / "t.sqlite")
    table = idle_of(path)
    assert table.set_index("os_call")["file"].to_dict() == {"": "", "read": "images.tar", "write": "", "poll": ""}
    csv = str(tmp_path / "idle.csv")
    write_csv(table, csv)
    assert csv_tables.read(csv, host_schema.IDLE)["file"].tolist() == table["file"].tolist()
    without = idle_of(trace.write(tmp_path / "u.sqlite", ["OSRT_FILE_ACCESS_DESCRIPTORS"]))
    assert set(without["file"]) == {""}


@pytest.mark.parametrize("lacking", ["OSRT_API", "OSRT_API.nameId"])
def test_without_calls_of_the_operating_system_no_row_pretends_that_there_were_none(
    tmp_path: Path, lacking: str
) -> None:
    trace = Trace(ranges=[("step", 0, 100, MAIN)], os_calls=[("read", 10, 20, MAIN)])
    tables, events = host_tables.make_tables(str(trace.write(tmp_path / "t.sqlite", [lacking])))
    assert tables["idle"].empty and list(events.lacking) == ["OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS"]
    why = events.lacking["OSRT_API"]
    assert why.endswith(LACKING["OSRT_API"]) if lacking == "OSRT_API" else "has no column nameId" in why


def test_every_call_that_nsys_traces_by_default_and_waits_has_a_kind() -> None:
    """Names from the list of traced functions in NVIDIA's User Guide."""
    kinds = {
        "lock": "pthread_mutex_lock pthread_mutex_timedlock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_spin_lock "
        "sem_wait sem_timedwait sem_clockwait flock lockf",
        "condition": "pthread_cond_wait pthread_cond_timedwait pthread_cond_broadcast pthread_barrier_wait",
        "thread": "pthread_join pthread_create waitpid wait wait4 fork posix_spawn execve",
        "sleep": "nanosleep clock_nanosleep usleep sleep sigwaitinfo sched_yield",
        "poll": "poll ppoll select pselect epoll_wait epoll_pwait __poll_chk",
        "socket": "accept accept4 connect recv recvfrom recvmsg send sendmsg sendto socketpair",
        "memory": "mmap mmap64 munmap mremap mprotect brk sbrk msync",
        "device": "ioctl",
        "file": "read pread64 readv write writev open open64 openat fopen64 fread fwrite fclose fsync lseek64 stat64 fgets "
        "getc sendfile64 pipe2 dup2 fdopendir",
        "other": "backtrace dlopen sysconf",
    }
    for kind, names in kinds.items():
        assert {name: host_tables.kind_of_call(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


TABLES = {
    "threads": host_schema.THREADS,
    "off_cpu": host_schema.OFF_CPU,
    "samples": host_schema.SAMPLES,
    "idle": host_schema.IDLE,
}
STACK = [("dot", "libblas.so"), ("forward", "libtorch.so"), ("[Max depth]", "[Max depth]")]
# Two steps. In the first, the main thread is on core 0, waits for a file, goes on on core 1, and is taken from it. A
# worker of another process runs in the second step alone.
TRACE = Trace(
    ranges=[("step", 0, 1000, MAIN), ("step", 1000, 2000, MAIN)],
    os_calls=[("read", 190, 510, MAIN), ("fopen", 195, 300, MAIN), ("poll", 1100, 1800, AUTOGRAD)],
    calls=[("cudaStreamSynchronize_v3020", 1400, 1600, 5, MAIN)],
    switches=[
        (200, MAIN, 0, False, SLEEPS), (500, MAIN, 1, True, 0),
        (700, MAIN, 1, False, RUNS), (750, MAIN, 1, True, 0),
        (1450, MAIN, 1, False, SLEEPS), (1550, MAIN, 1, True, 0),
        (1100, AUTOGRAD, 2, True, 0), (1120, AUTOGRAD, 2, False, SLEEPS),
        (1200, WORKER, 3, True, 0), (1900, WORKER, 3, False, SLEEPS),
    ],
    samples=[(100, MAIN, STACK), (600, MAIN, STACK), (650, MAIN, STACK[1:]), (1700, MAIN, [("0xbeef", "libx.so")]),
             (1500, WORKER, [("decode", "libjpeg.so")]), (2500, MAIN, STACK)],
    names={MAIN: "python3", AUTOGRAD: "pt_autograd_0", WORKER: "pt_data_worker"},
)  # fmt: skip


def made(path: Path, trace: Trace = TRACE, without: tuple[str, ...] = ()) -> dict[str, pd.DataFrame]:
    """The tables of a trace as they are written and read again, with all checks of their declarations."""
    export = trace.write(path / "t.sqlite", without)
    (path / "t.json").write_text(json.dumps({"capture": "window"}))
    outputs = {name: str(path / f"{name}.csv") for name in TABLES}
    host_tables.main(str(export), str(path / "t.json"), outputs)
    return {name: csv_tables.read(outputs[name], table) for name, table in TABLES.items()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    return made(tmp_path_factory.mktemp("threads"))


def row(table: pd.DataFrame, step: int, thread: int) -> pd.Series:
    (_, found), = table[(table["step"] == step) & (table["thread"] == thread)].iterrows()  # fmt: skip
    return found


def test_a_thread_is_on_the_cpu_or_off_it(tables: dict[str, pd.DataFrame]) -> None:
    threads = tables["threads"]
    first = row(threads, 0, 7)
    assert (first["running_ns"], first["off_ns"], first["lost_ns"]) == (200 + 200 + 250, 300 + 50, 0)
    assert (first["preempted_ns"], first["switches"], first["cores"], first["migrations"]) == (50, 2, 2, 1)
    # For 200 ns on core 0, and then for 450 ns on core 1.
    assert first["core"] == 1 and row(threads, 1, 9)["core"] == 3
    assert (first["name"], first["runs_step"], first["process"], first["wall_ns"]) == ("python3", True, 7, 1000)
    # What is within another call is not a call of its own.
    assert (first["os_calls"], first["os_call_ns"], first["cuda_calls"]) == (1, 320, 0)
    assert (first["left_in"], first["left_in_ns"]) == ("read", 300)
    second = row(threads, 1, 7)
    assert (second["running_ns"], second["off_ns"], second["left_in"]) == (900, 100, "cudaStreamSynchronize")
    assert (second["cuda_calls"], second["cuda_call_ns"], second["os_calls"]) == (1, 200, 0)


def test_threads_have_rows_in_steps_in_which_they_did_anything(tables: dict[str, pd.DataFrame]) -> None:
    threads = tables["threads"]
    assert list(zip(threads["process"], threads["step"], threads["thread"], strict=True)) == [
        (7, 0, 7), (7, 1, 7), (7, 1, 8), (9, 1, 9),
    ]  # fmt: skip
    worker, autograd = row(threads, 1, 9), row(threads, 1, 8)
    assert (worker["running_ns"], worker["off_ns"], worker["name"]) == (700, 300, "pt_data_worker")
    assert (worker["left_in"], worker["runs_step"]) == ("", False)
    # Off the CPU it polled but for the time before.
    assert (autograd["running_ns"], autograd["left_in"], autograd["left_in_ns"]) == (20, "poll", 880)


def test_threads_of_nsys_itself_are_left_out_and_numbers_of_cores_and_threads_are_whole(tmp_path: Path) -> None:
    """Beside such numbers others are missing: of a thread that did not run, and of a wait that nobody ended."""
    tool = WORKER + 1
    wakes = [("pthread_cond_wait", 1610, 1700, MAIN), ("pthread_cond_signal", 1650, 1660, HOLDER)]
    own = replace(
        TRACE,
        switches=[*TRACE.switches, (1300, tool, 3, True, 0), (1400, tool, 3, False, SLEEPS)],
        samples=[*TRACE.samples, (1350, tool, STACK)],
        os_calls=[*TRACE.os_calls, *wakes, ("poll", 1310, 1390, tool)],
        names={**TRACE.names, tool: "[NSys]"},
    )
    found = made(tmp_path, own)
    for name, table in found.items():
        assert len(table) and "[NSys]" not in set(table["name"]), name
        assert not set(table["thread"]) - {7, 8, 9, 11}
    for name, column, number in (("threads", "core", "1"), ("idle", "woken_by", "11")):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            assert {row[column] for row in csv.DictReader(file)} >= {"", number}, name


def test_calls_add_up_to_the_time_off_the_cpu(tables: dict[str, pd.DataFrame]) -> None:
    off = tables["off_cpu"]
    sums = off.groupby(["process", "step", "thread"])["off_ns"].sum()
    threads = tables["threads"].set_index(["process", "step", "thread"])["off_ns"]
    assert threads[threads > 0].to_dict() == sums.to_dict()
    main = off[(off["thread"] == 7) & (off["step"] == 0)].set_index("os_call")
    assert main["off_ns"].to_dict() == {"read": 300, "": 50}
    assert main["preempted_ns"].to_dict() == {"read": 0, "": 50} and main["switches"].to_dict() == {"read": 1, "": 1}
    waited = off[off["cuda_call"] == "cudaStreamSynchronize"]
    assert waited[["step", "os_call", "off_ns", "longest_ns"]].values.tolist() == [[1, "", 100, 100]]


def test_samples_name_functions_and_who_called_them(tables: dict[str, pd.DataFrame]) -> None:
    samples = tables["samples"]
    mine = samples[samples["thread"] == 7].set_index("function")
    # Three of the four within steps are in the first step; the one after the last step counts nowhere.
    assert mine["samples"].to_dict() == {"dot": 2, "forward": 1, "[unresolved]": 1}
    assert mine["stack_samples"].to_dict() == {"dot": 2, "forward": 3, "[unresolved]": 1}
    assert mine["share"].sum() == 1 and mine.loc["forward", "stack_share"] == 0.75
    assert mine["module"].to_dict() == {"dot": "libblas.so", "forward": "libtorch.so", "[unresolved]": "libx.so"}
    first = row(tables["threads"], 0, 7)
    assert (first["samples"], first["function"], first["function_share"]) == (3, "dot", pytest.approx(2 / 3))
    assert row(tables["threads"], 1, 8)["samples"] == 0


def test_a_lost_switch_leaves_time_of_which_nothing_is_known(tmp_path: Path) -> None:
    switches = [(100, MAIN, 0, True, 0), (400, MAIN, 1, True, 0), (900, MAIN, 1, False, SLEEPS)]
    trace = Trace(ranges=[("step", 0, 1000, MAIN)], switches=switches)
    found = row(made(tmp_path, trace)["threads"], 0, 7)
    assert (found["off_ns"], found["lost_ns"], found["running_ns"]) == (100 + 100, 300, 500)


@pytest.mark.parametrize("lacking", slow.first(["SCHED_EVENTS", "SCHED_EVENTS.isSchedIn"]))
def test_without_switches_nothing_is_said_of_time_on_the_cpu(
    tmp_path: Path, lacking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = made(tmp_path, without=(lacking,))
    first = row(tables["threads"], 0, 7)
    unknown = [f"{name}_ns" for name in ("running", "off", "lost", "preempted", "left_in")]
    unknown += ["switches", "core", "cores", "migrations"]
    assert first[unknown].isna().all() and first["os_call_ns"] == 320 and tables["off_cpu"].empty
    said = capsys.readouterr().out
    assert ("set nsys.cpuctxsw" if lacking == "SCHED_EVENTS" else "has no column isSchedIn") in said


def test_what_an_older_nsys_does_not_tell_stays_empty(tmp_path: Path) -> None:
    """nsys 2023 has neither states of threads that leave, nor cycles or stacks of samples in every export."""
    lacking = [f"SCHED_EVENTS.{name}" for name in ("threadState", "threadBlock", "cpu")]
    tables = made(tmp_path, without=(*lacking, "COMPOSITE_EVENTS.cpuCycles"))
    assert tables["threads"]["core"].isna().all()
    first = row(tables["threads"], 0, 7)
    assert np.isnan(first["preempted_ns"]) and first["off_ns"] == 350 and first["samples"] == 3
    assert tables["off_cpu"]["preempted_ns"].isna().all()


def test_without_samples_or_calls_the_rest_is_as_before(tmp_path: Path) -> None:
    tables = made(tmp_path, without=("COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS", "OSRT_API"))
    first = row(tables["threads"], 0, 7)
    assert first[["samples", "os_calls", "os_call_ns", "function_share"]].isna().all() and first["function"] == ""
    assert (first["running_ns"], first["left_in"]) == (650, "") and tables["samples"].empty


def test_only_what_was_asked_for_and_is_not_there_goes_to_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = TRACE.write(tmp_path / "t.sqlite", ["SCHED_EVENTS", "COMPOSITE_EVENTS"])
    command = ["nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=process-tree"]
    (tmp_path / "t.json").write_text(json.dumps({"capture": "window", "command": command}))
    said: list[str] = []
    host_tables.main(
        str(export), str(tmp_path / "t.json"), {name: str(tmp_path / name) for name in TABLES}, said.append
    )
    # Whoever has set nsys.cpuctxsw is not told to set it, neither here nor below the typical step.
    why = (
        "the trace holds no context switches, so time on and off the CPU is unknown: nsys was asked for them and "
        "recorded none; `snakemake doctor` says whether this machine allows it"
    )
    assert said == [f"{export}: {why}"]
    assert "set nsys.sample to process-tree" in capsys.readouterr().out
    step_timeline.main(str(export), str(tmp_path / "t.json"), str(tmp_path / "step.json"), str(tmp_path / "tracks.csv"))
    not_collected = json.loads((tmp_path / "step.json").read_text())["not_collected"]
    assert why in not_collected and not any("set nsys.cpuctxsw" in line for line in not_collected)


def test_a_trace_without_steps_has_empty_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = made(tmp_path, Trace(os_calls=TRACE.os_calls, switches=TRACE.switches))
    assert all(table.empty for table in tables.values())
    assert "has no row, as" in capsys.readouterr().out
