"""Verifies all files of a results folder against their records: `python -m profzoo.cli.verify FOLDER`.

Every byte is read again. The exit code is 1 where a file is not what was made, or a record is damaged.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profzoo.errors import say
from profzoo.io import file_checks
from profzoo.records import derived_outputs, digests, record
from profzoo.records.record import DamagedRecordError, Record

# Folders of a results folder that hold what nothing is made of.
WITHOUT_RECORDS = ("logs", "benchmarks")
# So many files of a kind are named.
MOST_NAMED = 50


@dataclass
class FolderFindings:
    """Findings in a folder: the number of intact files, and lines on the others."""

    whole: int = 0
    bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)


def verify_folder(results: Path) -> FolderFindings:
    """Read all files of a results folder and find those that differ from their records.

    Raises:
        OSError: the folder cannot be read.
    """
    found, digested = FolderFindings(), set[Path]()
    digests.forget_digests()
    for path in verifiable_files(results):
        digested.add(path)
        _check(path, found)
    for home in sorted(results.rglob(f"{record.FOLDER}/*.json")):
        output = home.parent.parent / home.name.removesuffix(".json")
        if output not in digested and _expected(output):
            found.gone.append(f"{output} is not there, and its record is")
    return found


def verifiable_files(results: Path) -> Iterator[Path]:
    """Yield job outputs in a results folder: files, and folders that are one output; no logs, hidden files, links."""
    for path in sorted(results.iterdir()):
        if path.name.startswith(".") or path.is_symlink() or path.name in WITHOUT_RECORDS:
            continue
        if path.is_dir() and not record.record_path(path).exists():
            yield from verifiable_files(path)
        else:
            yield path


def format_findings(found: FolderFindings, results: Path) -> list[str]:
    """Format the findings as lines, the worst first."""
    told = [*_some(found.damaged), *_some(found.gone), *_some(found.unrecorded)]
    counts = [
        f"{found.whole} files are what was made ({found.bytes / 1e6:,.1f} MB)",
        *([f"{len(found.damaged)} are damaged"] if found.damaged else []),
        *([f"{len(found.gone)} are gone"] if found.gone else []),
        *([f"{len(found.unrecorded)} have no record"] if found.unrecorded else []),
    ]
    return [*told, f"{results}: {', '.join(counts)}"]


def _check(path: Path, found: FolderFindings) -> None:
    """Count an intact file, or add a line on what is wrong."""
    known, why = False, None
    try:
        known = bool(_own(path))
        if not known and (made := record.read_output_record(path)) and (entry := made.files.get(path.name)):
            known, why = True, derived_outputs.find_flaw(path, entry)
    except (DamagedRecordError, OSError) as error:
        why = str(error)
    if why:
        found.damaged.append(f"{path} is damaged ({why}): {file_checks.describe_remedy(path)}")
    elif known:
        found.whole, found.bytes = found.whole + 1, found.bytes + digests.measure_size(path)
    else:
        found.unrecorded.append(f"{path} has no record, so it is unknown whether it has changed")


def _own(path: Path) -> Record | None:
    """Record inside a file, if the file is a sidecar of collected files."""
    return (
        record.read_sidecar_record(path) if path.suffix == ".json" and not record.record_path(path).exists() else None
    )


def _expected(output: Path) -> bool:
    """Whether an output was to be kept; temporary outputs have a record as well."""
    try:
        known = record.read_output_record(output)
    except (DamagedRecordError, OSError):
        return True
    return known is not None and not known.passing


def _some(told: Sequence[str]) -> list[str]:
    rest = len(told) - MOST_NAMED
    return [*told[:MOST_NAMED], *([f"and {rest} more of this kind"] if rest > 0 else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.cli.verify", description=__doc__)
    parser.add_argument("results", type=Path)
    options = parser.parse_args(arguments)
    if not options.results.is_dir():
        say(f"{options.results} is not there: nothing was made yet")
        return 1
    try:
        found = verify_folder(options.results)
    except OSError as error:
        say(f"{error.filename or options.results} cannot be read: {error.strerror}")
        return 1
    print("\n".join(format_findings(found, options.results)))
    return 1 if found.damaged else 0


if __name__ == "__main__":
    sys.exit(main())
