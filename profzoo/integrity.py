"""Tells damaged files from whole ones by cheap checks of their kind, and has what is damaged made again.

python -m profzoo.integrity --log FILE INPUT ...

Nothing here runs code of a file: pickles are not loaded.
"""

import argparse
import hashlib
import json
import shutil
import sqlite3
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from profzoo.errors import DataError

CHUNK_BYTES = 1 << 20
# What reports of ncu begin with.
NCU_MAGIC = b"NVR\0"
SQLITE_MAGIC = b"SQLite format 3\0"
# What nothing inside lets one check, so that sidecars keep a sum over all bytes.
SUMMED = (".ncu-rep", ".nsys-rep")


def flaw(path: Path) -> str | None:
    """What is wrong with a file, or with one of a folder, as far as its kind lets one tell; None for nothing.

    Raises:
        OSError: it cannot be read, which says nothing about it.
    """
    if path.is_dir():
        found = ((file, flaw(file)) for file in sorted(path.iterdir()) if not file.name.startswith("."))
        return next((f"{file.name}: {why}" for file, why in found if why), None)
    if not path.stat().st_size:
        return "it is empty"
    return next((check(path) for ending, check in CHECKS.items() if path.name.endswith(ending)), None)


def sums(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of those files, and of those in folders, that have no check of their own; by name."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return {file.name: _sum(file) for file in files if file.suffix in SUMMED}


def require(paths: Sequence[str | Path]) -> None:
    """Do nothing where inputs that jobs made are whole; remove one that is damaged, as Snakemake makes what is missing.

    Raises:
        DataError: one is damaged.
    """
    for path in map(Path, paths):
        # Of what is not there the reader has more to say.
        if not path.exists() or not (why := flaw(path) or _changed(path)):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise DataError(f"{path} was damaged ({why}) and is removed: run snakemake again, which makes it anew")


def _changed(path: Path) -> str | None:
    """That the bytes of a report, or of one in a folder, are not those that the sidecar beside it tells of."""
    sidecar = path.with_name(f"{path.name}.json")
    known = _object(sidecar).get("sha256", {}) if sidecar.exists() else {}
    files = [file for file in path.iterdir() if file.name in known] if path.is_dir() else [path]
    changed = [file.name for file in files if file.name in known and _sum(file) != known[file.name]]
    lost = sorted(set(known) - {file.name for file in files}) if path.is_dir() else []
    return next((f"{name} is not as it was collected" for name in [*changed, *lost]), None)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _object(path: Path) -> Mapping[str, Any]:
    """The JSON object that a file holds; an empty one where it holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _json(path: Path) -> str | None:
    return None if _object(path) else "it holds no JSON object"


def _csv(path: Path) -> str | None:
    """A whole one has its header, and ends with its last line."""
    with path.open("rb") as file:
        header = file.readline()
        file.seek(-1, 2)
        return None if header.strip() and file.read() == b"\n" else "its last line is cut off"


def _zip(path: Path) -> str | None:
    """torch's weights are an archive with a sum of each member."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"no whole archive: {error}"
    return f"its member {broken} has another sum" if broken else None


def _gzip(path: Path) -> str | None:
    """Members with a sum each, to the last byte."""
    with path.open("rb") as file:
        reader = zlib.decompressobj(wbits=31)
        try:
            while chunk := file.read(CHUNK_BYTES):
                while chunk:
                    reader.decompress(chunk)
                    chunk = reader.unused_data
                    if reader.eof and chunk:
                        reader = zlib.decompressobj(wbits=31)
        except zlib.error as error:
            return f"no whole gzip: {error}"
    return None if reader.eof else "no whole gzip: its end is missing"


def _trace(path: Path) -> str | None:
    """Gzipped, or JSON as it is, which is read as well."""
    with path.open("rb") as file:
        plain = file.read(CHUNK_BYTES).lstrip()[:1] == b"{"
        file.seek(max(path.stat().st_size - CHUNK_BYTES, 0))
        ends = file.read().rstrip()[-1:] == b"}"
    if not plain:
        return _gzip(path)
    return None if ends else "no whole JSON: its end is missing"


def _sqlite(path: Path) -> str | None:
    """What SQLite says of it; a disk that fails or a lock that is held says nothing about the file."""
    with path.open("rb") as file:
        header = file.read(32)
    # Of pages, which its quick check takes for whole where the last one lacks only a few bytes.
    size, count = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    if header.startswith(SQLITE_MAGIC) and path.stat().st_size < (size if size > 1 else 65536) * count:
        return "its end is missing"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
            said = database.execute("PRAGMA quick_check(1)").fetchone()[0]
            empty = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        return f"SQLite: {error}"
    return f"SQLite: {said}" if said != "ok" else "it holds no table" if empty else None


def _ncu(path: Path) -> str | None:
    with path.open("rb") as file:
        return None if file.read(len(NCU_MAGIC)) == NCU_MAGIC else "no report of ncu"


CHECKS: Mapping[str, Callable[[Path], str | None]] = {
    ".json": _json,
    ".csv": _csv,
    ".pt": _zip,
    ".npz": _zip,
    ".json.gz": _trace,
    ".gz": _gzip,
    ".sqlite": _sqlite,
    ".ncu-rep": _ncu,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.integrity", description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("inputs", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    try:
        require(options.inputs)
    except (DataError, OSError) as error:
        options.log.write_text(f"profzoo: {error}\n")
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
