"""Reads text files and quotes parts of them in messages; apart from tables, whose library (pandas) loads slowly."""

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
    """Read a text file; again: advice for a damaged file.

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    with open_file(path) as file:
        return decode(file.read(), path, again)


@contextmanager
def open_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading; raise DataError if that fails."""
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def decode(content: bytes, path: str | Path, again: str) -> str:
    """Decode the bytes of a file; path: name for messages.

    Raises:
        DataError: the bytes are not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: byte {error.start} is not UTF-8: {again}") from error


def quote(cell: str) -> str:
    """Quote a field for a message: on one line, and shortened.

    >>> quote("12,34"), quote("")
    ("'12,34'", 'nothing')
    """
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}...") if cell else "nothing"


def is_text(name: str) -> bool:
    """Whether the name of a file is text: Python holds bytes of a name that are not UTF-8 as lone surrogates.

    >>> is_text("trace.json"), is_text("a\\udcff.json")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
