"""Reads and writes job records: what a job used, and the size and digest of each file that it made.

The record of a collecting job is part of its sidecar. The record of any other job is a JSON file in the folder
`.records` beside the first output, with its name. For each further output of a job, a file in `.records` refers to the
record.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo.errors import DataError
from profzoo.records import atomic_writes, digests
from profzoo.records.read_files import ReadFiles

FOLDER = ".records"
# Version of the form of records, under one key in records and another in sidecars.
VERSION, VERSIONED, IN_SIDECAR = 1, "version", "record_version"
# Of a sidecar. The last one is of the sidecar itself, without that key.
FILES, SOURCES, CHANGED, INPUTS, ITSELF = "files", "sources", "sources_changed", "inputs", "sha256_of_the_rest"
# What the program itself read, by path, and the files that it wrote (read_files.py).
READ, WRITTEN = "read", "written"
# Digests of the environment variables that its Python code read, by name; None for one that was not set.
READ_VARIABLES = "read_variables"


class DamagedRecordError(DataError):
    """A record that cannot be read, or was changed after it was written."""


@dataclass(frozen=True)
class Entry:
    """Size in bytes and digest of a file when its job ended."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """The inputs and outputs of one job.

    Attributes:
        job: job text as JSON values.
        inputs: digests of the files that the job read and other jobs made, by path.
        sources: digests of the source files that it ran with, by key.
        changed: keys of the sources that changed while it ran.
        files: size and digest of its outputs, by name relative to the record's own output.
        passing: whether the outputs are removed after other files are made from them.
        observed: what the program itself read and wrote; a job that measures nothing has none.
        variables: digests of the environment variables that the program read, by name; None for one that was not set.
    """

    job: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    files: Mapping[str, Entry] = field(default_factory=dict)
    passing: bool = False
    observed: ReadFiles = field(default_factory=ReadFiles)
    variables: Mapping[str, str | None] = field(default_factory=dict)


def record_path(output: Path) -> Path:
    """Return the path of the record of an output, or of the file that refers to it.

    >>> record_path(Path("results/tables/cells.csv")).as_posix()
    'results/tables/.records/cells.csv.json'
    """
    return output.parent / FOLDER / f"{output.name}.json"


def make_entries(paths: Iterable[Path]) -> dict[str, Entry]:
    """Return size and digest of files and folders, by name.

    Raises:
        OSError: a file or folder cannot be read.
    """
    return {path.name: Entry(digests.measure_size(path), digests.compute_digest(path)) for path in paths}


def read_output_record(output: Path) -> Record | None:
    """Read the record of the job that made this output; None if there is none.

    Raises:
        DamagedRecordError: it is not as it was written.
        OSError: it cannot be read.
    """
    home = record_path(output)
    if not home.is_file():
        return read_sidecar_record(output.with_name(f"{output.name}.json"))
    content = _object(home)
    if (named := content.get("record")) is None:
        return _record(home, content)
    if not isinstance(named, str) or "/" in named:
        raise DamagedRecordError(f"{home} names no record: {named!r}")
    first = output.with_name(named)
    return read_sidecar_record(first) if content.get("sidecar") else _whole(record_path(first))


def read_sidecar_record(sidecar: Path) -> Record | None:
    """Read the record inside a sidecar; None without a sidecar, or if it contains no record.

    Raises:
        DamagedRecordError: it is not as it was written.
        OSError: it cannot be read.
    """
    if not sidecar.is_file():
        return None
    content = _object(sidecar)
    if FILES not in content:
        return None
    return _record(sidecar, content | {"job": {key: content[key] for key in content.get("job_keys", ())}})


def write_record(outputs: Iterable[Path], record: Record) -> None:
    """Write the record of a post-processing job for all its outputs; it is stored with the first.

    Raises:
        OSError: it cannot be written.
    """
    first, *others = outputs
    content: dict[str, Any] = {
        VERSIONED: VERSION, "job": record.job, INPUTS: record.inputs, SOURCES: record.sources, CHANGED: record.changed,
        FILES: {name: [entry.bytes, entry.sha256] for name, entry in record.files.items()}, "passing": record.passing,
    }  # fmt: skip
    record_path(first).parent.mkdir(exist_ok=True)
    atomic_writes.write_synced(record_path(first), seal(content))
    for other in others:
        refer_to_record(other, first)


def refer_to_record(output: Path, first: Path, sidecar: bool = False) -> None:
    """Write a reference from an output to the file with its record; sidecar: whether that is a sidecar."""
    # Each in its own folder: the outputs of a job lie in one.
    home = record_path(output)
    home.parent.mkdir(exist_ok=True)
    atomic_writes.write_synced(home, json.dumps({"record": first.name, "sidecar": sidecar}) + "\n")


def seal(content: Mapping[str, Any]) -> str:
    """Format a record or sidecar as text with a digest of its content, which reveals damage."""
    content = {key: value for key, value in content.items() if key != ITSELF}
    return json.dumps({**content, ITSELF: _seal(content)}, indent=1, sort_keys=True) + "\n"


def sidecar_part(record: Record) -> dict[str, Any]:
    """Part of a sidecar that forms its record; the job's settings have their own keys there."""
    return {
        IN_SIDECAR: VERSION,
        "job_keys": sorted(record.job),
        INPUTS: record.inputs,
        SOURCES: record.sources,
        **({CHANGED: list(record.changed)} if record.changed else {}),
        READ: record.observed.read,
        WRITTEN: list(record.observed.written),
        FILES: {name: [entry.bytes, entry.sha256] for name, entry in record.files.items()},
    }


def source_key(path: Path, root: Path) -> str:
    """Key of a source file in records, independent of where checkout and working folder are.

    root: the folder that holds the workflow.
    """
    return _source_key(os.fspath(path), os.fspath(root), str(Path.cwd()))


@functools.cache
def _source_key(path: str, root: str, folder: str) -> str:
    """Key of a source file; cached, as a run asks for each file's with every job; folder: the working folder."""
    real = os.path.realpath(path)
    for home in (os.path.realpath(root), folder):
        if real.startswith(within := f"{home.rstrip('/')}/"):
            return real.removeprefix(within)
    return "/".join(["...", *real.split("/")[-2:]])


def _whole(home: Path) -> Record | None:
    return _record(home, _object(home)) if home.is_file() else None


def _record(home: Path, content: Mapping[str, Any]) -> Record:
    try:
        return Record(
            job=dict(content["job"]),
            inputs=dict(content.get(INPUTS, {})),
            sources=dict(content.get(SOURCES, {})),
            changed=tuple(content.get(CHANGED, ())),
            files={str(name): Entry(int(size), str(sha)) for name, (size, sha) in content[FILES].items()},
            passing=content.get("passing") is True,
            observed=ReadFiles(dict(content.get(READ, {})), tuple(content.get(WRITTEN, ()))),
            variables=dict(content.get(READ_VARIABLES, {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedRecordError(f"{home} holds no record: {type(error).__name__}: {error}") from error


def _object(home: Path) -> dict[str, Any]:
    """Read a JSON object from a file, and verify its own digest if it has one."""
    try:
        content = json.loads(home.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError(f"{home} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise DamagedRecordError(f"{home} holds no JSON object")
    if FILES in content and ITSELF not in content:
        raise DamagedRecordError(f"{home} has lost its own digest ({ITSELF}), so it is unknown whether it has changed")
    if ITSELF in content and content[ITSELF] != _seal({k: v for k, v in content.items() if k != ITSELF}):
        raise DamagedRecordError(f"{home} is not as it was written")
    if FILES in content and (found := content.get(IN_SIDECAR, content.get(VERSIONED, VERSION))) != VERSION:
        raise DamagedRecordError(f"{home} is a record of version {found}, and this release reads version {VERSION}")
    return content


def _seal(content: Mapping[str, Any]) -> str:
    """Digest of a record's content, as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
