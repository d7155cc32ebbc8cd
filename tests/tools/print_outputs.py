"""Runs the commands of a page's console blocks and puts what they print below them: `python -m tests.tools.print_outputs PAGE`.

A block of the language `console` is a session: lines that begin with `$ ` are commands, the others what they printed.
Commands run one after the other in the folder that the tool is called in, in a terminal of 100 columns.
"""

import argparse
import os
import re
import subprocess
from pathlib import Path

SESSION = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT = "$ "
COLUMNS = 100
# Every run prints it, whatever it does.
ALWAYS = re.compile(r"^Using workflow specific profile .*\n", re.MULTILINE)


def run_command(command: str) -> str:
    """What a command prints to both outputs, which ends with a line break unless it is empty."""
    variables = {**os.environ, "COLUMNS": str(COLUMNS)}
    done = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables, check=False
    )
    printed = ALWAYS.sub("", done.stdout).rstrip()
    return f"{printed}\n" if printed else ""


def refresh_session(session: str) -> str:
    """A session with what its commands print now.

    >>> refresh_session("$ echo new\\nold\\n$ true\\n")
    '$ echo new\\nnew\\n$ true\\n'
    """
    commands = [line for line in session.splitlines() if line.startswith(PROMPT)]
    return "".join(f"{command}\n{run_command(command.removeprefix(PROMPT))}" for command in commands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    text = page.read_text(encoding="utf-8")
    page.write_text(SESSION.sub(lambda found: f"```console\n{refresh_session(found[1])}```", text), encoding="utf-8")


if __name__ == "__main__":
    main()
