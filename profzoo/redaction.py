"""Removes secrets, and names of hosts, users and folders, from files that are to be shared.

Secrets are recognised by their keys, by their form, and by known values of settings and variables in any encoding. They
are removed from text files. Any other file that contains a secret is left out.
"""

import base64
import csv
import getpass
import gzip
import html
import io
import json
import re
import socket
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, quote_plus

from profzoo import secret_detection
from profzoo.cell import secret_values
from profzoo.collect import secret_leaks
from profzoo.errors import CollectError
from profzoo.import_graph import PROJECT
from profzoo.json_types import JsonObject

GONE, USER = "<secret>", "user"
# An absolute path within a text, of which the last part stays; no address. In a table or a page without spaces.
FOLDERS = re.compile(r"(?<![\w.:/~])/(?:[\w.@+ -]+/)+")
PLAIN_FOLDERS = re.compile(r"(?<![\w.:/~<])/(?:[\w.@+-]+/)+")
HOMES = re.compile(r"(?<![\w.:/~<])/(?:home|Users|root|tmp|scratch|mnt|gpfs|lustre|data|work|srv)/(?:[\w.@+-]+/)*")
OF_USER = re.compile(r"(?<![\w.])/(?:home|Users)/([\w.@+-]+)")
# `"password": "..."` and `password=...` within a text, such as a command line that a sidecar tells.
ASSIGNED = re.compile(
    r"""(?P<key>\w{2,60})\\*["']?\s?[=:]\s?\\*(?P<quote>["'])(?P<value>[^"'\\]{1,500})\\*(?P=quote)"""
)
# Names that identify nobody.
COMMON = frozenset((
    "root", "user", "localhost", "ubuntu", "admin", "runner", "docker", "nobody", "jovyan", "host", "node", "gpu", "cpu"
))  # fmt: skip
# Of variables and settings.
LONG_ENOUGH, SHORTEST_NAME = secret_leaks.SHORTEST, 3
READ, OVERLAP = 1 << 20, 1 << 15


@dataclass
class Known:
    """Secrets and names to remove.

    values: encodings of each secret, by its name. names, folders: names of hosts and users, and folders, each with its
    replacement. kept: words that also name something else in the results, and so stay. found: notes on what was
    removed, by file.
    """

    values: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    folders: Mapping[str, str]
    kept: frozenset[str] = frozenset()
    found: dict[str, set[str]] = field(default_factory=dict)

    def note(self, name: str, what: str) -> None:
        """Note what was removed from a file."""
        self.found.setdefault(name, set()).add(what)


def find_known_secrets(
    environment: Mapping[str, str], sidecars: Iterable[JsonObject], kept: Iterable[str] = ()
) -> Known:
    """Collect secrets and names from variables, settings and sidecars; kept: names that tables use."""
    told, names = list(sidecars), hosts([])
    values: dict[str, tuple[str, ...]] = {}
    for key, value in _secrets(environment, told):
        if len(value) >= LONG_ENOUGH:
            values[key] = tuple(dict.fromkeys((*values.get(key, ()), *forms(value))))
    names = hosts(told)
    short = {name.partition(".")[0]: other for name, other in names.items() if not name[:1].isdigit()}
    people = dict.fromkeys(users(environment, told), USER)
    return Known(values, {**people, **short, **names}, folders(told), frozenset(kept))


def _secrets(environment: Mapping[str, str], sidecars: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    """Yield secrets with their names: from settings, all variables, and sidecars of older versions."""
    yield from ((key, str(value)) for key, value in secret_values.read_secrets(environment).values())
    # Those of the fixed list hold none.
    for name, value in environment.items():
        if name != secret_values.FILE:
            yield from ((name, secret) for secret in secret_leaks.secrets_of_variable(name, value, environment))
    for facts in sidecars:
        found = {key: facts[key] for key in ("cell", "sides", "config") if key in facts}
        yield from ((key, str(value)) for key, value in secret_values.find_secrets(found).values())
        yield from secret_detection.secrets_in_words([str(word) for word in facts.get("command") or []])


def hosts(sidecars: Iterable[JsonObject]) -> dict[str, str]:
    """Return replacement names for this host and the hosts in sidecars: host-1, host-2, ..."""
    told = {socket.gethostname()}
    for facts in sidecars:
        told |= {
            str(one["host"]) for one in (facts, *facts.get("ranks", [])) if isinstance(one, dict) and "host" in one
        }
    return {name: f"host-{number}" for number, name in enumerate(sorted(told), start=1)}


def users(environment: Mapping[str, str], sidecars: Iterable[JsonObject] = ()) -> set[str]:
    """Return the names of this user and of the owners of folders in sidecars."""
    found = {environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")} | {Path.home().name}
    with suppress(OSError, KeyError, ImportError):
        found.add(getpass.getuser())
    found.update(name for facts in sidecars for name in OF_USER.findall(json.dumps(facts, ensure_ascii=False)))
    return {name for name in found if len(name) >= SHORTEST_NAME and name.lower() not in COMMON}


def folders(sidecars: Iterable[JsonObject] = ()) -> dict[str, str]:
    """Return replacement names for folders of this user and machine, and for folders in sidecars."""
    given = {str(PROJECT): "profzoo", str(Path.cwd()): ".", sys.prefix: "environment", str(Path.home()): "~"}
    given |= {str(Path(place).resolve()): name for place, name in given.items()}
    told = "\n".join(map(json.dumps, sidecars))
    found = {place.rstrip("/"): "..." for kind in (FOLDERS, PLAIN_FOLDERS) for place in kind.findall(told)}
    # Of those within a known one the way from there stays.
    inside = tuple(f"{place}/" for place in given if len(place) > 1)
    found = {place: name for place, name in found.items() if not f"{place}/".startswith(inside)} | given
    return {place: found[place] for place in sorted(found, key=lambda place: (-len(place), place)) if len(place) > 1}


def forms(secret: str) -> list[str]:
    """Return the encodings in which a secret may appear: plain, JSON, nested JSON, URL, HTML, Base64, hex.

    >>> forms("a b&c")
    ['a b&c', 'a%20b%26c', 'a+b%26c', 'a b&amp;c', '6120622663', 'YSBiJm', 'EgYiZj', 'hIGImY']
    """
    once = json.dumps(secret)[1:-1]
    # What CSV doubles.
    written = [
        secret,
        once,
        json.dumps(once)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe=""),
    ]
    written += [quote_plus(secret), quote(secret), html.escape(secret), secret.replace('"', '""')]
    # As Jinja writes quotes.
    escaped = [html.escape(one, quotes) for one in written[:4] for quotes in (True, False)]
    written += escaped + [one.replace("&quot;", "&#34;").replace("&#x27;", "&#39;") for one in escaped]
    raw = secret.encode(errors="surrogateescape")
    written += [raw.hex(), raw.hex().upper()]
    for before in range(3):
        # The letters that do not depend on what stands before and behind.
        whole = base64.b64encode(b"\0" * before + raw)
        start, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        part = whole[start:end].decode()
        written += [part, part.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(written))


def text(name: str, content: str, known: Known) -> str:
    """Remove secrets and names from a text, and note what was removed under the file's name."""
    for what, written in known.values.items():
        for form in sorted(written, key=len, reverse=True):
            if form in content:
                content = content.replace(form, GONE)
                known.note(name, f"the value of {what}")
    # The digest of a short secret could be found by trying.
    content, count = secret_values.PLACEHOLDER.subn(GONE, content)
    if count or (count := len(re.findall("&lt;secret [0-9a-f]{16}&gt;", content))):
        content = re.sub("&lt;secret [0-9a-f]{16}&gt;", html.escape(GONE), content)
        known.note(name, "the digest of a secret of the settings")
    for kind, secret in list(secret_detection.secrets_by_pattern(content)):
        if secret in content and secret != GONE:
            content = content.replace(secret, GONE)
            known.note(name, f"{kind}, by what it looks like")
    return places(content, known)


def places(content: str, known: Known) -> str:
    """Replace names of folders, hosts and users in a text."""
    for folder, other in known.folders.items():
        if folder in content:
            content = re.sub(rf"{re.escape(folder)}(?![\w-])", other, content)
    for one, other in sorted(known.names.items(), key=lambda item: -len(item[0])):
        if one in content and one not in known.kept and one.lower() not in COMMON:
            domain = "" if other == USER else r"(?:\.[A-Za-z][\w-]*)*"
            content = re.sub(rf"(?<![\w.-]){re.escape(one)}{domain}(?![\w-])", other, content)
    return content


def redact(name: str, content: bytes, known: Known) -> bytes:
    """Remove secrets and names from a text file's content; its name tells the format.

    Raises:
        ValueError: the content is no text, or no JSON although the name says so.
        csv.Error, IndexError: the content is no table although the name says so.
    """
    told = content.decode()
    if name.endswith(".json"):
        return (json.dumps(_facts(name, json.loads(told), known), indent=1, sort_keys=True) + "\n").encode()
    if name.endswith(".csv"):
        return _table(name, told, known).encode()
    told = text(name, told, known)
    for host, other in known.names.items():
        # Where a cell of a table holds nothing else.
        told = told.replace(f">{host}<", f">{other}<") if other != USER else told
    return HOMES.sub(".../", told).encode()


def _facts(name: str, value: Any, known: Known, key: str = "") -> Any:
    if isinstance(value, dict):
        return {text(name, one, known): _fact(name, one, inner, known) for one, inner in value.items()}
    if isinstance(value, list):
        given = {secret for _, secret in secret_detection.secrets_in_words(value)}
        return [GONE if isinstance(one, str) and one in given else _facts(name, one, known, key) for one in value]
    if not isinstance(value, str):
        return value
    told = FOLDERS.sub(".../", text(name, value, known))
    for match in list(ASSIGNED.finditer(told)):
        if match["value"] != GONE and secret_detection.is_secret_key(match["key"], match["value"]):
            told = told.replace(match[0], match[0].replace(match["value"], GONE))
            known.note(name, f"{match['key']}, by its name")
    for word, secret in secret_detection.secrets_in_words([told]):
        told = told.replace(f"{word}={secret}", f"{word}={GONE}")
        known.note(name, f"{word}, by its name")
    return told


def _fact(name: str, key: str, value: Any, known: Known) -> Any:
    if key == "host":
        return known.names.get(str(value), "host")
    if key == "variables" and isinstance(value, dict):
        # Digests of the user's own.
        return {one: _without_digest(name, one, inner, known) for one, inner in value.items()}
    if secret_detection.is_secret_key(key, value) and not isinstance(value, dict | list):
        if value != GONE:
            known.note(name, f"{key}, by its name")
        return GONE
    return _facts(name, value, known, key)


def _without_digest(name: str, variable: str, value: Any, known: Known) -> Any:
    if str(value).startswith("sha256:"):
        known.note(name, f"the digest of {variable}")
        return GONE
    return _facts(name, value, known)


def _table(name: str, told: str, known: Known) -> str:
    told = text(name, told, known)
    header, *rows = csv.reader(io.StringIO(told)) if told else [[]]
    place = header.index("host") if "host" in header else None
    if place is None and not PLAIN_FOLDERS.search(told):
        # As it was written.
        return told
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = [PLAIN_FOLDERS.sub(".../", cell) for cell in row]
        if place is not None:
            cells[place] = known.names.get(cells[place], cells[place])
        writer.writerow(cells)
    return written.getvalue()


def find_secret_in_bytes(path: Path, known: Known) -> str | None:
    """Return the name of a secret that a non-text file contains, also inside gzip; None if there is none.

    Raises:
        CollectError: the file is damaged.
        OSError: the file cannot be read.
    """
    wanted = {
        what: tuple(form.encode(errors="surrogateescape") for form in all_of) for what, all_of in known.values.items()
    }
    if what := secret_leaks.find_secret_in_file(path, wanted):
        return f"the value of {what}"
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream, before = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw, b""
        try:
            while chunk := stream.read(READ):
                content = before + chunk
                if kind := secret_detection.secret_kind_in_bytes(content):
                    return f"{kind}, by what it looks like"
                before = content[-OVERLAP:]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CollectError(f"{path} is damaged: {error}") from error
    return None
