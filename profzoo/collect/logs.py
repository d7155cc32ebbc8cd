"""Reads logs of any size and content: limited in length, and safe to show on a terminal or page."""

import re
from pathlib import Path

# A log has the cause of a failure near its end, and the command near its beginning.
READ_BYTES = 1 << 20


def read_excerpt(log: Path) -> str:
    """Beginning and end of a log, at most READ_BYTES, without control characters; empty if there is no log."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        content = file.read(min(size, READ_BYTES // 2))
        file.seek(max(size - READ_BYTES // 2, len(content)))
        gap = b"\n" if file.tell() > len(content) else b""
        content += gap + file.read()
    return strip_control_characters(content.decode(errors="replace"))


def strip_log_path(line: str) -> str:
    """Remove the path of the log from the end of a failure's line.

    >>> strip_log_path("nsys was killed (SIGKILL) (log: results/logs/a.log)")
    'nsys was killed (SIGKILL)'
    """
    return re.sub(r"\s*\(log: [^)]*\)$", "", line)


def strip_control_characters(text: str) -> str:
    """Remove control characters from a text, except line ends and tabs.

    >>> strip_control_characters("\\x1b[31mred\\x1b[0m\\a 1 %\\r2 %")
    'red 1 %\\n2 %'
    """
    text = re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)", "", text.replace("\r\n", "\n"))
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text.replace("\r", "\n"))
