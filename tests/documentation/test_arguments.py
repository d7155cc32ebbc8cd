"""Every documented `python -m` command, target of make and script has arguments that its program takes."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import chain

import pytest

from tests.documentation import arguments, declared
from tests.documentation.commands import Command, holds_commands, read_commands, read_inline
from tests.documentation.declared import Way
from tests.documentation.pages import PROJECT, all_blocks, all_spans

COMMANDS = list(
    chain(
        (one for block in all_blocks() if holds_commands(block) for one in read_commands(block)),
        (one for span in all_spans() for one in read_inline(span)),
    )
)


def of_way(way: Way) -> list[Command]:
    """The commands that are checked in this way, each once, with words of the reader's own filled in."""
    found: dict[tuple[str, ...], Command] = {}
    for one in COMMANDS:
        check = declared.judge_command(one, (PROJECT / one.page).read_text())
        if check.way is way:
            words = check.inner or one.words
            found.setdefault(words, replace(one, words=words))
    return list(found.values())


def is_name(command: Command) -> bool:
    """Whether a sentence names a program rather than a command: `python -m models.run` wants more words."""
    return command.inline and len(command.words) == 3


@cache
def read_by_programs() -> dict[Command, str]:
    """What programs say of all documented commands and of wrong ones; an empty text if they take the arguments."""
    commands = [*(one for one in PROGRAMS if not is_name(one)), *WRONG]
    run = subprocess.run(
        [sys.executable, "-m", "tests.documentation.arguments"], cwd=PROJECT, text=True, check=False, timeout=240,
        input=json.dumps([one.words for one in commands]), capture_output=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return dict(zip(commands, json.loads(run.stdout), strict=True))


PROGRAMS = [one for one in of_way(Way.ARGUMENTS) if one.words[0].startswith("python")]
WRONG = [
    Command("a.md", 1, tuple(line.split()))
    for line in (
        "python -m tests.benchmarks.compare_power --side plain,same,x --nothing",
        "python -m tests.benchmarks.trial_speed begin",
        "python -m tests.benchmarks.many_jobs plan three",
        "python -m tests.benchmarks.ncu_waits METRICS",
        "python -m tests.benchmarks.no_such_program",
        "python -m profzoo advise --frobnicate -- python train.py",
        "python -m models.run lstm trian device=cpu",
    )
]


def test_programs_take_the_documented_arguments() -> None:
    assert len(PROGRAMS) > 30
    wrong = [f"{one.place}: {one.text}\n  {why}" for one, why in read_by_programs().items() if why and one not in WRONG]
    assert not wrong, "\n".join(wrong)
    for command in filter(is_name, PROGRAMS):
        assert not arguments.find_source(command.words[2])[1], command.place


@pytest.mark.parametrize("command", WRONG, ids=lambda one: one.text)
def test_wrong_arguments_are_found(command: Command) -> None:
    assert read_by_programs()[command]


def makefile() -> tuple[set[str], str]:
    """Targets of the Makefile, and its text."""
    text = (PROJECT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.MULTILINE)), text


def test_targets_and_variables_of_make_exist() -> None:
    targets, text = makefile()
    found = of_way(Way.TARGET)
    assert {"demo", "test", "lint"} <= targets and len(found) >= 5
    for command in found:
        for word in command.words[1:]:
            name, sign, _ = word.partition("=")
            known = f"$({name})" in text or f"or $({name})," in text or f"{name} ?=" in text
            assert known if sign else name in targets, f"{command.place}: {command.text}: the Makefile has no {word}"


def test_scripts_exist() -> None:
    for command in of_way(Way.ARGUMENTS):
        if not command.words[0].startswith("python"):
            script = command.words[1] if command.words[0] in ("bash", "sh") else command.words[0]
            assert (PROJECT / script).is_file(), f"{command.place}: there is no {script}"


def test_the_shell_reads_the_blocks() -> None:
    for block in filter(holds_commands, all_blocks()):
        lines = block.text.splitlines()
        session = any(line.startswith("$ ") for line in lines)
        text = "\n".join(line[2:] for line in lines if line.startswith("$ ")) if session else block.text
        run = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{block.place}: {run.stderr}"
