"""Compares a job with a record, and files with the digests in it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.records import digests
from profzoo.records.record import Entry, Record

# Texts longer than this are cut where a difference is told.
SHOWN = 40


@dataclass(frozen=True)
class Difference:
    """One difference between a job and a record, in a few words; key: key of the source that differs, if any."""

    words: str
    key: str = ""


def find_differences(record: Record, job: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the differences between a job that is to run and the recorded job.

    job: job text as JSON values. sources: present digests of its sources, by key.
    """
    yield from map(Difference, compare_settings(record.job, job))
    yield from (Difference(f"{name} changed while it was measured", name) for name in record.changed)
    for name in sorted({*record.sources, *sources}):
        if name not in sources:
            yield Difference(f"{name} is no longer part of it", name)
        elif name not in record.sources:
            yield Difference(f"{name} is new", name)
        elif record.sources[name] != sources[name]:
            yield Difference(f"{name} has changed", name)


def compare_settings(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield the keys at which two JSON values differ.

    >>> list(compare_settings({"cell": {"batch": 4, "seed": 0}}, {"cell": {"batch": 7, "seed": 0}}))
    ['cell.batch was 4 and is 7']
    >>> list(compare_settings({"set": "launch"}, {"repeats": 3}))
    ['repeats is 3, and was not given', "set was 'launch', and is not given"]
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}, key=str):
            place = f"{where}.{name}" if where else str(name)
            if name not in new:
                yield f"{place} was {_shown(old[name])}, and is not given"
            elif name not in old:
                yield f"{place} is {_shown(new[name])}, and was not given"
            else:
                yield from compare_settings(old[name], new[name], place)
    elif old != new:
        yield f"{where} was {_shown(old)} and is {_shown(new)}"


def find_flaw(path: Path, entry: Entry) -> str | None:
    """Describe how a file or folder differs from its recorded entry; None if it does not.

    Raises:
        OSError: it cannot be read.
    """
    found = digests.measure_size(path)
    if found != entry.bytes:
        return f"it has {found} bytes, and had {entry.bytes} when it was made"
    return None if digests.compute_digest(path) == entry.sha256 else "its content is not what was written"


def normalize_json(value: Any) -> Any:
    """Normalise a value to what JSON returns after writing and reading it."""
    return json.loads(json.dumps(value, sort_keys=True, default=repr))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
