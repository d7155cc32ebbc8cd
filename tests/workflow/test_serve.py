"""`snakemake serve` by the real Snakemake: it serves until it is ended, and leaves the results to other runs."""

import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from profzoo.tools import unavailable_tools
from tests.workflow.project import Project, finished

# Patience with a busy machine, on which it takes seconds; well below the minute that Snakemake waits before its end
# for the timespan of `max-jobs-per-timespan`, unless `shutdown.end_at_once` has seen to that.
ENDING_S = 45


@pytest.fixture
def made(fresh: Project) -> Project:
    (fresh.root / "results").mkdir()
    fresh.write("results/report.html", "<p>the page")
    return fresh


def text(path: Path) -> bytes:
    """What a file has, which may be gone by now."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def free() -> int:
    """A port that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def served(project: Project, *words: str) -> tuple[subprocess.Popen[str], str]:
    process = project.begun("serve", *words, "--configfile", "tiny.yaml")
    assert process.stdout
    for line in process.stdout:
        if address := re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{48}/", line):
            return process, address[0]
    raise AssertionError(process.wait())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_serves_until_it_is_ended(made: Project, number: signal.Signals) -> None:
    port = free()
    process, address = served(made, "--config", f"serve={{port: {port}}}")
    assert address.startswith(f"http://127.0.0.1:{port}/")
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert answer.read() == b"<p>the page"
    # The token is the terminal's alone: files and command lines may be read by others.
    token = address.split("/")[-2].encode()
    assert not [path for path in made.root.rglob("*") if path.is_file() and token in path.read_bytes()]
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if token in text(path)]
    process.send_signal(number)
    # Its output ends with the last process that has it.
    code, said = finished(process, ENDING_S)
    assert code == (-number if number == signal.SIGKILL else 1) and "Traceback" not in said and "failed" not in said
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), timeout=10):
        pass


@pytest.mark.slow
def test_other_runs_go_on_while_it_serves(made: Project) -> None:
    process, address = served(made, "--config", f"serve={{port: {free()}}}")
    try:
        # Which takes the lock on the results.
        made.snakemake("share")
        with urllib.request.urlopen(f"{address}share.tar.gz", timeout=10) as answer:
            assert answer.read() == (made.root / "results/share.tar.gz").read_bytes()
        assert not list((made.root / ".snakemake/locks").glob("*")) and process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        finished(process, ENDING_S)


@pytest.mark.slow
def test_what_keeps_it_from_serving_is_one_line(fresh: Project) -> None:
    said = fresh.snakemake("serve", ok=False)
    assert said.returncode == 1
    makes = unavailable_tools.name_maker("snakemake report")
    assert f"why      results/report.html does not exist: {makes} it" in said.stdout + said.stderr
    beside = fresh.snakemake("serve", "examine_machine", ok=False)
    assert beside.returncode == 1 and "`serve` runs until you end it, and runs alone" in beside.stderr
    assert not (fresh.root / "results/doctor.txt").exists()
    wrong = fresh.snakemake("serve", "--config", "serve={port: 70000}", ok=False).stderr
    assert "serve.port" in wrong and "65535" in wrong.replace(",", "")


def test_the_report_hands_over_the_traces_that_there_are(built: Project) -> None:
    page = built.read("results/report.html")
    assert '"perfetto":"https://ui.perfetto.dev"' in page and page.count("type <code>snakemake serve</code>") == 4
    for cell in ("lstm/train", "lstm/inference", "unet/train", "unet/inference"):
        assert f'data-trace="{cell}.trace.json.gz"' in page
        assert (built.root / "results" / f"{cell}.trace.json.gz").exists()
