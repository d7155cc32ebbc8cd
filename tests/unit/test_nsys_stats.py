"""Reports of `nsys stats` and what `doctor` says of nsys, by a program in its place that does just that."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from profzoo.errors import DataError
from profzoo.machine import external_programs
from profzoo.machine.doctor_checks import Finding
from profzoo.tools.nsys import command, doctor


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program of this body first on PATH."""

    def put(body: str) -> None:
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin/nsys"
        program.write_text(
            f'#!/bin/sh\nfor word; do case "$word" in --output=*) to="${{word#--output=}}";; esac; done\n{body}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    return put


OFFERED = 'if [ "$2" = --help-reports ]; then echo " gpukernsum[:base] -- a"; echo " osrt_sum -- b"; echo " nvtx_sum -- c"; exit; fi'
ROWS = r'printf "\n\nTime,Name\n3,k\n" > "${to}_gpukernsum.csv"'
EMPTY = 'printf "\\n" > "${to}_osrt_sum.csv"'
SKIPPED = """echo "Processing [x.sqlite] with [/opt/reports/nvtx_sum.py]..."; echo "SKIPPED: x.sqlite does not contain NV Tools data." >&2"""


def reported(folder: Path, *reports: str) -> dict[str, str]:
    outputs = {name: str(folder / f"{name}.csv") for name in reports}
    command.main(str(folder / "a.sqlite"), outputs)
    return {name: Path(path).read_text() for name, path in outputs.items()}


def test_each_report_is_a_table_or_says_why_it_is_none(tmp_path: Path, nsys) -> None:
    nsys(f"{OFFERED}\n{ROWS}\n{EMPTY}\n{SKIPPED}")
    assert reported(tmp_path, "cuda_gpu_kern_sum", "osrt_sum", "nvtx_sum") == {
        "cuda_gpu_kern_sum": "Time,Name\n3,k\n",
        "osrt_sum": 'skipped\n"holds no row of this report"\n',
        "nvtx_sum": 'skipped\n"does not contain NV Tools data"\n',
    }


@pytest.mark.parametrize(
    ("body", "report", "code"),
    [
        # Nothing is left of it; or an empty file, though nsys failed.
        (f"{ROWS}", "osrt_sum", 0), (f"{EMPTY}; exit 3", "osrt_sum", 3), ("exit 1", "cuda_gpu_kern_sum", 1),
    ],
)  # fmt: skip
def test_a_report_that_is_not_there_is_named(tmp_path: Path, nsys, body: str, report: str, code: int) -> None:
    nsys(f"{OFFERED}\n{body}")
    with pytest.raises(DataError, match=rf"nsys stats left no {report} of .*a\.sqlite \(exit code {code}\)"):
        reported(tmp_path, report)


def test_a_table_is_taken_though_nsys_ends_badly(tmp_path: Path, nsys) -> None:
    nsys(f"{OFFERED}\n{ROWS}\nexit 1")
    assert reported(tmp_path, "cuda_gpu_kern_sum") == {"cuda_gpu_kern_sum": "Time,Name\n3,k\n"}


@pytest.mark.parametrize(
    ("printed", "reasons"),
    [
        # Before any report is named, and of one that was not asked for, nothing is said.
        ("SKIPPED: does not contain a", {}),
        ("with [/r/um_sum.py]\nSKIPPED: x does not contain a.", {}),
        ("with [/r/osrt_sum.py]\nSKIPPED: does not contain a.", {"osrt_sum": "does not contain a"}),
        ("with [/r/osrtsum.py] SKIPPED: a b does not contain c\nSKIPPED: other", {"osrt_sum": "does not contain c"}),
    ],
)
def test_why_reports_are_skipped(printed: str, reasons: dict[str, str]) -> None:
    assert command._reasons(printed, ["osrt_sum", "nvtx_sum"]) == reasons


LEAVES = 'touch "$to.nsys-rep"'
UNKNOWN = ", unknown whether this nsys sees its ranges"


def test_an_importer_that_works_or_not(nsys) -> None:
    nsys(LEAVES)
    assert doctor.check_importer() == Finding("nsys importer", "works (traced one process)")
    nsys("echo something; exit 1")
    finding = doctor.check_importer()
    assert finding.found == "leaves no report" and "its importer is missing or broken" in str(finding.advice)
    nsys(f"echo slow >&2; exit {external_programs.TIMED_OUT}")
    assert doctor.check_importer() == Finding("nsys importer", "not known", "slow\n")


@pytest.mark.parametrize(
    ("body", "said", "advised"),
    [(LEAVES, ", seen by nsys", False), (f"{LEAVES}; exit 1", ", seen by nsys", False), ("exit 1", UNKNOWN, True),
     ("exit 0", ", whose ranges this nsys does not see", True)],
)  # fmt: skip
def test_ranges_that_nsys_sees_or_not(nsys, body: str, said: str, advised: bool) -> None:
    nsys(body)
    finding = doctor.check_nvtx()
    assert finding.found == f"{importlib.metadata.version('nvtx')}{said}" and bool(finding.advice) == advised


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("exit 1", "nsys failed (exit code 1): it printed nothing"),
        ("echo one; echo 'cannot do it' >&2; exit 3", "nsys failed (exit code 3): cannot do it"),
        ("echo 'Connection to Agent lost'; exit 0", "nsys did not reach the agent"),
        (
            f"echo 'nsys did not answer' >&2; exit {external_programs.TIMED_OUT}",
            "nsys did not answer: check again when",
        ),
    ],
)
def test_an_nsys_that_fails_says_nothing_of_ranges(nsys, body: str, advice: str) -> None:
    nsys(body)
    finding = doctor.check_nvtx()
    assert finding.found.endswith(UNKNOWN) and str(finding.advice).startswith(advice)


def test_an_nsys_that_fails_once_is_asked_again(nsys, tmp_path: Path) -> None:
    nsys(f'[ -e "{tmp_path}/once" ] || {{ touch "{tmp_path}/once"; exit 1; }}; {LEAVES}')
    assert doctor.check_nvtx().found.endswith(", seen by nsys")
    (tmp_path / "once").unlink()
    assert doctor.check_importer().found == "works (traced one process)"


def test_the_probe_records_a_range_as_the_workflow_does(tmp_path: Path, nsys) -> None:
    nsys(f'echo "$@" > "{tmp_path}/words"')
    doctor.check_nvtx()
    words = (tmp_path / "words").read_text()
    assert words.startswith("profile --trace=nvtx ") and all(word in words for word in command.NVTX_CAPTURE)
