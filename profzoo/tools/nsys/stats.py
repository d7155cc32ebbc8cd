"""Runs `nsys stats` on an export and leaves each report as a CSV of its own."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from profzoo.errors import DataError
from profzoo.tools.nsys import command as nsys

# Under this locale, numbers and messages are the same on all machines.
LOCALE = {"LC_ALL": "C"}
SKIPPED = re.compile(r"SKIPPED: (?:.*? )?(does not contain .*?)\.?$")


def main(sqlite: str, outputs: Mapping[str, str]) -> None:
    """Write each report to its file.

    If the trace has no data for a report, nsys skips it or writes no row. Its CSV then has one column, `skipped`, with
    the reason.

    Raises:
        DataError: nsys fails, or skips a report without a reason.
    """
    offered = _run("stats", "--help-reports").stdout
    names = dict(zip(outputs, nsys.offered_names(list(outputs), offered), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        words = ["stats", "--format=csv", f"--output={folder}/x", "--force-overwrite=true"]
        words += [word for name in names.values() for word in ("--report", name)]
        # nsys treats a path as a URI, and finds no table in a file whose name has `?`, `#`, `%41` or a quote.
        plain = Path(folder) / "x.sqlite"
        plain.symlink_to(Path(sqlite).absolute())
        answer = _run(*words, str(plain))
        print(answer.stdout, answer.stderr, sep="\n", file=sys.stderr)
        reasons = _reasons(answer.stdout + answer.stderr, list(outputs))
        for report, output in outputs.items():
            made = Path(folder) / f"x_{names[report]}.csv"
            text = made.read_text(encoding="utf-8").lstrip() if made.exists() else ""
            if made.exists() and not text and not answer.returncode:
                reasons.setdefault(report, "holds no row of this report")
            if not text and report not in reasons:
                raise DataError(f"nsys stats left no {report} of {sqlite} (exit code {answer.returncode}); see the log")
            Path(output).write_text(text or f'skipped\n"{reasons[report]}"\n', encoding="utf-8")


def _reasons(printed: str, reports: Sequence[str]) -> dict[str, str]:
    """Return the reason for each skipped report; nsys prints it after the name of the report's script."""
    reasons, current = {}, ""
    for line in printed.splitlines():
        if script := re.search(r"/(\w+)\.py\]", line):
            current = nsys.current_names([script[1]])[0]
        if (skipped := SKIPPED.search(line)) and current in reports:
            reasons[current] = skipped[1]
    return reasons


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["nsys", *words], capture_output=True, text=True, check=False, env=os.environ | LOCALE)
    except FileNotFoundError:
        raise DataError("nsys is not on PATH, and reading its reports needs it; `snakemake doctor` says more") from None
