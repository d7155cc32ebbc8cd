"""What jobs ask for: said by the rules, changed only in what a command line names, for ncu taken from its plan."""

import json
import re
from pathlib import Path

import pytest

from tests.workflow.project import ONE_MODEL, Project, copy

# A dry run counts the cores of this machine, which a submitted job does not.
SLURM = ["--workflow-profile", "profiles/slurm", "--cores", "64"]
COLLECTED = {"gpu": "1", "runtime": "30", "mem_mb": "16000", "threads": "4", "nodes": "1"}
TIMED, TRACED = "results/lstm/train.time.csv", "results/lstm/train.torch-operators.csv"
CENSUS, PLANNED = "results/lstm/train.launch.ncu-rep", "results/lstm/train.roofline.ncu-rep"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copy(tmp_path_factory.mktemp("resources") / "project", ONE_MODEL.replace("device: cpu", "device: auto"))


def asked(project: Project, outputs: tuple[str, ...], *words: str) -> list[dict[str, str]]:
    """What the jobs that make files ask for, their threads among that."""
    printed = project.snakemake(*outputs, "--dry-run", *words).stdout
    blocks = re.split(r"\n *(?=rule \w+:\n)", printed)
    found = []
    for output in outputs:
        (block,) = [part for part in blocks if re.search(rf"output: {re.escape(output)}\b(?!\.json)", part)]
        resources = re.findall(r"^ +resources: (.*)$", block, re.MULTILINE)[0].split(", ")
        threads = re.findall(r"^ +threads: (\d+)$", block, re.MULTILINE) or ["1"]
        found.append(dict(part.split("=") for part in resources) | {"threads": threads[0]})
    return found


def test_a_job_asks_for_what_its_cell_takes_and_a_command_line_changes_only_what_it_names(project: Project) -> None:
    variants = ["--config", "variants={four: {gpus: 4}, far: {gpus: 2, nodes: 2}}"]
    outputs = (TIMED, "results/lstm@four/train.time.csv", "results/lstm@far/train.time.csv", CENSUS, PLANNED,
               "results/lstm/train.torch.csv")  # fmt: skip
    plain, four, far, census, planned, light = asked(project, outputs, *SLURM, *variants)
    assert COLLECTED.items() <= plain.items()
    assert {"gpu": "4", "mem_mb": "64000", "threads": "16", "nodes": "1"}.items() <= four.items()
    # Memory and cores are those of a node.
    of_nodes = {"gpu": "4", "mem_mb": "32000", "threads": "8", "nodes": "2", "tasks": "2", "mpi": "srun"}
    assert of_nodes.items() <= far.items()
    # Until the plan is made it says nothing; Snakemake asks again before the job starts.
    assert (census["runtime"], planned["runtime"]) == ("120", "<TBD>")
    assert {"runtime": "5", "mem_mb": "4000", "threads": "1"}.items() <= light.items() and "gpu" not in light
    words = ["--set-resources", "time_training:runtime=60", "time_training:mem_mb=64000"]
    words += ["--default-resources", "slurm_partition=gpu", "--set-threads", "time_training=16"]
    (changed,) = asked(project, (TIMED,), *SLURM, *words)
    named = {"runtime": "60", "mem_mb": "64000", "slurm_partition": "gpu", "threads": "16"}
    others = {key: value for key, value in plain.items() if key not in ("mem", "mem_mib")}
    assert changed.items() >= (others | named).items()


def test_a_cell_of_the_cpu_asks_for_no_gpu(project: Project) -> None:
    on_cpu = ["--config", "device=cpu"]
    for found in asked(project, (TIMED, TRACED, "results/peaks/cpu.csv"), *SLURM, *on_cpu):
        assert "gpu" not in found and {"mem_mb": "8000", "threads": "2"}.items() <= found.items()


@pytest.mark.slow
def test_on_one_machine_a_cell_takes_the_gpu_and_one_core(project: Project) -> None:
    """Whatever it runs on, one at a time."""
    assert asked(project, (TIMED,), "-j8", "--config", "device=cpu")[0]["gpu"] == "1"
    assert asked(project, (TIMED,), "-j8", "--resources", "gpu=8")[0]["threads"] == "1"


@pytest.mark.slow
def test_ncu_has_the_time_that_its_plan_needs(project: Project) -> None:
    plan = project.root / "results/lstm/train.roofline.plan.json"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(json.dumps({"estimate_s": 1000}))
    # Ten minutes and twice the estimate.
    assert asked(project, (PLANNED,), *SLURM)[0]["runtime"] == "44"
    assert asked(project, (PLANNED,), *SLURM, "--attempt", "2")[0]["runtime"] == "88"
    # Of a damaged one the job says what is wrong.
    for damaged in ('{"estimate_s": 10', "{}", '{"estimate_s": "x"}', "[]"):
        plan.write_text(damaged)
        assert asked(project, (PLANNED,), *SLURM)[0]["runtime"] == "120"
    plan.unlink()


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
