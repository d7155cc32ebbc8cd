"""Serve the report and the files it links to on this machine, so that its page can hand traces to Perfetto.

Only a user who has the address, which contains a random token, gets an answer.
"""

import argparse
import errno
import functools
import hmac
import html
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from profzoo.cell import schema
from profzoo.errors import ConfigError
from profzoo.machine import job_child
from profzoo.tools import unavailable_tools

# Decide which files of a results folder may be served: its pages, and files that they link to.

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


HOST = "127.0.0.1"
PAGE, TRACE = PAGES[0], ".trace.json.gz"
# The token's length. It is a folder in the address, so that the page's own links keep it. A cookie would be sent to
# every other server on this machine's address too, because browsers ignore ports there.
TOKEN_BYTES = 24
# The names that a browser on this machine uses. Another name in a request is one that somebody else points to this
# machine (DNS rebinding); pages of that site could then read the results.
OWN_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
# A trace is sent compressed, without a Content-Encoding: Perfetto unpacks it itself.
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8", ".csv": "text/csv; charset=utf-8", ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png",
    ".pdf": "application/pdf",
    ".gz": "application/gzip",
}  # fmt: skip
UNKNOWN_TYPE = "application/octet-stream"
# Headers of every answer. No Cross-Origin-Opener-Policy: with it the page could not talk to Perfetto's window.
COMMON_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
# A page may load and run its own script (limited further by the hash in the page), styles and traces, nothing of other
# sites.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Any other file, such as a figure that is opened by itself, may run nothing.
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
LARGEST_PORT = 65535
END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(ThreadingHTTPServer):
    """Server that answers requests in parallel and ends without waiting for unfinished ones."""

    daemon_threads = True
    # Requests without it are refused. It is in no file and no command line, which other users could read.
    token = ""

    @property
    def address(self) -> str:
        """Address of the page, with the token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print errors, except those of a browser that closed the connection during an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    """Handler that answers a request for a file of the results and refuses all other requests."""

    # Seconds until an idle connection is closed.
    timeout = 30

    def __init__(self, results: Path, perfetto: str, token: str, *arguments: object) -> None:
        self.results, self.perfetto, self.token = results, perfetto, token
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Send the file."""
        if file := self._opened():
            with file:
                shutil.copyfileobj(file, self.wfile)

    def do_HEAD(self) -> None:
        """Send the headers of the file."""
        if file := self._opened():
            file.close()

    def version_string(self) -> str:
        """Return the server's name for the header `Server`."""
        return "profzoo"

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing about requests."""

    def _opened(self) -> BinaryIO | None:
        """Send the headers and return the opened file; None if the request was refused."""
        names = self.headers.get_all("Host", [])
        if len(names) != 1 or not OWN_NAMES.fullmatch(names[0].strip()):
            self._refuse(HTTPStatus.FORBIDDEN, f"Only requests to {HOST} or localhost are answered.")
            return None
        token, slash, target = re.split("[?#]", self.path, maxsplit=1)[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "Use the address with the token that `snakemake serve` printed.")
            return None
        path = find_file(self.results, target) if slash else None
        file = open_regular_file(path) if path else None
        if not path or not file:
            why = "The report page does not link to this file." if slash else "The address must end with a /."
            self._refuse(HTTPStatus.NOT_FOUND, why)
            return None
        self._head(HTTPStatus.OK, CONTENT_TYPES.get(path.suffix, UNKNOWN_TYPE), os.fstat(file.fileno()).st_size)
        return file

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        content = f"{why}\n".encode()
        self._head(status, CONTENT_TYPES[".txt"], len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, kind: str, size: int) -> None:
        self.send_response(status)
        policy = PAGE_POLICY if kind == CONTENT_TYPES[".html"] else FILE_POLICY
        own = {"Content-Type": kind, "Content-Length": str(size), "Content-Security-Policy": policy}
        for name, value in {**COMMON_HEADERS, **own}.items():
            self.send_header(name, value)
        if requested_path(self.path).endswith(TRACE):
            # Perfetto's page may fetch a trace by itself, for its links that name one (#!/?url=...).
            self.send_header("Vary", "Origin")
            if status == HTTPStatus.OK and self.headers.get("Origin") == parse_origin(self.perfetto):
                self.send_header("Access-Control-Allow-Origin", parse_origin(self.perfetto))
        self.end_headers()


def find_file(results: Path, target: str) -> Path | None:
    """Return the file that a request's target names after the token, the report page if that is empty.

    None if the pages do not link to the file, if it or its folder is hidden, or if a symbolic link leads outside
    `results`.
    """
    name = requested_path(target) or PAGE
    parts = name.split("/")
    if any(not one or one.startswith(".") or "\\" in one for one in parts) or not is_served(results, name):
        return None
    home = results.resolve()
    try:
        path = home.joinpath(*parts).resolve(strict=True)
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(home) and path.is_file() else None


def open_regular_file(path: Path) -> BinaryIO | None:
    """Open a file for reading; None if it cannot be read or is a pipe or symbolic link."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None


def requested_path(target: str) -> str:
    """Return the path in a request's target, decoded and without query.

    >>> requested_path("/tables/odd%20name.csv?again=1")
    '/tables/odd name.csv'
    """
    return unquote(re.split("[?#]", target, maxsplit=1)[0])


def parse_origin(address: str) -> str:
    """Return the origin of an address, as browsers send it.

    >>> parse_origin("https://ui.perfetto.dev/#!/viewer")
    'https://ui.perfetto.dev'
    """
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}".lower()


def make_server(results: Path, port: int, perfetto: str) -> Server:
    """Return a server of the results on 127.0.0.1 with a new random token.

    Args:
        results: folder that holds report.html.
        port: 0 takes a free port.
        perfetto: address of Perfetto's page, which may fetch traces.

    Raises:
        ConfigError: there is no report, or the port is not available.
    """
    if not (results / PAGE).is_file():
        raise ConfigError(f"{results / PAGE} does not exist: {unavailable_tools.name_maker('snakemake report')} it")
    token = secrets.token_hex(TOKEN_BYTES)
    try:
        served = Server((HOST, port), partial(Handler, results, perfetto, token))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "is used by another program" if taken else f"is not available ({error.strerror})"
        near = find_free_port(port if taken else 1023)
        advice = f"snakemake serve --config serve='{{port: {near}}}'" if near else "end a program that uses one"
        told = f", and {near} is free" if near else ", and none is free"
        raise ConfigError(f"port {port} of {HOST} {why}{told}: {advice}") from None
    served.token = token
    return served


def find_free_port(port: int) -> int | None:
    """Return the nearest free port above `port`, else the nearest free one below it that needs no privileges."""
    for near in (*range(port + 1, LARGEST_PORT + 1), *range(port - 1, 1023, -1)):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((HOST, near))
            except OSError:
                continue
            return near
    return None


def serve_results(served: Server, results: Path) -> None:
    """Print the page's address and answer requests until Ctrl-C or SIGTERM."""
    for number in END_SIGNALS:
        # A signal that is ignored, as in the background of a script, stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        with served, job_child.watch_parent():
            print(f"{results / PAGE} is at {served.address} until Ctrl-C", flush=True)
            served.serve_forever()
    except KeyboardInterrupt:
        print()


def _stop(*_: object) -> None:
    # Snakemake may send another one, which must not cut the end short.
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    defaults = {
        name: part["default"] for name, part in schema.load_schema()["properties"]["serve"]["properties"].items()
    }
    parser = argparse.ArgumentParser(prog="python -m profzoo.cli.serve", description=__doc__)
    parser.add_argument("results", type=Path, help="the folder that holds report.html")
    parser.add_argument("--port", type=int, default=defaults["port"], help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--perfetto", default=defaults["perfetto"], metavar="ADDRESS", help="default: %(default)s")
    options = parser.parse_args(arguments)
    if not 0 <= options.port <= LARGEST_PORT:
        parser.error(f"--port {options.port}: ports are 0 to {LARGEST_PORT}")
    try:
        serve_results(make_server(options.results, options.port, options.perfetto), options.results)
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
