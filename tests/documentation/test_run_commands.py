"""Documented commands that need no GPU and take seconds really run, as they are typed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import slow
from tests.documentation import declared, folder
from tests.documentation.commands import Command
from tests.documentation.test_arguments import PROGRAMS
from tests.documentation.test_planned_commands import BLOCKS, INLINE
from tests.workflow import forked
from tests.workflow.project import Project


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A reader's folder in which nothing was measured."""
    return folder.make_folder(tmp_path_factory.mktemp("reader") / "project", measured=False)


def of(pattern: str, commands: list[Command]) -> list[Command]:
    found = [one for one in commands if re.fullmatch(pattern, one.text)]
    assert found, pattern
    return found


def run(reader: Project, command: Command) -> str:
    """What snakemake prints; it must succeed."""
    done = forked.snakemake(command.words[1:], reader.root, reader.environment())
    assert done.returncode == 0, f"{command.place}: {command.text}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("command", slow.first(of(declared.RUN, [*BLOCKS, *INLINE])), ids=lambda one: one.text)
def test_a_command_about_results_runs(reader: Project, command: Command) -> None:
    assert run(reader, command).strip() or "unlock" in command.text


@pytest.mark.slow
@pytest.mark.parametrize("command", of("snakemake import .*torch=.*", BLOCKS), ids=lambda one: one.text)
def test_a_recorded_trace_is_imported(reader: Project, command: Command) -> None:
    run(reader, command)
    assert (reader.root / "results/run7/imported.torch.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", of("python -m profzoo advise -- .*", PROGRAMS), ids=lambda one: one.text)
def test_a_script_is_looked_at(reader: Project, command: Command) -> None:
    """With the option that prints the lines that profile the script, and ends."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = reader.environment() | {"PATH": path}
    done = subprocess.run(
        [*command.words[:4], "--show-config", *command.words[4:]],
        cwd=reader.root,
        env=variables,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "settings:" in done.stdout and "train.py" in done.stdout, done.stdout + done.stderr
