"""Recognises secrets by key or form, such as tokens and private keys, in each encoding; names of users; and places."""

import base64
import getpass
import html
import itertools
import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

# Last words of keys, and words before `key`, under which a text is a secret.
NAMES = frozenset(("token", "tokens", "password", "passwords", "passwd", "passphrase", "passphrases", "passcode", "pwd",
    "pw", "pass", "secret", "secrets", "credential", "credentials", "apikey", "auth", "authorization",
    "jwt", "cookie", "cookies", "bearer", "pat", "pin", "dsn", "sas"))  # fmt: skip
BEFORE_KEY = frozenset(("api", "access", "private", "secret", "account", "auth",
     "encryption", "signing", "master", "storage", "client", "ssh", "license", "subscription"))  # fmt: skip
# What may stand behind them.
BEHIND = frozenset(("id", "value", "string", "header", "text"))
# Words of a text model's vocabulary, as in `pad_token`.
OF_VOCABULARY = frozenset(("pad", "bos", "eos", "unk", "mask", "cls", "sep"))
# Numbers are secrets under these alone: `tokens: 128` is a length.
NUMBERS_TOO = frozenset(("password", "passwd", "passphrase", "passcode", "pwd", "pw", "pin", "secret"))
# Names that identify nobody.
COMMON = frozenset((
    "root", "user", "localhost", "ubuntu", "admin", "runner", "docker", "nobody", "jovyan", "host", "node", "gpu", "cpu"
))  # fmt: skip
SHORTEST_NAME = 3
OF_USER = re.compile(r"(?<![\w.])/(?:home|Users)/([\w.@+-]+)")
BEGINS, ENDS = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_])"
QUERIES = "access_token|auth_token|api_?key|token|secret|password|sig|signature|X-Amz-Signature|X-Goog-Signature"
# Within words of a command, also after others.
ASSIGNED = re.compile(r"(?<![\w.-])(?:--)?(?P<key>[A-Za-z][\w.-]{1,60})=(?=(?P<value>[^\s\"'<>,;&{}\[\]\\]{4,500}))")
# What each kind is called, and what it looks like; of a part of the match, the group `secret`.
LOOKS = {
    "a password in a URL": r"(?<=://)(?P<secret>[^\s/\"'<>\\:]{0,200}:[^\s/\"'<>\\]{1,200})(?=@)",
    "a token before a host": r"(?<=://)(?P<secret>[A-Za-z0-9_.~%+-]{16,200})(?=@)",
    "a Slack webhook": r"(?<=hooks\.slack\.com/services/)(?P<secret>[A-Za-z0-9/]{20,200})",
    "a token in a URL": rf"(?i:(?<=[?&])(?:{QUERIES})=)(?P<secret>[^\s&\"'<>#\\;]{{8,}})",
    "a private key": r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.-]{0,20000}?"
    r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----",
    "an AWS key": rf"{BEGINS}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}{ENDS}",
    "a GitHub token": rf"{BEGINS}(?:gh[pousr]_[A-Za-z0-9]{{36,255}}|github_pat_[A-Za-z0-9_]{{22,255}})",
    "a GitLab token": rf"{BEGINS}glpat-[A-Za-z0-9_-]{{20,}}",
    "a Hugging Face token": rf"{BEGINS}hf_[A-Za-z0-9]{{30,}}{ENDS}",
    "a Slack token": rf"{BEGINS}xox[abeoprs]-[A-Za-z0-9-]{{10,}}",
    "a Google key": rf"{BEGINS}AIza[0-9A-Za-z_-]{{35}}{ENDS}",
    "an NVIDIA key": rf"{BEGINS}nvapi-[A-Za-z0-9_-]{{20,}}",
    "an API key": rf"{BEGINS}sk-[A-Za-z0-9_-]{{20,}}",
    "a package index's token": rf"{BEGINS}(?:pypi-[A-Za-z0-9_-]{{50,}}|npm_[A-Za-z0-9]{{36}}{ENDS})",
    "a JSON web token": rf"{BEGINS}eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]*",
    "an authorization header": r"(?i:\b(?:bearer|basic)\s+)(?P<secret>[A-Za-z0-9+/=._~-]{20,})",
}
# What each holds for certain, one of these, which is found many times as fast; none where nothing is.
HINTS: Mapping[str, Sequence[str]] = {
    "a password in a URL": ["://"], "a token in a URL": ["://"], "a token before a host": ["://"],
    "a Slack webhook": ["hooks.slack"], "a private key": ["PRIVATE KEY"],
    "an AWS key": ["AKIA", "ASIA", "ABIA", "ACCA"],
    "a GitHub token": ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
    "a GitLab token": ["glpat-"], "a Hugging Face token": ["hf_"], "a Slack token": ["xox"], "a Google key": ["AIza"],
    "an NVIDIA key": ["nvapi-"], "an API key": ["sk-"], "a package index's token": ["pypi-", "npm_"],
    "a JSON web token": ["eyJ"],
}  # fmt: skip
# A path or an address within a text, and those that stay: of profzoo's own files, units, and manuals.
PLACE = re.compile(r"[^\s\"'<>(),;|=\[\]`&]*[/\\~@][^\s\"'<>(),;|\[\]`&]*")
UNITS = (
    "s|[num]s|[numn]second|second|step|cycle|clk|launch|block|thread|warp|request|inst|sector|sample|byte|FLOP|row|pass"
)
OWN = re.compile(
    r"/+|@+|[\d.]+/[\d.]+|[A-Z0-9]{2,6}/[A-Z0-9]{2,6}|and/or"
    rf"|[A-Za-z%\d.]{{1,12}}/(?:{UNITS})|(?:tables|figures|peaks)/[\w.*{{}}-]*|\{{model\}}/\{{phase\}}[\w.{{}}-]*"
    r"|(?:profzoo|workflow/(?:scripts|rules))/[\w./-]+|(?:@url:)?https?://(?:docs\.nvidia\.com|www\.w3\.org|matplotlib\.org|purl\.org|creativecommons\.org)"
    r"(?:/[\w./#-]*)?@?"
)
PATTERNS = {kind: re.compile(pattern) for kind, pattern in LOOKS.items()}
BYTES = {kind: re.compile(pattern.encode()) for kind, pattern in LOOKS.items()}
BYTES_HINTS = {kind: [hint.encode() for hint in hints] for kind, hints in HINTS.items()}


def hosts(sidecars: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return replacement names for this host and the hosts in sidecars: host-1, host-2, ..."""
    told = {socket.gethostname()}
    for facts in sidecars:
        told |= {
            str(one["host"]) for one in (facts, *facts.get("ranks", [])) if isinstance(one, dict) and "host" in one
        }
    return {name: f"host-{number}" for number, name in enumerate(sorted(told), start=1)}


def users(environment: Mapping[str, str], sidecars: Iterable[Mapping[str, Any]] = ()) -> set[str]:
    """Return the names of this user and of the owners of folders in sidecars."""
    found = {environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")} | {Path.home().name}
    with suppress(OSError, KeyError, ImportError):
        found.add(getpass.getuser())
    found.update(name for facts in sidecars for name in OF_USER.findall(json.dumps(facts, ensure_ascii=False)))
    return {name for name in found if len(name) >= SHORTEST_NAME and name.lower() not in COMMON}


def words(key: str) -> list[str]:
    """Words of a key, in lower case.

    >>> words("awsSecretAccessKey"), words("API_KEY_2")
    (['aws', 'secret', 'access', 'key'], ['api', 'key'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", key)]


def is_secret_key(key: str, value: Any) -> bool:
    """Whether the value under a key is a secret.

    >>> keys = ("hf_token", "apiKey", "AWS_ACCESS_KEY_ID", "pad_token", "tokenizer", "sort_key")
    >>> [is_secret_key(key, "x") for key in keys]
    [True, True, True, False, False, False]
    >>> is_secret_key("tokens", 128), is_secret_key("pin", 4711)
    (False, True)
    """
    if isinstance(value, bool) or value in (None, ""):
        return False
    parts = words(key)
    while len(parts) > 1 and parts[-1] in BEHIND:
        parts.pop()
    before, last = parts[-2:-1], parts[-1] if parts else ""
    if last in ("token", "tokens") and OF_VOCABULARY.intersection(before):
        return False
    if isinstance(value, int | float):
        return last in NUMBERS_TOO
    return last in NAMES or (last in ("key", "keys") and bool(BEFORE_KEY.intersection(before)))


def secrets_in_words(words: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield secrets in command line words that follow an option's name, each with the name.

    >>> words = ["a", "token=hunter2", "--auth-token", "hunter3", "--env-var=MY_TOKEN=hunter4", "batch=8"]
    >>> list(secrets_in_words(words))
    [('token', 'hunter2'), ('MY_TOKEN', 'hunter4'), ('auth-token', 'hunter3')]
    """
    texts = [word if isinstance(word, str) else "" for word in words]
    found = [(match["key"], match["value"]) for text in texts for match in ASSIGNED.finditer(text)]
    found += [
        (one[2:], other)
        for one, other in itertools.pairwise(texts)
        if one.startswith("--") and not other.startswith("-")
    ]
    yield from ((key, value) for key, value in found if "=" not in key and is_secret_key(key, value))


def written_forms(text: str) -> list[str]:
    """Return how a text may stand in JSON, nested JSON, a table and a page.

    >>> written_forms("a&b")
    ['a&b', 'a&amp;b']
    """
    once = json.dumps(text)[1:-1]
    plain = [text, once, json.dumps(once)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]]
    escaped = [html.escape(one, quotes) for one in plain for quotes in (True, False)]
    # As Jinja writes quotes.
    escaped += [one.replace("&quot;", "&#34;").replace("&#x27;", "&#39;") for one in escaped]
    # What CSV doubles.
    return list(dict.fromkeys([*plain, *escaped, text.replace('"', '""')]))


def forms(secret: str) -> list[str]:
    """Return the encodings in which a secret may appear: plain, JSON, nested JSON, URL, HTML, Base64, hex.

    >>> forms("a b&c")
    ['a b&c', 'a b&amp;c', 'a%20b%26c', 'a+b%26c', '6120622663', 'YSBiJm', 'EgYiZj', 'hIGImY']
    """
    written = [*written_forms(secret), quote(secret, safe=""), quote_plus(secret), quote(secret)]
    raw = secret.encode(errors="surrogateescape")
    written += [raw.hex(), raw.hex().upper()]
    for before in range(3):
        # The letters that do not depend on what stands before and behind.
        whole = base64.b64encode(b"\0" * before + raw)
        start, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        part = whole[start:end].decode()
        written += [part, part.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(written))


def secrets_by_pattern(text: str) -> Iterator[tuple[str, str]]:
    """Yield secrets recognised by their form, each with its kind.

    >>> list(secrets_by_pattern("https://me:hunter2@host/data"))
    [('a password in a URL', 'me:hunter2')]
    """
    for kind, pattern in PATTERNS.items():
        if any(hint in text for hint in HINTS.get(kind, [""])):
            for match in pattern.finditer(text):
                yield kind, match["secret"] if "secret" in pattern.groupindex else match[0]


def replace_places(text: str, kept: Set[str], replacement: Callable[[str], str]) -> str:
    """Replace paths and addresses in a text, but for profzoo's own and those made of names in `kept`.

    >>> replace_places("2 of 3 steps/s, see tables/cells.csv and file:///home/a", set(), lambda place: "...")
    '2 of 3 steps/s, see tables/cells.csv and ...'
    """

    def replaced(match: re.Match[str]) -> str:
        place = match[0].rstrip(".:!?")
        own = OWN.fullmatch(match[0]) or OWN.fullmatch(place) or place in kept or kept >= set(re.split("[@+]", place))
        return match[0] if own else replacement(match[0])

    return PLACE.sub(replaced, text)


def secret_kind_in_bytes(content: bytes) -> str | None:
    """Kind of secret recognised in bytes by its form; None if there is none."""
    for kind, pattern in BYTES.items():
        if any(hint in content for hint in BYTES_HINTS.get(kind, [b""])) and pattern.search(content):
            return kind
    return None


def hidden(key: str, value: Any) -> Any:
    """Replace secrets in a value by dots, for messages.

    >>> hidden("data", {"token": "hunter2", "root": "https://me:hunter2@host"})
    {'token': '...', 'root': 'https://...@host'}
    """
    if isinstance(value, Mapping):
        secret = is_secret_key(key, "x")
        return {name: "..." if secret else hidden(str(name), one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(key, one) for one in value]
    if is_secret_key(key, value):
        return "..."
    if isinstance(value, str):
        text = value
        for _, found in secrets_by_pattern(value):
            text = text.replace(found, "...")
        return text
    return value
