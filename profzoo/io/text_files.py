"""What a file holds as text, and how a message quotes a part of it; apart from tables, whose library loads slowly."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from profzoo.errors import DataError

# Nothing here counts so far, and sums of what is below still fit 64 bits.
BEYOND = 2**62
# Behind what to do about a file that is whole: who made it may have meant what is refused, and make the same again.
SAME = "; if the new one is refused as well, report it"


def read_text(path: str | Path, again: str) -> str:
    """A file's text; again: what to do about one that is damaged.

    Raises:
        DataError: it cannot be read, or is no UTF-8.
    """
    with open_file(path) as file:
        return decode(file.read(), path, again)


@contextmanager
def open_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to read; DataError where it cannot be."""
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def decode(content: bytes, path: str | Path, again: str) -> str:
    """The text of bytes that a file holds, by the path that errors name; DataError where they are no UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: byte {error.start} is no UTF-8: {again}") from error


def quote(cell: str) -> str:
    """A cell as a message quotes it: on one line, and short.

    >>> quote("12,34"), quote("")
    ("'12,34'", 'nothing')
    """
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}...") if cell else "nothing"
