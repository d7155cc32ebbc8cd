"""The profiles of batch systems: each gives every rule its place, and says nothing that snakemake does not know."""

import re
from pathlib import Path

import pytest
import yaml
from snakemake.cli import get_argument_parser

PROJECT = Path(__file__).parents[2]
CLUSTERS = ("slurm", "generic", "kubernetes")
EVERY = pytest.mark.parametrize("name", CLUSTERS)
# Those that run where snakemake was called, or only name other rules' files.
LOCAL = {"figures", "report", "doctor", "clean"}


def profile(name: str) -> dict[str, object]:
    return yaml.safe_load((PROJECT / "profiles" / name / "config.yaml").read_text())


def rules() -> dict[str, str]:
    """The text of every rule but the local ones."""
    text = "".join(path.read_text() for path in sorted((PROJECT / "workflow/rules").glob("*.smk")))
    parts = re.split(r"^rule (\w+):$", text, flags=re.MULTILINE)[1:]
    return {name: body for name, body in zip(parts[::2], parts[1::2], strict=True) if name not in LOCAL}


def test_every_profile_is_looked_at() -> None:
    assert {path.parent.name for path in PROJECT.glob("profiles/*/config.yaml")} == {*CLUSTERS, "default"}


@EVERY
def test_every_rule_has_its_place(name: str) -> None:
    said = profile(name)
    collecting = {
        rule for rule, body in rules().items() if re.search(r"^        (gpu=1|\*\*on_gpus\(.*\)),$", body, re.MULTILINE)
    }
    assert len(collecting) == 9
    assert set(said["set-resources"]) == collecting
    assert set(said["groups"]) == set(rules()) - collecting
    assert set(said["group-components"]) <= set(said["groups"].values())
    assert set(said.get("set-threads", collecting)) == collecting


@EVERY
def test_groups_and_memory_are_those_of_the_other_profiles(name: str) -> None:
    one, other = profile(name), profile("slurm")
    for key in ("groups", "group-components", "jobs", "keep-going", "rerun-incomplete"):
        assert one[key] == other[key]
    memory = {rule: asked["mem_mb"] for rule, asked in one["set-resources"].items()}
    assert memory == {rule: asked["mem_mb"] for rule, asked in other["set-resources"].items()}


@EVERY
def test_snakemake_knows_every_key(name: str) -> None:
    parser = get_argument_parser([str(PROJECT / "profiles" / name)])
    known = {option for action in parser._actions for option in action.option_strings}
    assert {f"--{key}" for key in profile(name)} <= known


@EVERY
def test_limits_are_those_of_a_job_and_not_of_the_cluster(name: str) -> None:
    """A limit that is not local to a job would hold the whole cluster to it, and a group without one has no bounds."""
    said = profile(name)
    assert said["set-resource-scopes"] == dict.fromkeys(said["resources"], "local")
    assert {"mem_mb"} <= set(said["resources"]) <= {"mem_mb", "cpus_per_task"}
    for asked in said["set-resources"].values():
        assert all(asked.get(key, 0) <= limit for key, limit in said["resources"].items())
        assert asked.get("cpus_per_task", 0) <= said["cores"]
