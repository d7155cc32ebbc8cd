"""Searches a job's outputs for the values of withheld variables, so that no report contains a secret.

A variable counts as a secret if its value has at least eight characters and its name or value looks like a secret. Such
names are `..._TOKEN`, `..._KEY`, `PASSWORD`, ...; such values are 20 or more random letters and digits, or a password
in an address. Three kinds of values never count: an existing path; a part of visible text (a kept variable, the
working folder, the names of host and user); and the value of a name that only identifies something (`..._SHA`).
"""

import gzip
import json
import math
import os
import re
import socket
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from profzoo.cell import secret_detection, secret_values
from profzoo.collect.environment import select_environment
from profzoo.errors import CollectError
from profzoo.machine import program_variables
from profzoo.records.read_files import ReadFiles

SHORTEST = 8
NAMED = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|JWT|COOKIE|(^|_)(KEY|PW|PASS|AUTH|PAT|PIN)(_?\d+|_ID)?$",
    re.IGNORECASE,
)
IDENTIFIES = re.compile(r"(ID|SHA\d*|COMMIT|HASH|DIGEST|REF|BRANCH|VERSION|FINGERPRINT|NAME|HOST|COLORS)$|^GPG_KEY$")
# Pattern of tokens, and the least length and entropy (bits per character) at which a value counts as a token.
TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+/=_.~-]{20,}")
BITS = 3.4
IN_ADDRESS = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
# Bytes read at once: a block fits into the CPU's cache, so that searching it for many values is fast.
CHUNK, OVERLAP = 2**20, 2**15


def withheld_secrets(given: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, tuple[bytes, ...]]:
    """Withheld variables that look like secrets, each with the encodings in which its value may appear.

    given: the environment; seen: the part of it that a profiled process sees.
    """
    # Public facts about the job's machine and user.
    told = "\0".join([*seen.values(), str(Path.cwd()), socket.gethostname(), str(Path.home())])
    found: dict[str, tuple[bytes, ...]] = {}
    for name, secret in _candidates(given, seen):
        if len(secret) >= SHORTEST and secret not in told and not _is_path(secret):
            plain = secret.encode(errors="surrogateescape")
            written = json.dumps(secret)[1:-1].encode()
            found[name] = (*found.get(name, ()), *dict.fromkeys((plain, written)))
    return found


def _candidates(given: Mapping[str, str], seen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Possible secrets with their names: values of withheld variables, and of settings."""
    for name, value in given.items():
        if name not in (*seen, secret_values.FILE):
            yield from ((name, secret) for secret in _secrets(name, value))
    yield from ((key, str(value)) for key, value in secret_values.read_secrets(given).values())


def secrets_of_variable(name: str, value: str, given: Mapping[str, str]) -> list[str]:
    """Secrets in a variable's value, visible or not; paths and public facts about the machine do not count."""
    kept = select_environment(given, [])
    told = "\0".join([*kept.values(), str(Path.cwd()), socket.gethostname(), str(Path.home())])
    found = () if name in kept else _secrets(name, value)
    return [one for one in found if len(one) >= SHORTEST and one not in told and not _is_path(one)]


def _secrets(name: str, value: str) -> Iterator[str]:
    """Parts of a variable's value that look like secrets."""
    value = value.strip()
    named = NAMED.search(name)
    # The ID of a key (`..._KEY_ID`) counts as secret, like the key itself.
    identifies = IDENTIFIES.search(name.removesuffix("_ID") if named else name)
    if not identifies and (named or (TOKEN.fullmatch(value) and _bits(value) >= BITS)):
        yield value
    yield from IN_ADDRESS.findall(value)


def _bits(text: str) -> float:
    """Entropy of a text in bits per character.

    >>> round(_bits("abababab"), 1), round(_bits("0123456789abcdef"), 1)
    (1.0, 4.0)
    """
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _is_path(value: str) -> bool:
    """Whether a value is a path, or a list of paths; a missing file in an existing folder counts."""
    parts = [part for part in value.split(os.pathsep) if part]
    return all(part.startswith("/") and _is_there(part) for part in parts)


def _is_there(path: str) -> bool:
    try:
        return any(place.exists() for place in (Path(path), Path(path).parent) if place != Path("/"))
    except (OSError, ValueError):
        # The value is too long for a path, or has characters that no path has.
        return False


def find_secret_in_file(path: Path, secrets: Mapping[str, Sequence[bytes]]) -> str | None:
    """Name of a variable whose value a file, or a file of a folder, contains; None if there is none.

    Files compressed by gzip are searched uncompressed. A report of nsys is compressed in an own format and is searched
    as it is: its SQLite export shows the values.
    """
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    for file in files if secrets else []:
        with file.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if name := _first(cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw, secrets):
                return name
    return None


def _first(stream: BinaryIO, secrets: Mapping[str, Sequence[bytes]]) -> str | None:
    longest = max(len(form) for forms in secrets.values() for form in forms)
    before = b""
    try:
        while chunk := stream.read(CHUNK):
            text = before + chunk
            for name, forms in secrets.items():
                if any(form in text for form in forms):
                    return name
            before = text[-longest:]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CollectError(f"{getattr(stream, 'name', 'a file')} is damaged: {error}") from error
    return None


def check_for_secrets(
    left: Iterable[Path], log: Path, given: Mapping[str, str], extra: Sequence[str], nodes: int = 1
) -> None:
    """Check that no output of a job, nor its log, contains the value of a variable withheld from the job.

    Raises:
        CollectError: an output contains one; the message names variable and file, never the value. The value is also
            replaced in the log.
    """
    secrets = withheld_secrets(given, select_environment(given, extra, nodes))
    for path in dict.fromkeys((log, *left)):
        if name := find_secret_in_file(path, secrets) if path.exists() else None:
            _blank(log, secrets)
            if name not in given:
                raise CollectError(
                    f"{path.name} holds the secret {name} of the settings: keep the program from printing it"
                )
            raise CollectError(
                f"{path.name} holds the value of {name}, a secret of the environment: keep the program from writing it,"
                f" unset {name} where snakemake is called or, if it is not a secret, name it under `variables`"
            )


def without_secrets(seen: ReadFiles, given: Mapping[str, str], extra: Sequence[str], nodes: int = 1) -> ReadFiles:
    """Leave out files whose paths hold the value of a variable withheld from the job, or of a secret setting."""
    secrets = withheld_secrets(given, select_environment(given, extra, nodes))
    forms = [form for one in secrets.values() for form in one]

    def is_open(value: object) -> bool:
        text = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
        return not any(form in text for form in forms)

    return ReadFiles(
        {path: state for path, state in seen.read.items() if is_open([path, state])},
        tuple(filter(is_open, seen.written)),
        tuple(filter(is_open, seen.changed)),
    )


def mask_secrets(log: Path, seen: Mapping[str, str]) -> None:
    """Replace secrets in a log: those of settings, and of the user's own variables where the program had these.

    seen: the variables that the program started with.
    """
    if not log.is_file():
        return
    known = secret_values.known_secrets().items()
    forms = {name: (str(value).encode(),) for name, (_, value) in known if len(str(value)) >= SHORTEST}
    _blank(log, {name: (*one, json.dumps(one[0].decode())[1:-1].encode()) for name, one in forms.items()}, "{}")
    if program_variables.FILE in seen:
        _blank(log, withheld_secrets(os.environ, seen))


def _blank(log: Path, secrets: Mapping[str, Sequence[bytes]], instead: str = "({})") -> None:
    """Replace the values in a log, which is kept when a job has failed."""
    if not find_secret_in_file(log, secrets):
        return
    text = log.read_bytes()
    for name, forms in secrets.items():
        for form in forms:
            text = text.replace(form, instead.format(name).encode())
    log.write_bytes(text)


def find_secret_in_bytes(path: Path, values: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the name of a secret that a non-text file contains, also inside gzip; None if there is none.

    values: encodings of each known secret, by its name.

    Raises:
        CollectError: the file is damaged.
        OSError: the file cannot be read.
    """
    wanted = {what: tuple(form.encode(errors="surrogateescape") for form in all_of) for what, all_of in values.items()}
    if what := find_secret_in_file(path, wanted):
        return f"the value of {what}"
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream, before = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw, b""
        try:
            while chunk := stream.read(CHUNK):
                content = before + chunk
                if kind := secret_detection.secret_kind_in_bytes(content):
                    return f"{kind}, by what it looks like"
                before = content[-OVERLAP:]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CollectError(f"{path} is damaged: {error}") from error
    return None
