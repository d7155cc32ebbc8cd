"""The profiles of batch systems: what they say, and that snakemake knows it. What jobs ask for stands in the rules."""

import re
from pathlib import Path

import pytest
import yaml
from snakemake.cli import get_argument_parser

PROJECT = Path(__file__).parents[2]
CLUSTERS = ("slurm", "generic", "kubernetes")
EVERY = pytest.mark.parametrize("name", CLUSTERS)
# Those that run where snakemake was called, or only name other rules' files.
LOCAL = {"all", "figures", "report", "doctor", "metrics", "serve", "share", "status", "verify", "clean", "compare"}
LOCAL |= {"trials", "help", "import", "perfetto"}
COLLECTING = r"^        \*\*(RESOURCES\.)?on_(one_gpu|gpus|links)\(.*\),$"


def profile(name: str) -> dict[str, object]:
    return yaml.safe_load((PROJECT / "profiles" / name / "config.yaml").read_text())


def rules() -> dict[str, str]:
    """The text of every rule but the local ones."""
    text = "".join(path.read_text() for path in sorted((PROJECT / "workflow/rules").glob("*.smk")))
    parts = re.split(r"^rule (\w+):$", text, flags=re.MULTILINE)[1:]
    return {name: body for name, body in zip(parts[::2], parts[1::2], strict=True) if name not in LOCAL}


def test_every_profile_is_looked_at() -> None:
    assert {path.parent.name for path in PROJECT.glob("profiles/*/config.yaml")} == {*CLUSTERS, "default"}


def test_every_rule_says_what_its_jobs_ask_for() -> None:
    """A job that collects has a GPU, cores and no group, and any other a group that profiles give components."""
    collecting = {name: body for name, body in rules().items() if re.search(COLLECTING, body, re.MULTILINE)}
    assert {"time_training", "profile_ncu", "examine_machine"} <= set(collecting)
    for body in collecting.values():
        assert re.search(r"^    threads: (cores_of_one|RESOURCES\.cores_of_links|cores\(.*\))$", body, re.MULTILINE)
        assert "    group:" not in body
    # For some in no group jobs of all cells wait, which would be one group with them.
    alone = {"print_probe", "expect_gains", "tabulate_trials"}
    # Each converts a report of its own, which takes minutes and gigabytes.
    alone |= {"import_torch", "import_nsys", "import_nsys_summary", "import_nsys_of_torch", "import_ncu"}
    assert all("        **light(" in rules()[name] and "    group:" not in rules()[name] for name in alone)
    for name in set(rules()) - {*collecting, *alone}:
        assert "        **light(" in rules()[name] and "    group:" in rules()[name], name


@EVERY
def test_groups_are_those_of_the_rules(name: str) -> None:
    said = {group for body in rules().values() for group in re.findall(r"^    group:\s+\"(.+)\"$", body, re.MULTILINE)}
    # The tables, figures and report of a configuration are one chain.
    assert set(profile(name)["group-components"]) == said - {"report"}


@EVERY
def test_profiles_say_the_same_of_groups_and_attempts(name: str) -> None:
    for key in ("group-components", "resources", "retries", "jobs", "keep-going", "rerun-incomplete"):
        assert profile(name)[key] == profile("slurm")[key]


@EVERY
def test_snakemake_knows_every_key(name: str) -> None:
    parser = get_argument_parser([str(PROJECT / "profiles" / name)])
    known = {option for action in parser._actions for option in action.option_strings}
    assert {f"--{key}" for key in profile(name)} <= known


@EVERY
def test_a_command_line_replaces_nothing_that_it_does_not_name(name: str) -> None:
    """Snakemake drops all that a profile says under a key, where the command line has that key."""
    assert not {"default-resources", "set-resources", "set-threads", "groups"} & set(profile(name))


@EVERY
def test_limits_are_those_of_a_group_and_not_of_the_cluster(name: str) -> None:
    """A limit on memory or cores would silently cut down the jobs that ask for more."""
    assert profile(name)["resources"] == {"side_by_side": 4} and "cores" not in profile(name)
