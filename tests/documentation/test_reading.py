"""Blocks, commands and shown outputs are read from pages of every form that the documentation uses."""

import pytest

from tests.documentation import declared
from tests.documentation.commands import Command, holds_commands, is_output, read_commands, read_inline, unwrap
from tests.documentation.declared import Way
from tests.documentation.pages import Block, all_blocks, all_spans, find_pages, read_blocks, read_spans

PAGE = """\
# Title

Write this:

```yaml title="config/config.yaml"
models: lstm
```

1. In a list, `snakemake -n`:

    ~~~sh
    snakemake -n \\
      report    # what is left?
    ~~~

````
```
not the end
```
````
"""
SESSION = "$ A=1 snakemake status && make demo\nall is well\n\n$ snakemake clean\nremoved 3 files\n"


def test_blocks_of_lists_and_of_other_blocks_are_found() -> None:
    config, listed, nested = read_blocks("a.md", PAGE)
    assert (config.language, config.text, config.line, config.before) == ("yaml", "models: lstm\n", 5, "Write this:")
    assert (listed.language, listed.line, listed.place) == ("sh", 11, "a.md:11")
    assert nested.text == "```\nnot the end\n```\n"
    (command,) = read_commands(listed)
    assert (command.words, command.line) == (("snakemake", "-n", "report"), 12)


def test_a_block_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^a\.md:3: this block has no end$"):
        list(read_blocks("a.md", "text\n\n```sh\nmake\n"))


def test_texts_between_backticks_are_found_outside_of_blocks() -> None:
    text = "See `snakemake\nstatus` and `a \\| b`.\n\n```sh\n`inside`\n```\n\nOne ` alone.\n\nAnd `make demo`.\n"
    found = {span.text: span.line for span in read_spans("a.md", text)}
    assert found == {"snakemake status": 1, "a | b": 2, "make demo": 10}


def test_a_session_has_the_output_of_each_command() -> None:
    block = Block("a.md", 10, "console", SESSION)
    assert holds_commands(block) and not is_output(block)
    status, demo, clean = read_commands(block)
    assert status.words == ("snakemake", "status") and status.shown == ()
    assert demo.words == ("make", "demo") and demo.shown == ("all is well",) and demo.line == 11
    assert clean.shown == ("removed 3 files",) and clean.line == 14


@pytest.mark.parametrize(
    ("language", "text", "commands", "output"),
    [
        ("", "snakemake -n  # plan\n", True, False),
        ("", "# first\nexport A=1\n", True, False),
        ("", "to win  unet train: graph=true\n", False, True),
        ("text", "snakemake ends with this line\n", False, True),
        ("sh", "lab-program\n", True, False),
        ("yaml", "a: 1\n", False, False),
    ],
)
def test_a_block_is_of_commands_or_of_output(language: str, text: str, commands: bool, output: bool) -> None:
    block = Block("a.md", 1, language, text)
    assert (holds_commands(block), is_output(block)) == (commands, output)


def test_a_command_in_a_container_is_found() -> None:
    assert unwrap(("apptainer", "exec", "--nv", "a.sif", "snakemake", "-n")) == ("snakemake", "-n")
    assert unwrap(("apptainer", "build", "a.sif", "a.def")) == () == unwrap(("snakemake", "-n"))


def test_inline_commands_have_words_of_their_own() -> None:
    spans = read_spans("a.md", "`snakemake`, `snakemake -n | head`, `make`, `python -m x.y Z` and `nsys stats`")
    found = [one.text for span in spans for one in read_inline(span)]
    assert found == ["snakemake -n", "head", "python -m x.y Z"]


def test_a_program_that_nothing_is_declared_for_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^a\.md:1: nothing says how `perl -e 1` is checked: add perl to NOT_RUN"):
        declared.judge_command(Command("a.md", 1, ("perl", "-e", "1")), "")


def test_words_of_the_reader_are_filled_in() -> None:
    check = declared.judge_command(Command("a.md", 1, ("snakemake", "models=...", "results/{model}{,@two}/a.csv")), "")
    assert (check.way, check.inner) == (Way.PLANNED, ("snakemake", "models=lstm", "results/lstm/a.csv"))
    quoted = ("snakemake", "--config", "models=lstm", "figures={most_cells: 10}")
    assert declared.judge_command(Command("a.md", 1, quoted), "").inner == quoted


def test_the_documentation_is_found() -> None:
    assert len(find_pages()) > 30
    assert len(all_blocks()) > 60 and len(all_spans()) > 1000
