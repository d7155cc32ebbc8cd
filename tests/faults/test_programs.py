"""What a model's program may do wrong: each ends in one line with what to do, and leaves no process, file or result."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profzoo.collect import failures
from profzoo.machine import namespace, process_tree, supervisor
from tests import slow
from tests.faults import family
from tests.faults.harm import GOOD, OLD, Harm, good, python, some

# By name: the program, in whose words {0} is the folder of what it is to leave, and the line that is said.
CRASHES = {
    "killed": ("import os; os.kill(os.getpid(), 9)", r"was killed \(SIGKILL\): by a user, .*mem_mb"),
    "null pointer": ("import ctypes; ctypes.string_at(0)", r"crashed \(SIGSEGV\)"),
    "file cut off under a mapping": (
        "import mmap, sys; file = open('{0}/out', 'w+b'); file.truncate(8192); view = mmap.mmap(file.fileno(), 8192)\n"
        "file.truncate(0); view[5000]",
        r"crashed \(SIGBUS\)",
    ),
    "abort": ("import os; os.abort()", r"crashed \(SIGABRT\)"),
    "illegal instruction": ("import os; os.kill(os.getpid(), 4)", r"crashed \(SIGILL\)"),
    "division trap": ("import os; os.kill(os.getpid(), 8)", r"crashed \(SIGFPE\)"),
    "alarm": ("import signal; signal.alarm(1); signal.pause()", r"was ended by SIGALRM"),
    "told to end": ("import os; os.kill(os.getpid(), 15)", r"was ended by SIGTERM"),
    "broken pipe": (
        "import os, signal; signal.signal(13, signal.SIG_DFL); a, b = os.pipe(); os.close(a); os.write(b, b'x')",
        r"was ended by SIGPIPE",
    ),
    "exception": ("{{}}['step']", r"ended with exit code 1"),
    "exit code 255": ("raise SystemExit(255)", r"ended with exit code 255"),
    # Each process starts the next one, in a session of its own, and ends.
    "flight": (
        "import os, time\nend = time.monotonic() + 60\nif os.fork(): os._exit(1)\nwhile time.monotonic() < end:\n"
        " os.setsid() if os.getsid(0) != os.getpid() else None\n if os.fork(): os._exit(0)\n time.sleep(0.001)",
        r"ended with exit code 1",
    ),
    "a name like a line of /proc": (
        "import ctypes, os, time\nif os.fork() == 0:\n ctypes.CDLL(None).prctl(15, b') Z 1 1 (', 0, 0, 0)\n"
        " time.sleep(100)\ntime.sleep(0.2); os._exit(4)",
        r"ended with exit code 4",
    ),
}
LEAVES = {
    "nothing": ("true", r"ended well but left no out"),
    "an empty file": (": > {0}/out; echo '{{}}' > {0}/s.json", r"ended well but left no out"),
    "a pipe in its place": ("mkfifo {0}/out; echo '{{}}' > {0}/s.json", r"ended well but left no out"),
    "a link that leads nowhere": ("ln -s /none {0}/out; echo '{{}}' > {0}/s.json", r"ended well but left no out"),
    "no facts": ("echo x > {0}/out", r"ended well but left no s\.json"),
    "half of its facts": ("echo x > {0}/out; printf '{{\"torch' > {0}/s.json", r"facts that are not JSON"),
    "facts of another kind": (
        "echo x > {0}/out; echo '[1]' > {0}/s.json",
        r"facts that are not a JSON object: '\[1\]'",
    ),
    "facts that are not text": (r"echo x > {0}/out; printf '\377\376' > {0}/s.json", r"facts that are not JSON"),
    "all, and then fails": (GOOD + "; exit 3", r"sh ended with exit code 3"),
    "all, and is killed": (GOOD + "; kill -9 $$", r"sh was killed \(SIGKILL\)"),
}
UNTIDY = {
    "a child": "sleep 100 &",
    "a child in a session of its own": "setsid sleep 100 &",
    "a child that nothing but SIGKILL ends": "(trap '' TERM HUP INT; sleep 100; sleep 100) &",
    "a stopped child": "sleep 100 & kill -STOP $!",
    "sixty children": "for i in $(seq 60); do sleep 100 & done",
    "a child that has no parent left": "(setsid sh -c 'sleep 100 & exit' &)",
    "a child without a variable or a folder of the job": "(cd /; exec env -i /bin/sleep 100) &",
    "nothing to print to": "exec >&- 2>&- <&-",
    "a full folder of temporary files": (
        "cd $TMPDIR; mkdir -p a/b/c; for i in $(seq 2000); do : > a/f$i; done; ln -s / root; chmod 0 a/b; mkfifo p"
    ),
    "no folder of temporary files": "rm -r $TMPDIR",
}
SAYS = {
    "escapes of a terminal": r"printf 'profzoo: \033[2J\033]0;title\007all \033[31mred\033[0m\n'; exit 1",
    "bytes that are not text": r"printf 'profzoo: \377\376\000\001 end\n'; exit 1",
    "a line of 20 MB": "printf 'profzoo: '; head -c 20000000 /dev/zero | tr '\\0' x; echo; exit 1",
}


@pytest.mark.parametrize("name", slow.first(some(CRASHES, 4)))
def test_a_program_that_crashes(harm: Harm, name: str) -> None:
    code, line = CRASHES[name]
    harm.fails(python(code.format(harm.results)), line, before=no_core)
    harm.goes_on()


@pytest.mark.parametrize("name", slow.first(some(LEAVES, 6)))
def test_a_program_that_leaves_too_little(harm: Harm, name: str) -> None:
    code, line = LEAVES[name]
    harm.fails(["sh", "-c", code.format(harm.results)], line)


@pytest.mark.parametrize("name", slow.first(UNTIDY))
def test_a_program_that_leaves_what_it_should_not(harm: Harm, name: str) -> None:
    """Its processes are ended and its files removed, and the job counts."""
    assert harm.run(["sh", "-c", f"{UNTIDY[name]}\n{GOOD.format(harm.results)}"]) == (0, [])
    harm.over(None)
    assert Path("/bin/sh").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(100)",
        "while True: pass",
        "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: signal.pause()",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, time\nif os.fork(): os.waitpid(-1, 0)\nos.setsid(); time.sleep(100)",
        "import fcntl, os; r, w = os.pipe(); os.write(w, bytes(10**7))",
        "import os\nwhile True: os.write(1, bytes(1 << 16))",
        # A fork bomb that stays small: no more than 200 processes, each of which starts others before it ends.
        "import os, time\nfor _ in range(6):\n if os.fork() == 0: os.setsid() if os.getpid() % 2 else None\n"
        "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n"
        " time.sleep(0.05)\n if os.fork() == 0: os._exit(0)\n os.waitpid(-1, os.WNOHANG)",
    ],
    ids=["sleeps", "computes", "heeds nothing", "stopped", "waits for a child", "waits for itself", "prints", "forks"],
)
def test_a_program_that_hangs(harm: Harm, code: str) -> None:
    harm.limit_s = 1
    harm.fails(python(code), r"time took longer than 1 s and was ended: see why it hangs, or raise time\.time_limit")
    harm.goes_on()


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_a_program_that_prints_what_is_no_text(harm: Harm, name: str) -> None:
    code, said = harm.run(["sh", "-c", SAYS[name]])
    assert code == 1 and len(said) == 1 and said[0].startswith("profzoo: ") and said[0].isprintable()
    assert (harm.results / "log").stat().st_size < supervisor.LOG_BYTES + 2 * failures.LONGEST
    assert len(said[0]) < 2 * failures.LONGEST
    harm.over(OLD)


def test_a_program_without_enough_memory(harm: Harm) -> None:
    """Of addresses, as a batch system limits it."""
    code = "x = [bytes(10**8) for _ in range(10**4)]"
    line = r"the memory of this machine, or the job's limit of it, is not enough: .*--set-resources RULE:mem_mb"
    harm.fails(python(code), line, before=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
    harm.goes_on()


@pytest.fixture
def share() -> Iterator[Path]:
    """A control group of its own with 64 MB of memory."""
    own = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line), "")
    folder = Path(f"/sys/fs/cgroup/memory{own.rpartition(':')[2]}") / f"profzoo-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError:
        pytest.skip("no control group of memory can be made here, which takes root and cgroups of version 1")
    yield folder
    for process in (folder / "cgroup.procs").read_text().split():
        (folder.parent / "cgroup.procs").write_text(process)
    folder.rmdir()


@pytest.mark.slow
def test_a_program_that_the_kernel_kills_for_its_memory(harm: Harm, share: Path) -> None:
    before = namespace.count_oom_kills()
    code = f"open('{share}/cgroup.procs', 'w').write('0'); x = b'x' * (200 << 20)"
    harm.fails(python(code), r"was killed \(SIGKILL\): by the kernel, which had no memory left: .*mem_mb")
    assert namespace.count_oom_kills() == before + 1
    harm.goes_on()


def heedful() -> None:
    """Neither a core file, nor signals that are ignored because the tests run in the background."""
    no_core()
    family.heed()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU])
def test_a_signal_that_nobody_expects_ends_all_of_a_job(harm: Harm, number: signal.Signals) -> None:
    job = harm.begun(["sh", "-c", f"echo x > {harm.folder}/begun; sleep 100"], before=heedful)
    family.until((harm.folder / "begun").exists, 30)
    job.send_signal(number)
    assert job.wait(family.SECONDS) == -number
    family.until(lambda: not harm.processes(), family.SECONDS)
    harm.goes_on()


@pytest.mark.slow
def test_descriptors_that_are_closed_from_the_start(harm: Harm) -> None:
    """As a daemon starts jobs; what a job opens then has the numbers of input and output."""
    job = harm.begun(good(harm), before=lambda: os.closerange(0, 3))
    job.communicate(timeout=60)
    assert job.returncode == 0
    harm.over(None)


@pytest.mark.slow
def test_few_descriptors(harm: Harm) -> None:
    assert harm.run(good(harm), before=few(resource.RLIMIT_NOFILE, 24)) == (0, [])
    harm.over(None)


def few(what: int, count: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (count, count))


def no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.mark.slow
def test_who_reads_what_a_job_says_may_go(harm: Harm) -> None:
    """As `snakemake | head` does."""
    job = harm.begun(["sh", "-c", "sleep 0.5; exit 3"])
    assert job.stdout
    job.stdout.close()
    assert job.wait(30) != 0
    harm.over(OLD)
    assert (harm.results / "log").read_text().splitlines()[-1].startswith("profzoo: sh ended with exit code 3")


@pytest.mark.slow
def test_a_supervisor_that_is_stopped_ends_with_its_job(harm: Harm) -> None:
    job = harm.begun(["sh", "-c", f"echo x > {harm.folder}/begun; sleep 100"])
    family.until((harm.folder / "begun").exists, 30)
    supervisor = next(one for one, line in harm.processes().items() if "profzoo.machine.supervisor" in line)
    os.kill(supervisor, signal.SIGSTOP)
    began = time.monotonic()
    job.kill()
    job.wait()
    family.until(lambda: process_tree.read_stat(supervisor)[:1] in ([], ["T"], ["Z"]), 1)
    os.kill(supervisor, signal.SIGCONT)
    family.until(lambda: not harm.processes(), family.SECONDS)
    assert time.monotonic() - began < family.SECONDS + 1
    harm.goes_on()
