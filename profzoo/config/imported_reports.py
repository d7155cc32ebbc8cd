"""Check the imported reports in the configuration, and read reports named on the command line."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from profzoo.cell import schema
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.io import text_files
from profzoo.range_names import IMPORTED

# The tools whose reports can be imported; step times come from the first one that has them.
TOOLS = ("nsys", "torch", "ncu")
NAME = "name"
# How reports' names end, and how many of them are named.
ENDINGS = tuple(
    f"{end}{gz}" for end in (".json", ".sqlite", ".csv", ".nsys-rep", ".qdrep", ".ncu-rep") for gz in ("", ".gz")
)
SHOWN = 5


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
        ConfigError: a name belongs to a model already, an entry names no file, or the name of a file is not UTF-8.
    """
    for name, entry in imported.items():
        if name in models:
            raise ConfigError(f"imported.{name}: a model has this name already: give the report another one")
        if not files_of(entry):
            raise ConfigError(f"imported.{name} names no report: give torch, nsys or ncu")
        for tool, files in files_of(entry).items():
            for file in files:
                if not text_files.is_text(file):
                    raise ConfigError(
                        f"imported.{name}.{tool} = {file!a}: this name is not UTF-8, and tables could not hold it:"
                        " rename the file, or name a link to it"
                    )


def check_files(imported: Mapping[str, Mapping[str, Any]], names: Iterable[str], results: Path) -> None:
    """Check that the reports of these imported models exist, except those that were imported before.

    results: the results folder.

    Raises:
        ConfigError: a report is missing or is a folder, or the import would replace it.
    """
    names = list(names)
    for name in names:
        for tool, files in files_of(imported[name]).items():
            for file in files:
                path = Path(file)
                _refuse_outputs(f"imported.{name}.{tool} = '{file}'", path, names, results)
                if path.is_file() or (not path.exists() and any((results / name).glob("imported.*.json"))):
                    continue
                what = "is a folder: name a file in it" if path.is_dir() else f"does not exist; {_nearest(path)}"
                raise ConfigError(f"imported.{name}.{tool} = '{file}': the file {what}")


def _nearest(path: Path) -> str:
    """Phrase with the file of the same folder that is most like a missing one, or with reports that there are."""
    if not path.parent.is_dir():
        return f"neither does its folder {path.parent}"
    names = sorted(one.name for one in path.parent.iterdir() if one.is_file() and not one.name.startswith("."))
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    reports = [name for name in names if name.endswith(ENDINGS)]
    more = f" and {len(reports) - SHOWN} more" if len(reports) > SHOWN else ""
    held = f"reports there: {', '.join(reports[:SHOWN])}{more}" if reports else "no report is there"
    return f"{held} (the working folder is {Path.cwd()})" if not path.is_absolute() else held


def _refuse_outputs(where: str, path: Path, names: Iterable[str], results: Path) -> None:
    """Refuse a report that an import of one of these names makes, also by a link: Snakemake removes old outputs first.

    Raises:
        ConfigError: it is such a file.
    """
    for name in names:
        outputs = list((results / name).glob(f"{IMPORTED}.*"))
        made = [file for one in outputs for file in (one.rglob("*") if one.is_dir() else (one,))]
        # A file that is gone may still have the place of one.
        home = (results / name).resolve()
        inside = path.resolve().relative_to(home).parts[0] if path.resolve().is_relative_to(home) else ""
        if inside.startswith(f"{IMPORTED}.") or (path.is_file() and any(map(path.samefile, filter(Path.exists, made)))):
            raise ConfigError(
                f"{where}: this is a file that the import of {name} makes, and would be removed before it is read; the "
                "report that was imported first is named in its sidecar: import that one, or a copy elsewhere"
            )


def take_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with an entry in `imported` for the words of `snakemake import`.

    The words are `torch`, `nsys` and `ncu` with files instead of settings, `step`, and `name`. The default name is
    derived from the first file. Without words for files the configuration is returned unchanged.

    Raises:
        ConfigError: the name is not a valid name of a model, or no report is named beside it.

    >>> take_words({"torch": "runs/rank0.json.gz", "gpu": "h100"})
    {'gpu': 'h100', 'imported': {'rank0': {'torch': 'runs/rank0.json.gz'}}, 'models': ['rank0']}
    """
    entry = {tool: given[tool] for tool in TOOLS if isinstance(given.get(tool), str | list)}
    if not entry:
        _refuse_lone_words(given)
        return dict(given)
    rest = {key: value for key, value in given.items() if key not in (*entry, NAME, "step")}
    entry |= {"step": given["step"]} if "step" in given else {}
    first = next(iter(files_of(entry).values()))[0].partition(",")[0]
    name = str(given.get(NAME) or _name_of(first))
    if not schema.is_name(name, "model"):
        raise ConfigError(
            f"import: {name!r} is not a valid name of a model ({schema.describe_form('model')}): give name=run1"
        )
    return rest | {"imported": {name: entry}, "models": [name]}


def _refuse_lone_words(given: Mapping[str, Any]) -> None:
    """Refuse words of `snakemake import` that need a report, where none is named: its tool may be misspelt."""
    lone = next((word for word in (NAME, "step") if word in given), None)
    if lone is None:
        return
    odd = next((word for word in given if word not in TOOLS and difflib.get_close_matches(word, TOOLS, n=1)), None)
    near = f"{odd}={given[odd]}: {suggest_nearest(odd, TOOLS)} " if odd else ""
    raise ConfigError(f"import: {near}{lone}={given[lone]} names no report: give torch=FILE, nsys=FILE or ncu=FILE")


def _name_of(file: str) -> str:
    """Derive a model's name from the name of a file.

    >>> _name_of("runs/rank-0.Apr_03.pt.trace.json.gz"), _name_of("2024.nsys-rep")
    ('rank-0', 'run_2024')
    """
    stem = Path(file).name.partition(".")[0]
    plain = "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "_-" else "_" for letter in stem)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"run_{plain}"
