"""What goes wrong on a real GPU ends in one line that says so, loses nothing, and leaves the GPU's memory free."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import family
from tests.gpu import faulty
from tests.workflow.project import finished, heed_interrupts

PROJECT = Path(__file__).parents[2]
LINES = {
    "memory": "ran out of memory at batch 1: set a smaller batch, or batch: auto to find one. CUDA out of memory.",
    "illegal": "an illegal memory access was encountered; a kernel reads or writes outside its tensors: run the log's "
    "command under `compute-sanitizer`, which names it",
    "index": "device-side assert triggered; most often an index out of range",
}
FILES = {
    "time": "train.time.csv", "nsys": "train.nsys.csv", "torch": "train.torch.csv", "sample": "train.sample.csv",
    "ncu": "train.ncu.launch.csv",
}  # fmt: skip
# Keeps a GPU busy, as another user's program.
BUSY = """
import sys, time, torch
numbers = torch.ones(1024, 1024, device="cuda")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    numbers = (numbers @ numbers).clamp(-1, 1)
    torch.cuda.synchronize()
"""
COUNTERS = "another tool holds the GPU's performance counters, most often DCGM: pause it"
FREE_MIB = 64


def used_mib() -> int:
    """The memory of all GPUs that is in use."""
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(int(line) for line in subprocess.check_output(words, text=True).split())


def configured(folder: Path, **settings: dict[str, object]) -> tuple[list[str], Path]:
    """Words of snakemake for a model of that name and these settings, and its folder of results."""
    models = {name: {"module": faulty.__name__, **given} for name, given in settings.items()}
    results = folder / "results"
    told = {
        "models": list(models), "settings": models, "phases": ["train"], "environment": ["MARK"],
        "pathvars": {"results": str(results)},
    }  # fmt: skip
    # JSON is YAML.
    (folder / "given.yaml").write_text(json.dumps(told))
    return ["--nolock", "-j8", "--keep-going", "--configfile", str(folder / "given.yaml")], results


def snakemake(folder: Path, words: list[str], targets: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", *map(str, targets), *words]
    return subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False, env={**os.environ, "MARK": str(folder)}
    )


def causes(printed: str) -> dict[str, str]:
    """What each block of a failed run says, by `model tool`."""
    found = re.findall(r"^  (\w+) train(?: \w+)?: (\w+)\n    why +(.*)$", printed, re.MULTILINE)
    return {f"{model} {tool}": why for model, tool, why in found}


@contextmanager
def beside(folder: Path, *before: str, seconds: int = 60) -> Iterator[None]:
    """Another program at work on the GPU, after these words."""
    command = [*before, sys.executable, "-c", BUSY, str(seconds)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        family.until(lambda: used_mib() > FREE_MIB, 60)
        time.sleep(2)
        yield
    finally:
        process.terminate()
        process.wait()
        family.until(lambda: used_mib() <= FREE_MIB, 60)


def test_each_fault_is_one_line_under_every_tool(tmp_path: Path) -> None:
    words, results = configured(tmp_path, **{name: {"fault": name} for name in LINES}, fine={"fault": "none"})
    before = used_mib()
    targets = [results / name / file for name in (*LINES, "fine") for file in FILES.values()]
    run = snakemake(tmp_path, words, targets)
    assert run.returncode
    found = causes(run.stderr)
    assert set(found) == {f"{name} {tool}" for name in LINES for tool in FILES}
    for cell, why in found.items():
        assert LINES[cell.split()[0]] in why, cell
    made = {path.parent.name for path in results.rglob("*") if path.is_file() and "logs" not in path.parts}
    assert "fine" in made and not made & set(LINES)
    assert all((results / "fine" / file).exists() for file in FILES.values())
    assert used_mib() <= before + FREE_MIB


def test_counters_that_another_profiler_holds_are_said(tmp_path: Path) -> None:
    words, results = configured(tmp_path, fine={"fault": "none"})
    target = results / "fine" / FILES["ncu"]
    with beside(tmp_path, "nsys", "profile", "--gpu-metrics-devices=all", "-o", str(tmp_path / "other")):
        refused = snakemake(tmp_path, words, [target])
    assert refused.returncode and causes(refused.stderr)["fine ncu"].startswith(COUNTERS) and not target.exists()
    assert snakemake(tmp_path, words, [target]).returncode == 0


def test_what_shares_the_gpu_is_said(tmp_path: Path) -> None:
    words, results = configured(tmp_path, fine={"fault": "none"})
    target = results / "fine" / FILES["time"]
    with beside(tmp_path):
        run = snakemake(tmp_path, words, [target])
    assert run.returncode == 0 and "another process used the GPU" in run.stderr
    assert any("another process" in line for line in json.loads(Path(f"{target}.json").read_text())["warnings"])


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        ("time", "snakemake"),
        ("nsys", "wrapper"),
        ("nsys", "nsys"),
        ("ncu", "ncu"),
        ("ncu", "wrapper"),
        ("nsys", "model"),
    ],
)
def test_a_kill_frees_the_gpu(tmp_path: Path, tool: str, kind: str) -> None:
    words, results = configured(tmp_path, fine={"fault": "none", "pause_ms": 120_000})
    before, target = used_mib(), results / "fine" / FILES[tool]
    command = [sys.executable, "-m", "snakemake", str(target), *words]
    run = subprocess.Popen(
        command, cwd=PROJECT, env={**os.environ, "MARK": str(tmp_path)}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, process_group=0, preexec_fn=heed_interrupts,
    )  # fmt: skip
    try:
        family.until(lambda: used_mib() > before + FREE_MIB, 90)
        os.kill(family.member(f"MARK={tmp_path}", kind), signal.SIGKILL)
        # nsys writes its report once the model has gone.
        took = family.until(lambda: used_mib() <= before + FREE_MIB, family.SECONDS)
        print(f"{kind} of {tool}: the GPU's memory was free after {took:.1f} s")
    finally:
        code, output = finished(run, 120)
    assert code and not target.exists(), output
    assert family.marked(f"MARK={tmp_path}") == {}
    words, _ = configured(tmp_path, fine={"fault": "none"})
    again = snakemake(tmp_path, words, [target])
    assert again.returncode == 0 and target.exists(), again.stdout + again.stderr
