"""Runs about 300 tests and two models with each supported release of Python, torch and Snakemake: `make versions`.

Each row of the matrix gets an environment of its own, which is removed afterwards: 6 GB, and minutes on two cores. No
GPU is needed. uv finds or downloads the Python of each row.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """What one environment holds.

    name: how the row is chosen. python: its release. wanted: requirements that narrow those of pyproject.toml.
    lowest: whether every dependency that pyproject.toml names has its oldest allowed release. lock: a lock to install
    instead.
    """

    name: str
    python: str
    wanted: tuple[str, ...] = ()
    lowest: bool = False
    lock: str = ""


# torch 2.11 with Python 3.11, which is requirements.lock, has the whole suite in CI.
ROWS = (
    Row("oldest", "3.11", ("torch==2.8.*", "snakemake==9.27.0"), lowest=True),
    Row("torch-2.9", "3.12", ("torch==2.9.*",)),
    Row("cuda12", "3.13", lock="requirements-cuda12.lock"),
    Row("torch-2.14", "3.12", ("torch==2.14.*",)),
    Row("newest", "3.14"),
)
# What uses torch, pandas, Snakemake and Matplotlib most, of all parts of the package, and is fast.
TESTS = (
    "test_cell_tables", "test_document_zoo", "test_figures", "test_foreign_torch", "test_harness_numbers", "test_lstm",
    "test_memory_blocks", "test_module_ranges", "test_output_samples", "test_peaks", "test_results",
    "test_snakemake_internals", "test_torch_tables", "test_work_patterns", "test_workflow_jobs",
)  # fmt: skip
# Training and inference of two models, each under torch.profiler on the CPU, with tables, figures and page.
CELLS = """\
tool: torch
models: [mobilenetv2, lstm]
device: cpu
warmup: 1
time: {window: 2}
torch: {window: 1}
settings:
  mobilenetv2: {batch: 2, size: 64}
  lstm: {sequence_length: 8}
"""
MADE = [f"{model}/{phase}.torch.csv" for model in ("mobilenetv2", "lstm") for phase in ("train", "inference")]
SHOWN = ("torch", "torchvision", "snakemake", "pandas", "numpy")
VERSIONS = f"""
import json, platform
from importlib import metadata
print(json.dumps([platform.python_version(), *map(metadata.version, {SHOWN!r})]))
"""


def install(row: Row, folder: Path) -> Path:
    """Make the environment of a row in a folder; returns its Python.

    Raises:
        CalledProcessError: uv finds no such Python, or no releases that fit together.
    """
    run(["uv", "venv", "--quiet", "--python", row.python, folder])
    python = folder / "bin/python"
    pip = ["uv", "pip", "install", "--quiet", "--python", python]
    if row.lock:
        run([*pip, "--require-hashes", "--no-deps", "--requirement", row.lock])
        return python
    resolution = "lowest-direct" if row.lowest else "highest"
    run([*pip, "--resolution", resolution, *row.wanted, "--requirement", "pyproject.toml"])
    # The tests' own packages are always of today.
    run([*pip, "pytest", "psutil", "pillow", "setuptools", "pyyaml"])
    return python


def run(command: Sequence[object], **named: object) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder; an error ends it."""
    return subprocess.run(list(map(str, command)), cwd=PROJECT, text=True, check=True, **named)


def test_and_profile(python: Path, results: Path) -> list[str]:
    """Run tests and cells with the Python of a row; returns what to show of it: versions, tests and cells."""
    versions = json.loads(run([python, "-c", VERSIONS], stdout=subprocess.PIPE).stdout)
    # Threads that spin would slow down whatever else this machine does.
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment = os.environ | threads | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    files = [f"tests/unit/{name}.py" for name in TESTS]
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", results / "pytest", *files]
    tested = subprocess.run(pytest, cwd=PROJECT, text=True, check=False, env=environment, stdout=subprocess.PIPE)
    last = (tested.stdout.strip().splitlines() or ["no output"])[-1]
    if tested.returncode:
        print(tested.stdout, flush=True)
    config = results / "config.yaml"
    config.write_text(CELLS)
    words = ["--snakefile", PROJECT / "Snakefile", "--directory", results, "--configfile", config]
    profiled = subprocess.run(
        list(map(str, [python, "-m", "snakemake", "report", *words])), cwd=results, check=False, env=environment
    )
    lacking = [path for path in MADE if not (results / "results" / path).is_file()]
    cells = f"{len(MADE)} profiled" if not profiled.returncode and not lacking else "failed"
    return [*versions, re.sub(r" in [\d.]+s.*|=+ ?", "", last), cells]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.version_matrix", description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"names of rows, all by default: {', '.join(row.name for row in ROWS)}")
    names = parser.parse_args(arguments).rows
    if unknown := set(names) - {row.name for row in ROWS}:
        parser.error(f"no row {', '.join(sorted(unknown))}")
    lines, failed = [], False
    for row in ROWS:
        if names and row.name not in names:
            continue
        started = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="profzoo-versions-"))
        try:
            shown = test_and_profile(install(row, folder / "env"), folder)
        except subprocess.CalledProcessError as error:
            shown = ["-"] * (1 + len(SHOWN)) + [f"not installed: {' '.join(error.cmd)[:60]} failed", "-"]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        failed |= "failed" in " ".join(shown) or "error" in " ".join(shown)
        lines.append(f"| {' | '.join([row.name, *shown, f'{(time.monotonic() - started) / 60:.0f} min'])} |")
        print(lines[-1], flush=True)
    head = ["row", "Python", *SHOWN, "tests", "cells", "duration"]
    print("\n".join(["", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
