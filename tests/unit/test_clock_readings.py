"""Clocks that unprofiled processes read, by the stand-in for NVML; comparisons and trials say where they differ."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profzoo.compare import differences
from profzoo.import_graph import PROJECT
from profzoo.tools.sample import clock_readings
from profzoo.verdicts.noted_facts import read_noted
from tests import nvml as standin

CELL = {"model": "lstm", "phase": "train"}
FAST, SLOW = (
    {"sm_clock_hz": 1_980_000_000, "throttle_reasons": 0},
    {"sm_clock_hz": 1_485_000_000, "throttle_reasons": 4},
)
READ = (
    "import json, sys; from profzoo.harness.gpu_clocks import GpuClocks\n"
    "clocks = GpuClocks(sys.argv[1] if len(sys.argv) > 1 else None)\n"
    "print(json.dumps([clocks.read(), clocks.read()])); clocks.close(); clocks.close(); print(clocks.read())"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.built(tmp_path_factory.mktemp("nvml"))


def read(library: Path, *uuid: str, **more: str) -> list[Any]:
    """What a process reads twice."""
    words, env = [sys.executable, "-c", READ, *uuid], standin.environment(library, **more)
    done = subprocess.run(words, cwd=PROJECT, env=env, capture_output=True, text=True, check=True, timeout=60)
    first, second = done.stdout.splitlines()
    assert second == "[]"
    return json.loads(first)


@pytest.mark.parametrize(("mode", "right"), [("", (1980, 0)), ("locked", (1485, 2)), ("idle", (345, 1))])
def test_clock_and_limits_are_those_of_nvml(library: Path, mode: str, right: tuple[int, int]) -> None:
    one = {"sm_clock_hz": right[0] * 10**6, "throttle_reasons": right[1]}
    assert read(library, standin.UUIDS[0], STANDIN_NVML=mode) == [[one], [one]]


def test_what_cannot_be_read_is_left_out(library: Path, tmp_path: Path) -> None:
    assert read(library) == [[], []]
    assert read(library, "GPU-of-another-machine") == [[], []]
    assert read(library, standin.UUIDS[0], STANDIN_NVML="mismatched") == [[], []]
    # Here is no library at all.
    assert read(tmp_path, standin.UUIDS[0]) == [[], []]


def test_readings_of_all_processes_count() -> None:
    several = {"clocks": [FAST], "processes": [{"clocks": [FAST, SLOW]}, {"side": "x"}, {"clocks": [SLOW]}]}
    assert clock_readings.read_clocks(several) == (FAST, SLOW, SLOW) == read_noted(several).clocks
    assert clock_readings.read_clocks({"clocks": [FAST]}) == (FAST,)
    assert clock_readings.read_clocks({}) == () and clock_readings.summarise_clocks([]) is None


def test_a_comparison_says_where_clocks_differ() -> None:
    said = "SM clock 1,980 MHz -> 1,485 MHz (power cap in 2 of 2 readings)"
    one, other = {"clocks": [FAST, FAST]}, {"processes": [{"clocks": [SLOW]}, {"clocks": [SLOW]}]}
    assert differences.describe_sidecar_differences(one, other) == [said]
    near = {"clocks": [{**FAST, "sm_clock_hz": 1_950_000_000}] * 2}
    assert not differences.describe_sidecar_differences(one, near)
    assert not differences.describe_sidecar_differences(one, {}) + differences.describe_sidecar_differences({}, other)
