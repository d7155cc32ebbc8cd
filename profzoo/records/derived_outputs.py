"""Makes the outputs of post-processing jobs in a private folder, and moves complete files into place.

Scripts use profzoo.io.scripts.begin_script; commands write `OUTPUT.partial` and end with
`python -m profzoo.records.keep`.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.errors import DataError
from profzoo.records import atomic_writes, digests, record
from profzoo.records.record import Entry, Record

# Compares a job with a record, and files with the digests in it.

# Texts longer than this are cut where a difference is told.
SHOWN = 40
# Parts of a job text that summarise files (profzoo/cell/data_files.py); what names a file comes first.
SUMMARIES = ("model_files", "data_files")


@dataclass(frozen=True)
class Difference:
    """One difference between a job and a record, in a few words; key: key of the source that differs, if any."""

    words: str
    key: str = ""


def find_differences(record: Record, job: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the differences between a job that is to run and the recorded job.

    job: job text as JSON values. sources: present digests of its sources, by key.
    """
    settings = list(compare_settings(record.job, job))
    yield from (Difference(words) for words in settings if not words.startswith(SUMMARIES))
    yield from (Difference(f"{name} changed while it was measured", name) for name in record.changed)
    for name in sorted({*record.sources, *sources}):
        if name not in sources:
            yield Difference(f"{name} is no longer part of it", name)
        elif name not in record.sources:
            yield Difference(f"{name} is new", name)
        elif record.sources[name] != sources[name]:
            yield Difference(f"{name} has changed", name)
    yield from (Difference(words) for words in settings if words.startswith(SUMMARIES))


def compare_settings(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield the keys at which two JSON values differ.

    >>> list(compare_settings({"cell": {"batch": 4, "seed": 0}}, {"cell": {"batch": 7, "seed": 0}}))
    ['cell.batch was 4 and is 7']
    >>> list(compare_settings({"set": "launch"}, {"repeats": 3}))
    ['repeats is 3, and was not given', "set was 'launch', and is not given"]
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}, key=str):
            place = f"{where}.{name}" if where else str(name)
            if name not in new:
                yield f"{place} was {_shown(old[name])}, and is not given"
            elif name not in old:
                yield f"{place} is {_shown(new[name])}, and was not given"
            else:
                yield from compare_settings(old[name], new[name], place)
    elif old != new:
        yield f"{where} was {_shown(old)} and is {_shown(new)}"


def find_flaw(path: Path, entry: Entry) -> str | None:
    """Describe how a file or folder differs from its recorded entry; None if it does not.

    Raises:
        OSError: it cannot be read.
    """
    found = digests.measure_size(path)
    if found != entry.bytes:
        return f"it has {found} bytes, and had {entry.bytes} when it was made"
    return None if digests.compute_digest(path) == entry.sha256 else "its content is not what was written"


def normalize_json(value: Any) -> Any:
    """Normalise a value to what JSON returns after writing and reading it."""
    return json.loads(json.dumps(value, sort_keys=True, default=repr))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


# Of the folder that holds the workflow, what holds code.
CODE = ("workflow", "profzoo", "models", "config", "Snakefile")
# Values of parameters that are longer stand in records as their digests.
LONGEST = 60
PARTIAL = ".partial"
# Stands between the name of a rule and that of its file or parameter, in a rule that joins several.
SEPARATOR = "__"
# The parameter of such a rule that names the inputs of its parts which other parts make.
INSIDE = "inside"
# What rules are called in records whose commands are in the shell.
IN_SHELL = "shell"


def describe_job(rule: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job text of a post-processing job, without its inputs; params: parameters by name or position.

    >>> describe_job("export_nsys", {"steps": 3})
    {'rule': 'export_nsys', 'params': {'steps': '3'}}
    """
    return {"rule": rule, "params": {name: _text(value) for name, value in params.items()}}


def collect_params(given: Any) -> dict[str, Any]:
    """Parameters of a rule by name, or by position if unnamed; given: Snakemake's list of them."""
    named = dict(given.items())
    return {**{str(place): value for place, value in enumerate(given)}, **named} if len(named) < len(given) else named


def split_inputs(inputs: Sequence[str], root: Path) -> tuple[list[Path], list[Path]]:
    """Split a job's inputs into code and data files.

    root: the folder that holds the workflow.
    """
    homes = tuple(os.path.realpath(root / name) for name in CODE)
    code = {path: os.path.realpath(path).startswith(homes) for path in inputs}
    return [Path(path) for path in inputs if code[path]], [Path(path) for path in inputs if not code[path]]


def source_digests(paths: Sequence[Path], root: Path) -> dict[str, str]:
    """Digests of source files, by their keys in records.

    Raises:
        OSError: one cannot be read.
    """
    return {record.source_key(path, root): digests.compute_digest(path) for path in paths}


def relative_name(path: Path, output: Path) -> str:
    """Path of an input relative to the output, as used in the output's record; a moved folder keeps it valid.

    >>> relative_name(Path("results/lstm/train.nsys.csv"), Path("results/tables/cells.csv"))
    '../lstm/train.nsys.csv'
    """
    return os.path.relpath(path, output.parent)


@dataclass(frozen=True)
class JobPart:
    """What one rule makes in the job of a joint rule, or a whole job of another rule.

    rule: name of the rule. input, output, params, log: Snakemake's lists, with the names that they have in this rule.
    wildcards: those of the job.
    """

    rule: str
    input: Any
    output: Any
    params: Any
    log: Any
    wildcards: Any

    @property
    def outputs(self) -> list[Path]:
        """The files that it makes."""
        return [Path(str(path)) for path in self.output]


def split_job(job: Any, rule: str) -> list[JobPart]:
    """Split a job by the rules that it joins; a job of one rule, or one that waits for a checkpoint, stays whole.

    job: a job of Snakemake's, or what a script is given: lists of files and parameters. rule: name of its rule.
    """
    rules, inside = [name for name, _ in job.log.items()], job.params.get(INSIDE, {})
    if not rules or not isinstance(inside, Mapping):
        return [JobPart(rule, job.input, job.output, job.params, job.log, job.wildcards)]
    return [
        JobPart(
            name.partition(SEPARATOR)[0],
            _with_inside(_of_rule(job.input, name), inside.get(name, {})),
            _of_rule(job.output, name),
            _of_rule(job.params, name),
            type(job.log)([dict(job.log.items())[name]]),
            job.wildcards,
        )
        for name in rules
    ]


def _with_inside(files: Any, inside: Mapping[str, str | Sequence[str]]) -> Any:
    """Return a part's inputs with those that other parts of its job make.

    inside: all files of each name that has any of them.
    """
    if not inside:
        return files
    made = type(files)()
    for name, value in {**dict(files.items()), **inside}.items():
        first = len(made)
        made.extend(as_list(value))
        made._set_name(name, first, end=None if isinstance(value, str) else len(made))
    return made


def _of_rule(files: Any, rule: str) -> Any:
    start = f"{rule}{SEPARATOR}"
    named = {name.removeprefix(start): value for name, value in files.items() if name.startswith(start)}
    made = type(files)()
    for name, value in named.items():
        # A parameter may be a list, which is one value.
        first, several = len(made), hasattr(value, "_set_name")
        made.extend(value if several else [value])
        made._set_name(name, first, end=len(made) if several else None)
    return made


def as_list(files: str | Sequence[str]) -> list[str]:
    """Normalise a named list of Snakemake's to a list of paths; a single file is a text there."""
    return [str(files)] if isinstance(files, str) else [str(path) for path in files]


def private_folders(outputs: Sequence[Path]) -> dict[Path, Path]:
    """Map each folder with outputs to the hidden folder in which they are made."""
    return {path.parent: path.parent / f".{outputs[0].name}{PARTIAL}" for path in outputs}


@contextmanager
def make_privately(outputs: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield private paths for the outputs, and move the files into place if the body succeeds.

    Raises:
        DataError: the private folder cannot be made, or the body did not make all outputs.
        OSError: the disk reports a failure.
    """
    folders = private_folders(outputs)
    for folder in folders.values():
        clear_private_folder(folder)
        folder.mkdir(parents=True)
    made = [folders[path.parent] / path.name for path in outputs]
    try:
        yield made
        if lost := [path.name for path in made if not path.exists()]:
            raise DataError(f"{lost[0]} was not made")
        atomic_writes.move_into_place(zip(made, outputs, strict=True))
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def keep_record(
    outputs: Sequence[Path],
    job: Mapping[str, Any],
    inputs: Mapping[Path, str],
    code: Mapping[str, str],
    passing: bool = False,
) -> None:
    """Write the record of outputs that are in place.

    Args:
        job: result of describe_job.
        inputs: digests of the files that the job read.
        code: digests of its source files, by key.
        passing: whether the outputs are removed after other files are made from them.

    Raises:
        OSError: the disk reports a failure.
    """
    read = {relative_name(path, outputs[0]): digest for path, digest in inputs.items()}
    files = record.make_entries(outputs)
    record.write_record(outputs, Record(normalize_json(job), read, code, files=files, passing=passing))


def clear_private_folder(folder: Path) -> None:
    """Remove a private folder left by a killed job.

    Raises:
        DataError: something else is in its place, which is not removed.
    """
    if not os.path.lexists(folder):
        return
    status = folder.lstat()
    if folder.is_symlink() or not folder.is_dir() or status.st_uid != os.getuid():
        raise DataError(f"{folder} is not a folder of this user's jobs, which need its name: move it away")
    shutil.rmtree(folder)


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else digests.text_digest(text)
