"""What profiles/slurm makes of the workflow, planned on a machine that needs no Slurm for it."""

import re
from pathlib import Path

import pytest
import yaml
from snakemake_executor_plugin_slurm import partitions

from profzoo.collect import transaction
from tests.workflow.project import CHECKOUT, TINY, Project, copy


@pytest.fixture
def login(tmp_path: Path) -> Project:
    """A copy of the project, with the plugin and without a Slurm."""
    return copy(tmp_path / "project", TINY.replace("device: cpu", "device: auto"))


def plan(login: Project, *words: str) -> str:
    """What snakemake would do by the profile."""
    return login.snakemake(*words, "--dry-run", "--workflow-profile", "profiles/slurm").stdout


@pytest.mark.slow
def test_section_sets_are_planned_although_groups_hold_their_census(login: Project) -> None:
    planned = plan(login, "results/lstm/train.ncu.roofline.csv", "results/unet/train.ncu.roofline.csv")
    assert "results/lstm/train.roofline.plan.json" in planned
    by_nsys = ["--config", "tool=ncu,nsys", "models=lstm,unet", "ncu={set: roofline}"]
    assert "results/lstm/train.nsys-launches.csv" in plan(login, "all", *by_nsys)


@pytest.mark.slow
def test_no_two_jobs_write_the_same_file(login: Project) -> None:
    """Jobs of several nodes run at once, and nothing but their files' names keeps them apart."""
    sets = [
        f"results/lstm/{phase}.ncu.{name}.csv" for phase in ("train", "inference") for name in ("roofline", "memory")
    ]
    config = ["--config", "tool=ncu,nsys,torch", "models=lstm,unet,lstm@bf16"]
    planned = plan(login, "all", *sets, *config, "--printshellcmds")
    written = re.findall(r"^ +(?:output|log|benchmark): (.*)$", planned, re.MULTILINE)
    # Where collecting jobs keep what they make until the end.
    sidecars = [Path(sidecar) for sidecar in re.findall(r" sidecar=(\S+\.json)", planned)]
    assert len(sidecars) > 20
    written += [str(transaction.private_home(sidecar)) for sidecar in sidecars]
    paths = [path for line in written for path in line.split(", ")]
    assert len(paths) > 200
    assert sorted(set(paths)) == sorted(paths)


def test_a_shared_file_system_is_waited_for_and_spared_of_temporary_files() -> None:
    profile = yaml.safe_load((CHECKOUT / "profiles/slurm/config.yaml").read_text())
    assert profile["latency-wait"] >= 60
    # What the profile does not say each node decides for itself.
    assert "tmpdir" not in profile.get("default-resources", {})


def test_the_page_shows_a_file_of_partitions_that_the_plugin_reads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(partitions:.*?)```", (CHECKOUT / "docs/guides/cluster.md").read_text(), re.DOTALL)
    (tmp_path / "partitions.yaml").write_text(text)
    cpu, gpu = partitions.read_partition_file(tmp_path / "partitions.yaml")
    assert (cpu.limits.max_gpu, gpu.limits.max_gpu, gpu.limits.available_gpu_models) == (0, 8, ["h200"])
    # Each holds what the rules ask of it.
    assert cpu.limits.max_mem_mb >= 8000 and gpu.limits.max_mem_mb >= 8 * 16000 and gpu.limits.max_runtime >= 120
