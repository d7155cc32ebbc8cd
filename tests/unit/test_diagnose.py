"""diagnose: every known cause by a line that a tool prints."""

import importlib

import pytest

from profzoo import tools
from profzoo.collect import diagnose

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
    ("OSError: [Errno 28] No space left on device", "disk"),
    ("Importer error status: An unknown error occurred.", "QdstrmImporter"),
    ("/opt/nsys/QdstrmImporter: error while loading shared libraries: libxcb.so.1", "ldd"),
    ("==WARNING== No kernels were profiled.", "ncu.kernel_name"),
]


@pytest.mark.parametrize(("line", "words"), LINES)
def test_cause(line: str, words: str) -> None:
    assert words in (diagnose.cause(f"$ ncu ...\n==PROF== Connected\n{line}\n") or "")


def test_no_cause_is_left_untested() -> None:
    advices = {diagnose.cause(line) for line, _ in LINES}
    assert advices == {advice for _, advice in diagnose.known()}


def test_the_last_of_the_programs_own_lines_wins() -> None:
    log = "profzoo: first\nsay profzoo: not at the start\nprofzoo: last\nERR_NVGPUCTRPERM\n"
    assert diagnose.cause(log) == "last"


@pytest.mark.parametrize("log", ["", "all is well", "Permission denied", "metric found"])
def test_unknown_causes_are_not_guessed(log: str) -> None:
    assert diagnose.cause(log) is None


def test_warnings_of_every_tool_once_and_in_order() -> None:
    log = "WARNING: b\n==WARNING== a\nWarning: c\n  WARNING: inside\n==WARNING== a\n==PROF== d\n"
    assert diagnose.warnings(log) == ["b", "a", "c"]
