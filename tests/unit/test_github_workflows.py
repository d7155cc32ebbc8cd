"""The workflows of GitHub: their form, what they may do, and that the files and commands they name exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
SCHEMA = Path(__file__).with_name("github_workflows.schema.yaml")


class Loader(yaml.SafeLoader):
    """Reads `on` as a word, as GitHub does; YAML 1.1 takes it for a truth value."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), ["t", "f"])


def read(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(), Loader)


def errors(workflow: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(yaml.safe_load(SCHEMA.read_text()))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(workflow)]


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job.get("steps", [])


def test_all_workflows_use_the_same_commit_of_an_action() -> None:
    assert {"tests", "slow-tests", "documentation", "release"} <= {path.stem for path in FILES}
    used = {step["uses"] for path in FILES for step in steps(read(path)) if "uses" in step}
    names = [action.partition("@")[0] for action in used]
    assert len(names) == len(set(names)) > 3


def test_checkouts_keep_no_credentials_for_later_steps() -> None:
    checkouts = [step for path in FILES for step in steps(read(path)) if "actions/checkout@" in step.get("uses", "")]
    assert checkouts and all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_only_the_release_and_published_pages_may_write() -> None:
    writing = {
        (path.stem, name)
        for path in FILES
        for name, job in read(path)["jobs"].items()
        if "write" in job["permissions"].values()
    }
    assert writing == {("documentation", "publish"), ("release", "build"), ("release", "attach"), ("release", "pypi")}


def test_what_is_committed_is_checked_by_the_locked_programs() -> None:
    """The hooks of pre-commit run what `make lint` runs, in the same environment."""
    (local,) = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local" and all(hook["language"] == "system" for hook in local["hooks"])
    makefile = (PROJECT / "Makefile").read_text()
    commands = [Path(hook["entry"].split()[0]) for hook in local["hooks"]]
    assert {path.parent for path in commands} == {Path(".venv/bin")}
    assert all(re.search(rf"^\t{path.name} ", makefile, re.MULTILINE) for path in commands)
    (sources,) = [hook["files"] for hook in local["hooks"] if hook["id"] == "snakefmt"]
    matched = {path for path in ("Snakefile", "workflow/Snakefile", "workflow/rules/collect.smk", "workflow/help.txt")
               if re.search(sources, path)}  # fmt: skip
    assert matched == {"Snakefile", "workflow/Snakefile", "workflow/rules/collect.smk"}


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    jobs = read(FOLDER / "release.yml")["jobs"]
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
    assert all({"tests", "build"} <= set(jobs[name]["needs"]) for name in ("attach", "pypi"))


def test_tests_run_what_developers_can_run() -> None:
    # Both take their targets from the Makefile.
    targets = set(re.findall(r"^([\w-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    runs = [step["run"] for name in ("tests", "slow-tests") for step in steps(read(FOLDER / f"{name}.yml"))
            if step.get("run", "").startswith(".ci/run")]  # fmt: skip
    assert runs == [".ci/run", ".ci/run test-all"]
    assert {"test", "test-all", "lint", "env"} <= targets


def test_the_slow_part_tests_each_python_that_the_package_supports() -> None:
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (PROJECT / "pyproject.toml").read_text())
    matrix = read(FOLDER / "slow-tests.yml")["jobs"]["all-tests"]["strategy"]["matrix"]["include"]
    assert {entry["python"] for entry in matrix} == set(supported) and all(entry["cuda"] for entry in matrix)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workflow_has_the_form_that_github_reads_and_asks_for_nothing_unsafe(path: Path) -> None:
    workflow, text = read(path), path.read_text()
    assert errors(workflow) == []
    # Each action is pinned, and its version named.
    lines = [line for line in text.splitlines() if re.search(r"\buses: (?!\./)", line)]
    assert [line for line in lines if not re.search(r"@[0-9a-f]{40} # v\d+(\.\d+)+$", line)] == []
    # GitHub pastes expressions into commands, so the title of a pull request could end one command and begin another.
    assert [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")] == [] and "secrets." not in text
    for job in workflow["jobs"].values():
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else set(needs) <= set(workflow["jobs"])
        assert "uses" not in job or "workflow_call" in read(PROJECT / job["uses"])["on"]
    named = re.findall(r"(?<![\w./])(?:tests|docs|\.ci|\.github)/[\w./*-]+", text)
    assert [name for name in named if not list(PROJECT.glob(name))] == []
