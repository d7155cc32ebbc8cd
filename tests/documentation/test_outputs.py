"""Every output that a page shows is printed by the command before it, or was printed by a run that is kept."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.documentation import declared
from tests.documentation.commands import Command, holds_commands, is_output, read_commands
from tests.documentation.outputs import differs, find_unprinted, mask
from tests.documentation.pages import PROJECT, Block, all_blocks
from tests.workflow.project import Project, copy, use_nsys

BLOCKS = all_blocks()
SHOWING = [
    one
    for block in BLOCKS
    if holds_commands(block)
    for one in read_commands(block)
    if one.shown and declared.prints(one)
]
ALONE = [block for block in BLOCKS if is_output(block) and not declared.of_extending(block)]
# Texts of runs on machines that not everybody has, as they were printed; the first line says of what.
KEPT = sorted((PROJECT / "tests/data/printed").glob("*.txt"))
DEMO = "snakemake report --configfile config/quickstart.yaml"
# Commands whose output a test holds against what they print, by patterns. Tests of this module and another one do.
COMPARED = {
    rf"make demo|{DEMO}( --config collect=false)?|snakemake -n report --configfile .*": "test_the_demo_prints_these_lines",
    r"snakemake -n": "test_the_plan_of_the_zoo_has_these_lines",
    r"snakemake doctor": "test_doctor_prints_these_lines",
    r"snakemake (-n )?(status|clean)( --config.*)?": "test_status_and_clean_print_these_lines",
    r"snakemake compare --config.* models=lstm .* candidate=\w+ .*": "test_a_comparison_prints_these_lines",
}
# Of the page on versions, where a driver or a release is too old.
COMPARED |= {"make env|snakemake all": "tests/unit/test_versions.py"}
# Gains of further cells: how many there are follows from what was measured.
MORE_GAINS = re.compile(r"        [\w@]+ (train|inference): ")
DOUBT = " (unsteady"
# Any cell may be the first on which a run remarks.
PHASE = re.compile(r"(?<=/)(?:train|inference)(?=\.)")
# The same of outputs without a command, by what they begin with.
COMPARED_ALONE = {"to win": "tests/unit/test_results.py", "gains": "tests/unit/test_results.py"}


def of(pattern: str) -> list[Command]:
    """The places that show what commands of this form print."""
    return [one for one in SHOWING if re.fullmatch(pattern, one.text) and one not in KEPT_ONES]


def kept(shown: tuple[str, ...]) -> bool:
    """Whether a kept run printed these lines, in this order."""
    return any(not differs(shown, path.read_text()) for path in KEPT)


KEPT_ONES = [one for one in SHOWING if kept(one.shown)]


@pytest.mark.parametrize("command", SHOWING, ids=lambda one: f"{one.place} {one.text}")
def test_each_shown_output_is_compared_or_kept(command: Command) -> None:
    assert command in KEPT_ONES or any(re.fullmatch(form, command.text) for form in COMPARED), (
        f"{command.place}: nothing says that `{command.text}` prints this: compare it in {__name__}, or keep what a run "
        "printed in tests/data/printed"
    )


@pytest.mark.parametrize("block", ALONE, ids=lambda one: one.place)
def test_an_output_without_a_command_was_printed(block: Block) -> None:
    compared = any(block.text.startswith(first) for first in COMPARED_ALONE)
    assert compared or kept(tuple(block.text.splitlines())), (
        f"{block.place}: no text in tests/data/printed has these lines"
    )


def test_kept_outputs_say_where_they_were_printed() -> None:
    for path in KEPT:
        first, *rest = path.read_text().splitlines()
        assert re.match(r"# Printed by `[^`]+`, .+\.$", first) and rest, path.name
        assert any(mask(line) for line in rest), path.name


def stable(line: str) -> str:
    """The part of a line that does not follow from what was measured: of a first gain, the text up to its size."""
    if MORE_GAINS.match(line):
        return ""
    measured = re.match(r"(gains|to win) ", line)
    return line.partition(" per step")[0] if measured else PHASE.sub("phase", line.partition(DOUBT)[0])


def unprinted(commands: list[Command], printed: str) -> list[str]:
    """Shown texts that were not printed, each with its place; how unsteady times were is left out."""
    lines = [stable(line) for line in printed.splitlines()]
    # On a busy machine, cells have verdicts that are undecided in place of gains.
    busy = any(line.startswith("verdict ") for line in lines)
    commands = [
        replace(one, shown=tuple(stable(line) for line in one.shown if not (busy and line.startswith("gains "))))
        for one in commands
    ]
    return [f"{one.place}: {what}" for one in commands if (what := find_unprinted(one.shown, lines))]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder in which nothing is made, without a GPU."""
    return copy(tmp_path_factory.mktemp("outputs") / "project")


WITHOUT_GPU = pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="of machines without a GPU")
# Lines that only a machine with nsys prints, and the name of the machine.
OF_NSYS = re.compile(r"^\S\S  (?:nsys|nvtx|CPU samples)|machine can profile")
NAMED = re.compile(r"^Checks on \S+:")


def lacking_of_doctor(project: Project, leave_out: re.Pattern[str]) -> list[str]:
    """Shown lines of doctor that it does not print here, and then all that it prints; empty if it prints them all."""
    words = ["--results", "results", "--cells", "4", "--tools", "torch", "nsys", "ncu"]
    run = subprocess.run(
        [sys.executable, "-m", "profzoo.cli.doctor", *words], cwd=project.root, env=project.environment(), text=True,
        capture_output=True, check=False, timeout=240,
    )  # fmt: skip
    printed = {mask(NAMED.sub("", line)) for line in run.stdout.splitlines()}
    missing = [
        f"{command.place}: {line}"
        for command in of("snakemake doctor")
        for line in command.shown
        if not leave_out.search(line) and mask(NAMED.sub("", line)) not in printed
    ]
    return [*missing, run.stdout] if missing else []


@WITHOUT_GPU
@pytest.mark.slow
def test_doctor_prints_these_lines(empty: Project) -> None:
    """All but those about nsys, which not every machine has."""
    lacking = lacking_of_doctor(empty, OF_NSYS)
    assert not lacking, "\n".join(lacking)


@WITHOUT_GPU
@pytest.mark.nsys
@pytest.mark.slow
@pytest.mark.skipif("PROFZOO_NSYS" not in os.environ, reason="PROFZOO_NSYS names no folder of nsys")
def test_doctor_prints_these_lines_about_nsys(tmp_path: Path) -> None:
    project = copy(tmp_path / "project")
    use_nsys(project, Path(os.environ["PROFZOO_NSYS"]))
    lacking = lacking_of_doctor(project, re.compile(r"^$"))
    assert not lacking, "\n".join(lacking)


@pytest.mark.slow
def test_the_plan_of_the_zoo_has_these_lines(empty: Project) -> None:
    run = empty.ended("-n", "--cores", "1")
    assert run[0] == 0 and not unprinted(of("snakemake -n"), run[1]), run[1]


@pytest.mark.slow
def test_the_demo_prints_these_lines(empty: Project, recorded: Path, tmp_path: Path) -> None:
    """Of recorded cells; messages that come only after silence come at once."""
    project = copy(tmp_path / "project")
    project.recording = recorded
    project.replace("profzoo/terminal/log_handler.py", "SILENCE_S = 20.0", "SILENCE_S = 0.0")
    words = ["report", "--config", "models=lstm,unet", "tool=torch"]
    measured = project.snakemake(*words)
    for name in ("tables", "figures"):
        shutil.rmtree(project.root / "results" / name)
    (project.root / "results/report.html").unlink()
    again = project.snakemake(*words, "collect=false")
    dry = project.snakemake(*words, "-n")
    runs = {rf"make demo|{DEMO}": measured, rf"{DEMO} --config collect=false": again, "snakemake -n report .*": dry}
    missing = [
        f"{what}\n{run.stdout}{run.stderr}"
        for pattern, run in runs.items()
        for what in unprinted(of(pattern), run.stdout + run.stderr)
    ]
    assert not missing, "\n".join(missing)


# A comparison of one small cell with itself at another batch; the machine decides on `not settled` and after semicolons.
COMPARISON = ["compare", "--config", "models=lstm", "phases=inference", "tool=time", "repeats=2", "candidate=large",
              "variants={large: {batch: 100}}"]  # fmt: skip


STATUS = [f"results/{cell}.time.csv" for cell in ("lstm/inference", "lstm/train", "lstm@odd/train", "unet/train")]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A folder with three cells and a comparison, and what the comparison printed."""
    project = copy(tmp_path_factory.mktemp("compared") / "project")
    project.replace("profzoo/terminal/log_handler.py", "SILENCE_S = 20.0", "SILENCE_S = 0.0")
    project.snakemake(*STATUS, "--config", "variants={odd: {batch: 3}}")
    run = project.snakemake(*COMPARISON)
    return project, run.stdout + run.stderr


@pytest.mark.slow
def test_a_comparison_prints_these_lines(compared: tuple[Project, str]) -> None:
    printed = [line.partition(";")[0].replace(", not settled", "") for line in compared[1].splitlines()]
    shown = [
        replace(one, shown=tuple(line.partition(";")[0] for line in one.shown))
        for one in of("snakemake compare .*candidate=large .*")
    ]
    missing = unprinted(shown, "\n".join(printed))
    assert "per sample" in compared[1] and not missing, "\n".join([*missing, *printed])


@pytest.mark.slow
def test_status_and_clean_print_these_lines(compared: tuple[Project, str]) -> None:
    """After the test of the comparison, because this one removes it."""
    project, _ = compared
    project.write("models/unet.py", project.read("models/unet.py") + "\n# Changed.\n")
    status = project.snakemake("status").stdout
    mine = project.snakemake("status", "--config", "models=lstm").stdout
    dry = project.snakemake("clean", "-n", "--config", "models=lstm")
    clean = project.snakemake("clean", "--config", "models=lstm").stdout
    missing = unprinted(of("snakemake status( --config.*)?"), status + mine)
    missing += unprinted(of("snakemake -n clean --config models=lstm"), dry.stdout + dry.stderr)
    missing += unprinted(of("snakemake clean --config models=lstm"), clean)
    assert not missing, "\n".join([*missing, status, mine, dry.stdout, clean])
