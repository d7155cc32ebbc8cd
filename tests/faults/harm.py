"""One job in a separate process, with any program instead of a model, and checks after its end."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from profzoo.machine import job_limits, process_tree
from tests.faults import family

PROJECT = Path(__file__).parents[2]
# Writes the files of a correct program into the folder {0}.
GOOD = """echo new > {0}/out; echo '{{"torch": "2"}}' > {0}/s.json"""
OLD = {"out": "of an earlier run", "s.json": "of an earlier run"}
COLLECT = """
import json, sys
from pathlib import Path
from tests.unit.collected import collected
given = json.loads(sys.argv[1])
made = {name: Path(path) for name, path in given["more"].pop("made", {}).items()}
sys.exit(collected(Path(given["folder"]), *given["program"], made=made, **given["more"]))
"""


@dataclass
class Harm:
    """A folder in which jobs run; temporary: their TMPDIR, with a short path, because sockets need one.

    limit_s: time limit of the program. variables: environment of the job. more: further keys of its description.
    """

    folder: Path
    temporary: Path
    limit_s: float | None = None
    variables: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.results = self.folder / "results"
        self.results.mkdir()
        for name, text in OLD.items():
            (self.results / name).write_text(text)

    def begun(self, program: Sequence[str], before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """Start a job; before: function that runs in its process before Python starts."""
        given = {"folder": str(self.results), "program": list(program), "more": self.more}
        return subprocess.Popen(
            [sys.executable, "-c", COLLECT, json.dumps(given)], cwd=self.folder, env=self.environment(),
            text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=before, start_new_session=True,
        )  # fmt: skip

    def run(
        self, program: Sequence[str], before: Callable[[], None] | None = None, seconds: float = 60
    ) -> tuple[int, list[str]]:
        """Run a job, and return its exit code and its lines."""
        job = self.begun(program, before)
        try:
            said, _ = job.communicate(timeout=seconds)
        finally:
            job.kill()
        return job.returncode, said.splitlines()

    def environment(self) -> dict[str, str]:
        told = {"locks": str(self.folder / "locks"), "time_s": {"time": self.limit_s, "nsys": self.limit_s}}
        return {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(PROJECT),
            job_limits.LIMITS: json.dumps(told),
            **self.variables,
        }

    def fails(
        self, program: Sequence[str], line: str, before: Callable[[], None] | None = None, seconds: float = 60
    ) -> str:
        """Check that a job fails with one line that contains a pattern, and leaves no file; return the line."""
        code, said = self.run(program, before, seconds)
        assert code == 1 and len(said) == 1 and said[0].startswith("profzoo: "), (code, said)
        assert re.search(line, said[0]), said
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", said[0])
        self.over(OLD)
        return said[0]

    def goes_on(self) -> None:
        """Check that the next job makes the missing files and no others."""
        self.limit_s, self.more = None, {}
        code, said = self.run(good(self))
        assert (code, said) == (0, []), said
        self.over(None)
        assert (self.results / "out").read_text() == "new\n"

    def over(self, held: Mapping[str, str] | None) -> None:
        """Check that no process and no temporary file of a job remains, and that results contain only these files.

        held: texts of the files; None for the files of a correct job.
        """
        family.until(lambda: not self.processes(), family.SECONDS)
        assert [path.name for path in self.temporary.glob("*profzoo*")] == []
        found = {path.name: path for path in self.results.iterdir() if path.name not in ("log", ".records")}
        assert set(found) == set(OLD), found
        if held is not None:
            assert {name: path.read_text() for name, path in found.items()} == held

    def processes(self) -> dict[int, str]:
        """Return the processes of its jobs, by their working folder or the temporary folder in their environment."""
        found = {}
        for process in process_tree.running_processes():
            with suppress(OSError):
                words = Path(f"/proc/{process}/environ").read_bytes()
                inside = Path(f"/proc/{process}/cwd").readlink().is_relative_to(self.folder)
                mine = inside or f"={self.temporary}".encode() in words
                if mine and process != os.getpid() and family.alive(process):
                    found[process] = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def remove(self) -> None:
        """End all processes and remove all files."""
        for process in self.processes():
            with suppress(OSError):
                os.kill(process, 9)
        shutil.rmtree(self.temporary, ignore_errors=True)


def good(harm: Harm) -> list[str]:
    return ["sh", "-c", GOOD.format(harm.results)]


def python(code: str, *words: str) -> list[str]:
    """Return the command of a Python program, without site packages, which take time."""
    return [sys.executable, "-S", "-c", code, *words]


def some(names: Collection[str], quick: int) -> list[Any]:
    """Return parameters of a test: the first ones for every run of the tests, the others for `make faults`."""
    return [pytest.param(name, marks=[pytest.mark.faults] * (place >= quick)) for place, name in enumerate(names)]
