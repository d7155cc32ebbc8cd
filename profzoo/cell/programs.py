"""Finds the program that a name stands for: a model of the zoo, the user's own model, or a script by its command."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profzoo import import_graph, schema
from profzoo.cell import registry
from profzoo.errors import ConfigError, UnusableError
from profzoo.json_types import GivenSettings

# Modules that run inside a script's processes. With all their imports they influence the measurement.
MEASURED = (
    "profzoo/script_harness/observers.py",
    "profzoo/script_harness/attach.py",
    "profzoo/script_harness/launcher.py",
    "profzoo/script_harness/startup/sitecustomize.py",
    "profzoo/collect/job_environment.py",
)
# Groups by which `models` selects scripts.
GROUPS = ("scripts", "own")


def find_program(name: str, changes: GivenSettings) -> registry.Model:
    """Find the program of a name; changes: its configured settings, or the settings of a resolved cell.

    Raises:
        UnusableError: the program's file cannot be used.
        ConfigError: no program has this name.
    """
    if "command" in changes:
        return describe_script(name, changes)
    module = changes.get("module")
    return registry.find_model(name, None if module == f"models.{name}" else module)


def describe_script(name: str, changes: GivenSettings) -> registry.Model:
    """Describe a script with the fields of a model; its batch size is not known before it runs.

    Raises:
        ConfigError: the name is invalid or belongs to a model of the zoo, or a setting has a wrong type.
    """
    if not schema.is_name(name, "model"):
        raise ConfigError(f"settings holds {name!r}, which is no name: {schema.describe_form('model')}")
    if is_taken(name):
        raise ConfigError(
            f"settings.{name}.command: the zoo has a model {name}, and results of both would lie in one folder: give "
            f"the script another name, such as my_{name}"
        )
    if changes.get("module"):
        raise ConfigError(f"settings.{name} has both command and module: leave one out")
    known = schema.script_properties()
    given = {key: schema.coerce_value(changes[key], known[key]) for key in known if key in changes}
    for key, value in given.items():
        schema.check_value(value, known[key], f"settings.{name}.{key}")
    phase: Any = given.get("phase", known["phase"]["default"])
    phases = {phase: {"batch": 1}}
    files = tuple(dict.fromkeys([*scripts_of(given["command"]), *given.get("inputs", ())]))
    return registry.Model(
        name, "", Path(files[0]) if files else Path(name), GROUPS, given["command"], None, "", {},
        {"trimmed": phases, "reference": phases}, files, given["command"],
    )  # fmt: skip


def is_taken(name: str) -> bool:
    """Whether the zoo has a model of this name, so that a script cannot bear it."""
    return (registry.ZOO / f"{name}.py").exists()


def scripts_of(command: str) -> list[str]:
    """Return the existing `.py` files that a command names.

    >>> scripts_of("python no_such_script.py --epochs 1")
    []
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [word for word in words if word.endswith(".py") and Path(word).is_file()]


def source_files(program: registry.Model) -> list[Path]:
    """Files that a measurement of the program depends on, sorted.

    Raises:
        UnusableError: a file does not exist, cannot be read or is not valid Python.
    """
    if not program.command:
        return registry.source_files(program)
    return sorted({*_script_files(program), *import_graph.files_of(*MEASURED)})


def declared_files(program: registry.Model) -> list[Path]:
    """Files that a program declares: FILES of a model; for a script, its `inputs` and the `.py` files in its command.

    Raises:
        UnusableError: a declared file does not exist.
    """
    return sorted({*_script_files(program)}) if program.command else registry.declared_files(program)


def _script_files(program: registry.Model) -> Iterator[Path]:
    for name in program.files:
        path = Path(name)
        if path.is_dir():
            yield from (one.resolve() for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
        elif path.is_file():
            yield path.resolve()
        else:
            raise UnusableError(
                f"settings.{program.name}.inputs names '{name}', and there is no such file or folder in {Path.cwd()}: "
                "put it there, or correct the name"
            )
