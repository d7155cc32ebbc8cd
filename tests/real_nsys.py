"""Traces a Python program with the real nsys for a test, apart from the other tests' nsys."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.workflow.test_nsys import NSYS

# Neither samples nor context switches: they may not be permitted here.
OPTIONS = ("--trace=nvtx,osrt", "--export=sqlite", "--sample=none", "--cpuctxsw=none")


def trace_program(program: Path, folder: Path, options: Sequence[str] = ()) -> Path:
    """Run a Python program under `nsys profile`, and return the trace's SQLite export, which lies in the folder.

    options: further words of nsys. Each nsys gets a TMPDIR of its own, as each job of the workflow does: of several
    that start at the same time in one TMPDIR, some take the sockets of others and end with code 1 (4 of 220, 4 at once).

    Raises:
        AssertionError: nsys or the program failed; the message is what they printed.
    """
    assert NSYS
    words = [str(NSYS / "nsys"), "profile", *OPTIONS, *options, f"--output={folder}/t", sys.executable, str(program)]
    sources = os.pathsep.join([str(NSYS.parent / "python"), str(Path(__file__).parents[1])])
    # A short path: nsys makes sockets in it, whose paths are limited to 108 bytes.
    with tempfile.TemporaryDirectory(prefix="nsys-") as own:
        ended = subprocess.run(
            words, env=os.environ | {"PYTHONPATH": sources, "TMPDIR": own}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=200,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    return folder / "t.sqlite"
