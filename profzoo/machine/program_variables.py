"""Gives a measured program the user's own environment variables inside its process, and notes which of them it reads.

A profiler records the variables that a process starts with. Therefore the job writes the user's own variables to a file
that only this user can read, and the process takes them from it before it imports anything else. Where a profiler
records the environments of child processes too, variables that look like secrets can be read by their names only, and
child processes do not inherit them.

The standard library alone is imported here, as every Python process of a script starts with this file. What is known is
kept on `os.environ` itself: a script's process may load this file twice.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Variable that names the file; the file's name; and what it holds.
FILE, NAME = "PROFZOO_VARIABLES_FILE", ".variables.json"
VARIABLES, HIDDEN, RECORDED = "variables", "hidden", "recorded"
# Attribute of `os.environ` that holds what is known.
KNOWN = "profzoo_known"


class NotingEnviron(type(os.environ)):  # type: ignore[misc]
    """The environment of a process, which notes the names that the program asks for.

    Names that it goes through all at once, as for a copy of the environment, are not noted.
    """

    def __getitem__(self, name: str) -> str:
        """Return a variable; also one that child processes do not inherit."""
        known = self.__dict__[KNOWN]
        if name in known["passed"]:
            known["passed"].discard(name)
        elif isinstance(name, str) and name not in known["own"]:
            known["read"][name] = None
        try:
            return str(super().__getitem__(name))
        except KeyError:
            if name in known[HIDDEN]:
                return str(known[HIDDEN][name])
            raise

    def __setitem__(self, name: str, value: str) -> None:
        """Set a variable, which is the program's own from then on."""
        self.__dict__[KNOWN]["own"].add(name)
        super().__setitem__(name, value)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the variables that child processes inherit."""
        for name in super().__iter__():
            self.__dict__[KNOWN]["passed"].add(name)
            yield name


def hand_over_variables(
    folder: Path, found: Mapping[str, str], secrets: Sequence[str], recorded: bool
) -> dict[str, str]:
    """Write a job's variables to a file that only this user can read; returns the variable that names the file.

    found: the user's own variables. secrets: names of those that look like secrets. recorded: whether a profiler
    records the environments of the program's processes.
    """
    path = folder / NAME
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({VARIABLES: dict(found), HIDDEN: list(secrets) if recorded else [], RECORDED: recorded}, file)
    return {FILE: str(path)}


def restore_variables() -> None:
    """Take the user's own variables from the file that the environment names, and note from now on what is read."""
    path = os.environ.get(FILE)
    if not path or KNOWN in os.environ.__dict__:
        return
    try:
        told = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        # The job has ended.
        return
    # What a command such as `env MODE=fast` has set is newer.
    new = {name: value for name, value in told[VARIABLES].items() if name not in os.environ}
    hidden = {name: new.pop(name) for name in told[HIDDEN] if name in new}
    os.environ.update(new)
    given = {name: _digest(name, value) for name, value in os.environ.items()}
    known: dict[str, Any] = {
        HIDDEN: hidden, "given": given, "new": set(new), RECORDED: told[RECORDED],
        "read": {}, "own": {FILE}, "passed": set(),
    }  # fmt: skip
    os.environ.__dict__[KNOWN] = known
    os.environ.__class__ = NotingEnviron


def describe_reads() -> dict[str, str | None]:
    """Digests of the variables that the program has asked for, by name; None for one that was not set.

    Variables that look like secrets are left out.
    """
    known = os.environ.__dict__.get(KNOWN)
    return {name: known["given"].get(name) for name in known["read"] if name not in known[HIDDEN]} if known else {}


def command_variables(words: Sequence[str]) -> dict[str, str]:
    """Variables for a command that this process starts and that a profiler may record; words: the command.

    Python takes the user's own variables from the file, so that no profiler records them; other programs need them
    from the start.
    """
    known = os.environ.__dict__.get(KNOWN)
    inside = known["new"] if known and known[RECORDED] and Path(words[0]).name.startswith("python") else ()
    return {name: value for name, value in os.environ.items() if name not in inside}


def _digest(name: str, value: str) -> str:
    """The same as `collect.environment.variable_digest`, which takes packages."""
    return f"sha256:{hashlib.sha256(f'{name}={value}'.encode(errors='surrogateescape')).hexdigest()}"
