"""Reads YAML written by people, and rejects values that YAML reads differently than they look, naming the line.

YAML itself keeps only the later of two equal keys. It reads 010 as 8, 1:30 as 90 and `no` as false. A few lines with
aliases may stand for more values than fit into memory.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from profzoo.errors import ConfigError

# Values of a file, with those that its aliases stand for.
MOST_VALUES = 100_000
# Texts with more of these marks might nest so deeply that the C parser overflows its stack, which ends the process. The
# parser in Python raises an error there, but takes ten times as long.
NESTING_MARKS, MOST_MARKS = ("[", "{", "- ", "? ", ": "), 10_000
TAG = "tag:yaml.org,2002:"
# What plain values are read as.
CORE = ("null", "bool", "int", "float", "str", "seq", "map", "merge", "value", "timestamp")
OCTAL = re.compile(r"[-+]?0[0-7_]+")
WORDS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
RESOLVER = yaml.resolver.Resolver()
# Whether a boolean may stand in a place, by the keys that lead there.
Flags = Callable[[tuple[str, ...]], bool]


def load_yaml(path: Path) -> Any:
    """Load a YAML file.

    Raises:
        ConfigError: the file cannot be read, or contains a value that means something else than it looks like.
    """
    text = read_yaml_text(path, str(path))
    check_yaml(text, str(path))
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def read_yaml_text(path: Path, where: str) -> str:
    """Read the text of a YAML file; where: the file's name in messages.

    Raises:
        ConfigError: the file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(f"{where}, line {line}: it is not UTF-8: save it as such") from None
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from None


def check_yaml(text: str, where: str, flags: Flags = lambda _: True) -> None:
    """Check that YAML or JSON text means what it looks like.

    Args:
        where: name of the file, for the message.
        flags: function that says where a boolean is expected, so that `yes` and similar words are accepted.

    Raises:
        ConfigError: a value means something else; the message names line and key, and says what to write.
    """
    # Snakemake reads JSON first, which may be indented by tabs.
    loose = _is_json(text)
    try:
        root = _compose(text.replace("\t", " ") if loose else text)
    except yaml.YAMLError as error:
        if loose:
            return
        raise ConfigError(_unreadable(error, where)) from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{where}: it nests too deeply to be read") from None
    if root is None:
        return
    if _size(root, {}) > MOST_VALUES:
        raise ConfigError(f"{where}: its aliases (*name) stand for more than {MOST_VALUES} values: write less")
    for node, wrong, keys in _flaws(root, (), flags):
        key = f" {'.'.join(keys)}:" if keys else ""
        raise ConfigError(f"{where}, line {node.start_mark.line + 1}:{key} {wrong}")


def _compose(text: str) -> yaml.Node | None:
    """Compose the nodes of a text; errors are those of the parser in Python, whose messages are more precise."""
    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if sum(text.count(mark) for mark in NESTING_MARKS) <= MOST_MARKS:
        with suppress(yaml.YAMLError, ValueError):
            return yaml.compose(text, Loader=fast)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def explain_surprising_value(text: str, boolean: bool = True) -> str:
    """Explain what a plain value means in YAML if it looks different, and what to write; else return an empty text.

    boolean: whether a boolean is expected.

    >>> explain_surprising_value("010"), explain_surprising_value("10")
    ("010 is read as 8, in octal: write 8 or 10, or '010' in quotes", '')
    >>> explain_surprising_value("no"), explain_surprising_value("no", boolean=False)
    ('', "no is read as false: write false, or 'no' in quotes")
    """
    return _odd(RESOLVER.resolve(yaml.ScalarNode, text, (True, False)), text, boolean)


def _odd(tag: str, text: str, boolean: bool) -> str:
    kind = tag.removeprefix(TAG)
    quoted = f"or '{text}' in quotes"
    if kind == "int" and OCTAL.fullmatch(text):
        decimal = text.replace("_", "")
        numbers = " or ".join(dict.fromkeys([str(int(decimal, 8)), str(int(decimal))]))
        return f"{text} is read as {int(decimal, 8)}, in octal: write {numbers}, {quoted}"
    if kind in ("int", "float") and ":" in text:
        number = yaml.safe_load(f"!!{kind} '{text}'")
        return f"{text} is read as {number}, in base 60: write {number}, {quoted}"
    if kind == "bool" and not boolean and text.lower() in WORDS:
        return f"{text} is read as {WORDS[text.lower()]}: write {WORDS[text.lower()]}, {quoted}"
    return ""


def _flaws(node: yaml.Node, keys: tuple[str, ...], flags: Flags) -> Iterator[tuple[yaml.Node, str, tuple[str, ...]]]:
    """Yield nodes that mean something else than they look like, with the reason and the keys that lead to them."""
    if node.tag not in [f"{TAG}{kind}" for kind in CORE]:
        tag = node.tag.replace(TAG, "!!")
        yield node, f"the tag {tag} cannot be read here: leave it out, as plain values need none", keys
    elif isinstance(node, yaml.ScalarNode):
        if node.tag == f"{TAG}timestamp":
            yield node, f"{node.value} is read as a date: write '{node.value}' in quotes", keys
        elif wrong := _odd(node.tag, node.value, flags(keys)):
            yield node, wrong, keys
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _flaws(item, (*keys, "*"), flags)
    else:
        yield from _flaws_of_keys(node, keys, flags)


def _flaws_of_keys(
    node: yaml.Node, keys: tuple[str, ...], flags: Flags
) -> Iterator[tuple[yaml.Node, str, tuple[str, ...]]]:
    lines: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            yield key, "a list or a mapping is not a key: write a text", keys
            continue
        kind = key.tag.removeprefix(TAG)
        if kind not in ("str", "merge", "value"):
            # Of keys such as 8, too, which no text of a command line equals.
            wrong = _odd(key.tag, key.value, False) or f"the key {key.value or 'null'} is not a text"
            yield key, f"{wrong.partition(': ')[0]}: write '{key.value}' in quotes", keys
        if key.value in lines:
            wrong = f"'{key.value}' was given in line {lines[key.value]} already, which is lost: keep one of them"
            yield key, wrong, (*keys, key.value)
        lines[key.value] = key.start_mark.line + 1
        yield from _flaws(value, keys if kind == "merge" else (*keys, key.value), flags)


def _size(node: yaml.Node, known: dict[int, float]) -> float:
    """Return the number of values in a node, including its aliases; infinity if it contains itself."""
    if id(node) not in known:
        known[id(node)] = float("inf")
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = (one for part in parts for one in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(_size(one, known) for one in inner)
    return known[id(node)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _unreadable(error: yaml.YAMLError, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    at = f"{where}, line {mark.line + 1}" if mark else where
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"{at}: it is not YAML: {problem}; texts with `:`, `#`, `@` or `%` need quotes, and tabs cannot indent"


def allows_boolean(schema: Mapping[str, Any]) -> Flags:
    """Return a function that tells where a JSON Schema permits a boolean."""

    def flags(keys: tuple[str, ...]) -> bool:
        part: Any = schema
        for key in keys:
            items, more = part.get("items", {}), part.get("additionalProperties")
            named = part.get("properties", {})
            part = items if key == "*" else named.get(key, more if isinstance(more, Mapping) else {})
        choices = [isinstance(one, bool) for one in part.get("enum", ())]
        return any(choices) if choices else "boolean" in part.get("type", ("boolean",))

    return flags
