"""What jobs ask for: said by the rules, changed only in what a command line names, for ncu taken from its plan."""

import json
import re
from pathlib import Path

import pytest

from tests.workflow.project import ONE_MODEL, Project, copy

# A dry run counts the cores of this machine, which a submitted job does not.
SLURM = ["--workflow-profile", "profiles/slurm", "--cores", "64"]
COLLECTED = {"gpu": "1", "runtime": "30", "mem_mb": "16000", "threads": "4", "nodes": "1"}
CENSUS = "results/lstm/train.launch.ncu-rep"
PLANNED = "results/lstm/train.roofline.ncu-rep"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy(tmp_path_factory.mktemp("resources") / "project", ONE_MODEL.replace("device: cpu", "device: auto"))


def asked(project: Project, output: str, *words: str) -> dict[str, str]:
    """What the job that makes a file asks for, its threads among that."""
    planned = project.snakemake(output, "--dry-run", *words).stdout
    (block,) = [part for part in re.split(r"\n *(?=rule \w+:\n)", planned) if f"output: {output}" in part]
    found = dict(part.split("=") for part in re.findall(r"^ +resources: (.*)$", block, re.MULTILINE)[0].split(", "))
    return found | {"threads": (re.findall(r"^ +threads: (\d+)$", block, re.MULTILINE) or ["1"])[0]}


def test_a_command_line_changes_only_what_it_names(project: Project) -> None:
    target = "results/lstm/train.time.csv"
    plain = asked(project, target, *SLURM)
    assert COLLECTED.items() <= plain.items()
    longer = asked(project, target, *SLURM, "--set-resources", "time_training:runtime=60", "time_training:mem_mb=64000")
    assert longer.items() >= (COLLECTED | {"runtime": "60", "mem_mb": "64000"}).items()
    elsewhere = asked(project, target, *SLURM, "--default-resources", "slurm_partition=gpu")
    assert elsewhere.items() >= (plain | {"slurm_partition": "gpu"}).items()
    wider = asked(project, target, *SLURM, "--set-threads", "time_training=16")
    assert wider == plain | {"threads": "16"}


@pytest.mark.slow
def test_a_job_that_exports_asks_for_little(project: Project) -> None:
    light = asked(project, "results/lstm/train.torch.csv", *SLURM)
    assert {"runtime": "5", "mem_mb": "4000", "threads": "1"}.items() <= light.items() and "gpu" not in light


def test_a_cell_on_several_gpus_asks_for_all_that_these_take(project: Project) -> None:
    four = ["--config", "variants={four: {gpus: 4}, far: {gpus: 2, nodes: 2}}"]
    found = asked(project, "results/lstm@four/train.time.csv", *SLURM, *four)
    assert {"gpu": "4", "mem_mb": "64000", "threads": "16", "nodes": "1"}.items() <= found.items()
    # Memory and cores are those of a node.
    found = asked(project, "results/lstm@far/train.time.csv", *SLURM, *four)
    expected = {"gpu": "4", "mem_mb": "32000", "threads": "8", "nodes": "2", "tasks": "2", "mpi": "srun"}
    assert expected.items() <= found.items()


def test_a_cell_of_the_cpu_asks_for_no_gpu(project: Project) -> None:
    on_cpu = ["--config", "device=cpu"]
    for output in ("results/lstm/train.time.csv", "results/lstm/train.torch-operators.csv", "results/peaks/cpu.csv"):
        found = asked(project, output, *SLURM, *on_cpu)
        assert "gpu" not in found and {"mem_mb": "8000", "threads": "2"}.items() <= found.items(), output
    # On this machine one cell at a time has it, whatever it runs on.
    assert asked(project, "results/lstm/train.time.csv", "-j8", *on_cpu)["gpu"] == "1"


@pytest.mark.slow
def test_on_one_machine_a_job_counts_as_one_core(project: Project) -> None:
    assert asked(project, "results/lstm/train.time.csv", "-j8", "--resources", "gpu=8")["threads"] == "1"


def test_ncu_has_the_time_that_its_plan_needs(project: Project) -> None:
    """Until the plan is made it says nothing; Snakemake asks again before the job starts."""
    assert asked(project, CENSUS, *SLURM)["runtime"] == "120"
    assert asked(project, PLANNED, *SLURM)["runtime"] == "<TBD>"
    plan = project.root / "results/lstm/train.roofline.plan.json"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(json.dumps({"estimate_s": 1000}))
    # Ten minutes and twice the estimate.
    assert asked(project, PLANNED, *SLURM)["runtime"] == "44"
    assert asked(project, PLANNED, *SLURM, "--attempt", "2")["runtime"] == "88"
    # Of a damaged one the job says what is wrong.
    for damaged in ('{"estimate_s": 10', "{}", '{"estimate_s": "x"}', "[]"):
        plan.write_text(damaged)
        assert asked(project, PLANNED, *SLURM)["runtime"] == "120"


@pytest.mark.slow
def test_modules_are_named_only_where_they_are_to_be_loaded(ncu_built: Project, tmp_path: Path) -> None:
    """Their names count as software: naming them unasked would profile again what is there."""
    assert ncu_built.dry("results/lstm/train.ncu.csv") == []
    named = ["--config", "ncu={envmodules: nsight-compute/2025.3}"]
    assert ncu_built.dry("results/lstm/train.ncu.csv", *named) == []
    (tmp_path / "modules.sh").write_text('module() { echo "module $*" >> "$MODULES"; }\nexport -f module\n')
    ncu_built.variables = {"BASH_ENV": str(tmp_path / "modules.sh"), "MODULES": str(tmp_path / "said")}
    loaded = ["--sdm", "env-modules"]
    assert {job.rule for job in ncu_built.dry("results/lstm/train.ncu.csv", *named, *loaded)} >= {"profile_ncu"}
    ncu_built.snakemake("results/lstm/train.ncu.csv", *named, *loaded)
    said = (tmp_path / "said").read_text().splitlines()
    assert set(said) == {"module purge", "module load nsight-compute/2025.3"}
    ncu_built.variables = {}
