"""Prints how every documented block and command is checked: python -m tests.documentation.summary [--all].

With --all, each block and command has a line of its own.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from profzoo.cell import schema
from tests.documentation import declared, folder
from tests.documentation.commands import Command, holds_commands, is_output, read_commands, read_inline
from tests.documentation.declared import Way
from tests.documentation.pages import PROJECT, Block, all_blocks, all_spans

KINDS = ("command of a block", "command of a sentence", "yaml", "python", "output", "other")


@dataclass(frozen=True)
class Row:
    """One block or command. kind: one of KINDS; why: the reason where nothing runs it, or the test that does."""

    kind: str
    way: Way
    place: str
    text: str
    why: str = ""


def all_rows() -> Iterator[Row]:
    """Yield a row for each block and command of the documentation."""
    for block in all_blocks():
        if holds_commands(block):
            for command in read_commands(block):
                yield from _of_command(command, KINDS[0])
        else:
            yield _of_block(block)
    for span in all_spans():
        for command in read_inline(span):
            yield from _of_command(command, KINDS[1])


def _of_command(command: Command, kind: str) -> Iterator[Row]:
    check = declared.judge_command(command, (PROJECT / command.page).read_text())
    yield Row(kind, check.way, command.place, command.text, check.why)
    if command.shown:
        way = Way.PRINTED if declared.prints(command) else Way.NOT_HERE
        why = "" if declared.prints(command) else "another program prints it"
        yield Row("output", way, command.place, f"output of {command.text}", why)


def _of_block(block: Block) -> Row:
    first = next(iter(block.text.splitlines()), "")
    if declared.of_extending(block) or declared.of_recipe(block):
        where = declared.BY_EXTENDING if declared.of_extending(block) else declared.BY_RECIPES
        return Row(_kind(block), Way.ELSEWHERE, block.place, first, where)
    if is_output(block):
        return Row("output", Way.PRINTED, block.place, first)
    if block.language in ("yaml", "yml"):
        keys = schema.load_schema()["properties"]
        named = "a configuration" if folder.is_configuration(block, keys) else "a file of another program"
        return Row("yaml", Way.CONFIGURATION, block.place, first, named)
    if block.language in ("python", "py", "snakemake"):
        return Row("python", Way.RUN, block.place, first)
    raise ValueError(f"{block.place}: nothing says how a block of {block.language or 'no language'} is checked")


def _kind(block: Block) -> str:
    return {"yaml": "yaml", "yml": "yaml", "python": "python"}.get(block.language, "other")


def format_table(rows: list[Row]) -> list[str]:
    """Format the numbers of blocks by kind and way, and the reasons for what is not run."""
    ways = [way for way in Way if any(row.way is way for row in rows)]
    counts = Counter((row.kind, row.way) for row in rows)
    lines = ["| | " + " | ".join(way.value for way in ways) + " | all |", "|---" * (len(ways) + 2) + "|"]
    for kind in KINDS:
        mine = [counts[kind, way] for way in ways]
        lines.append(f"| {kind} | " + " | ".join(map(str, mine)) + f" | {sum(mine)} |")
    reasons = Counter(f"{row.text.split()[0]}: {row.why}" for row in rows if row.way is Way.NOT_HERE)
    return [*lines, "", "Not run:", *(f"- {count} x {why}" for why, count in sorted(reasons.items()))]


def main(words: list[str]) -> None:
    rows = list(all_rows())
    print("\n".join(format_table(rows)))
    for row in rows if "--all" in words else ():
        print(f"{row.place}  {row.way.value}  {row.text}  {row.why}".rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
