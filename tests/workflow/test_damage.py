"""Two hundred damaged files of twelve kinds, drawn at random among all that a run makes: each is noticed, or harmless."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from profzoo import verify
from profzoo.io import file_checks
from profzoo.records import digests
from tests.workflow.project import Project

DRAWN, SEED = 200, 38


def digit(whole: bytes, chance: random.Random) -> bytes:
    """One digit is another; a byte where there is no digit."""
    places = [place for place, byte in enumerate(whole) if 48 <= byte <= 57] or [len(whole) // 2]
    place = chance.choice(places)
    return whole[:place] + bytes([48 + (whole[place] - 48 + 1) % 10]) + whole[place + 1 :]


def flipped(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]


def lines(change: Callable[[list[bytes], random.Random], list[bytes]]) -> Callable[[bytes, random.Random], bytes]:
    """A change of a file's lines."""
    return lambda whole, chance: b"".join(change(whole.splitlines(keepends=True), chance))


def swapped(given: list[bytes], chance: random.Random) -> list[bytes]:
    first, second = chance.randrange(len(given)), chance.randrange(len(given))
    given[first], given[second] = given[second], given[first]
    return given


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda whole, chance: b"",
    "zeros in the second half": lambda whole, chance: whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2),
    "zeros alone": lambda whole, chance: bytes(len(whole)),
    "cut anywhere": lambda whole, chance: whole[: chance.randrange(len(whole))],
    "cut at the end of a line": lines(lambda given, chance: given[: chance.randrange(len(given))]),
    "half of the lines": lines(lambda given, chance: given[:1] + given[1::2]),
    "a line twice": lines(lambda given, chance: [*given, given[-1]]),
    "two lines swapped": lines(swapped),
    "another digit": digit,
    "a flipped bit": flipped,
    "something behind": lambda whole, chance: whole + b"\n",
    "a page of another file": lambda whole, chance: (whole[:4096] * 2)[: len(whole)] + whole[8192:],
}


@pytest.mark.slow
def test_two_hundred_damaged_files_are_noticed_or_harmless(built: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.root)
    chance, results = random.Random(SEED), Path("results")
    made = [path for path in verify.verifiable_files(results) if path.is_file()]
    assert verify.verify_folder(results).damaged == [] and len(KINDS) == 12 and len(made) > 60
    tried: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    missed = []
    for number in range(DRAWN):
        kind = list(KINDS)[number % len(KINDS)]
        # Large ones take long to write two hundred times, and are read by the same check.
        small = [one for one in made if one.stat().st_size < 1 << 20]
        damaged = whole = b""
        while damaged == whole:
            # Half of a single line is that line.
            path = chance.choice(small)
            whole, before = path.read_bytes(), path.stat()
            damaged = KINDS[kind](whole, chance)
        path.write_bytes(damaged)
        # As after a power loss, which leaves the times that the file had.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        digests.forget_digests()
        found = file_checks.find_damage(path) or sidecar_damage(path)
        tried[kind] += 1
        noticed[kind] += bool(found)
        if not found and not harmless(path, whole):
            missed.append((kind, str(path)))
        path.write_bytes(whole)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not missed, missed
    assert sum(tried.values()) == DRAWN and sum(noticed.values()) >= DRAWN * 0.9, (tried, noticed)
    digests.forget_digests()
    assert verify.verify_folder(results).damaged == []


def harmless(path: Path, whole: bytes) -> bool:
    """Whether what is read of a file is what it was: of JSON, whatever white space there is."""
    left = path.read_bytes()
    return json.loads(left) == json.loads(whole) if path.suffix == ".json" else left == whole


def sidecar_damage(path: Path) -> str | None:
    """What is wrong with a sidecar, which is the record of others and of itself."""
    found = verify.FolderFindings()
    verify._check(path, found)
    return found.damaged[0] if found.damaged else None
