"""The command `profzoo`, also `python -m profzoo`: what needs no folder of the workflow, or creates one."""

import sys
from collections.abc import Callable, Sequence

from profzoo import versions
from profzoo.cli import advise, ask, doctor, new_folder, session_run
from profzoo.referee import mcp_server

# Each command's function, the words that follow it, and what it is for.
COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str, str]] = {
    "advise": (advise.main, "-- python train.py", "profile a script of your own, and say what to change"),
    "ask": (ask.main, "QUESTION", "answer a question about results in JSON, for agents and other programs"),
    "demo": (new_folder.main_demo, "[FOLDER]", "create a folder with the workflow, and profile three models there"),
    "init": (new_folder.main_init, "FOLDER", "create a folder with the workflow"),
    "doctor": (doctor.main, "", "say what this machine can profile, and what to do where it cannot"),
    "mcp": (mcp_server.main, "", "answer agents over the Model Context Protocol"),
    "session": (session_run.main, "NAME", "record a window of a program that runs under `nsys launch`"),
}


def describe_commands() -> str:
    """Describe the commands in lines, with what to type for everything else."""
    typed = {f"profzoo {name} {words}".rstrip(): purpose for name, (_, words, purpose) in COMMANDS.items()}
    width = max(map(len, typed))
    typed["profzoo --version"] = "print the release"
    lines = [f"  {command:<{width}}  {purpose}" for command, purpose in typed.items()]
    return "\n".join(["usage:", *lines, "Everything else is a target of snakemake in such a folder: `snakemake help`."])


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; returns the exit code."""
    first, *rest = (sys.argv[1:] if words is None else list(words)) or [""]
    if first in ("-V", "--version"):
        print(versions.describe_release())
        return 0
    if too_old := versions.explain_too_old():
        print(f"profzoo: {too_old}", file=sys.stderr)
        return 2
    if first in ("-h", "--help", "help"):
        print(describe_commands())
        return 0
    if first not in COMMANDS:
        told = f"profzoo: there is no command {first!r}\n" if first else ""
        print(f"{told}{describe_commands()}", file=sys.stderr)
        return 2
    return COMMANDS[first][0](rest)


if __name__ == "__main__":
    sys.exit(main())
