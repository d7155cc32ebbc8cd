"""Detects damaged files, by their record and by checks for their file type.

python -m profzoo.io.file_checks --log FILE INPUT ...

Nothing here runs code of a file: pickles are not loaded.
"""

import argparse
import json
import shlex
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
from profzoo.records import derived_outputs, digests, record

CHUNK_BYTES = 1 << 20
# What reports of ncu begin with.
NCU_MAGIC = b"NVR\0"
SQLITE_MAGIC = b"SQLite format 3\0"


def find_flaw(path: Path) -> str | None:
    """Describe what is wrong with a file, or a file in a folder, by its file type; None if nothing is found.

    Raises:
        OSError: the file cannot be read, so its state is unknown.
    """
    if path.is_dir():
        found = ((file, find_flaw(file)) for file in sorted(path.iterdir()) if not file.name.startswith("."))
        return next((f"{file.name}: {why}" for file, why in found if why), None)
    if not path.stat().st_size:
        return "it is empty"
    return next((check(path) for ending, check in CHECKS.items() if path.name.endswith(ending)), None)


def require_whole(paths: Sequence[str | Path]) -> dict[Path, str]:
    """Check that existing inputs match their records and types; returns their digests.

    Missing files are left out, because their reader reports them in more detail.

    Raises:
        DataError: a file is damaged; the file is not changed.
        OSError: a file cannot be read.
    """
    found = {}
    for path in (one for one in map(Path, paths) if one.exists()):
        if why := find_damage(path):
            raise DataError(f"{path} is damaged ({why}): {describe_remedy(path)}")
        found[path] = digests.compute_digest(path)
    return found


def describe_remedy(path: str | Path) -> str:
    """Return advice on what to do about a damaged file.

    >>> describe_remedy("results/lstm/train.time.csv")
    '`snakemake --force results/lstm/train.time.csv` makes it again'
    """
    return f"`snakemake --force {shlex.quote(str(path))}` makes it again"


def find_damage(path: Path) -> str | None:
    """Describe how a file differs from its record or, without a record, from its file type; None if it does not.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        known = record.read_output_record(path)
    except record.DamagedRecordError as error:
        return str(error)
    entry = known.files.get(path.name) if known else None
    return derived_outputs.find_flaw(path, entry) if entry else find_flaw(path)


def _object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _json(path: Path) -> str | None:
    return None if _object(path) else "it holds no JSON object"


def _csv(path: Path) -> str | None:
    """Check that a CSV has a header and ends with a line end."""
    with path.open("rb") as file:
        header = file.readline()
        file.seek(-1, 2)
        return None if header.strip() and file.read() == b"\n" else "its last line is cut off"


def _zip(path: Path) -> str | None:
    """Check the checksum of every member of torch's weights archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"no whole archive: {error}"
    return f"its member {broken} has another sum" if broken else None


def _gzip(path: Path) -> str | None:
    """Check the checksum of every gzip member up to the last byte."""
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
    """Check a trace that is gzipped or plain JSON."""
    with path.open("rb") as file:
        plain = file.read(CHUNK_BYTES).lstrip()[:1] == b"{"
        file.seek(max(path.stat().st_size - CHUNK_BYTES, 0))
        ends = file.read().rstrip()[-1:] == b"}"
    if not plain:
        return _gzip(path)
    return None if ends else "no whole JSON: its end is missing"


def _sqlite(path: Path) -> str | None:
    """Run SQLite's own check; disk errors and locks do not count as damage."""
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
    parser = argparse.ArgumentParser(prog="python -m profzoo.io.file_checks", description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("inputs", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    try:
        require_whole(options.inputs)
    except (DataError, OSError) as error:
        options.log.write_text(f"profzoo: {error}\n")
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
