"""Escapes quotes and backslashes in JSON texts that were written unescaped: a text ends where JSON can continue."""

import json
import re

QUOTE = re.compile(r'["{}\[\]]')
# Characters that may follow the closing quote of a key, of a value in an object, and of a value in a list.
KEY = re.compile(r"\s*:")
IN_OBJECT = re.compile(r'\s*(?:\}|,\s*"[^"]*"\s*:|$)')
IN_LIST = re.compile(r'\s*(?:\]|,\s*(?:["\[{]|-?\d|true|false|null))')


def decode_text(raw: str) -> str:
    """Decode the text between quotes: as JSON if it is escaped, else unchanged.

    >>> decode_text('a"b'), decode_text('a\\\\"b'), decode_text('a\\\\d')
    ('a"b', 'a"b', 'a\\\\d')
    """
    try:
        return json.loads(f'"{raw}"', strict=False)
    except json.JSONDecodeError:
        return raw


def escape_texts(text: str) -> str:
    """Escape a text that would be JSON except for its quotes and backslashes.

    text: may begin and end within objects. A quote ends a text if JSON could continue after it. A quote inside a text
    is therefore mistaken for its end if the same characters follow it.

    >>> escape_texts('{"a": "b"c", "d": ["e", "f"g"]}')
    '{"a": "b\\\\"c", "d": ["e", "f\\\\"g"]}'
    """
    found: list[str] = []
    # Open brackets; brackets that were opened before the text's beginning are unknown.
    opened: list[str] = []
    place = 0
    while mark := QUOTE.search(text, place):
        found.append(text[place : mark.end()])
        place = mark.end()
        if mark[0] in "{[":
            opened.append(mark[0])
        elif mark[0] in "}]":
            del opened[-1:]
        else:
            end = _end(text, place, in_list=opened[-1:] == ["["])
            found.append(json.dumps(decode_text(text[place:end]), ensure_ascii=False)[1:])
            place = end + 1
    return "".join([*found, text[place:]])


def _end(text: str, place: int, in_list: bool) -> int:
    """Return the position at which the text that begins at `place` ends; raise ValueError if it does not end."""
    for quote in re.compile('"').finditer(text, place):
        if in_list:
            ends = IN_LIST.match(text, quote.end())
        else:
            ends = KEY.match(text, quote.end()) or IN_OBJECT.match(text, quote.end())
        if ends:
            return quote.start()
    raise ValueError("a text has no end")
