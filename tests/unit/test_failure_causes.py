"""diagnose: every known cause by a line that a tool prints."""

import errno
import importlib
import os

import pytest

from profzoo import tools
from profzoo.collect import failure_causes

# Those of a tool may stand in its own test module, under the same name.
MODULES = [importlib.import_module(f"tests.unit.test_{tool}") for tool in tools.failures()]
LINES = [
    *(line for module in MODULES for line in getattr(module, "LINES", ())),
    (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        "root",
    ),
    (
        "==ERROR== Driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently collecting",
        "DCGM",
    ),
    ("==ERROR== Profiling failed because a driver resource was unavailable.", "DCGM"),
    ("==ERROR== LibraryNotLoaded", "profiling library"),
    ("==ERROR== Failed to find metric sm__foo.sum", "ncu.sets"),
    ("==ERROR== Could not find section Rofline", "ncu --list-sections"),
    ("==ERROR== unrecognised option '--pytorch'. Use --help for further details.", "ncu.extra"),
    ("unrecognized option '--cuda-graph-trace'", "nsys.extra"),
    ("==ERROR== Unsupported API during capture (cuMemAlloc_v2)", "app-range"),
    ("==ERROR== An error was reported by the driver:\n==ERROR== LaunchFailed", "ncu.kernel_name"),
    ("OSError: [Errno 28] No space left on device", "TMPDIR"),
    ("sqlite3.OperationalError: Disk quota exceeded", "TMPDIR"),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "lower workers"),
    ("Bus error. It is possible that dataloader's workers are out of shared memory.", "/dev/shm"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "smaller batch"),
    ("RuntimeError: CUDA error: out of memory", "smaller batch"),
    ("CUDA error: an illegal memory access was encountered", "compute-sanitizer"),
    ("RuntimeError: CUDA error: device-side assert triggered", "device=cpu"),
    ("MemoryError", "mem_mb"),
    ("OSError: [Errno 12] Cannot allocate memory", "mem_mb"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "mem_mb"),
    (
        "Illegal --gpu-metrics-devices arguments.\nNone of the installed GPUs are supported:\n\tTesla V100 - Unsupported "
        "architecture",
        "unset nsys.gpu_metrics",
    ),
    ("Illegal --gpu-metrics-devices argument: 0.\nInsufficient privilege, see https://x/ERR_NVGPUCTRPERM.", "root"),
    ("Importer error status: An unknown error occurred.", "QdstrmImporter"),
    ("/opt/nsys/QdstrmImporter: error while loading shared libraries: libxcb.so.1", "ldd"),
    ("[QuadDCommon::tag_message*] = Local Endpoint is not available.", "--retries"),
    ("Connection to Agent lost. This is most likely a bug. Internal reason: 'End of file'.", "--retries"),
    ("lstm train on CPU, 2 threads: 10 steps of batch 4, 36.4 ms per step, loss 0.1\nGenerated:", "snakemake doctor"),
    ("==WARNING== No kernels were profiled.", "ncu.kernel_name"),
]


@pytest.mark.parametrize(("line", "words"), LINES)
def test_cause(line: str, words: str) -> None:
    assert words in (failure_causes.find_cause(f"$ ncu ...\n==PROF== Connected\n{line}\n") or "")


def test_no_cause_is_left_untested() -> None:
    advices = {failure_causes.find_cause(line) for line, _ in LINES}
    assert advices == {advice for _, advice in failure_causes.known_patterns()}


def test_the_last_of_the_programs_own_lines_wins() -> None:
    log = "profzoo: first\nsay profzoo: not at the start\nprofzoo: last\nERR_NVGPUCTRPERM\n"
    assert failure_causes.find_cause(log) == "last"


def test_a_line_without_end_is_cut() -> None:
    assert failure_causes.find_cause(f"profzoo: {'x' * 10**6}\n") == "x" * failure_causes.LONGEST + " …"


def test_a_line_of_the_program_gains_what_to_do_once() -> None:
    line = "unet train failed with AcceleratorError: CUDA error: an illegal memory access was encountered"
    advised = failure_causes.find_cause(f"profzoo: {line}\n")
    assert advised and advised.startswith(f"{line}; a kernel reads or writes outside its tensors: ")
    assert failure_causes.find_cause(f"profzoo: {advised}\n") == advised


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_the_system_refuses_has_a_cure(number: int) -> None:
    line = failure_causes.explain_os_error(OSError(number, os.strerror(number), "results/a"))
    assert line.startswith(f"results/a: {os.strerror(number)}; ") and "pathvars" in line
    assert failure_causes.explain_os_error(OSError(errno.EIO, "Input/output error")) == "[Errno 5] Input/output error"


@pytest.mark.parametrize("log", ["", "all is well", "Permission denied", "metric found"])
def test_unknown_causes_are_not_guessed(log: str) -> None:
    assert failure_causes.find_cause(log) is None


def test_warnings_of_every_tool_once_and_in_order() -> None:
    log = "WARNING: b\n==WARNING== a\nWarning: c\n  WARNING: inside\n==WARNING== a\n==PROF== d\n"
    assert failure_causes.find_warnings(log) == ["b", "a", "c"]
