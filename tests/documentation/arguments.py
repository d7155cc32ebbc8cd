"""Reads the arguments of documented `python -m` commands by the programs' own parsers, without running the programs.

python -m tests.documentation.arguments: reads a list of commands from the standard input, as JSON, and prints for each
what is wrong with it, or an empty text.
"""

import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

# A form of `python -m MODULE ...` in a module's description, and what is optional in it.
USAGE = r"python -m {module}((?: [^\n]*)?)"
OPTIONAL = re.compile(r"\[[^\[\]]*\]")
# Modules whose parser is another module's. The first runs a cell.
CELLS = "models.run"
PARSED = (CELLS, "profzoo")


class AcceptedError(BaseException):
    """The parser took all arguments."""


def check(words: Sequence[str]) -> str:
    """Say what is wrong with a command `python -m MODULE ...`; empty if its program would begin to work."""
    module, given = words[2], list(words[3:])
    source, why = find_source(module)
    if why:
        return why
    if "ArgumentParser(" in source or module in PARSED:
        return _parse(module, given)
    return _count(module, given, source)


def find_source(module: str) -> tuple[str, str]:
    """Return the text of a module, or why it cannot be run."""
    found = importlib.util.find_spec(module)
    if found is None:
        return "", f"there is no module {module}"
    if found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{module}.__main__")
    if found is None or not found.origin:
        return "", f"{module} is a package that cannot be run"
    return Path(found.origin).read_text(), ""


def _parse(module: str, given: list[str]) -> str:
    """Run the module up to the end of its parser's work."""
    said = io.StringIO()
    whole, part = argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args
    # Parsers of subcommands, and parse_args itself, call the second one.
    within: list[argparse.ArgumentParser] = []

    def parse_args(self: argparse.ArgumentParser, *args: Any, **more: Any) -> None:
        within.append(self)
        whole(self, *args, **more)
        raise AcceptedError

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **more: Any) -> Any:
        outer = not within
        within.append(self)
        found = part(self, *args, **more)
        if outer:
            raise AcceptedError
        return found

    replaced: Any = mock.patch.multiple(
        argparse.ArgumentParser, parse_args=parse_args, parse_known_args=parse_known_args
    )
    if module == CELLS:
        # It also says what it thinks of the settings before it measures.
        replaced = mock.patch("profzoo.run._measure", side_effect=AcceptedError)
    with replaced, _called(module, given, said):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except AcceptedError:
            return ""
        except SystemExit as ended:
            return said.getvalue().strip() or f"it ended with {ended.code}"
    return "it ended without a look at its arguments"


def _count(module: str, given: Sequence[str], source: str) -> str:
    """Compare the number of words with the form in the module's description."""
    form = re.search(USAGE.format(module=re.escape(module)), source)
    if not form:
        if "sys.argv" not in source:
            return f"{module} takes no words" if given else ""
        return f"{module} does not say in its description which words it takes: `python -m {module} ...`"
    required, most = count_words(form[1])
    if required <= len(given) <= most:
        return ""
    return f"{module} takes {required} to {most} words, and {len(given)} are given"


def count_words(form: str) -> tuple[int, float]:
    """Return the least and the greatest number of words that a form of a command takes.

    >>> count_words(" RESULTS [PHASE]"), count_words(" [ROUNDS [MODEL/PHASE...]]"), count_words("")
    ((1, 2), (0, inf), (0, 0))
    """
    # A sentence may go on after the words.
    plain = " ".join(itertools.takewhile(lambda word: not re.fullmatch(r"[a-z,;:]+", word), form.split())).strip("`:.,")
    plain += " ..." if "..." in form else ""
    required = plain
    while OPTIONAL.search(required):
        required = OPTIONAL.sub("", required)
    names = plain.replace("[", " ").replace("]", " ").split()
    least = len([name for name in required.split() if name != "..."])
    return least, float("inf") if "..." in plain else len(names)


@contextlib.contextmanager
def _called(module: str, given: list[str], said: io.StringIO) -> Iterator[None]:
    with mock.patch.object(sys, "argv", [module, *given]), contextlib.redirect_stderr(said):
        yield


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        answers = [check(words) for words in json.load(sys.stdin)]
    print(json.dumps(answers), flush=True)
    # Programs that were begun have left threads and exit functions.
    os._exit(0)
