"""Pack the shareable part of the results: `python -m profzoo.share [--reports] RESULTS ARCHIVE`.

The archive holds tables, figures, the report page, exported CSV and their sidecars, without secrets and names of hosts,
users and folders, and ORIGIN.json, which says how they were measured. Reports and traces of the tools hold the
environment and command lines, so they are packed only with --reports. Logs, records and weights are never packed. The
file WITHHELD in the archive lists everything that was removed or left out because of a secret.
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo import redaction, schema
from profzoo.cell import variant_settings
from profzoo.cell.registry import PHASES_OF_FILES
from profzoo.errors import CollectError, DataError
from profzoo.json_types import JsonObject
from profzoo.records import job_differences, record

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config

_PHASE = "|".join(PHASES_OF_FILES)
# Paths under results/, besides the folders of models, and in one of those.
SHARED = re.compile(
    r"(report|compare)\.html|tables/[\w-]+\.csv|figures/[\w-]+\.(svg|png)|peaks/[\w-]+(\.links\.\d+x\d+)?\.csv(\.json)?"
)
# Tables of source lines hold the program's own source, and stay.
OF_CELL = re.compile(
    rf"(?!({_PHASE})\.ncu-source\.)({_PHASE})(\.[\w-]+)*(\.csv|\.json)|({_PHASE})\.nsys/\w+\.csv|weights\.pt\.json"
)
REPORT = re.compile(rf"({_PHASE})(\.[\w-]+)*\.(ncu-rep|nsys-rep|sqlite|trace\.json\.gz)")
# The folder that an archive unpacks into, and the file in it that says how the results were measured.
ROOT, ORIGIN = "profzoo-results", "ORIGIN.json"
# The file that lists what was withheld, and why: one line per file.
WITHHELD = "WITHHELD"
# Keys of sidecars whose values ORIGIN.json lists.
FACTS = ("commit", "commit_changed", "device", "gpu", "driver", "torch", "cuda", "cudnn", "python", "started")


def list_shareable(results: Path, reports: bool = False) -> list[Path]:
    """Return the sorted paths of shareable files, relative to the results folder; `reports` includes tools' reports."""
    found = [path.relative_to(results) for path in results.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(path for path in found if _is_shareable(path.as_posix(), reports))


def _is_shareable(path: str, reports: bool = False) -> bool:
    """Whether the file of this path may be shared.

    >>> paths = ("tables/cells.csv", "lstm@bf16+graph/train.nsys.csv.json", "lstm/train.trace.json.gz")
    >>> [_is_shareable(path) for path in (*paths, "lstm/train.ncu-source.full.csv")]
    [True, True, False, False]
    """
    model, _, file = path.partition("/")
    name, at, variant = model.partition("@")
    is_cell = schema.is_name(name, "model") and all(
        map(schema.is_name, variant_settings.split_names(variant if at else None))
    )
    return bool(
        SHARED.fullmatch(path) or (is_cell and (OF_CELL.fullmatch(file) or (reports and REPORT.fullmatch(file))))
    )


def collect_contents(
    results: Path, environment: Mapping[str, str], config: "Config", reports: bool = False
) -> tuple[dict[str, bytes | Path], list[str]]:
    """Return the archive's contents by path relative to the results folder, and lines on what was withheld and why.

    A content is bytes, or the path of a file that is packed unchanged.

    Args:
        environment: variables that may hold secrets.
        config: the configuration, which ORIGIN.json contains.
        reports: whether the tools' reports are packed too.

    Raises:
        CollectError: a file cannot be read, or there is nothing to share.
    """
    files = list_shareable(results, reports)
    if not files:
        raise CollectError(f"{results} holds no files to share: `snakemake report` makes them")
    sidecars = list(_sidecars(results, files))
    # Of cells; a host may have the name of a model.
    models = {part for path in files for part in re.split("[@+]", path.parts[0])} | set(PHASES_OF_FILES)
    known = redaction.find_known_secrets(environment, [*sidecars, {"config": config}], models)
    found: dict[str, bytes | Path] = {ORIGIN: redaction.redact(ORIGIN, describe_origin(sidecars, config), known)}
    left: dict[str, str] = {}
    for path in files:
        name = path.as_posix()
        try:
            if _is_binary(path):
                if what := redaction.find_secret_in_bytes(results / path, known):
                    left[name] = what
                else:
                    found[name] = results / path
            else:
                found[name] = redaction.redact(name, (results / path).read_bytes(), known)
        except (OSError, ValueError, IndexError, csv.Error, CollectError) as error:
            raise CollectError(f"{results / path} is damaged, remove it and make it again: {error}") from error
    _drop_packed_traces(found, left)
    for path in files:
        if path.suffix == ".json" and path.as_posix() in found:
            found[path.as_posix()] = _seal_sidecar(results, path, found)
    lines = [f"{name} was left out: it holds {what}" for name, what in sorted(left.items())]
    lines += [f"{name} lost {', '.join(sorted(what))}" for name, what in sorted(known.found.items())]
    return found | ({WITHHELD: "".join(f"{line}\n" for line in lines).encode()} if lines else {}), lines


def _seal_sidecar(results: Path, sidecar: Path, found: Mapping[str, bytes | Path]) -> bytes:
    """Return a sidecar with digests of its files as they are packed, so that recipients can verify them.

    Raises:
        CollectError: the sidecar or one of its files is damaged in the results folder.
    """
    content = found[sidecar.as_posix()]
    assert isinstance(content, bytes)
    try:
        known = record.read_sidecar_record(results / sidecar)
        files = dict(known.files) if known else {}
        for name, entry in files.items():
            path = sidecar.with_name(name)
            packed = found.get(path.as_posix())
            if isinstance(packed, bytes):
                if why := job_differences.find_flaw(results / path, entry):
                    raise CollectError(f"{results / path} is damaged, remove it and make it again: {why}")
                files[name] = record.Entry(len(packed), hashlib.sha256(packed).hexdigest())
    except (OSError, DataError) as error:
        raise CollectError(f"{results / sidecar} is damaged, remove it and make it again: {error}") from error
    if not files:
        return content
    told = {record.FILES: {name: [entry.bytes, entry.sha256] for name, entry in files.items()}}
    return record.seal(json.loads(content) | told).encode()


def _is_binary(path: Path) -> bool:
    """Whether a file is binary, so that it is packed unchanged."""
    return bool(REPORT.fullmatch(path.name)) or path.suffix == ".png"


def _drop_packed_traces(found: dict[str, bytes | Path], left: dict[str, str]) -> None:
    """Leave out traces by nsys, which are packed in a way of nsys' own, where their SQLite tells of a secret."""
    for name, what in list(left.items()):
        packed = f"{name.removesuffix('.nsys.sqlite')}.nsys-rep"
        if name.endswith(".nsys.sqlite") and packed in found:
            del found[packed]
            left[packed] = what


def describe_origin(sidecars: Iterable[JsonObject], config: "Config") -> bytes:
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


def _sidecars(results: Path, files: Iterable[Path]) -> Iterator[JsonObject]:
    """Yield the sidecars among the files; damaged ones are reported later, when they are packed."""
    for path in files:
        with suppress(OSError, ValueError):
            if path.suffix == ".json" and isinstance(facts := json.loads((results / path).read_bytes()), dict):
                yield facts


def write_archive(files: Mapping[str, bytes | Path], archive: Path) -> str:
    """Write the archive and return a line that describes it.

    Its first file, MANIFEST, has one line per file: SHA-256, size in bytes, path.
    """
    lines = []
    for path, content in sorted(files.items()):
        with _open_content(content) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        lines.append(f"{digest} {_content_size(content)} {path}\n")
    # A random name, so that nobody can place a link there beforehand.
    partial = archive.with_name(f".{archive.name}.{os.urandom(6).hex()}.partial")
    try:
        _write_tar({"MANIFEST": "".join(lines).encode(), **dict(sorted(files.items()))}, partial)
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    return f"{archive}: {len(files)} files, {archive.stat().st_size:,} bytes; MANIFEST in it lists them"


def _write_tar(files: Mapping[str, bytes | Path], archive: Path) -> None:
    # No times and no owners, so that the same results make the same archive.
    with (
        archive.open("xb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{ROOT}/{path}")
            entry.size, entry.mode = _content_size(content), 0o644
            with _open_content(content) as stream:
                tar.addfile(entry, stream)


def _open_content(content: bytes | Path) -> io.BufferedIOBase:
    """Reports may be larger than memory."""
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _content_size(content: bytes | Path) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.share", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--reports", action="store_true", help="pack the tools' reports and traces too")
    parser.add_argument("--config", type=json.loads, default={}, metavar="JSON", help="the configuration")
    options = parser.parse_args(arguments)
    try:
        files, lines = collect_contents(options.results, os.environ, options.config, options.reports)
        for line in lines:
            print(f"profzoo: {line}")
        print(f"profzoo: {write_archive(files, options.archive)}")
    except CollectError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
