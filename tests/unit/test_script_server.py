"""Scripts that run in forks of a process that has imported their modules."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.workflow import script_server

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
            **dict.fromkeys(script_server.THREADS, "1"),
        }  # fmt: skip
        self.process, self.path = script_server.start([str(self.script)], self.variables)

    def begin(self, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*script_server.client_command(self.path).split(), str(self.script)],
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
    assert server.run() == (0, f"{script_server.__file__}\n")
    assert server.run(OMP_NUM_THREADS="3")[1] != f"{script_server.__file__}\n"


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
    ends = time.monotonic() + 20
    while Path(f"/proc/{script}").exists() and time.monotonic() < ends:
        time.sleep(0.02)
    assert not Path(f"/proc/{script}").exists()


def test_the_server_ends_when_its_input_closes(server: Server) -> None:
    server.run()
    server.process.communicate(timeout=20)
    assert server.process.returncode == 0


def test_modules_at_the_beginning_of_a_script_are_found(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json.decoder\nfrom profzoo.io import scripts\n\ndef later():\n    import torch\n")
    assert script_server.imports_of(str(script)) == ["json.decoder", "profzoo.io", "profzoo.io.scripts"]


def test_a_server_is_started_by_the_interpreter_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_server, "_started", [])
    words = script_server.script_command([], os.environ).split()
    assert words[:4] == [sys.executable, "-I", "-S", str(Path(script_server.__file__).with_name("script_client.py"))]
    (process,) = script_server._started
    process.communicate(timeout=60)
    assert process.returncode == 0
