"""serve.py: files of the results to this machine's browsers, and a trace's bytes to Perfetto's page on a click."""

import functools
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest

from profzoo.cli import serve
from profzoo.errors import ConfigError
from profzoo.records.import_graph import PROJECT
from profzoo.report import page as report_page
from profzoo.tools import unavailable_tools
from profzoo.workflow import shutdown
from tests import browser, devtools, slow
from tests.conftest import DATA
from tests.workflow.project import heed_interrupts

TRACE = (DATA / "torch/unet.train.trace.json.gz").read_bytes()
PERFETTO = "https://ui.perfetto.dev"
# It leads to what is there, and, as one would that somebody has changed, to what is nobody's to see.
LINKED = ("unet/train.csv", "unet/in.csv", "unet/odd name#1%&.csv", "figures/steps.svg", "unet/out.csv", "outside/key", "../key", "/etc/passwd",
          "../results-2/key", ".hidden/key", ".profzoo.lock", "unet/pipe.csv", "unet", "unet/", "none.csv", "//etc/passwd", "file:///etc/passwd")  # fmt: skip
PAGE = (
    "<p>the page"
    + "".join(f'<a href="{quote(name, safe="/:.")}">x</a>' for name in LINKED)
    + ('<p><button type="button" data-trace="unet/train.trace.json.gz">x</button>')
)
NEVER = ("unet/train.csv.json", "unet/weights.pt", "logs/train.log", "doctor.txt", "notes.html", "figures/steps.pdf")
# Of servers, by their ports.
TOKENS: dict[int, str] = {}
Reply = tuple[int, dict[str, str], bytes]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A small folder of results, with things in it and around it that are nobody's to see."""
    home = tmp_path / "results"
    for folder in ("unet", "tables", "figures", "logs", ".hidden"):
        (home / folder).mkdir(parents=True)
    (home / "report.html").write_text(PAGE)
    (home / "unet/train.trace.json.gz").write_bytes(TRACE)
    (home / "tables/cells.csv").write_text("model\n")
    (home / "unet/odd name#1%&.csv").write_text("odd")
    (home / "unet/train.csv").write_text("step\n")
    (home / "figures/steps.svg").write_text("<svg/>")
    (home / "share.tar.gz").write_text("packed")
    for name in NEVER:
        (home / name).write_text("secret")
    (home / ".hidden/key").write_text("secret")
    (home / ".profzoo.lock").write_text("secret")
    (tmp_path / "key").write_text("secret")
    (tmp_path / "results-2").mkdir()
    (tmp_path / "results-2/key").write_text("secret")
    (home / "unet/out.csv").symlink_to(tmp_path / "key")
    (home / "outside").symlink_to(tmp_path)
    (home / "unet/in.csv").symlink_to(home / "tables/cells.csv")
    os.mkfifo(home / "unet/pipe.csv")
    return home


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def served(results: Path) -> Iterator[serve.Server]:
    with running(one := serve.make_server(results, 0, PERFETTO)):
        yield one


@pytest.fixture
def port(served: serve.Server, monkeypatch: pytest.MonkeyPatch) -> int:
    """Its port; `asked` knows the token."""
    monkeypatch.setitem(TOKENS, served.server_port, served.token)
    return served.server_port


def asked(port: int, target: str, method: str = "GET", **headers: str) -> Reply:
    """Status, headers and content of the answer; the target goes out as it is, behind the token where that is known."""
    if (token := TOKENS.get(port)) and target[:1] in ("", "/"):
        target = f"/{token}{target}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    given = {"Host": f"127.0.0.1:{port}", **headers}
    connection.putrequest(method, target, skip_host=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_the_page_and_what_is_beside_it_are_served(port: int) -> None:
    for target in ("/", "/report.html", "/report.html?again=1"):
        status, head, content = asked(port, target)
        assert (status, content) == (200, PAGE.encode()) and head["Content-Type"] == "text/html; charset=utf-8"
    assert asked(port, "/unet/odd%20name%231%25&.csv")[2] == b"odd"
    assert asked(port, "/tables/cells.csv")[2] == b"model\n" and asked(port, "/share.tar.gz")[2] == b"packed"
    assert asked(port, "/unet/train.csv?again=1#x")[2] == b"step\n"
    assert asked(port, "/unet/in.csv")[2] == b"model\n"
    # As it is on disk: with a Content-Encoding a browser would unpack it.
    status, head, content = asked(port, "/unet/train.trace.json.gz")
    assert (status, content) == (200, TRACE) and head["Content-Type"] == "application/gzip"
    assert "Content-Encoding" not in head and head["X-Content-Type-Options"] == "nosniff"
    # With that the page could not talk to the window that it opens.
    assert "Cross-Origin-Opener-Policy" not in head


REFUSED = [
    "/unet", "/unet/", "/tables", "/none.csv", "/report.html/", "/unet/out.csv", "/outside/key", "/../key",
    "/unet/../../key", "/%2e%2e/key", "/unet/%2e%2e/%2e%2e/key", "/..%2fkey", "/%2e%2e%2fkey", "/..\\key", "/..%5ckey",
    *(f"/{name}" for name in NEVER), "/../results-2/key", "/.hidden/key", "/.profzoo.lock", "/%2eprofzoo.lock", "/unet/pipe.csv", "/report.html%00",
    "/./report.html", "/etc/passwd", "//etc/passwd", "/%2fetc/passwd", "file:///etc/passwd", "http://[", "*", "report.html/x", "/%ff", "/" + "a" * 5000,
]  # fmt: skip


def test_what_is_no_file_of_the_results_is_refused(port: int) -> None:
    for target in REFUSED:
        status, head, content = asked(port, target)
        assert status == (404 if target.startswith("/") else 403) and content.count(b"\n") == 1, target
        assert b"secret" not in content and b"root:" not in content
        assert head["Content-Type"].startswith("text/plain")


def test_nothing_but_reading_is_done(port: int) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        status, head, _ = asked(port, "/status", method)
        assert status == 501 and "Access-Control-Allow-Origin" not in head


def test_a_foreign_name_is_refused(port: int) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST:9001", "[::1]:8000"):
        assert asked(port, "/", Host=host)[0] == 200
    foreign = ("", "evil.example", "127.0.0.1.evil.example", "evil.example:9001", "localhost@evil.example", "0.0.0.0")
    for host in (*foreign, "192.168.0.7:9001", "127.0.0.1:9001, evil.example"):
        status, head, content = asked(port, "/unet/train.trace.json.gz", Host=host)
        assert status == 403 and content.count(b"\n") == 1 and "Access-Control-Allow-Origin" not in head, host


def test_a_request_that_names_nobody_or_two_is_refused(port: int) -> None:
    for lines in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            one.sendall(b"GET / HTTP/1.0\r\n" + lines + b"\r\n")
            assert one.makefile("rb").readline().split()[1] == b"403"


def test_other_sites_may_read_nothing_and_perfetto_traces_alone(port: int) -> None:
    def allowed(target: str, site: str) -> str | None:
        return asked(port, target, Origin=site)[1].get("Access-Control-Allow-Origin")

    trace = "/unet/train.trace.json.gz"
    assert allowed(trace, PERFETTO) == PERFETTO and asked(port, trace)[1]["Vary"] == "Origin"
    for site in ("https://evil.example", "null", f"{PERFETTO}.evil.example", "http://ui.perfetto.dev", f"{PERFETTO}:8"):
        assert allowed(trace, site) is None
    assert allowed("/report.html", PERFETTO) is None and allowed("/tables/cells.csv", PERFETTO) is None
    assert asked(port, "/report.html")[1]["Cross-Origin-Resource-Policy"] == "same-origin"


def test_a_browser_that_goes_away_is_none_of_its_business(
    results: Path, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (results / "tables/large.csv").write_bytes(bytes(20_000_000))
    request = f"GET /{TOKENS[port]}/tables/large.csv HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.sendall(request)
            assert one.recv(10)
    time.sleep(0.2)
    assert asked(port, "/")[0] == 200 and capfd.readouterr().err == ""


NO_TOKEN = ["", "/", "/{port}", "/x/{token}", "/{short}", "/{token}0", "/{other}", "/?token={token}", "/%00", "/é"]


@pytest.mark.parametrize("before", NO_TOKEN)
def test_whoever_has_no_token_gets_one_line(served: serve.Server, before: str) -> None:
    token, port = served.token, served.server_port
    wrong = quote(before.format(port=port, token=token, short=token[:-1], other=f"{token[:-1]}é"), safe="/?=%")
    for target in ("/", "/report.html", "/unet/train.trace.json.gz", "/none.csv"):
        status, head, content = asked(port, wrong + target, Origin=PERFETTO)
        assert (status, content) == (403, b"Use the address with the token that `snakemake serve` printed.\n")
        assert "Access-Control-Allow-Origin" not in head
        assert asked(port, wrong + target, "HEAD")[::2] == (403, b"")


def test_the_page_is_asked_for_with_a_slash_as_its_links_go_by_that(port: int) -> None:
    assert asked(port, "")[::2] == (404, b"The address must end with a /.\n")


def test_a_token_is_of_one_server_and_cannot_be_guessed(results: Path) -> None:
    tokens = set()
    for _ in range(3):
        with running(served := serve.make_server(results, 0, PERFETTO)):
            tokens.add(served.token)
            assert served.address == f"http://127.0.0.1:{served.server_port}/{served.token}/"
            assert served.server_address[0] == "127.0.0.1"
    assert len(tokens) == 3 and all(re.fullmatch("[0-9a-f]{48}", one) for one in tokens)


def test_what_a_new_page_links_to_is_served_at_once(results: Path, port: int) -> None:
    (results / "unet/new.csv").write_text("new")
    assert asked(port, "/unet/new.csv")[0] == 404
    (results / "report.html").write_text('<a class="x" href="unet/new.csv">x</a>')
    assert asked(port, "/unet/new.csv")[2] == b"new" and asked(port, "/unet/train.csv")[0] == 404


def test_no_file_is_run_in_a_browser_and_no_page_reaches_elsewhere(port: int) -> None:
    for target in ("/figures/steps.svg", "/tables/cells.csv", "/none.csv"):
        policy = asked(port, target)[1]["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ") and "script" not in policy
    policy = asked(port, "/")[1]["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "http" not in policy


def begun(results: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "profzoo.cli.serve", str(results), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=PROJECT, preexec_fn=heed_interrupts, **pipes)


# What another user of the machine tries, with the results' folder and the server's process and port: what they got.
OTHER = """
import json, os, pathlib, sys, urllib.error, urllib.request
folder, process, port = sys.argv[1:]
def tried(what):
    try: return what()
    except urllib.error.HTTPError as error: return error.code
    except OSError as error: return type(error).__name__
read = lambda name: tried(lambda: pathlib.Path("/proc", process, name).read_bytes().decode())
get = lambda path: tried(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}{path}").read().decode())
print(json.dumps({"uid": os.getuid(), "folder": tried(lambda: os.listdir(folder)), "read": [read("cmdline"), read("environ"), read("mem")],
  "got": [get(path) for path in ("/", "/report.html", "/unet/train.csv", "/unet/train.trace.json.gz", "/" + "0" * 48 + "/")]}))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_gets_nothing(results: Path) -> None:
    results.chmod(0o700)
    with begun(results) as process:
        assert process.stdout
        found = re.search(r"http://127\.0\.0\.1:(\d+)/(\w+)/", process.stdout.readline())
        assert found
        words = ["python3", "-I", "-c", OTHER, str(results), str(process.pid), found[1]]
        path = f"/usr/bin:/bin:{Path(sys.executable).resolve().parent}"
        nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "env": {"PATH": path}}
        run = subprocess.run(words, **nobody, capture_output=True, text=True)
        owner = asked(int(found[1]), f"/{found[2]}/unet/train.csv")
        process.terminate()
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert seen["uid"] == 65534 and seen["folder"] == "PermissionError" and seen["got"] == [403] * 5
    assert "profzoo.cli.serve" in seen["read"][0] and seen["read"][1:] == ["PermissionError"] * 2
    assert found[2] not in run.stdout and owner[2] == b"step\n"


def test_a_port_that_is_taken_is_said_in_one_line_with_the_nearest_free_one(
    results: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main([str(results), "--port", str(port)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"profzoo: port {port} of 127.0.0.1 is used by another program, and ")
    near = re.search(r"--config serve='\{port: (\d+)\}'", line)
    assert near and f"{near[1]} is free" in line
    with running(other := serve.make_server(results, int(near[1]), PERFETTO)):
        assert asked(other.server_port, f"/{other.token}/")[0] == 200


def test_a_missing_report_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main([str(tmp_path)]) == 1
    makes = unavailable_tools.name_maker("snakemake report")
    assert capsys.readouterr().err == f"profzoo: {tmp_path}/report.html does not exist: {makes} it\n"


@pytest.mark.parametrize("number", slow.first([signal.SIGINT, signal.SIGTERM]))
def test_it_says_where_it_is_and_ends_cleanly(results: Path, number: signal.Signals) -> None:
    process = begun(results)
    assert process.stdout
    line = process.stdout.readline()
    ((address, token),) = re.findall(r"http://127\.0\.0\.1:(\d+)/([0-9a-f]{48})/ ", line)
    assert "report.html" in line and "Ctrl-C" in line and asked(int(address), f"/{token}/")[0] == 200
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("\n", "") and process.returncode == 0


def test_what_never_ends_runs_alone() -> None:
    shutdown.check_alone({"serve"}, ("serve",))
    shutdown.check_alone({"write_report", "report"}, ("serve",))
    with pytest.raises(ConfigError, match=r"^`serve` runs until you end it, and runs alone"):
        shutdown.check_alone({"serve", "report"}, ("serve",))


STAND_IN = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>Perfetto's part</title><script>
// As ui.perfetto.dev's handler of messages: late, to its opener alone, and for one trace.
const handle = async event => {
  if (document.readyState !== "complete" || event.source !== window.opener) return;
  if (event.data === "PING") { event.source.postMessage("PONG", event.origin); return; }
  const {buffer, title, fileName} = event.data.perfetto;
  if (!(buffer instanceof ArrayBuffer) || typeof title !== "string") throw new Error("no trace");
  removeEventListener("message", handle);
  await fetch(`/got?${new URLSearchParams({title, fileName, origin: event.origin})}`, {method: "POST", body: buffer});
};
setTimeout(() => addEventListener("message", handle), 700);
</script>"""


class StandIn(BaseHTTPRequestHandler):
    """Plays the site of Perfetto's page, and keeps what it was asked for and what its page was handed."""

    def __init__(self, asked: list[str], got: list[tuple[str, bytes]], moved: str, *arguments: object) -> None:
        self.asked, self.got, self.moved = asked, got, moved
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302 if self.moved else 200)
        self.send_header("Content-Type", "text/html")
        if self.moved:
            self.send_header("Location", self.moved)
        self.end_headers()
        self.wfile.write(b"" if self.moved else STAND_IN.encode())

    def do_POST(self) -> None:
        self.got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def stand_in(moved: str = "") -> Iterator[tuple[str, list[str], list[tuple[str, bytes]]]]:
    """Its address, and its two lists; moved: where it sends whoever asks."""
    asked: list[str] = []
    got: list[tuple[str, bytes]] = []
    with running(ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(StandIn, asked, got, moved))) as port:
        yield f"http://127.0.0.1:{port}", asked, got


def handed(page: devtools.Page, words: str) -> None:
    page.until(f"document.querySelector('#unet-train .perfetto [role=status]').textContent.includes({words!r})")


def received(page: devtools.Page, got: list[tuple[str, bytes]]) -> None:
    deadline = time.monotonic() + 20
    while not got and time.monotonic() < deadline:
        page.driver.rest(0.1)


def write_page(folder: Path, address: str) -> Path:
    """Write the page of one cell whose trace is there; address: of Perfetto's page."""
    name = {"model": "unet", "phase": "train"}
    cell = dict.fromkeys(("parameters", "batch", "steps", "step_ns", "step_median_ns", "items_per_s", "loss"), 1.0)
    cell |= dict.fromkeys(("peak_memory_bytes", "peak_rss_bytes"), 1) | {"device": "a GPU", "date": "2026-11-22"}
    used = {"tool": "torch", "kind": "kernel", "range": "forward", "name": "k", "launches_per_step": 1.0, "share": 0.1}
    none = pd.DataFrame(columns=[*name, "busy_share", "launches"])
    tables = {
        "cells": pd.DataFrame([{**name, **cell, "workload": "trimmed", "precision": "fp32"}]),
        "activity": pd.DataFrame([{**name, **used, "ns_per_step": 1e3}]),
        **dict.fromkeys(("steps", "agreement", "ranks"), none),
    }
    (folder / "unet").mkdir()
    (folder / "unet/train.trace.json.gz").write_bytes(TRACE)
    opened = {"address": address, "type": "snakemake serve"}
    html = folder / "report.html"
    html.write_text(
        report_page.render_page(tables, [{"torch": "2", "cuda": None}], [], ["torch"], folder, perfetto=opened)
    )
    return html


@contextmanager
def shown(folder: Path, address: str) -> Iterator[tuple[devtools.Driver, devtools.Page, serve.Server]]:
    """The page of one cell as it is served, in a browser; address: of Perfetto's page."""
    write_page(folder, address)
    with running(served := serve.make_server(folder, 0, address)), devtools.driven(folder / "profile") as driver:
        yield driver, driver.opened(f"{served.address}#unet-train"), served


@browser.needed
def test_a_click_hands_perfetto_the_trace_as_it_is(tmp_path: Path) -> None:
    with stand_in() as (address, asked, got), shown(tmp_path, address) as (driver, page, served):
        assert page.value("document.getElementById('unet-train').open")
        driver.rest(1)
        # What leaves before the click is the request for the page itself.
        assert {url.partition("#")[0] for url in page.requests() if not url.startswith("data:")} == {served.address}
        assert asked == []
        page.click("#unet-train .perfetto button")
        handed(page, "Perfetto has the trace")
        received(page, got)
        ((query, content),) = got
        assert content == TRACE
        site = f"http%3A%2F%2F127.0.0.1%3A{served.server_port}"
        # Of the address it is not told, as the token is in that.
        assert query == f"/got?title=unet+train&fileName=unet-train.trace.json.gz&origin={site}"
        assert asked == ["/"] and page.requests()[-1].endswith("/unet/train.trace.json.gz")
        assert page.console() == []


@pytest.mark.slow
@browser.needed
def test_no_other_site_gets_the_trace(tmp_path: Path) -> None:
    with (
        stand_in() as (elsewhere, reached, got),
        stand_in(moved=elsewhere) as (address, *_),
        shown(tmp_path, address) as seen,
    ):
        driver, page, _ = seen
        page.value("page.patience.most = 2500")
        page.click("#unet-train .perfetto button")
        handed(page, f"{address} does not answer")
        driver.rest(0.5)
        assert reached == ["/"] and got == [] and page.console() == []


@pytest.mark.slow
@browser.needed
def test_what_goes_wrong_is_said_beside_the_button(tmp_path: Path) -> None:
    with stand_in() as (address, *_), shown(tmp_path, address) as (_, page, _):
        (tmp_path / "unet/train.trace.json.gz").unlink()
        page.click("#unet-train .perfetto button")
        handed(page, "The trace cannot be read: 404")
        page.value("window.open = () => null")
        page.click("#unet-train .perfetto button")
        handed(page, "The browser opened no window")


@pytest.mark.slow
@browser.needed
def test_a_page_that_is_opened_as_a_file_says_what_to_type(tmp_path: Path) -> None:
    html = write_page(tmp_path, PERFETTO)
    reader = """document.getElementById("unet-train").open = true; await wait(50);
      const seenOf = selector => [...document.querySelectorAll(`#unet-train ${selector}`)].filter(one => one.getClientRects().length).map(one => one.textContent);
      seen.typed = seenOf(".unless-served"); seen.buttons = seenOf(".perfetto button");"""
    seen, console = browser.opened(html, tmp_path, reader)
    assert not console and seen["failures"] == [] and seen["buttons"] == []
    (line,) = seen["typed"]
    assert "type snakemake serve and open the page" in line
    # Nor without its script, wherever it is from.
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"<script>.*?</script>", "", html.read_text(), flags=re.DOTALL))
    seen, _ = browser.opened(bare, tmp_path, reader)
    assert seen["buttons"] == [] and seen["typed"] == [line]
