"""Clocks that unprofiled processes read, by the stand-in for NVML; comparisons and trials say where they differ."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from profzoo.compare import comparison_table
from profzoo.harness.observers import recorders
from profzoo.tools.sample import gpu_state, nvml
from profzoo.verdicts.rules.cell_facts import read_noted
from tests import nvml as standin

CELL = {"model": "lstm", "phase": "train"}
FAST = {"sm_clock_hz": 1_980_000_000, "throttle_reasons": 0}
SLOW = {"sm_clock_hz": 1_485_000_000, "throttle_reasons": 4}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(autouse=True)
def fresh(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """This process loads the stand-in, as if no library had been loaded before."""
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library / nvml.LIBRARY)))
    yield monkeypatch


def read(uuid: str | None) -> list[Any]:
    clocks = recorders.GpuClocks(uuid)
    found = [clocks.read(), clocks.read()]
    clocks.close()
    clocks.close()
    assert clocks.read() == []
    return found


@pytest.mark.parametrize(("mode", "right"), [("", (1980, 0)), ("locked", (1485, 2)), ("idle", (345, 1))])
def test_clock_and_limits_are_those_of_nvml(fresh: pytest.MonkeyPatch, mode: str, right: tuple[int, int]) -> None:
    fresh.setenv("STANDIN_NVML", mode)
    one = {"sm_clock_hz": right[0] * 10**6, "throttle_reasons": right[1]}
    assert read(standin.UUIDS[0]) == [[one], [one]]


def test_what_cannot_be_read_is_left_out(fresh: pytest.MonkeyPatch) -> None:
    assert read(None) == read("GPU-of-another-machine") == [[], []]
    fresh.setenv("STANDIN_NVML", "mismatched")
    assert read(standin.UUIDS[0]) == [[], []]
    fresh.setattr(pynvml, "nvmlInit", lambda: (_ for _ in ()).throw(pynvml.NVMLError(12)))
    assert read(standin.UUIDS[0]) == [[], []]


def test_readings_of_all_processes_count() -> None:
    several = {"clocks": [FAST], "processes": [{"clocks": [FAST, SLOW]}, {"side": "x"}, {"clocks": [SLOW]}]}
    assert gpu_state.read_clocks(several) == (FAST, SLOW, SLOW) == read_noted(several).clocks
    assert gpu_state.read_clocks({"clocks": [FAST]}) == (FAST,)
    assert gpu_state.read_clocks({}) == () and gpu_state.summarise_clocks([]) is None


def test_a_comparison_says_where_clocks_differ() -> None:
    said = "SM clock 1,980 MHz -> 1,485 MHz (power cap in 2 of 2 readings)"
    one, other = {"clocks": [FAST, FAST]}, {"processes": [{"clocks": [SLOW]}, {"clocks": [SLOW]}]}
    near = {"clocks": [{**FAST, "sm_clock_hz": 1_950_000_000}] * 2}
    assert comparison_table.describe_sidecar_differences(one, other) == [said]
    for pair in ((one, near), (one, {}), ({}, other)):
        assert comparison_table.describe_sidecar_differences(*pair) == []
