"""The workflow by profiles/kubernetes: what it plans, and a cell through a stand-in cluster that shares no files."""

import re
import subprocess
from pathlib import Path

import pytest
from snakemake.cli import get_argument_parser

from tests.workflow.batch import small
from tests.workflow.pods import Pods, serving
from tests.workflow.project import CHECKOUT, Project

PROFILE = ["--workflow-profile", "profiles/kubernetes"]
PROGRAMS = {
    # Neither copies nor installs over a network: this machine need not have rsync, and its python has the plugin.
    "rsync": 'for word; do case $word in -*) ;; *) from=$to; to=$word ;; esac; done\nexec cp -rpL "$from" "$to"',
    "pip": "exit 0",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = small(tmp_path / "project")
    (tmp_path / "programs").mkdir()
    for name, body in PROGRAMS.items():
        (tmp_path / "programs" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "programs" / name).chmod(0o755)
    made.path = (tmp_path / "programs",)
    # Snakemake sends to the pods what git has.
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=made.root, check=True)
    return made


def storing(root: Path) -> list[str]:
    """The profile, for a project that lies elsewhere than it says."""
    return [*PROFILE, "--default-storage-prefix", str(root)]


def test_everything_is_planned_without_a_cluster(project: Project) -> None:
    planned = project.snakemake("all", "--dry-run", *storing(project.root), "--config", "tool=ncu,nsys,torch").stdout
    counts = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", planned, re.MULTILINE)}
    collecting = {"time_training": 1, "time_inference": 1, "profile_ncu": 2, "profile_nsys": 2, "profile_torch": 2}
    assert collecting.items() <= counts.items()
    assert {"export_ncu": 2, "export_nsys": 2, "tabulate": 1, "write_report": 1}.items() <= counts.items()
    # A rule that snakemake takes for local would run where it was called, without a GPU.
    assert "rule profile_torch:" in planned and "localrule" not in planned


@pytest.mark.slow
def test_everything_is_made_in_pods_that_share_no_files(project: Project, recorded: Path, tmp_path: Path) -> None:
    project.recording = recorded
    (tmp_path / "pods").mkdir()
    pods = Pods(tmp_path / "pods", project.environment())
    with serving(pods) as cluster:
        (tmp_path / "kubeconfig").write_text(cluster)
        project.variables = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
        mine = [*storing(project.root), "--seconds-between-status-checks", "1"]
        # Kubernetes' client looks for its configuration as it is imported.
        code, output = project.ended("all", "--configfile", "tiny.yaml", *mine)
        assert code == 0, output + pods.logs()
        assert project.dry("all", *mine) == []
        assert project.read("results/report.html") and project.read("results/lstm/inference.torch.csv")
        (project.root / "results/own.txt").touch()
        assert project.ended("clean", "--configfile", "tiny.yaml", *mine)[0] == 0
    assert [path.name for path in (project.root / "results").rglob("*")] == ["own.txt"]
    containers = [spec["containers"][0] for spec in pods.specs]
    with_gpu = [one for one in containers if "nvidia.com/gpu" in one["resources"]["requests"]]
    # Two cells are collected twice on a GPU; exports go together, as do tables, figures and report.
    assert len(with_gpu) == 4 and len(containers) - len(with_gpu) <= 3
    for one in with_gpu:
        # Without a limit Kubernetes gives no GPU.
        assert {"cpu": "4000m", "memory": "16000M", "nvidia.com/gpu": "1"}.items() <= one["resources"]["limits"].items()
    for one in containers:
        assert one["image"] == "profzoo:latest" and "securityContext" not in one
        assert {"name": "profzoo", "mountPath": "/profzoo"} in one["volumeMounts"]


def test_the_profile_asks_for_no_privileges() -> None:
    """The plugin takes any value of that key for true."""
    parser = get_argument_parser([str(CHECKOUT / "profiles" / "kubernetes")])
    assert parser.parse_args([]).kubernetes_privileged is not True
