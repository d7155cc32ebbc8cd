"""Packs what of the results may be given away: `python -m profzoo.share RESULTS ARCHIVE [VARIABLE ...]`.

That is what people read and compare: tables, figures, the report, exported CSV and its sidecars, without names of hosts
and folders. It is never what tools recorded (reports, traces, logs), as that holds the environment and command lines,
nor weights. VARIABLE: those that profiled processes were allowed to see, by the configuration's `environment`.
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import re
import socket
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from profzoo import schema
from profzoo.collect import secrets
from profzoo.collect.environment import environment
from profzoo.errors import CollectError
from profzoo.imports import PROJECT

# Paths under results/, besides the folders of models, and in one of those.
SHARED = re.compile(r"(report|compare)\.html|tables/[\w-]+\.csv|figures/[\w-]+\.(svg|png)|peaks/[\w-]+\.csv(\.json)?")
OF_CELL = re.compile(r"(train|inference)(\.[\w-]+)*(\.csv|\.json)|(train|inference)\.nsys/\w+\.csv|weights\.pt\.json")
# An absolute path within a text, of which the last part stays; no address.
FOLDERS = re.compile(r"(?<![\w.:/~])/(?:[\w.@+ -]+/)+")


def chosen(results: Path) -> list[Path]:
    """The files that may be given away, by their paths from the folder of results, sorted."""
    found = [path.relative_to(results) for path in results.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(path for path in found if _may(path.as_posix()))


def _may(path: str) -> bool:
    """Whether a path names what may be given away.

    >>> [_may(path) for path in ("tables/cells.csv", "lstm@bf16/train.nsys.csv.json", "lstm/train.trace.json.gz")]
    [True, True, False]
    """
    model, _, file = path.partition("/")
    names = model.split("@")
    is_cell = len(names) <= 2 and schema.is_name(names[0], "model") and all(map(schema.is_name, names[1:]))
    return bool(SHARED.fullmatch(path) or (is_cell and OF_CELL.fullmatch(file)))


def hosts(sidecars: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Other names for this host and those that sidecars tell of: host-1, host-2, ..."""
    told = {socket.gethostname()}
    for facts in sidecars:
        told |= {
            str(one["host"]) for one in (facts, *facts.get("ranks", [])) if isinstance(one, dict) and "host" in one
        }
    return {name: f"host-{number}" for number, name in enumerate(sorted(told), start=1)}


def without_places(text: str) -> str:
    """A text without the folders of this user and machine."""
    known = {str(PROJECT): "profzoo", str(Path.cwd()): ".", sys.prefix: "environment", str(Path.home()): "~"}
    for folder, name in sorted(known.items(), key=lambda item: -len(item[0])):
        if len(folder) > 1:
            text = re.sub(rf"{re.escape(folder)}(?![\w-])", name, text)
    return text


def scrubbed(name: str, content: bytes, others: Mapping[str, str]) -> bytes:
    """The content of a file without names of hosts and folders; others: what hosts are called instead."""
    if name.endswith(".png"):
        return content
    text = without_places(content.decode())
    if name.endswith(".json"):
        return (json.dumps(_facts(json.loads(text), others), indent=1, sort_keys=True) + "\n").encode()
    if name.endswith(".csv"):
        return _table(text, others).encode()
    for host, other in others.items():
        # Where a cell of a table holds nothing else.
        text = text.replace(f">{host}<", f">{other}<")
    return text.encode()


def _facts(value: Any, others: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: others.get(str(one), "host") if key == "host" else _facts(one, others) for key, one in value.items()
        }
    if isinstance(value, list):
        return [_facts(one, others) for one in value]
    return FOLDERS.sub(".../", value) if isinstance(value, str) else value


def _table(text: str, others: Mapping[str, str]) -> str:
    header, *rows = csv.reader(io.StringIO(text)) if text else [[]]
    if "host" not in header:
        return text
    place, written = header.index("host"), io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([*row[:place], others.get(row[place], row[place]), *row[place + 1 :]] for row in rows)
    return written.getvalue()


def contents(results: Path, withheld: Mapping[str, Sequence[bytes]]) -> dict[str, bytes]:
    """What goes into the archive, by path from the folder of results.

    Raises:
        CollectError: a file holds what was withheld, cannot be read, or there is none.
    """
    files = chosen(results)
    if not files:
        raise CollectError(f"{results} holds nothing that may be given away: `snakemake report` makes it")
    others = hosts(_sidecars(results, files))
    found = {}
    for path in files:
        if name := secrets.held(results / path, withheld):
            raise CollectError(f"{results / path} holds the value of {name}: remove the file, and make it again")
        try:
            found[path.as_posix()] = scrubbed(path.name, (results / path).read_bytes(), others)
        except (OSError, ValueError, IndexError, csv.Error) as error:
            raise CollectError(f"{results / path} is damaged, remove it and make it again: {error}") from error
    return found


def _sidecars(results: Path, files: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """The sidecars among the files; what is damaged is said where it would be packed."""
    for path in files:
        with suppress(OSError, ValueError):
            if path.suffix == ".json" and isinstance(facts := json.loads((results / path).read_bytes()), dict):
                yield facts


def pack(files: Mapping[str, bytes], archive: Path) -> str:
    """Write the archive, whose first file, MANIFEST, has a line a file: SHA-256, bytes, path. In words, what it is."""
    lines = [
        f"{hashlib.sha256(content).hexdigest()} {len(content)} {path}\n" for path, content in sorted(files.items())
    ]
    partial = archive.with_name(f"{archive.name}.partial")
    # No times and no owners, so that the same results make the same archive.
    with (
        partial.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, content in {"MANIFEST": "".join(lines).encode(), **dict(sorted(files.items()))}.items():
            entry = tarfile.TarInfo(f"profzoo/{path}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    partial.replace(archive)
    return f"{archive}: {len(files)} files, {archive.stat().st_size:,} bytes; MANIFEST in it lists them"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.share", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("seen", nargs="*", metavar="VARIABLE")
    options = parser.parse_args(arguments)
    withheld = secrets.withheld(os.environ, environment(os.environ, options.seen))
    try:
        print(f"profzoo: {pack(contents(options.results, withheld), options.archive)}")
    except CollectError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
