"""The pages of ncu through the workflow, printed by a real ncu of NVIDIA's own report, which stands for what was profiled.

tests/tools/install-ncu.sh sets both up.
"""

import csv
import io
import json
import os
import sys
from pathlib import Path

import pytest

from tests.workflow.project import STANDINS, TINY, Project, copy

FOLDER = os.environ.get("PROFZOO_NCU", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="PROFZOO_NCU names no folder of ncu; tests/tools/install-ncu.sh"),
]
# Profiles by the stand-in, and leaves a real report in place of its own; prints by the real ncu.
WRAPPER = """#!{python}
import os, shutil, subprocess, sys
words = sys.argv[1:]
if "--export" not in words:
    os.execv({real!r}, [{real!r}, *words])
code = subprocess.run([{python!r}, {standin!r}, *words]).returncode
report = words[words.index("--export") + 1].removesuffix(".ncu-rep") + ".ncu-rep"
if not code:
    shutil.copy({report!r}, report)
sys.exit(code)
"""
CELL = "results/lstm/train"
# Every launch is profiled, as the report holds one.
EVERY = ("--config", "ncu={launches: all, sass: true}")


@pytest.fixture
def printing(tmp_path: Path) -> Project:
    """A project whose ncu prints real pages."""
    project = copy(tmp_path / "project", TINY.replace("device: cpu", "device: auto"))
    programs = tmp_path / "programs"
    programs.mkdir()
    (report,) = Path(FOLDER, "examples").rglob("addConstDouble3.ncu-rep")
    names = {"real": str(Path(FOLDER, "bin", "ncu")), "standin": str(STANDINS / "ncu"), "report": str(report)}
    (programs / "ncu").write_text(WRAPPER.format(python=sys.executable, **names))
    (programs / "ncu").chmod(0o755)
    project.path = (programs, STANDINS)
    return project


def table(project: Project, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(project.read(f"{CELL}.{name}"))))


def test_lines_samples_and_advice_of_a_set_are_made_by_name(printing: Project) -> None:
    names = ("ncu-source.full.csv", "ncu-instances.full.csv", "ncu-details.full.csv", "ncu-timeline.full.png")
    run = printing.snakemake(*(f"{CELL}.{name}" for name in names), *EVERY)
    assert "addConstDouble3: 31% of its warp samples are at uncoalescedGlobalAccesses.cu:56" in run.stdout + run.stderr
    lines = [row for row in table(printing, names[0]) if row["level"] == "line"]
    (loads,) = (row for row in lines if row["line"] == "55")
    assert loads["source"] == "double3 a = d_in[index];" and float(loads["l2_sectors_global"]) == 3 * 786_432
    kinds = {row["kind"] for row in table(printing, names[1])}
    assert {"time", "opcode", "occupancy"} <= kinds
    advice = [row for row in table(printing, names[2]) if row["Rule Type"] == "OPT"]
    assert any("uncoalesced global accesses" in row["Rule Description"] for row in advice)
    assert (printing.root / f"{CELL}.{names[3]}").stat().st_size > 10_000
    # Another number of kernels makes the tables again, and profiles nothing.
    words = "ncu={launches: all, sass: true, detailed_kernels: 2}"
    jobs = {job.rule for job in printing.dry(f"{CELL}.{names[0]}", "--config", words)}
    assert jobs == {"export_ncu_source"}


def test_the_shipped_sets_profile_one_launch_of_each_configuration(printing: Project) -> None:
    names = ("ncu-source.source.csv", "ncu-instances.instances.csv")
    printing.snakemake(*(f"{CELL}.{name}" for name in names))
    assert all(len(table(printing, name)) > 30 for name in names)
    told = {name: json.loads(printing.read(f"{CELL}.{name}.ncu-rep.json")) for name in ("source", "instances")}
    source, instances = (" ".join(told[name]["command"]) for name in ("source", "instances"))
    assert "--import-sass yes --import-source yes" in source and "--section SourceCounters" in source
    # ncu derives opcodes from machine code.
    assert "--import-sass yes" in instances and "--section PmSampling --section PmSampling_WarpStates" in instances
    for command in (source, instances):
        assert "--filter-mode per-launch-config --launch-count 1" in command and "--replay-mode kernel" in command
