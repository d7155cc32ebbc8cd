"""Judges a job's existing outputs by their record: up to date, outdated, damaged, or unknown."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from profzoo.records import derived_outputs, digests, read_files, record
from profzoo.records.derived_outputs import Difference
from profzoo.records.record import DamagedRecordError, Record

NO_RECORD = "no record says how it was made"


class OutputState(Enum):
    """State of a job's outputs.

    ABSENT: some or all are missing. SAME: this job would make the same. OTHER: they are from another job, or from other
    sources or inputs. DAMAGED: they changed after they were made. UNKNOWN: they have no record.
    """

    ABSENT = "absent"
    SAME = "same"
    OTHER = "other"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class PlannedJob:
    """A job as a run plans it.

    job: job text. sidecar: path of a collecting job's sidecar, None for any other job. read: inputs that are compared
    by content. loose: inputs and sources that may differ. passing: outputs that are removed after other files are made
    from them. variables: digests of the environment variables that count where the program has read them.
    """

    job: Mapping[str, Any]
    outputs: Sequence[Path]
    sources: Sequence[Path]
    read: Sequence[Path]
    loose: frozenset[Path] = frozenset()
    sidecar: Path | None = None
    passing: frozenset[Path] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputVerdict:
    """The state of a job's outputs, and why, in a few words each.

    file: the damaged or unknown file. others: inputs and sources that differ from the record. settings: whether the job
    text differs.
    """

    state: OutputState
    why: tuple[str, ...] = ()
    file: Path | None = None
    others: tuple[Path, ...] = ()
    settings: bool = False


def judge_outputs(planned: PlannedJob, root: Path) -> OutputVerdict:
    """Judge a job's existing outputs; root: the folder that contains the workflow."""
    there = [path for path in planned.outputs if os.path.lexists(path)]
    try:
        known = (
            record.read_sidecar_record(planned.sidecar)
            if planned.sidecar
            else record.read_output_record(planned.outputs[0])
        )
        if known is None and there:
            return OutputVerdict(OutputState.UNKNOWN, (NO_RECORD,), there[0])
        if known is None or any(path not in there and path not in planned.passing for path in planned.outputs):
            return OutputVerdict(OutputState.ABSENT)
        if found := compare_with_record(planned, known, root):
            files = {record.source_key(path, root): path for path in planned.sources} | {
                str(path): path for path in planned.read
            }
            others = tuple(files[one.key] for one in found if one.key in files)
            why = tuple(one.words for one in found)
            return OutputVerdict(OutputState.OTHER, why, others=others, settings=any(not one.key for one in found))
        return _whole(planned, known, there)
    except DamagedRecordError as error:
        return OutputVerdict(OutputState.DAMAGED, (str(error),), there[0] if there else planned.outputs[0])
    except OSError as error:
        why = (f"it cannot be read: {error.strerror or error}",)
        return OutputVerdict(OutputState.DAMAGED, why, planned.outputs[0])


def compare_with_record(planned: PlannedJob, known: Record, root: Path) -> list[Difference]:
    """Return the differences between a planned job and the recorded one.

    Raises:
        DamagedRecordError, OSError: the state of an input cannot be determined.
    """
    loose = {record.source_key(path, root) for path in planned.loose}
    sources = {record.source_key(path, root): path for path in planned.sources}
    now = {key: digests.compute_digest(path) for key, path in sources.items() if key not in loose and path.exists()}
    then = Record(
        known.job, sources={key: sha for key, sha in known.sources.items() if key not in loose}, changed=known.changed
    )
    found = list(derived_outputs.find_differences(then, derived_outputs.normalize_json(planned.job), now))
    found += _changed_reads(planned, known)
    found += _changed_variables(known.variables, planned.variables)
    output = planned.sidecar or planned.outputs[0]
    names = {path: derived_outputs.relative_name(path, output) for path in planned.read}
    for path, name in names.items():
        if path in planned.loose:
            continue
        if name not in known.inputs:
            found.append(Difference(f"{path} is read as well", str(path)))
        elif (content := recorded_digest(path)) is not None and content != known.inputs[name]:
            found.append(Difference(f"{path} is another", str(path)))
    if gone := known.inputs.keys() - names.values():
        found.append(Difference(f"{min(gone)} is no longer read", min(gone)))
    return found


def _changed_reads(planned: PlannedJob, known: Record) -> Iterator[Difference]:
    """Differences of what the program itself read when it was measured."""
    own = functools.cache(lambda: _own_files(planned.sidecar.parent) if planned.sidecar else frozenset[str]())
    for path, words in read_files.find_changes(known.observed.read, own):
        yield Difference(words, path)


def _own_files(folder: Path) -> frozenset[str]:
    """Files that a cell's program wrote in any of its jobs; folder: of their sidecars."""
    found = set[str]()
    for path in folder.glob("*.json"):
        with suppress(DamagedRecordError, OSError):
            found |= {*(known.observed.written if (known := record.read_sidecar_record(path)) else ())}
    return frozenset(found)


def _changed_variables(read: Mapping[str, str | None], now: Mapping[str, str]) -> Iterator[Difference]:
    """Differences of environment variables that a program read when it was measured."""
    for name, digest in read.items():
        if now.get(name) != digest:
            how = "is set" if digest is None else "has another value" if name in now else "is no longer set"
            yield Difference(f"the environment variable {name}, which it reads, {how}")


def recorded_digest(path: Path) -> str | None:
    """Recorded digest of a file; without a record, digest of its present content; None if the file is gone.

    Raises:
        DamagedRecordError: its record is not as it was written.
        OSError: it cannot be read.
    """
    known = record.read_output_record(path)
    if known and path.name in known.files:
        return known.files[path.name].sha256
    return digests.compute_digest(path) if path.exists() else None


def _whole(planned: PlannedJob, known: Record, there: Sequence[Path]) -> OutputVerdict:
    """Check that the files are what the job made."""
    for path in there:
        if path == planned.sidecar:
            continue
        entry = known.files.get(path.name)
        why = derived_outputs.find_flaw(path, entry) if entry else "its record does not know it"
        if why:
            return OutputVerdict(OutputState.DAMAGED, (why,), path)
    return OutputVerdict(OutputState.SAME)
