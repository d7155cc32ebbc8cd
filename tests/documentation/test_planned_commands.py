"""Every documented snakemake command is planned by a dry run, in a folder that has the files it names."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from profzoo.cell import schema
from tests.documentation import declared, folder, pages
from tests.documentation.commands import Command, holds_commands, read_commands, read_inline
from tests.documentation.declared import Way
from tests.documentation.outputs import differs
from tests.documentation.pages import PROJECT
from tests.workflow import forked
from tests.workflow.project import Project


@cache
def page(name: str) -> str:
    return (PROJECT / name).read_text()


def snakemake(found: Iterator[Command], known: set[tuple[str, ...]]) -> list[Command]:
    """The commands that are planned, each once, but for those known; of wrapped ones, the command within."""
    planned: dict[tuple[str, ...], Command] = {}
    for command in found:
        check = declared.judge_command(command, page(command.page))
        words = check.inner or command.words
        if words[0] == "snakemake" and (check.inner or check.way is Way.PLANNED) and words not in known:
            inner = Command(command.page, command.line, words, command.shown, command.inline)
            planned.setdefault(words, inner)
    return list(planned.values())


BLOCKS = snakemake(
    (one for block in pages.all_blocks() if holds_commands(block) for one in read_commands(block)), set()
)
INLINE = snakemake((one for span in pages.all_spans() for one in read_inline(span)), {one.words for one in BLOCKS})


# Commands of the first page, one of a kind; all others are planned with the slow tests.
FIRST = r"snakemake (-j1 \S+|compare .*|report .*|import .*)"


def marked(command: Command):  # type: ignore[no-untyped-def]
    """The parameter of a test, with its marks."""
    first = command.page == "README.md" and re.fullmatch(FIRST, command.text)
    return pytest.param(command, id=command.text, marks=() if first else pytest.mark.slow)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return folder.make_folder(tmp_path_factory.mktemp("reader") / "project")


@cache
def configurations(name: str) -> list[pages.Block]:
    """The blocks of a page that are configurations."""
    keys = schema.load_schema()["properties"]
    return [block for block in pages.read_blocks(name, page(name)) if folder.is_configuration(block, keys)]


def plan(reader: Project, command: Command) -> tuple[int, str]:
    """Exit code and output of the command's dry run."""
    reader.write("config/config.yaml", folder.configure(command, configurations(command.page)))
    folder.write_named(reader, command, tuple(pages.read_blocks(command.page, page(command.page))))
    words = list(command.words[1:])
    dry = [] if {"-n", "--dry-run", "--version", "--help"} & {*words} else ["--dry-run"]
    run = forked.snakemake([*words, *dry], reader.root, reader.environment())
    return run.returncode, run.stdout + run.stderr


def refused(command: Command) -> bool:
    """Whether the page shows that the command ends with a message about a mistake."""
    return any(re.search(r"no rule or file|unknown key|did you mean", line) for line in command.shown)


@pytest.mark.parametrize("command", [marked(one) for one in BLOCKS])
def test_a_command_of_a_block_is_planned(reader: Project, command: Command) -> None:
    code, printed = plan(reader, command)
    assert bool(code) == refused(command), f"{command.place}: {command.text}\n{printed}"
    if refused(command):
        assert not differs(command.shown, printed), printed


@pytest.mark.slow
@pytest.mark.parametrize("command", INLINE, ids=lambda one: one.text)
def test_a_command_of_a_sentence_is_planned(reader: Project, command: Command) -> None:
    test_a_command_of_a_block_is_planned(reader, command)


def test_a_wrong_command_is_found(reader: Project) -> None:
    for words in (("snakemake", "reprot"), ("snakemake", "trials", "--config", "trials={most: 2}")):
        assert plan(reader, Command("README.md", 1, words))[0]
