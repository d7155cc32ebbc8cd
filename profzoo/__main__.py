"""The command `profzoo`, also `python -m profzoo`: what needs no folder of the workflow, or creates one."""

import importlib
import sys
from collections.abc import Callable, Sequence

from profzoo import versions

# Each command's module and function, the words that follow it, and what it is for. A module is imported for its command
# alone, as some import much.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "advise": ("cli.advise.main", "-- python train.py", "profile a script of your own, and say what to change"),
    "ask": ("cli.ask.main", "QUESTION", "answer a question about results in JSON, for agents and other programs"),
    "judge": ("cli.judge.main", "A B", "say whether state B of a model's file is faster than A, and still right"),
    "bisect": ("cli.bisect.main", "GOOD BAD -- python bench.py", "find the commit that made a program slower"),
    "gate": ("cli.gate.main", "BASE HEAD", "judge a pull request by what its base names, and write one comment"),
    "history": ("cli.gate.main_history", "[add ANSWER.json]", "say where the main branch became slower, by machine"),
    "score": ("cli.score.main", "[CLAIMS.csv]", "say how right claims are, by trials and planted faults"),
    "mcp": ("referee.mcp_server.main", "", "answer agents over the Model Context Protocol"),
    "demo": ("cli.new_folder.main_demo", "[FOLDER]", "create a folder with the workflow, and profile models there"),
    "init": ("cli.new_folder.main_init", "FOLDER", "create a folder with the workflow"),
    "doctor": ("cli.doctor.main", "", "say what this machine can profile, and what to do where it cannot"),
    "session": ("cli.session_run.main", "NAME", "record a window of a program that runs under `nsys launch`"),
}


def find_command(name: str) -> Callable[[Sequence[str]], int]:
    """Return the function of a command in COMMANDS, which takes the words behind it and returns the exit code."""
    module, _, function = COMMANDS[name][0].rpartition(".")
    found: Callable[[Sequence[str]], int] = getattr(importlib.import_module(f"profzoo.{module}"), function)
    return found


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
    return find_command(first)(rest)


if __name__ == "__main__":
    sys.exit(main())
