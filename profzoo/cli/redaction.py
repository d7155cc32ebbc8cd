"""Keeps in files that are to be shared only what lists allow, and removes secrets and names of hosts and users.

A sidecar and the configuration keep numbers, settings of the schema and texts of FORMS. A digest replaces each other
text and key, such as a word of a command line or a warning. The same texts, and all paths and addresses but those of
profzoo's own files, are replaced in tables, pages and figures. Secrets are recognised by their keys, by their form, and
by known values of settings and variables in any encoding. A file that is not a text and contains a secret is left out.
"""

import csv
import functools
import hashlib
import hmac
import html
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo.cell import cell_types, job_types, schema, secret_detection, secret_values
from profzoo.cell.registry import PHASES_OF_FILES
from profzoo.collect import secret_leaks
from profzoo.json_types import JsonObject
from profzoo.records.import_graph import PROJECT
from profzoo.report import packed_blocks

GONE, USER = "<secret>", "user"
# Texts of sidecars that stay, by their key, besides words of the schema: what was measured, on what, and when.
_VERSION, _SIDE = r"[A-Za-z ]{0,40}v?\d[\w.+-]{0,40}", r"[A-Za-z_][\w@+=,-]{0,200}"
VERSIONS = ("driver", "torch", "cuda", "cudnn", "python")
FORMS = {
    "device": r"CPU, \d+ threads?|(?:NVIDIA|AMD|Intel|ARM|Arm|Apple|Neoverse|GeForce|Tesla|AWS)\b[\w .()@+-]{0,80}",
    **dict.fromkeys((*VERSIONS, "tool_version"), _VERSION),
    **dict.fromkeys(("side", "order", "sides", "tried", "chosen"), _SIDE),
    **dict.fromkeys(("budget", "time_limit", "wait"), r"\d{1,9}(?:\.\d{1,9})?[smhd]?"),
    "phase": "train|inference", "power_is": "mean|instant", "tools": rf"\w{{2,20}}: {_VERSION}",
    "commit": "[0-9a-f]{7,64}", "started": r"\d{4}-[\d:T.+-]{5,40}Z?", "error": r"[\d.]{1,9}%",
    "variables": r"\d{1,3}|true|false", **dict.fromkeys(("sources", "inputs", "imports"), "[0-9a-f]{64}"),
}  # fmt: skip
# Facts whose keys are names or paths.
BY_NAME = frozenset(("variables", "sources", "inputs", "imports"))
# Words of the workflow's own command lines, besides `batch=8` and the like.
WORDS = frozenset(("python", "-m", "models.run", "torchrun", "snakemake", "reference", "candidate", *PHASES_OF_FILES))
SETTING = re.compile(r"(\w+)=(-?\d{1,12}(?:\.\d{1,12})?|true|false|null|[\w-]+)")
# Sidecars; other JSON files hold data, as tables do.
SIDECAR = re.compile(r".*(?:\.(?:csv|gz|pt|sqlite)|-rep)\.json|ORIGIN\.json")
# Environment variables of libraries that change measurements; names of all others are replaced.
VARIABLES = re.compile(r"(?:CUDA|NVIDIA|CUBLAS|CUDNN|NCCL|TORCH|PYTORCH|OMP|MKL|KMP|OPENBLAS)_[A-Z0-9_]{1,60}")
# Parts of a page or figure.
PARTS = re.compile(
    r"(?P<open><script type=\"application/json\"[^>]*>)(?P<data>.*?)</script>|<(?P<code>script|style)\b.*?</(?P=code)>"
    r"|<!--(?P<comment>.*?)-->|(?P<tag><[^>]*>)|(?P<text>[^<]+)", re.S
)  # fmt: skip
ATTRIBUTE = re.compile(r"(?P<name>[\w:-]+)=\"(?P<value>[^\"]*)\"")
WITHOUT_PLACES = frozenset(("d", "style", "type", "points", "transform", "viewBox", "class", "id"))
# Of variables and settings, and of texts that sidecars lose, as shorter ones stand in tables by chance.
LONG_ENOUGH, SHORTEST_TEXT = secret_leaks.SHORTEST, 6
# Keys of ORIGIN.json that are not a sidecar's.
OF_ORIGIN = {"config", "measured", "tools", "cudnn", "python", "commit_changed", "version"}


@dataclass
class Known:
    """Secrets and names to remove.

    values: encodings of each secret, by its name. names, folders: names of hosts and users, and folders, each with its
    replacement. kept: words that also name something else in the results, and so stay, and paths of the archive.
    found: notes on what was removed, by file. key: of digests, so that short texts are not found by trying. withheld:
    texts that were replaced by digests.
    """

    values: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    folders: Mapping[str, str]
    kept: frozenset[str] = frozenset()
    found: dict[str, set[str]] = field(default_factory=dict)
    key: bytes = b""
    withheld: set[str] = field(default_factory=set)

    def note(self, name: str, what: str) -> None:
        """Note what was removed from a file."""
        self.found.setdefault(name, set()).add(what)


def find_known_secrets(
    environment: Mapping[str, str], sidecars: Iterable[JsonObject], kept: Iterable[str] = ()
) -> Known:
    """Collect secrets and names from variables, settings and sidecars; kept: names that tables use."""
    told = list(sidecars)
    values: dict[str, tuple[str, ...]] = {}
    for key, value in _secrets(environment, told):
        if len(value) >= LONG_ENOUGH:
            values[key] = tuple(dict.fromkeys((*values.get(key, ()), *secret_detection.forms(value))))
    names = secret_detection.hosts(told)
    short = {name.partition(".")[0]: other for name, other in names.items() if not name[:1].isdigit()}
    people = dict.fromkeys(secret_detection.users(environment, told), USER)
    # Who has not these very sidecars cannot compute a digest, and the same results make the same archive.
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()
    return Known(values, {**people, **short, **names}, folders(), frozenset(kept), key=digest)


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


def folders() -> dict[str, str]:
    """Return replacement names for folders of this user and machine."""
    given = {str(PROJECT): "profzoo", str(Path.cwd()): ".", sys.prefix: "environment", str(Path.home()): "~"}
    given |= {str(Path(place).resolve()): name for place, name in given.items()}
    return {place: given[place] for place in sorted(given, key=lambda place: (-len(place), place)) if len(place) > 1}


def withhold(told: str, known: Known) -> str:
    """Return the digest that replaces a text."""
    return f"withheld-{hmac.new(known.key, told.encode(errors='surrogateescape'), 'sha256').hexdigest()[:12]}"


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
        if one in content and one not in known.kept and one.lower() not in secret_detection.COMMON:
            domain = "" if other == USER else r"(?:\.[A-Za-z][\w-]*)*"
            content = re.sub(rf"(?<![\w.-]){re.escape(one)}{domain}(?![\w-])", other, content)
    return content


def redact(name: str, content: bytes, known: Known) -> bytes:
    """Keep what lists allow of a text file's content; its name tells the format. Sidecars come first.

    Raises:
        ValueError: the content is not a text, or no JSON although the name says so.
        csv.Error, IndexError: the content is not a table although the name says so.
    """
    told = packed_blocks.unpack_blocks(content.decode())
    if SIDECAR.fullmatch(name):
        return (json.dumps(keep_allowed(name, "", json.loads(told), known), indent=1, sort_keys=True) + "\n").encode()
    told = _withheld_texts(text(name, told, known), known)
    if name.endswith(".csv"):
        return _table(told, known).encode()
    if name.endswith(".json"):
        return json.dumps(_texts(json.loads(told), known)).encode()
    for host, other in known.names.items():
        # Where a cell of a table holds nothing else.
        told = told.replace(f">{host}<", f">{other}<") if other != USER else told
    return packed_blocks.pack_blocks(PARTS.sub(lambda part: _part(part, known), told)).encode()


def _withheld_texts(told: str, known: Known) -> str:
    """Replace what was withheld from sidecars wherever else it stands, but for single short words."""
    for one in sorted(known.withheld, key=lambda one: (-len(one), one)):
        if len(one) >= SHORTEST_TEXT and not one.isalnum():
            for form in secret_detection.written_forms(one):
                told = told.replace(form, withhold(one, known)) if form in told else told
    return told


def _part(part: re.Match[str], known: Known) -> str:
    """Keep what is allowed of a part of a page: a text, a tag, or data of a script."""
    if part["data"] is not None:
        packed = json.dumps(_texts(json.loads(part["data"]), known), separators=(",", ":"), ensure_ascii=False)
        return f"{part['open']}{packed.replace('<', chr(92) + 'u003c')}</script>"
    if part["code"]:
        return part[0]
    if part["tag"]:
        return ATTRIBUTE.sub(lambda one: _attribute(one, known), part["tag"])
    return _without_places(part[0], known)


def _texts(value: Any, known: Known) -> Any:
    if isinstance(value, dict):
        return {_without_places(key, known): _texts(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [_texts(one, known) for one in value]
    return _without_places(value, known) if isinstance(value, str) else value


def _attribute(one: re.Match[str], known: Known) -> str:
    name, value = one["name"], one["value"]
    if name in WITHOUT_PLACES or value.startswith(("#", "data:image/", "data:text/css")):
        return one[0]
    return f'{name}="{_without_places(value, known)}"'


def _without_places(told: str, known: Known) -> str:
    """Replace paths and addresses in a text, but for profzoo's own and those of the archive."""
    return secret_detection.replace_places(told, known.kept, lambda place: withhold(place, known))


@functools.cache
def _known_keys() -> frozenset[str]:
    """Return keys of settings and of facts that sidecars hold."""
    modules = (cell_types, job_types)
    types = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return schema.list_words()[1] | {key for one in types for key in getattr(one, "__annotations__", {})} | OF_ORIGIN


def keep_allowed(name: str, key: str, value: Any, known: Known) -> Any:
    """Return of a sidecar's value what is allowed under its key; name: of the file, for notes."""
    if secret_detection.is_secret_key(key, value) and not isinstance(value, dict | list):
        if value != GONE:
            known.note(name, f"{key}, by its name")
        return GONE
    if isinstance(value, dict):
        inside = {one: key if key in BY_NAME else one for one in value}
        return {_key(key, one, of, known): keep_allowed(name, inside[one], of, known) for one, of in value.items()}
    if isinstance(value, list):
        return [keep_allowed(name, key, one, known) for one in value]
    if not isinstance(value, str) or value == GONE:
        return value
    if key == "host":
        return known.names.get(value, "host")
    if key == "job_keys":
        return _key(key, value, None, known)
    plain = text(name, value, known)
    if plain != value or not (_is_word(value, known) or (key in FORMS and re.fullmatch(FORMS[key], value))):
        known.withheld.add(value)
        return withhold(value, known)
    return value


def _is_word(value: str, known: Known) -> bool:
    """Whether a text is a word of the schema, a setting with such a word, or names of the archive."""
    words, keys = schema.list_words()
    if (setting := SETTING.fullmatch(value)) and setting[1] in keys:
        return not setting[2][:1].isalpha() or setting[2] in words or setting[2] in ("true", "false", "null")
    names = re.split("[@+]", value.removeprefix("models."))
    return value in words or value in WORDS or known.kept.issuperset(names)


def _key(parent: str, key: str, value: Any, known: Known) -> str:
    """Return a key of a mapping if it is a setting, a fact, or names what the archive shows anyway; else its digest."""
    allowed = (
        key in _known_keys()
        or _is_word(key, known)
        or (parent == "variables" and VARIABLES.fullmatch(key))
        or (parent in BY_NAME and secret_detection.OWN.fullmatch(key))
        # A model's own parameters, and measured numbers by what they count.
        or (parent in ("shape", "per_step") and key.isidentifier() and isinstance(value, bool | int | float | None))
        or (parent in FORMS and parent not in BY_NAME and re.fullmatch(FORMS[parent], key))
    )
    return key if allowed else withhold(key, known)


def _table(told: str, known: Known) -> str:
    """Replace paths, addresses and hosts in the cells of a table."""
    told = _without_places(told, known)
    header, *rows = csv.reader(io.StringIO(told)) if told else [[]]
    if "host" not in header:
        # As it was written.
        return told
    place = header.index("host")
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([*row[:place], known.names.get(row[place], row[place]), *row[place + 1 :]] for row in rows)
    return written.getvalue()
