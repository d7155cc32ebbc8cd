"""Summarises the files that cells read, so that jobs run again after a data set or model file was replaced."""

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from profzoo.cell import registry, secret_values
from profzoo.cell.cell_types import CellSettings
from profzoo.errors import ConfigError

# The one data set of torchvision that generates its images instead of reading files.
WITHOUT_FILES = "FakeData"


def data_set_folder(cell: CellSettings) -> str | None:
    """Folder of the cell's data set, or its file of texts; None if its samples are synthetic.

    Raises:
        ConfigError: the configuration names no folder, or the folder does not exist.
    """
    source, name, folder = (cell["data"][key] for key in ("source", "name", "root"))
    if source == "synthetic" or (source == "dataset" and name == WITHOUT_FILES):
        return None
    # Messages about the folder must not show a secret.
    found = secret_values.reveal_secrets(folder)
    if source == "text":
        if not found or not Path(found).exists():
            raise ConfigError(f"{cell['model']}: data.root = {folder!r} does not exist: name a text file or a folder")
    elif not found or not Path(found).is_dir():
        holds = "your images" if source == "folder" else f"{name}"
        raise ConfigError(f"{cell['model']}: data.root = {folder!r} is not a folder: name the one that holds {holds}")
    return found


def summarise_data_set(cell: CellSettings) -> dict[str, Any]:
    """File count, bytes and digest of the cell's data set, for the job text; empty for synthetic samples."""
    folder = data_set_folder(cell)
    return {"data_files": _summed(folder)} if folder else {}


def summarise_model_files(cell: CellSettings) -> dict[str, Any]:
    """The same summary of the files that the cell's model declares; a replacement by an older file changes it too.

    Raises:
        UnusableError: a declared file does not exist.
    """
    if "command" in cell:
        # Not summarised here: the record holds digests of these files' content among its sources.
        return {}
    declared = registry.program_files(registry.find_program(cell["model"], cell))
    return {"model_files": _digest(_facts(path) for path in declared)} if declared else {}


def _facts(path: Path) -> tuple[str, int, int]:
    """Name, size in bytes and modification time of a file; links are followed."""
    facts = path.stat()
    return path.name, facts.st_size, facts.st_mtime_ns


@functools.cache
def _summed(folder: str) -> dict[str, Any]:
    """Number, total size and digest of a folder's files, or of one file.

    The digest covers paths, sizes and modification times: reading a large data set would take longer than the jobs.
    The result is cached per process, as listing a million files takes seconds.
    """
    return _digest([_facts(Path(folder))] if Path(folder).is_file() else _files(folder, "", frozenset()))


def _digest(files: Iterable[tuple[str, int, int]]) -> dict[str, Any]:
    """Number, total size and digest of files, given path, bytes and modification time of each."""
    count = size = 0
    digest = hashlib.blake2b(digest_size=16)
    for path, length, modified_ns in files:
        count, size = count + 1, size + length
        digest.update(os.fsencode(f"{path}\0{length}\0{modified_ns}\n"))
    return {"count": count, "bytes": size, "digest": digest.hexdigest()}


def _files(folder: str, below: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """Yield path, bytes and modification time of each file, sorted by name; follows links, but no cycles."""
    try:
        facts = Path(folder).stat()
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(
            f"data.root: {secret_values.mask_secrets(folder)} cannot be read: {error.strerror}"
        ) from error
    place = (facts.st_dev, facts.st_ino)
    if place in above:
        return
    for entry in found:
        path = f"{below}{entry.name}"
        try:
            facts = entry.stat()
        except OSError:
            # A broken link, or a link to itself, counts by its name only.
            yield path, 0, 0
            continue
        if entry.is_dir():
            yield from _files(entry.path, f"{path}/", above | {place})
        else:
            yield path, facts.st_size, facts.st_mtime_ns
