"""Serves the report and what it links to, to whoever has the address: its page can then hand traces to Perfetto."""

import argparse
import errno
import hmac
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

from profzoo import schema
from profzoo.errors import ConfigError
from profzoo.machine import orphan_guard
from profzoo.report.served_files import PAGES, is_served

HOST = "127.0.0.1"
PAGE, TRACE = PAGES[0], ".trace.json.gz"
# Of the token, which stands in the address as a folder, so that the page's own links lead on within it. A cookie would
# be sent to whatever else listens on this machine's address too, as browsers heed no ports there.
TOKEN_BYTES = 24
# What a browser of this machine calls it. Any other name in a request is one that somebody else has pointed here, whose
# pages could then read what is served.
OWN_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
# A trace is sent as the compressed file that it is, without a Content-Encoding: Perfetto unpacks it itself.
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8", ".csv": "text/csv; charset=utf-8", ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png",
    ".gz": "application/gzip",
}  # fmt: skip
UNKNOWN_TYPE = "application/octet-stream"
# Of every answer. No Cross-Origin-Opener-Policy, with which the page could not talk to the window that it opens.
COMMON_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
# What a page may load and run: its own script, which it names by its hash itself, styles, traces, and no other site's.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Of any other file, such as a figure that is opened by itself: nothing is run.
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
LARGEST_PORT = 65535
END_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(ThreadingHTTPServer):
    """Answers as many requests at a time as there are, and ends without waiting for them."""

    daemon_threads = True
    # Without it nothing is answered. It is in no file and no command line, which others may read.
    token = ""

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that went away in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    """Answers one request for a file of the results; whatever is no such request is refused."""

    # Seconds, after which a browser that asks nothing is let go of.
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
        """Say what the file would be sent as."""
        if file := self._opened():
            file.close()

    def version_string(self) -> str:
        """What it calls itself."""
        return "profzoo"

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing of requests."""

    def _opened(self) -> BinaryIO | None:
        """The file that is asked for, once its head is sent; None where the request was refused."""
        names = self.headers.get_all("Host", [])
        if len(names) != 1 or not OWN_NAMES.fullmatch(names[0].strip()):
            self._refuse(HTTPStatus.FORBIDDEN, f"This is served to {HOST} and localhost alone.")
            return None
        token, slash, target = re.split("[?#]", self.path, maxsplit=1)[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "This needs the address with the token that `snakemake serve` printed.")
            return None
        path = find_file(self.results, target) if slash else None
        file = open_regular_file(path) if path else None
        if not path or not file:
            why = "The page links to no such file." if slash else "The page's address ends with a /."
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
    """The file of the results that a request's target names behind the token, the page where that is empty.

    None where it is none that the pages show, one of a hidden folder or file, or one outside that links lead to.
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
    """The file, if it can be read and is no pipe or link by now; None else."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None


def requested_path(target: str) -> str:
    """The path that a request's target names.

    >>> requested_path("/tables/odd%20name.csv?again=1")
    '/tables/odd name.csv'
    """
    return unquote(re.split("[?#]", target, maxsplit=1)[0])


def parse_origin(address: str) -> str:
    """What a browser calls the site of an address.

    >>> parse_origin("https://ui.perfetto.dev/#!/viewer")
    'https://ui.perfetto.dev'
    """
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}".lower()


def make_server(results: Path, port: int, perfetto: str) -> Server:
    """A server of the results on this machine's own address, with a token of its own.

    port: 0 takes a free one; perfetto: the address of Perfetto's page.

    Raises:
        ConfigError: there is no report, or the port cannot be had.
    """
    if not (results / PAGE).is_file():
        raise ConfigError(f"{results / PAGE} is not there: `snakemake report` makes it")
    token = secrets.token_hex(TOKEN_BYTES)
    try:
        served = Server((HOST, port), partial(Handler, results, perfetto, token))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "is taken by another program" if taken else f"cannot be had ({error.strerror})"
        near = find_free_port(port if taken else 1023)
        advice = f"snakemake serve --config serve='{{port: {near}}}'" if near else "end a program that holds one"
        told = f", and {near} is free" if near else ", and none is free"
        raise ConfigError(f"port {port} of {HOST} {why}{told}: {advice}") from None
    served.token = token
    return served


def find_free_port(port: int) -> int | None:
    """The nearest port above this one that is free, else the nearest below that any user may take."""
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
    """Say where the page is, and answer requests until a signal ends it (Ctrl-C, or SIGTERM)."""
    for number in END_SIGNALS:
        # Where one is ignored, such as in the background of a script, it stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        with served, orphan_guard.watch_parent():
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
    parser = argparse.ArgumentParser(prog="python -m profzoo.serve", description=__doc__)
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
