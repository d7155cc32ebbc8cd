"""gpu_links: what joins GPUs, by what nvidia-smi prints; and the sizes and files of the probe of these links."""

from pathlib import Path

import pytest
import torch

from profzoo.calibration import links
from profzoo.collect import command_line
from profzoo.machine import gpus

# As drivers from 550 on print it: the header underlined, columns by tabs, some of them doubled, and network cards.
TWO = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t0-31\t0\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
)
SIX = (
    "\x1b[4m\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tPIX\tNODE\t0-23,48-71\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU2\tNODE\tSYS\t X \t24-47\t1\t\tN/A\n"
)
UUIDS = [{"gpu_uuid": f"GPU-{name}"} for name in "abc"]


def test_links_are_read_as_nvidia_smi_prints_them() -> None:
    assert gpus.parse_topology(TWO) == {(0, 1): "NV18"} and gpus.parse_topology("No devices were found\n") == {}
    assert gpus.parse_topology(SIX) == {(0, 1): "PIX", (0, 2): "NODE", (1, 2): "SYS"}


@pytest.mark.parametrize(
    ("used", "printed", "expected"),
    [
        (["GPU-a", "GPU-b"], SIX, "PIX"),
        (["GPU-c", "GPU-a", "GPU-b"], SIX, "NODE, PIX, SYS"),
        (["GPU-a", "GPU-z"], SIX, ""),
        ([None, None], SIX, ""),
        (["GPU-a", "GPU-b"], "", ""),
    ],
)
def test_links_of_a_cell_are_those_between_its_gpus(
    used: list[str | None], printed: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'EOF'\n{printed}EOF\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpus.read_links(used, UUIDS) == expected


def test_every_process_of_the_probe_is_started(tmp_path: Path) -> None:
    made = {"csv": tmp_path / "l.csv", "sidecar": tmp_path / "l.json"}
    job = {"tool": "links", "cell": {"device": "cuda", "gpus": 4, "nodes": 2}, "environment": []}
    command = command_line.build_command(job, made)
    assert command.launcher == [*command_line.ON_NODES, "2", "4"] and command.leaves == [made["csv"]]
    assert command.program[:3] == ["python", "-m", "profzoo.calibration.links"]


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_sizes_can_be_divided_among_the_processes(processes: int) -> None:
    sizes = links.probe_sizes("cuda", processes)
    assert len(sizes) == 9 and all(size % (4 * processes) == 0 for size in sizes)
    assert sizes == sorted(sizes) and sizes[-1] >= 1 << 28


def test_a_rate_is_the_bytes_of_a_call_by_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 processes: each byte of an all-reduce passes a link 2 * 3 / 4 times, and one of an all-gather 3 / 4 times."""
    names = ("all_reduce", "all_gather")
    monkeypatch.setattr(links.dist, "get_world_size", lambda: 4)
    monkeypatch.setattr(links, "make_operations", lambda size, device: dict.fromkeys(names, print))
    monkeypatch.setattr(links, "_time", lambda operate, device: (7, 0.5))
    rows = list(links.measure_links(torch.device("cpu")))
    assert {row[0] for row in rows} == set(names) and len(rows) == 2 * len(links.probe_sizes("cpu", 4))
    for name, size, processes, calls, ns, rate, bus in rows:
        assert (processes, calls, ns, rate) == (4, 7, 5e8, size * 2)
        assert bus == pytest.approx(size * 2 * {"all_reduce": 1.5, "all_gather": 0.75}[name])


def test_a_call_takes_the_shortest_series_of_the_slowest_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call is not counted; one takes 0.1 of what a series should, so 10 calls are one."""
    series: list[int] = []
    times = iter([9.0, links.SERIES_S / 10, *(links.SERIES_S * factor for factor in range(2, 2 + links.SERIES))])

    def run(operate: object, calls: int, device: torch.device) -> float:
        series.append(calls)
        return next(times)

    monkeypatch.setattr(links, "_series", run)
    monkeypatch.setattr(links, "_slowest", lambda seconds, device: seconds)
    calls, seconds = links._time(print, torch.device("cpu"))
    assert series == [2, 1] + [10] * links.SERIES
    assert calls == 10 and seconds == pytest.approx(links.SERIES_S * 2 / 10)
