"""Check the imported reports in the configuration, and read reports named on the command line."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from profzoo import schema
from profzoo.errors import ConfigError, suggest_nearest

# The tools whose reports can be imported; step times come from the first one that has them.
TOOLS = ("nsys", "torch", "ncu")
NAME = "name"


def files_of(entry: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the files of an entry of `imported`, by tool.

    >>> files_of({"torch": "rank0.json.gz", "ncu": ["a.csv", "b.csv"], "step": "iteration"})
    {'torch': ['rank0.json.gz'], 'ncu': ['a.csv', 'b.csv']}
    """
    given = {tool: entry[tool] for tool in TOOLS if entry.get(tool)}
    return {tool: [files] if isinstance(files, str) else list(files) for tool, files in given.items()}


def check_reports(imported: Mapping[str, Mapping[str, Any]], models: Collection[str]) -> None:
    """Check the names of all entries of `imported`.

    Raises:
        ConfigError: a name belongs to a model already, or an entry names no file.
    """
    for name, entry in imported.items():
        if name in models:
            raise ConfigError(f"imported.{name}: a model has this name already: give the report another one")
        if not files_of(entry):
            raise ConfigError(f"imported.{name} names no report: give torch, nsys or ncu")


def check_files(imported: Mapping[str, Mapping[str, Any]], names: Iterable[str], results: Path) -> None:
    """Check that the reports of these imported models exist, except those that were imported before.

    results: the results folder.

    Raises:
        ConfigError: a report is missing or is a folder.
    """
    for name in names:
        for tool, files in files_of(imported[name]).items():
            for file in files:
                path = Path(file)
                if path.is_file() or (not path.exists() and any((results / name).glob("imported.*.json"))):
                    continue
                near = [one.name for one in path.parent.glob("*")] if path.parent.is_dir() else []
                what = "is a folder" if path.is_dir() else f"does not exist; {suggest_nearest(path.name, near)}"
                raise ConfigError(f"imported.{name}.{tool} = '{file}': the file {what}")


def take_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with an entry in `imported` for the words of `snakemake import`.

    The words are `torch`, `nsys` and `ncu` with files instead of settings, `step`, and `name`. The default name is
    derived from the first file. Without words for files the configuration is returned unchanged.

    Raises:
        ConfigError: the name is not a valid name of a model.

    >>> take_words({"torch": "runs/rank0.json.gz", "gpu": "h100"})
    {'gpu': 'h100', 'imported': {'rank0': {'torch': 'runs/rank0.json.gz'}}, 'models': ['rank0']}
    """
    entry = {tool: given[tool] for tool in TOOLS if isinstance(given.get(tool), str | list)}
    if not entry:
        return dict(given)
    rest = {key: value for key, value in given.items() if key not in (*entry, NAME, "step")}
    entry |= {"step": given["step"]} if "step" in given else {}
    first = next(iter(files_of(entry).values()))[0].partition(",")[0]
    name = str(given.get(NAME) or _name_of(first))
    if not schema.is_name(name, "model"):
        raise ConfigError(
            f"import: {name!r} is no valid name of a model ({schema.describe_form('model')}): give name=run1"
        )
    return rest | {"imported": {name: entry}, "models": [name]}


def _name_of(file: str) -> str:
    """Derive a model's name from the name of a file.

    >>> _name_of("runs/rank-0.Apr_03.pt.trace.json.gz"), _name_of("2024.nsys-rep")
    ('rank-0', 'run_2024')
    """
    stem = Path(file).name.partition(".")[0]
    plain = "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "_-" else "_" for letter in stem)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"run_{plain}"
