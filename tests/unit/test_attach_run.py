"""cli/attach_run: a running process that was armed records itself when it is asked to, and goes on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profzoo.cli import attach_run
from profzoo.errors import CollectError, ConfigError
from profzoo.records.import_graph import PROJECT
from profzoo.script_harness import launcher

STEPS = 4
SERVER = """
import sys, time
import torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
print("ready", flush=True)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until and (len(sys.argv) < 3 or sys.stdin.read(1) == "s"):
    optimizer.zero_grad()
    net(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
print("goes on:", len(net._forward_hooks), flush=True)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the program starts."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def serve(here: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program that is armed."""
    started: list[subprocess.Popen[str]] = []
    (here / "serve.py").write_text(SERVER)
    variables = os.environ | {"PYTHONPATH": str(PROJECT)}

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "profzoo", "session", "arm", "--", sys.executable, "serve.py", *words]
        one = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(one)
        assert one.stdout and one.stdout.readline() == "ready\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_a_running_process_records_itself_and_goes_on(here: Path, serve: Callable[..., subprocess.Popen[str]]) -> None:
    server = serve("600")
    folder = attach_run.find_folder(server.pid)
    assert folder == here / "profzoo-results"
    for name in ("first", "again"):
        lacks = attach_run.record_process(server.pid, folder, launcher.plan_recording(name, STEPS), 120)
        facts = json.loads((folder / "recorded" / name / "facts.json").read_text())
        assert (lacks, facts["steps"], facts["script"]["step"]) == ("", STEPS, "a step of SGD")
        assert facts["script"]["per_step"] == {"forward calls": 1, "backward passes": 1, "optimizer steps": 1}
    assert server.poll() is None and [path.name for path in folder.iterdir() if path.suffix == ".json"] == []


@pytest.mark.slow
def test_a_process_that_steps_no_more_ends_with_what_it_has(
    here: Path, serve: Callable[..., subprocess.Popen[str]]
) -> None:
    server = serve("600", "by steps")
    folder = attach_run.find_folder(server.pid)
    with pytest.raises(CollectError, match=rf"^process {server.pid} has recorded nothing: no step was found"):
        attach_run.record_process(server.pid, folder, launcher.plan_recording("idle", STEPS), 0.5)
    assert server.stdin
    server.stdin.write("sq")
    server.stdin.flush()
    assert server.stdout and server.stdout.readline() == "goes on: 0\n" and server.wait(60) == 0


def test_only_a_process_that_waits_for_it_gets_the_signal() -> None:
    """It would end any other one."""
    other = subprocess.Popen(["sleep", "60"])
    asleep = subprocess.Popen(["sleep", "60"], env=os.environ | {"PROFZOO_ATTACH": "/x"})
    time.sleep(0.2)
    with pytest.raises(ConfigError, match=rf"^process {other.pid} was not armed, so that no signal can ask it"):
        attach_run.find_folder(other.pid)
    with pytest.raises(ConfigError, match="is armed, and does not wait for the signal"):
        attach_run.find_folder(asleep.pid)
    asleep.kill()
    asleep.wait()
    with pytest.raises(ConfigError, match=r"^there is no process"):
        attach_run.find_folder(asleep.pid)
    assert other.poll() is None
    other.kill()
    other.wait()
