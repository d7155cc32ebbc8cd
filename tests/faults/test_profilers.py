"""What nvidia-smi and nsys may do wrong: each ends in one line with what to do, or the job goes on without them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import slow
from tests.faults.harm import GOOD, Harm, good
from tests.faults.test_surroundings import Disk, disk
from tests.workflow.test_nsys import NSYS
from tests.workflow.test_nsys import pytestmark as needs_nsys

__all__ = ["disk"]
ROW = "NVIDIA H200, 580.1, {}, 143771 MiB"


def tool(harm: Harm, name: str, body: str) -> None:
    """A program of that name, first in PATH."""
    folder = harm.folder / "tools"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    harm.variables = {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    "body",
    slow.first(
        [
            # A row with as many cells as one of a GPU, of bytes that no variable may have.
            "printf 'a, b, \\000\\377, d\\n\\033\\000'; head -c 100000 /dev/urandom",
            "yes 'a, b, c' | head -c 1000000",
            "echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9",
            "kill -SEGV $$",
            f"echo '{ROW.format('GPU-a')}'; echo '{ROW.format('GPU-a')}'",
            f"echo '{ROW.format('../../../escape')}'",
            f"echo '{ROW.format('')}'",
            "printf 'NVIDIA H200, 580.1, GPU-\\033[2J, \\377'",
        ],
        2,
    ),
    ids=["garbage", "much", "fails", "crashes", "names one twice", "a path", "no name", "escapes"],
)
def test_nvidia_smi_that_cannot_be_believed(harm: Harm, body: str) -> None:
    tool(harm, "nvidia-smi", body)
    harm.more = {"cell": {"device": "auto"}}
    code, said = harm.run(good(harm))
    assert code == 0 and len(said) <= 1, said
    harm.over(None)
    # Beside the folder are those of other tests, whose names may begin so.
    assert not [path for folder in harm.folder.parents[:3] for path in folder.glob("escape") if path.exists()]
    assert not list(harm.folder.rglob("escape*"))


@pytest.mark.faults
def test_nvidia_smi_that_hangs(harm: Harm) -> None:
    tool(harm, "nvidia-smi", "trap '' TERM; sleep 200; sleep 200")
    harm.more = {"cell": {"device": "auto"}}
    harm.fails(good(harm), r"nvidia-smi did not answer within 60 s: the GPU's driver hangs", seconds=120)
    harm.goes_on()


def traced(harm: Harm) -> None:
    """Have the job's program run under nsys."""
    made = {"report": str(harm.results / "r.nsys-rep"), "sqlite": str(harm.results / "r.nsys.sqlite")}
    options = ["--force-overwrite=true", "--export=sqlite", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
    profiler = ["nsys", "profile", *options, "--output", made["report"]]
    harm.more = {"tool": "nsys", "profiler": profiler, "made": made}


BROKEN = {
    "fails": (
        "echo 'Importer error status: unknown'; exit 1",
        r"nsys traced the program but could not import .*importer",
    ),
    "fails without a word": ("exit 7", r"nsys ended with exit code 7"),
    "does not know an option": (
        "echo \"unrecognised option '--trace'\"; exit 1",
        r"nsys\.extra, or its version is too old",
    ),
    "is killed": ("kill -9 $$", r"nsys (or what it ran )?was killed \(SIGKILL\)"),
    "crashes": ("kill -SEGV $$", r"nsys (or what it ran )?crashed \(SIGSEGV\)"),
    "leaves nothing": ("exit 0", r"nsys ended well but left no out"),
    "is not a program": ("\0", r"nsys"),
}


@pytest.mark.parametrize("name", slow.first(BROKEN))
def test_nsys_that_is_broken(harm: Harm, name: str) -> None:
    body, line = BROKEN[name]
    tool(harm, "nsys", f"case $1 in --version) echo {'x' * 300}; exit 0;; esac\n{body}")
    traced(harm)
    harm.fails(good(harm), line)
    harm.goes_on()


@pytest.mark.slow
def test_nsys_that_hangs(harm: Harm) -> None:
    tool(harm, "nsys", 'case "$*" in *--output*) setsid sleep 100 & sleep 100;; *) exit 3;; esac')
    traced(harm)
    harm.limit_s = 1
    harm.fails(good(harm), r"nsys took longer than 1 s and was ended: .*nsys\.time_limit")


def real(harm: Harm) -> None:
    assert NSYS
    folder = harm.folder / "tools"
    folder.mkdir()
    (folder / "nsys").symlink_to(NSYS / "nsys")
    harm.variables = {"PATH": f"{folder}:{os.environ['PATH']}"}
    traced(harm)


@pytest.mark.slow
@needs_nsys[0]
@needs_nsys[1]
@pytest.mark.parametrize(("name", "ended"), [("KILL", "was killed"), ("SEGV", "crashed")])
def test_a_program_that_dies_under_a_real_nsys(harm: Harm, name: str, ended: str) -> None:
    real(harm)
    harm.fails(["sh", "-c", f"kill -{name} $$"], rf"nsys or what it ran {ended} \(SIG{name}\)")


@pytest.mark.slow
@needs_nsys[0]
@needs_nsys[1]
def test_a_real_nsys_whose_disk_is_full(harm: Harm, disk: Callable[..., Disk]) -> None:
    """Neither a report nor half of one is left."""
    real(harm)
    disk(harm.results, "size=64k")
    code, said = harm.run(["sh", "-c", GOOD.format(harm.results)])
    assert code == 1 and len(said) == 1, said
    assert {path.name for path in harm.results.iterdir()} <= {"log"} and not harm.processes()
    assert not list(Path(harm.temporary).glob("*profzoo*"))
