"""Programs that run in forks of a process that has imported their modules: scripts, and those of jobs."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.machine import forks, process_tree, processes, surroundings
from profzoo.machine.processes import ProcessLimits
from tests.faults.jobs import wait, wait_for_ends

SCRIPT = """\
import os, sys
from profzoo import told
print(told.WORD, "sqlite3" in sys.modules, os.environ["GIVEN"], os.getcwd(), sys.argv[1:], flush=True)
"""


class Server:
    """A server of one script, and what runs the script by it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.script = folder, folder / "script.py"
        package = folder / "profzoo"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "told.py").write_text("import sqlite3\nWORD = 'first'\n")
        self.script.write_text(SCRIPT)
        self.variables = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1",
            **dict.fromkeys(forks.THREADS, "1"),
        }  # fmt: skip
        self.process, self.path = forks.start(forks.SCRIPTS, [[str(self.script)]], self.variables)

    def begin(self, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*forks.client_command(self.path).split(), str(self.script)],
            env={**self.variables, "GIVEN": "given", **variables}, cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, **variables: str) -> tuple[int, str]:
        """Run the script, and return its exit code and output."""
        client = self.begin(**variables)
        out, err = client.communicate(timeout=60)
        return client.returncode, out + err


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.process.communicate()


def test_a_script_has_its_own_environment_folder_and_words(server: Server) -> None:
    assert server.run() == (0, f"first True given {server.folder} []\n")
    assert server.run(GIVEN="another")[1] == f"first True another {server.folder} []\n"


def test_a_script_is_a_fork_unless_its_variables_were_read_before(server: Server) -> None:
    server.script.write_text(
        "from pathlib import Path\nprint(Path('/proc/self/cmdline').read_text().split('\\0')[2])\n"
    )
    assert server.run() == (0, f"{forks.__file__}\n")
    assert server.run(OMP_NUM_THREADS="3")[1] != f"{forks.__file__}\n"


@pytest.mark.parametrize(("body", "code"), [("raise SystemExit(3)", 3), ("import none", 1), ("exit()", 0)])
def test_exit_codes_are_those_of_the_script(server: Server, body: str, code: int) -> None:
    server.script.write_text(body)
    found, said = server.run()
    assert (found, "No module named 'none'" in said) == (code, code == 1)


def test_changed_code_is_imported_anew(server: Server) -> None:
    assert server.run()[1].startswith("first ")
    (server.folder / "profzoo" / "told.py").write_text("WORD = 'second'\n")
    assert server.run()[1].startswith("second ")


def test_a_script_runs_by_itself_without_the_server(server: Server) -> None:
    server.run()
    server.process.communicate()
    assert server.run() == (0, f"first True given {server.folder} []\n")


def test_a_signal_reaches_the_script_once(server: Server) -> None:
    server.script.write_text(
        "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.2)\n    print('told')\n    raise SystemExit(7)\n"
    )
    client = server.begin()
    assert client.stdout and client.stdout.readline() == "begun\n"
    client.send_signal(signal.SIGINT)
    assert client.communicate(timeout=60) == ("told\n", "")
    assert client.returncode == 7


def test_a_script_ends_with_the_process_that_represents_it(server: Server) -> None:
    server.script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    client = server.begin()
    assert client.stdout
    script = int(client.stdout.readline())
    client.kill()
    client.communicate()
    wait(lambda: not Path(f"/proc/{script}").exists())


def test_the_server_ends_when_its_input_closes(server: Server) -> None:
    server.run()
    server.process.communicate(timeout=20)
    assert server.process.returncode == 0


def test_modules_at_the_beginning_of_a_script_are_found(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json.decoder\nfrom profzoo.io import scripts\n\ndef later():\n    import torch\n")
    assert forks.imports_of(str(script)) == ["json.decoder", "profzoo.io", "profzoo.io.scripts"]


def test_a_server_is_started_by_the_interpreter_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_started", [])
    words = forks.script_command([], os.environ).split()
    assert words[:4] == [sys.executable, "-I", "-S", str(Path(forks.__file__).with_name("fork_client.py"))]
    (process,) = forks._started
    process.communicate(timeout=60)
    assert process.returncode == 0


# A module of a job's program, as models.run is one. It tells what it has taken over, and ends as it is told.
PROGRAM = """
import json, os, resource, signal, subprocess, sys, time
from pathlib import Path
out, ends = sys.argv[1:]
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
told = {
    "variables": dict(os.environ), "words": [sys.orig_argv, sys.argv], "folder": os.getcwd(), "path": sys.path,
    "main": [__name__, __spec__.name], "session": os.getsid(0) == os.getpgrp() == os.getpid(),
    "files": sorted(os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n not in ("1", "2")),
    "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())], "mask": status["SigBlk"],
    "umask": status["Umask"], "bytecode": sys.dont_write_bytecode, "safe": sys.flags.safe_path,
    "threads": status["Threads"], "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
}
told["files"] = [path for path in told["files"] if not path.startswith("/proc/")]
own = {"imported": "wave" in sys.modules, "ids": [os.getpid(), os.getppid()], "drawn": os.urandom(8).hex()}
child = subprocess.Popen(["sleep", "60"]).pid if ends in ("late", "left") else 0
Path(out + ".new").write_text(json.dumps({"told": told, "own": {**own, "child": child}}))
Path(out + ".new").rename(out)
print("said", flush=True)
print("an error", file=sys.stderr)
if ends == "exit":
    os._exit(3)
if ends == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if ends == "raise":
    raise RuntimeError("it cannot")
if ends == "word":
    sys.exit("a last word")
if ends == "late":
    time.sleep(60)
"""


class Jobs:
    """A server of jobs that has imported a module, and what runs programs by it or by themselves."""

    def __init__(self, folder: Path, stages: list[list[str]] | None = None) -> None:
        self.folder = folder
        (folder / "told.py").write_text(PROGRAM)
        self.variables = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C",
            "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[2]}", "PYTHONSAFEPATH": "1",
        }  # fmt: skip
        python = f"{Path(sys.executable).parent}/python"
        self.process, self.path = forks.start(forks.JOBS, stages or [["wave"]], self.variables, python)

    def run(self, ends: str, fork: bool = True, stage: int = 0, **changed: object) -> tuple[int, str, dict]:
        """Exit code, output and words of a program; changed: of the limits, or variables."""
        out, log = self.folder / f"{ends}.json", self.folder / "log"
        limits = {name: changed.pop(name) for name in [*changed] if name in ProcessLimits.__dataclass_fields__}
        given = self.variables | {"TMPDIR": "/tmp", "PROFZOO_JOB": "", **changed}
        limits |= {"forks": forks.stage_path(self.path, stage)} if fork else {}
        with log.open("wb") as file:
            code = processes.run_command(["python", "-m", "told", str(out), ends], file, given, ProcessLimits(**limits))
        return code, log.read_text(), json.loads(out.read_text())


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.chdir(tmp_path)
    made = Jobs(tmp_path)
    yield made
    made.process.communicate()


def test_a_forked_program_takes_over_what_one_by_itself_has(jobs: Jobs) -> None:
    (code, said, forked), (other, printed, alone) = (jobs.run("well", fork) for fork in (True, False))
    assert (code, said) == (other, printed) == (0, "said\nan error\n")
    assert forked["told"] == alone["told"]
    assert (forked["own"]["imported"], alone["own"]["imported"]) == (True, False)
    # Its supervisor is its parent, and each has random numbers of its own.
    assert forked["own"]["ids"][1] != jobs.process.pid
    assert jobs.run("well")[2]["own"]["drawn"] != forked["own"]["drawn"]


@pytest.mark.parametrize(("ends", "code"), [("exit", 3), ("crash", -signal.SIGSEGV), ("raise", 1), ("word", 1)])
def test_a_forked_program_ends_as_one_by_itself(jobs: Jobs, ends: str, code: int) -> None:
    (forked, said, told), (alone, printed, _) = (jobs.run(ends, fork) for fork in (True, False))
    assert told["own"]["imported"] and forked == alone == code
    assert said.splitlines()[-1] == printed.splitlines()[-1]
    # The next one runs.
    assert jobs.run("well")[2]["own"]["imported"]


def test_what_a_forked_program_leaves_ends_with_it(jobs: Jobs) -> None:
    code, _, told = jobs.run("left")
    assert code == 0 and told["own"]["imported"] and not process_tree.is_alive(told["own"]["child"])


def test_a_forked_program_ends_at_its_time_limit(jobs: Jobs) -> None:
    code, said, told = jobs.run("late", seconds=1.0, over="took too long")
    assert code == 124 and "took too long" in said and told["own"]["imported"]
    assert not any(map(process_tree.is_alive, (*told["own"]["ids"], told["own"]["child"])))


CALLER = """
import json, sys
from pathlib import Path
from profzoo.machine import processes
from profzoo.machine.processes import ProcessLimits
out, path, variables = sys.argv[1:]
with Path(out + ".log").open("wb") as file:
    words = ["python", "-m", "told", out, "late"]
    print(processes.run_command(words, file, json.loads(variables), ProcessLimits(forks=path)))
"""


@pytest.mark.parametrize(
    ("harm", "whom"), [("SIGKILL", "caller"), ("SIGINT", "caller"), ("SIGTERM", "caller"), ("SIGKILL", "supervisor")]
)
def test_all_that_a_job_runs_ends_with_it(jobs: Jobs, tmp_path: Path, harm: str, whom: str) -> None:
    out = tmp_path / "late.json"
    words = [sys.executable, "-c", CALLER, str(out), forks.stage_path(jobs.path, 0), json.dumps(jobs.variables)]
    variables = jobs.variables | {"PYTHONPATH": jobs.variables["PYTHONPATH"]}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as caller:
        wait(out.exists)
        own = json.loads(out.read_text())["own"]
        os.kill(caller.pid if whom == "caller" else own["ids"][1], getattr(signal, harm))
        said, _ = caller.communicate(timeout=30)
    assert own["imported"]
    wait_for_ends((*own["ids"], own["child"]))
    if harm != "SIGKILL":
        assert caller.returncode == 128 + getattr(signal, harm)
    assert said == ("-9\n" if whom == "supervisor" else "")
    # The server forks on.
    assert jobs.process.poll() is None and jobs.run("well")[2]["own"]["imported"]


def test_a_lock_that_a_job_held_is_free_after_it(jobs: Jobs, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        told = jobs.run("well", held=[held.fileno()])[2]
        assert str(tmp_path / "lock") in told["told"]["files"] and told["own"]["imported"]
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_program_that_would_begin_otherwise_starts_by_itself(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jobs.run("well", CUDA_VISIBLE_DEVICES="3")[2]["own"]["imported"]
    assert not jobs.run("well", OMP_NUM_THREADS="3")[2]["own"]["imported"]
    (other := tmp_path / "python").symlink_to(f"{Path(sys.executable).parent}/python")
    assert other.exists()
    assert not jobs.run("well", PATH=f"{tmp_path}{os.pathsep}{jobs.variables['PATH']}")[2]["own"]["imported"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert not jobs.run("well")[2]["own"]["imported"]


def test_a_program_starts_by_itself_once_code_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(__file__).parents[2] / "profzoo", package := tmp_path / "profzoo")
    (package / "word.py").write_text("import wave\n")
    monkeypatch.setattr(forks, "__file__", str(package / "machine" / "forks.py"))
    jobs = Jobs(tmp_path, [["profzoo.word"]])
    assert jobs.run("well")[2]["own"]["imported"]
    (package / "word.py").write_text("WORD = 1\n")
    assert not jobs.run("well")[2]["own"]["imported"]
    jobs.process.communicate()


@pytest.mark.parametrize(
    "body",
    [
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "print('a warning')",
        "import sys, types\nsys.modules['torch.cuda'] = cuda = types.ModuleType('torch.cuda')\n"
        "cuda.is_initialized, cuda._is_in_bad_fork = lambda: True, lambda: False",
    ],
)
def test_a_server_whose_imports_do_not_allow_forks_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (packages := tmp_path / "site-packages").mkdir()
    (packages / "unsafe.py").write_text(f"import wave\n{body}\n")
    jobs = Jobs(tmp_path)
    jobs.process.communicate()
    path = f"{jobs.variables['PYTHONPATH']}{os.pathsep}{packages}"
    jobs.variables["PYTHONPATH"] = path
    python = f"{Path(sys.executable).parent}/python"
    jobs.process, jobs.path = forks.start(forks.JOBS, [["unsafe"]], jobs.variables, python)
    assert jobs.process.wait(timeout=20) == 1
    assert jobs.run("well")[0] == 0 and not jobs.run("well")[2]["own"]["imported"]


def test_a_server_with_a_module_of_a_folder_of_the_users_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job by itself notes that it read the module's file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    assert Jobs(tmp_path, [["mine"]]).process.wait(timeout=20) == 1
    (tmp_path / "sitecustomize.py").write_text("")
    assert Jobs(tmp_path).process.wait(timeout=20) == 1


def test_each_stage_has_what_the_ones_before_have_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And begins to fork when all stages have imported, as imports would disturb what is measured."""
    monkeypatch.chdir(tmp_path)
    (slow := tmp_path / "site-packages" / "slow").mkdir(parents=True)
    (slow / "__init__.py").write_text(
        f"import time, wave\ntime.sleep(1)\nopen({str(tmp_path / 'done')!r}, 'w').close()\n"
    )
    jobs = Jobs(tmp_path, [["sunau"], ["wave"]])
    jobs.process.communicate()
    jobs.variables["PYTHONPATH"] += f"{os.pathsep}{slow.parent}"
    python = f"{Path(sys.executable).parent}/python"
    jobs.process, jobs.path = forks.start(forks.JOBS, [["sunau"], ["slow"]], jobs.variables, python)
    assert not jobs.run("well")[2]["own"]["imported"] and (tmp_path / "done").exists()
    assert [jobs.run("well", stage=stage)[2]["own"]["imported"] for stage in (0, 1)] == [False, True]
    jobs.process.communicate()


def test_a_fork_counts_the_files_that_are_mapped_as_its_memory(jobs: Jobs) -> None:
    ranges = surroundings.mapped_ranges()
    assert sum(size for _, size in ranges) > 1 << 20
    reader, writer = os.pipe()
    if not os.fork():
        found = []
        for step in (lambda: None, lambda: surroundings.map_again(ranges)):
            step()
            found.append(next(line for line in Path("/proc/self/status").read_text().splitlines() if "RssFile" in line))
        os.write(writer, "\n".join(found).encode())
        os._exit(0)
    os.wait()
    before, after = (int(line.split()[1]) * 1024 for line in os.read(reader, 1000).decode().splitlines())
    assert before < after >= 0.9 * sum(size for _, size in ranges)
