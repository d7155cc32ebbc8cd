"""Idle time of the GPU by call of the operating system: traces whose answer is known, and sums that must agree."""

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tools.nsys import host_schema, host_tables, os_call_kinds
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys.host_events import LACKING
from profzoo.tools.nsys.steps import CAUSES
from tests.written_threads import AUTOGRAD, HOLDER, MAIN, RUNS, SLEEPS, Trace

DATA = Path(__file__).parents[1] / "data"
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


def test_a_lock_planted_into_a_recording_of_an_h200(tmp_path: Path) -> None:
    """While Python's thread holds the GPU up, it is said to wait for a lock; the GPU's idle time then is what is found."""
    path = tmp_path / "h200.sqlite"
    with gzip.open(DATA / "nsys" / "train.sqlite.gz") as packed, path.open("wb") as target:
        shutil.copyfileobj(packed, target)
    with closing(sqlite3.connect(path)) as database:
        ((thread,),) = database.execute("SELECT DISTINCT globalTid FROM NVTX_EVENTS").fetchall()
        forward = database.execute("SELECT start, end FROM NVTX_EVENTS WHERE text = 'profzoo_forward'").fetchall()
        kernels = database.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
        others = [
            row
            for kind in ("MEMCPY", "MEMSET")
            for row in database.execute(f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{kind}").fetchall()
        ]
        # From a tenth of each forward pass to half of it.
        waits = [(start + (end - start) // 10, (start + end) // 2) for start, end in sorted(forward)]
        database.execute("CREATE TABLE OSRT_API (start, end, globalTid, nameId)")
        database.execute("INSERT INTO StringIds VALUES (900000, 'pthread_mutex_lock')")
        rows = [(begin, end, thread, 900000) for begin, end in waits]
        database.executemany("INSERT INTO OSRT_API VALUES (?, ?, ?, ?)", rows)
        database.commit()
    table = idle_of(path)
    agrees(table, path)
    held = table[table["os_call"] == "pthread_mutex_lock"]
    assert set(held["kind"]) == {"lock"} and held["thread"].unique().tolist() == [thread & 0xFFFFFF]
    # Counted one span after the other: what of the waits no operation of the GPU covers.
    idle = sum(_uncovered(begin, end, [*kernels, *others]) for begin, end in waits[1:]) / (len(waits) - 1)
    assert held["idle_ns"].sum() == pytest.approx(idle, rel=0.02)
    assert held["calls"].max() == 1


def _uncovered(begin: int, end: int, spans: list[tuple[int, int]]) -> int:
    """The ns from begin to end that no span covers."""
    reached, free = begin, 0
    for start, stop in sorted(spans):
        if stop > begin and start < end:
            free += max(start - reached, 0)
            reached = max(reached, stop)
    return free + max(end - reached, 0)


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
        assert {name: os_call_kinds.kind_of_call(name) for name in names.split()} == dict.fromkeys(names.split(), kind)
