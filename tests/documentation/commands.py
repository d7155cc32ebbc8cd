"""Splits blocks of the documentation into commands, each with what it prints if the block shows that."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.documentation.pages import OF_ROOT, PROMPT, SHELL, SHOWN, Block, Span

# Ends a command, within a line.
BETWEEN = {"&&", "||", ";", "|", "&"}
INTO = {">", ">>", "<", "2>"}
VARIABLE = re.compile(r"[A-Za-z_]\w*=")
# Programs that begin the documented commands. What begins otherwise in an untagged block is output.
PROGRAMS = {
    ".", "apptainer", "bash", "cd", "conda", "cp", "curl", "docker", "echo", "export", "git", "id", "kubectl", "less",
    "ls", "make", "mkdir", "module", "mv", "ncu", "nsys", "nvidia-smi", "pip", "pipx", "podman", "python", "python3",
    "qsub", "rm", "sacct", "salloc", "sbatch", "scp", "sh", "snakemake", "source", "squeue", "srun", "ssh", "sudo",
    "tar", "torchrun", "uv", "uvx", "wget",
    "apt", "apt-get", "modprobe", "cat", "tail", "head", "grep", "set", "bsub", "profzoo",
}  # fmt: skip
# Programs that run the command which follows their own words.
WRAPPERS = ("docker", "apptainer", "podman", "srun", "sudo", "uvx", "ssh", "sbatch", "env", "nohup", "time")


@dataclass(frozen=True)
class Command:
    """One command of a page. words: its words, without comments and assignments before it; shown: its output, if shown."""

    page: str
    line: int
    words: tuple[str, ...]
    shown: tuple[str, ...] = ()
    inline: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def text(self) -> str:
        return shlex.join(self.words)


@dataclass(frozen=True)
class Line:
    """A line of a block with those that continue it, or one of output. number: in the page."""

    number: int
    text: str
    output: bool = False


def join_lines(block: Block) -> Iterator[Line]:
    """Yield the commands of a block, with lines joined that a backslash continues, and its lines of output."""
    prompt = find_prompt(block)
    held, begun = "", 0
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if held:
            held += line.strip()
        elif prompt and not line.startswith(prompt):
            yield Line(number, line, output=True)
            continue
        else:
            held, begun = line.removeprefix(prompt).strip(), number
        if held.endswith("\\"):
            held = f"{held[:-1].rstrip()} "
        else:
            yield Line(begun, held)
            held = ""


def find_prompt(block: Block) -> str:
    """Return what begins the commands of a session; empty if the block shows no output."""
    if any(line.startswith(PROMPT) for line in block.text.splitlines()):
        return PROMPT
    return OF_ROOT if block.language == "console" and block.text.startswith(OF_ROOT) else ""


def split_words(text: str) -> list[list[str]]:
    """Split a line of shell into the words of its commands.

    >>> split_words("A=1 make demo && snakemake -n  # look")
    [['make', 'demo'], ['snakemake', '-n']]
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in BETWEEN:
            commands.append([])
        elif commands[-1] or not VARIABLE.match(word):
            commands[-1].append(word)
    return [_without_files(words) for words in commands if words]


def _without_files(words: list[str]) -> list[str]:
    """Leave out files that a command reads from or writes to by the shell.

    >>> _without_files(["dot", "-Tsvg", ">", "a.svg"])
    ['dot', '-Tsvg']
    """
    return [
        word for place, word in enumerate(words) if word not in INTO and (not place or words[place - 1] not in INTO)
    ]


def holds_commands(block: Block) -> bool:
    """Whether the block has commands, rather than output alone or code of another language."""
    if block.language in SHELL and block.language:
        return True
    lines = [line for line in block.text.splitlines() if line.strip()]
    if find_prompt(block):
        return block.language in SHOWN or block.language in SHELL
    first = next((line.split()[0] for line in lines if not line.startswith("#")), "")
    return block.language == "" and (first in PROGRAMS or bool(VARIABLE.match(first)))


def is_output(block: Block) -> bool:
    """Whether the block shows what the command before it prints."""
    return block.language in SHOWN and not holds_commands(block)


def read_commands(block: Block) -> list[Command]:
    """Return the commands of a block, each with the output that follows it there."""
    found: list[Command] = []
    shown: list[list[str]] = []
    for line in join_lines(block):
        if line.output:
            # A line that only sets a variable is not a command, and prints nothing.
            assert shown or not line.text.strip(), f"{block.page}: no command prints {line.text!r}"
            for printed in shown[-1:]:
                printed.append(line.text)
            continue
        for words in split_words(line.text):
            found.append(Command(block.page, line.number, tuple(words)))
            shown.append([])
    return [
        Command(one.page, one.line, one.words, tuple(_stripped(lines))) for one, lines in zip(found, shown, strict=True)
    ]


def read_inline(span: Span) -> list[Command]:
    """Return the commands that a text between backticks is: a program of the project with at least one word more."""
    if not re.match(r"(snakemake|make|python -m|apptainer|docker) \S", span.text):
        return []
    return [Command(span.page, span.line, tuple(words), inline=True) for words in split_words(span.text)]


def _stripped(lines: Sequence[str]) -> list[str]:
    """Lines without empty ones at both ends."""
    full = [number for number, line in enumerate(lines) if line.strip()]
    return list(lines[full[0] : full[-1] + 1]) if full else []


def unwrap(words: Sequence[str]) -> tuple[str, ...]:
    """Return the snakemake or Python command that a container or a batch system would run; empty if there is none.

    >>> unwrap(["docker", "run", "--rm", "image", "snakemake", "doctor"])
    ('snakemake', 'doctor')
    """
    for place, word in enumerate(words[1:], start=1):
        if words[0] in WRAPPERS and word in ("snakemake", "python"):
            return tuple(words[place:])
    return ()
