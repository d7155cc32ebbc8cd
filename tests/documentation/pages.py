"""Reads the fenced blocks of the documentation, and the commands that its text names between backticks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from profzoo.records import import_graph

PROJECT = Path(import_graph.PROJECT)
FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
# Within a paragraph.
SPAN = re.compile(r"(?<!`)`(?!`)((?:[^`\n]|\n(?!\s*\n))+)`(?!`)")
# Languages of blocks with commands, and of blocks that show what a command prints. Untagged blocks are one of both.
SHELL = ("", "sh", "bash", "shell")
SHOWN = ("", "console", "text", "pycon")
PROMPT, OF_ROOT = "$ ", "# "


@dataclass(frozen=True)
class Block:
    """A fenced block. page: path in the project; line: of its first fence; before: the line of text before it."""

    page: str
    line: int
    language: str
    text: str
    before: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Span:
    """A text between backticks, on one line even if the page breaks it."""

    page: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def find_pages(root: Path = PROJECT) -> list[Path]:
    """Return the pages of the documentation in a checkout; CHANGELOG.md has no commands."""
    pages = [root / name for name in ("README.md", "CONTRIBUTING.md", "config/README.md")]
    return [*pages, *sorted((root / "docs").rglob("*.md"))]


def read_language(info: str) -> str:
    """Return the language that a fence names.

    >>> [read_language(info) for info in ("", "yaml", 'yaml title="a.yaml"', "{.python .copy}")]
    ['', 'yaml', 'yaml', 'python']
    """
    words = info.strip().strip("{}").split()
    return words[0].lstrip(".").lower() if words else ""


def read_blocks(page: str, text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, also of lists, tabs and notes; their text has no indentation of the page.

    Raises:
        ValueError: a fence has no end.
    """
    opened: re.Match[str] | None = None
    start, before = 0, ""
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, start, body = fence, number, []
            elif line.strip():
                before = line.strip()
        elif fence and not fence["info"].strip() and fence["fence"].startswith(opened["fence"]):
            yield Block(page, start, read_language(opened["info"]), "".join(body), before)
            opened, before = None, ""
        else:
            body.append(f"{line.removeprefix(opened['indent'])}\n")
    if opened is not None:
        raise ValueError(f"{page}:{start}: this block has no end")


def read_spans(page: str, text: str) -> Iterator[Span]:
    """Yield the texts between backticks outside of fenced blocks."""
    plain, inside = [], ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence and (not inside or (fence["fence"].startswith(inside) and not fence["info"].strip())):
            inside = "" if inside else fence["fence"]
            plain.append("")
        else:
            plain.append("" if inside else line)
    joined = "\n".join(plain)
    for found in SPAN.finditer(joined):
        # A cell of a table escapes its lines.
        yield Span(page, joined.count("\n", 0, found.start()) + 1, " ".join(found[1].replace(r"\|", "|").split()))


def all_blocks(root: Path = PROJECT) -> list[Block]:
    return [one for path in find_pages(root) for one in read_blocks(_name(path, root), path.read_text())]


def all_spans(root: Path = PROJECT) -> list[Span]:
    """Return all texts between backticks of the documentation."""
    return [one for path in find_pages(root) for one in read_spans(_name(path, root), path.read_text())]


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
