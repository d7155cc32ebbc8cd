"""Decide which files of a results folder may be served: its pages, and files that they link to."""

import functools
import html
import re
import stat
from pathlib import Path
from urllib.parse import unquote

PAGES = ("report.html", "compare.html")
# Files that pages name without a link: tables across cells, and the archive that `snakemake share` makes.
NAMED = re.compile(r"tables/[^/]+\.csv|share\.tar\.gz")
# Of elements that templates write: links, and buttons that a trace is fetched by. What is within a figure or a name of
# somebody else's is escaped, or has none but links into the page.
LINK = re.compile(r'<(?:a|button)\b[^<>]*?\s(?:href|data-trace)="([^"#]+)"')


def is_served(results: Path, name: str) -> bool:
    """Return whether a file (relative to the folder) may be served; logs, weights and sidecars may not."""
    return (
        name in PAGES
        or bool(NAMED.fullmatch(name))
        or any(name in _list_current_links(results / page) for page in PAGES)
    )


def linked_files(page: str) -> frozenset[str]:
    """Return the files that a page's HTML links to, by path relative to it.

    >>> sorted(linked_files('<a class="x" href="a/odd%20%26.csv">1</a><a href="#b">2</a><button data-trace="a/t.gz">'))
    ['a/odd &.csv', 'a/t.gz']
    """
    return frozenset(unquote(html.unescape(found)) for found in LINK.findall(page))


def _list_current_links(page: Path) -> frozenset[str]:
    try:
        state = page.stat()
    except OSError:
        return frozenset()
    if not stat.S_ISREG(state.st_mode):
        # Reading a pipe would block until somebody writes to it.
        return frozenset()
    return _read_links(page, (state.st_ino, state.st_size, state.st_mtime_ns))


@functools.lru_cache(maxsize=2 * len(PAGES))
def _read_links(page: Path, state: tuple[int, ...]) -> frozenset[str]:
    # A page may be made anew while it is served; state: what then differs.
    try:
        return linked_files(page.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return frozenset()
