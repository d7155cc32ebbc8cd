"""Makes the outputs of post-processing jobs in a private folder, and moves complete files into place.

Scripts use profzoo.io.scripts.begin_script; commands write `OUTPUT.partial` and end with
`python -m profzoo.records.keep`.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from profzoo.errors import DataError
from profzoo.records import atomic_writes, digests, job_differences, record
from profzoo.records.record import Record

# Of the folder that holds the workflow, what holds code.
CODE = ("workflow", "profzoo", "models", "config", "Snakefile")
# Values of parameters that are longer stand in records as their digests.
LONGEST = 60
PARTIAL = ".partial"
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
    record.write_record(outputs, Record(job_differences.normalize_json(job), read, code, files=files, passing=passing))


def clear_private_folder(folder: Path) -> None:
    """Remove a private folder left by a killed job.

    Raises:
        DataError: something else is in its place, which is not removed.
    """
    if not os.path.lexists(folder):
        return
    status = folder.lstat()
    if folder.is_symlink() or not folder.is_dir() or status.st_uid != os.getuid():
        raise DataError(f"{folder} is no folder of this user's jobs, which need its name: move it away")
    shutil.rmtree(folder)


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else digests.text_digest(text)
