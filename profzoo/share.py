"""Packs what of the results may be given away: `python -m profzoo.share [--reports] RESULTS ARCHIVE [VARIABLE ...]`.

That is what people read and compare: tables, figures, the report, exported CSV and its sidecars, without names of hosts
and folders, and what they come from. It is not what tools recorded (reports, traces), as that holds the environment and
command lines, unless --reports asks for it, and never logs or weights. VARIABLE: those that profiled processes were
allowed to see, by the configuration's `environment`.
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
from profzoo.cell import combining
from profzoo.collect import secrets
from profzoo.collect.environment import environment
from profzoo.errors import CollectError
from profzoo.imports import PROJECT

# Paths under results/, besides the folders of models, and in one of those.
SHARED = re.compile(r"(report|compare)\.html|tables/[\w-]+\.csv|figures/[\w-]+\.(svg|png)|peaks/[\w-]+\.csv(\.json)?")
OF_CELL = re.compile(r"(train|inference)(\.[\w-]+)*(\.csv|\.json)|(train|inference)\.nsys/\w+\.csv|weights\.pt\.json")
REPORT = re.compile(r"(train|inference)(\.[\w-]+)*\.(ncu-rep|nsys-rep|sqlite|trace\.json\.gz)")
# The folder that an archive unpacks into, and what in it says where the rest comes from.
ROOT, ORIGIN = "profzoo-results", "ORIGIN.json"
# Of sidecars, what is told of all of them.
FACTS = ("commit", "commit_changed", "device", "gpu", "driver", "torch", "cuda", "cudnn", "python", "started")
# An absolute path within a text, of which the last part stays; no address.
FOLDERS = re.compile(r"(?<![\w.:/~])/(?:[\w.@+ -]+/)+")


def chosen(results: Path, reports: bool = False) -> list[Path]:
    """The files that may be given away, by their paths from the folder of results, sorted; reports: also those."""
    found = [path.relative_to(results) for path in results.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(path for path in found if _may(path.as_posix(), reports))


def _may(path: str, reports: bool = False) -> bool:
    """Whether a path names what may be given away.

    >>> [_may(path) for path in ("tables/cells.csv", "lstm@bf16+graph/train.nsys.csv.json", "lstm/train.trace.json.gz")]
    [True, True, False]
    """
    model, _, file = path.partition("/")
    name, at, variant = model.partition("@")
    is_cell = schema.is_name(name, "model") and all(map(schema.is_name, combining.parts(variant if at else None)))
    return bool(
        SHARED.fullmatch(path) or (is_cell and (OF_CELL.fullmatch(file) or (reports and REPORT.fullmatch(file))))
    )


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


def contents(
    results: Path, withheld: Mapping[str, Sequence[bytes]], config: Mapping[str, Any], reports: bool = False
) -> dict[str, bytes | Path]:
    """What goes into the archive, by path from the folder of results; files that go in as they are by their own paths.

    config: the configuration, which ORIGIN tells. reports: whether what tools recorded goes along.

    Raises:
        CollectError: a file holds what was withheld, cannot be read, or there is none.
    """
    files = chosen(results, reports)
    if not files:
        raise CollectError(f"{results} holds nothing that may be given away: `snakemake report` makes it")
    sidecars = list(_sidecars(results, files))
    others = hosts(sidecars)
    found: dict[str, bytes | Path] = {ORIGIN: scrubbed(ORIGIN, origin(sidecars, config), others)}
    for path in files:
        if name := secrets.held(results / path, withheld):
            raise CollectError(f"{results / path} holds the value of {name}: remove the file, and make it again")
        try:
            given = REPORT.fullmatch(path.name)
            found[path.as_posix()] = (
                results / path if given else scrubbed(path.name, (results / path).read_bytes(), others)
            )
        except (OSError, ValueError, IndexError, csv.Error) as error:
            raise CollectError(f"{results / path} is damaged, remove it and make it again: {error}") from error
    return found


def origin(sidecars: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> bytes:
    """JSON of what all results come from: each fact's values over the sidecars, versions of tools, configuration."""
    values: dict[str, set[str]] = {}
    for facts in sidecars:
        known = {key: facts[key] for key in FACTS if facts.get(key) is not None}
        # Days, so that what was measured anew within one says so by its numbers alone.
        known |= {"started": str(known["started"])[:10]} if "started" in known else {}
        known |= (
            {"tools": f"{facts['tool']}: {facts['tool_version']}"} if {"tool", "tool_version"} <= set(facts) else {}
        )
        for key, value in known.items():
            values.setdefault(key, set()).add(str(value))
    told = {key: sorted(found) for key, found in values.items()}
    return json.dumps({"measured": told, "config": config}, sort_keys=True).encode()


def _sidecars(results: Path, files: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """The sidecars among the files; what is damaged is said where it would be packed."""
    for path in files:
        with suppress(OSError, ValueError):
            if path.suffix == ".json" and isinstance(facts := json.loads((results / path).read_bytes()), dict):
                yield facts


def pack(files: Mapping[str, bytes | Path], archive: Path) -> str:
    """Write the archive, whose first file, MANIFEST, has a line a file: SHA-256, bytes, path. In words, what it is."""
    lines = []
    for path, content in sorted(files.items()):
        with _opened(content) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        lines.append(f"{digest} {_size(content)} {path}\n")
    # Of a name that nobody knows beforehand, who could have put a link there.
    partial = archive.with_name(f".{archive.name}.{os.urandom(6).hex()}.partial")
    try:
        _write({"MANIFEST": "".join(lines).encode(), **dict(sorted(files.items()))}, partial)
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    return f"{archive}: {len(files)} files, {archive.stat().st_size:,} bytes; MANIFEST in it lists them"


def _write(files: Mapping[str, bytes | Path], archive: Path) -> None:
    # No times and no owners, so that the same results make the same archive.
    with (
        archive.open("xb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{ROOT}/{path}")
            entry.size, entry.mode = _size(content), 0o644
            with _opened(content) as stream:
                tar.addfile(entry, stream)


def _opened(content: bytes | Path) -> io.BufferedIOBase:
    """Reports may be larger than memory."""
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _size(content: bytes | Path) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.share", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--reports", action="store_true", help="with what tools recorded")
    parser.add_argument("--config", type=json.loads, default={}, metavar="JSON", help="the configuration")
    parser.add_argument("seen", nargs="*", metavar="VARIABLE")
    options = parser.parse_args(arguments)
    withheld = secrets.withheld(os.environ, environment(os.environ, options.seen))
    try:
        files = contents(options.results, withheld, options.config, options.reports)
        print(f"profzoo: {pack(files, options.archive)}")
    except CollectError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
