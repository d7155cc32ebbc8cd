"""gpu_links: what joins GPUs, by what nvidia-smi prints; and the sizes and files of the probe of these links."""

from pathlib import Path

import pytest

from profzoo.calibration import links
from profzoo.collect import command_line
from profzoo.machine import gpu_links

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
    assert gpu_links.parse_topology(TWO) == {(0, 1): "NV18"}
    assert gpu_links.parse_topology(SIX) == {(0, 1): "PIX", (0, 2): "NODE", (1, 2): "SYS"}
    assert gpu_links.parse_topology("No devices were found\n") == {}


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
    assert gpu_links.read_links(used, UUIDS) == expected


def test_every_process_of_the_probe_is_started(tmp_path: Path) -> None:
    made = {"csv": tmp_path / "l.csv", "sidecar": tmp_path / "l.json"}
    job = {"tool": "links", "cell": {"device": "cuda", "gpus": 4, "nodes": 2}, "environment": []}
    command = command_line.build_command(job, made)
    assert command.launcher == [*command_line.ON_NODES, "2", "4"]
    assert command.program[:3] == ["python", "-m", "profzoo.calibration.links"] and command.leaves == [made["csv"]]


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_sizes_can_be_divided_among_the_processes(processes: int) -> None:
    sizes = links.probe_sizes("cuda", processes)
    assert len(sizes) == 9 and all(size % (4 * processes) == 0 for size in sizes)
    assert sizes == sorted(sizes) and sizes[-1] >= 1 << 28
