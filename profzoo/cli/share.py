"""Pack the shareable part of the results: `python -m profzoo.cli.share [--reports] RESULTS ARCHIVE`.

The archive holds tables, figures, the report page, exported CSV and their sidecars, with settings of the schema, and
digests in place of other texts (profzoo/cli/redaction.py); and ORIGIN.json, which says how they were measured. Reports
and traces of the tools hold the environment and command lines, so they are packed only with --reports. Logs, records
and weights are never packed. The file WITHHELD in the archive lists everything that was removed or left out because of
a secret.
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.cell import schema, settings
from profzoo.cell.registry import PHASES_OF_FILES
from profzoo.cli import redaction
from profzoo.collect import secret_leaks
from profzoo.errors import CollectError, DataError
from profzoo.json_types import JsonObject
from profzoo.records import derived_outputs, record
from profzoo.tools import unavailable_tools

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
FACTS = ("commit", "commit_changed", "device", "gpu", *redaction.VERSIONS, "started")


def list_shareable(results: Path, reports: bool = False, models: Collection[str] = ()) -> list[Path]:
    """Return the sorted paths of shareable files, relative to the results folder.

    reports: whether tools' reports are among them. models: those whose files are, with all variants; empty for all.
    """
    found = [path.relative_to(results) for path in results.rglob("*") if path.is_file() and not path.is_symlink()]
    files = sorted(path for path in found if _is_shareable(path.as_posix(), reports))
    of_all = {path.parts[0] for path in files if SHARED.fullmatch(path.as_posix())}
    return [path for path in files if path.parts[0] in of_all or _is_selected(path.parts[0], models)]


def _is_selected(name: str, models: Collection[str]) -> bool:
    """Whether a model, with or without variant, is among these; empty for all."""
    return not models or name.partition("@")[0] in models


def _drop_others(results: Path, files: list[Path], models: Collection[str]) -> tuple[list[Path], list[str]]:
    """Drop pages and figures that show other models than these; returns what is left, and a line that says so."""
    cells = results / "tables/cells.csv"
    if not models or Path("tables/cells.csv") not in files:
        return files, []
    named = {row.get("model") or "" for row in csv.DictReader(io.StringIO(cells.read_text()))}
    others = sorted(name for name in named if not _is_selected(name, models))
    shown = [path for path in files if path.suffix == ".html" or path.parts[0] == "figures"] if others else []
    line = f"pages and figures were left out: they show {', '.join(others)}, too; `snakemake report` makes others"
    return [path for path in files if path not in shown], [line] if shown else []


def _keep_rows(path: Path, content: bytes, models: Collection[str]) -> bytes:
    """Return a table of all cells with the rows of these models; other files as they were written."""
    if path.parts[0] != "tables":
        return content
    told = content.decode()
    rows = list(csv.reader(io.StringIO(told)))
    place = rows[0].index("model") if models and rows and "model" in rows[0] else None
    if place is None or all(_is_selected(row[place], models) for row in rows[1:]):
        return content
    written = io.StringIO()
    kept = [rows[0], *(row for row in rows[1:] if _is_selected(row[place], models))]
    csv.writer(written, lineterminator="\n").writerows(kept)
    return written.getvalue().encode()


def _is_shareable(path: str, reports: bool = False) -> bool:
    """Whether the file of this path may be shared.

    >>> paths = ("tables/cells.csv", "lstm@bf16+graph/train.nsys.csv.json", "lstm/train.trace.json.gz")
    >>> [_is_shareable(path) for path in (*paths, "lstm/train.ncu-source.full.csv")]
    [True, True, False, False]
    """
    model, _, file = path.partition("/")
    name, at, variant = model.partition("@")
    is_cell = schema.is_name(name, "model") and all(map(schema.is_name, settings.split_names(variant if at else None)))
    return bool(
        SHARED.fullmatch(path) or (is_cell and (OF_CELL.fullmatch(file) or (reports and REPORT.fullmatch(file))))
    )


def collect_contents(
    results: Path, environment: Mapping[str, str], config: "Config", reports: bool = False, models: Collection[str] = ()
) -> tuple[dict[str, bytes | Path], list[str]]:
    """Return the archive's contents by path relative to the results folder, and lines on what was withheld and why.

    A content is bytes, or the path of a file that is packed unchanged.

    Args:
        environment: variables that may hold secrets.
        config: the configuration, which ORIGIN.json contains.
        reports: whether the tools' reports are packed too.
        models: models whose files are packed, with all variants; empty for all.

    Raises:
        CollectError: a file cannot be read, or there is nothing to share.
    """
    files, unshown = _drop_others(results, list_shareable(results, reports, models), models)
    if not files:
        raise CollectError(
            f"{results} holds no files to share: {unavailable_tools.name_maker('snakemake report')} them"
        )
    sidecars = list(_sidecars(results, files))
    # What the names of files show: models, variants, sections; a host may have the name of a model.
    kept = {part for path in files for part in re.split("[@+./]", path.as_posix())} | {
        path.as_posix() for path in files
    }
    known = redaction.find_known_secrets(environment, [*sidecars, {"config": config}], kept | set(PHASES_OF_FILES))
    found: dict[str, bytes | Path] = {ORIGIN: redaction.redact(ORIGIN, describe_origin(sidecars, config), known)}
    left: dict[str, str] = {}
    # Sidecars first: what they lose, all other files lose too.
    for path in sorted(files, key=lambda path: path.suffix != ".json"):
        content = _pack_file(results, path, known, models)
        if isinstance(content, str):
            left[path.as_posix()] = content
        else:
            found[path.as_posix()] = content
    _drop_packed_traces(found, left)
    for path in files:
        if path.suffix == ".json" and path.as_posix() in found:
            found[path.as_posix()] = _seal_sidecar(results, path, found)
    lines = unshown + [f"{name} was left out: it holds {what}" for name, what in sorted(left.items())]
    lines += [f"{name} lost {', '.join(sorted(what))}" for name, what in sorted(known.found.items())]
    return found | ({WITHHELD: "".join(f"{line}\n" for line in lines).encode()} if lines else {}), lines


def _pack_file(results: Path, path: Path, known: redaction.Known, models: Collection[str]) -> bytes | Path | str:
    """Return a file's content without secrets, its path if it is packed unchanged, or what keeps it from being packed.

    Raises:
        CollectError: the file is damaged.
    """
    try:
        if _is_binary(path):
            return secret_leaks.find_secret_in_bytes(results / path, known.values) or results / path
        content = _keep_rows(path, (results / path).read_bytes(), models)
        return redaction.redact(path.as_posix(), content, known)
    except (OSError, ValueError, IndexError, csv.Error, CollectError) as error:
        raise CollectError(f"{results / path} is damaged, remove it and make it again: {error}") from error


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
                if why := derived_outputs.find_flaw(results / path, entry):
                    raise CollectError(f"{results / path} is damaged, remove it and make it again: {why}")
                files[name] = record.Entry(len(packed), hashlib.sha256(packed).hexdigest())
    except (OSError, DataError) as error:
        raise CollectError(f"{results / sidecar} is damaged, remove it and make it again: {error}") from error
    facts = json.loads(content)
    if not files and record.ITSELF not in facts:
        return content
    told = {record.FILES: {name: [entry.bytes, entry.sha256] for name, entry in files.items()}} if files else {}
    return record.seal(facts | told).encode()


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
    parser = argparse.ArgumentParser(prog="python -m profzoo.cli.share", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--reports", action="store_true", help="pack the tools' reports and traces too")
    parser.add_argument(
        "--models", type=json.loads, default=[], metavar="JSON", help="whose files are packed; all if none"
    )
    parser.add_argument("--config", type=json.loads, default={}, metavar="JSON", help="the configuration")
    options = parser.parse_args(arguments)
    try:
        files, lines = collect_contents(options.results, os.environ, options.config, options.reports, options.models)
        for line in lines:
            print(f"profzoo: {line}")
        print(f"profzoo: {write_archive(files, options.archive)}")
    except CollectError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
