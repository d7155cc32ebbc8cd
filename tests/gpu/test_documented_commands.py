"""Documented commands on a real GPU, as they are typed, in a folder of a reader who selects one small cell.

They run for PROFZOO_DOCUMENTED_MINUTES at most (4): first those in FIRST, then others in the order of the pages, then those
in LONG, which need 30. What is left is skipped, and counted in the last test.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.documentation import folder
from tests.documentation.commands import Command
from tests.documentation.outputs import find_unprinted
from tests.documentation.pages import PROJECT, read_blocks
from tests.documentation.test_outputs import KEPT_ONES
from tests.documentation.test_planned_commands import BLOCKS
from tests.documentation.test_python_blocks import TABLES, of_kind
from tests.workflow.project import Project

MINUTES = float(os.environ.get("PROFZOO_DOCUMENTED_MINUTES", "4"))
BEGAN: list[float] = []
# Small, so that a command takes seconds; the reader's profile also lets eight tables be made at a time.
CONFIGURATION = """\
models: [lstm]
phases: [train]
warmup: 1
time: {window: 20}
nsys: {window: 5}
torch: {window: 2}
ncu: {budget: 20s}
trials: {budget: 60s}
repeats: 2
"""
FIRST = (
    "snakemake doctor",
    "snakemake -j1 results/mobilenetv2/train.ncu.csv",
    "snakemake results/mobilenetv2/train.replay.csv",
    "snakemake results/bert/train.fusion.csv",
    "snakemake status",
    "snakemake -n",
)
# What takes long, and still comes before other commands.
NEXT = ("snakemake all --config tool=nsys models=lstm,unet",)
LONG = re.compile(r"snakemake (trials|compare|all|report)\b")
# What does not run on a machine with one GPU, and why.
NEVER = {
    "--workflow-profile profiles/": "it needs a batch system or a cluster",
    "--sdm apptainer": "it needs Apptainer and the image",
    "gpu=2": "it needs two GPUs",
    "gpu=8": "it needs eight GPUs",
    "snakemake serve": "it does not end by itself",
    "extensions=": "tests/workflow/test_extending.py runs it",
    "name=run7": "tests/workflow/test_imported.py runs it on a machine without a GPU",
    "snakemake clean": "it would remove what the others need",
    "fail_on=": "its exit code is the outcome of a comparison",
    "collect=false": "it needs results of every tool",
    "containers/": "it needs a container",
}


def reason(command: Command) -> str:
    """Why a command does not run here; empty if it does."""
    return next((why for part, why in NEVER.items() if part in command.text), "")


def rank(command: Command) -> tuple[int, int]:
    """The place of a command in the order of all."""
    if command.text in FIRST:
        return 0, FIRST.index(command.text)
    if command.text in NEXT:
        return 1, 0
    # Runs come before the comparison that reads them.
    return (2 if LONG.match(command.text) else 1), 1 + ("reference=" in command.text)


COMMANDS = sorted((one for one in BLOCKS if not reason(one)), key=rank)
RAN: list[str] = []


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader, with nothing measured."""
    project = folder.make_folder(tmp_path_factory.mktemp("documented") / "project", measured=False)
    project.write("config/config.yaml", CONFIGURATION)
    project.replace("profiles/default/config.yaml", "cores: 1\n", "cores: 8\n")
    BEGAN.append(time.monotonic())
    return project.root


def typed(reader: Path, line: str) -> str:
    """Type a line in the reader's folder and return what is printed; it must succeed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = subprocess.run(
        ["bash", "-c", line], cwd=reader, env=os.environ | {"PATH": path}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, timeout=900,
    )  # fmt: skip
    assert run.returncode == 0, f"{line}\n{run.stdout[-6000:]}"
    return run.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.text)
def test_a_documented_command_does_what_it_says(reader: Path, command: Command) -> None:
    used = (time.monotonic() - BEGAN[0]) / 60
    place, _ = rank(command)
    if (place and used > MINUTES) or (place == 2 and MINUTES < 30):
        pytest.skip(f"after {used:.1f} of {MINUTES:g} minutes; PROFZOO_DOCUMENTED_MINUTES=30 runs it too")
    page = (PROJECT / command.page).read_text()
    folder.write_named(Project(reader), command, tuple(read_blocks(command.page, page)))
    printed = typed(reader, shlex.join(command.words))
    RAN.append(command.text)
    assert "Traceback" not in printed
    for word in command.words[1:]:
        if word.startswith("results/"):
            assert (reader / word).exists() or {"-n", "--dry-run"} & {*command.words}, word
    if command in KEPT_ONES:
        assert not find_unprinted(command.shown, printed.splitlines()), printed


def test_documented_python_runs_on_what_was_measured(reader: Path) -> None:
    """Blocks that read the trace which a command before made."""
    if not (reader / "results/mobilenetv2/train.nsys.sqlite").exists():
        pytest.skip("no command before has made the trace")
    blocks = [block for block in of_kind("script") if TABLES not in block.text]
    assert blocks
    for block in blocks:
        with contextlib.chdir(reader), contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block.text, block.place, "exec"), {"__name__": "shown"})
        assert out.getvalue().strip()


def test_most_short_commands_ran(request: pytest.FixtureRequest) -> None:
    """The count of what ran, and why the others did not; -k may choose among them."""
    if not RAN:
        pytest.skip("no command ran")
    left = [one for one in COMMANDS if one.text not in RAN]
    print(f"\n{len(RAN)} documented commands ran on the GPU; {len(left)} are left for a longer run")
    for command in BLOCKS:
        if why := reason(command):
            print(f"never on one GPU: {command.text}: {why}")
    chosen = {item.callspec.params["command"].text for item in request.session.items if hasattr(item, "callspec")}
    assert {*FIRST} & chosen <= {*RAN}
