"""What a file holds as text, and how a message quotes a part of it; apart from tables, whose library loads slowly."""

from pathlib import Path

from profzoo.errors import DataError

# Nothing here counts so far, and sums of what is below still fit 64 bits.
BEYOND = 2**62


def read(path: str | Path, again: str) -> str:
    """A file's text; again: what to do about one that is damaged.

    Raises:
        DataError: it cannot be read, or is no UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: byte {error.start} is no UTF-8: {again}") from error


def shown(cell: str) -> str:
    """A cell as a message quotes it: on one line, and short.

    >>> shown("12,34"), shown("")
    ("'12,34'", 'nothing')
    """
    return repr(cell if len(cell) <= 40 else f"{cell[:40]}...") if cell else "nothing"
