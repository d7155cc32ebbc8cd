"""The workflow as a module of another, by path and by git, and called from another folder."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.workflow.project import CHECKOUT, Project, copy

CELL = "results/lstm/train"
OUTER = """\
CONFIG = {{
    "tool": "torch", "models": ["lstm"], "device": "cpu", "warmup": 1, "time": {{"window": 2}},
    "torch": {{"window": 1}}, "settings": {{"lstm": {{"sequence_length": 8}}}},
}}


module profzoo:
    snakefile: {snakefile}
    config: CONFIG
{more}

use rule * from profzoo{named}


rule mine:
    default_target: True
    input: "{made}"
    output: "results/plots/mine.txt"
    shell: "wc -l < {{input}} > {{output}}"
"""
GIT = ["git", "-c", "user.name=profzoo", "-c", "user.email=profzoo@localhost"]


def outer(root: Path, snakefile: str, made: str, more: str = "", named: str = "") -> Project:
    """A workflow of somebody else's, which uses this one."""
    root.mkdir(exist_ok=True)
    (root / "Snakefile").write_text(OUTER.format(snakefile=snakefile, made=made, more=more, named=named))
    return Project(root)


def succeeded(project: Project, *words: str) -> str:
    code, printed = project.ended(*words, "--cores", "1")
    assert code == 0, printed
    return printed


def git(folder: Path, *words: str) -> str:
    run = subprocess.run([*GIT, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def published(folder: Path) -> Path:
    """A repository of the sources, as one would clone it."""
    made = copy(folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (made.root / ".gitignore").write_text("__pycache__/\n")
    changed(folder, "all")
    return folder


def changed(repository: Path, message: str) -> str:
    """The commit of what has changed there."""
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", message)
    return git(repository, "rev-parse", "HEAD")


@pytest.mark.slow
def test_a_module_by_path(tmp_path: Path) -> None:
    snakefile = repr(str(CHECKOUT / "workflow/Snakefile"))
    mine = outer(tmp_path / "outer", snakefile, f"{CELL}.time.csv", named=" as zoo_*")
    # The other workflow's own configuration and results are no matter of this one.
    (mine.root / "config").mkdir()
    mine.write("config/config.yaml", "samples: samples.tsv\n")
    assert "zoo_time_training" in succeeded(mine, "results/plots/mine.txt")
    assert mine.read("results/plots/mine.txt").strip() == "3"
    assert "Nothing to be done" in succeeded(mine)


@pytest.mark.slow
def test_a_module_under_a_prefix(tmp_path: Path) -> None:
    """Only what is made has it, although the sources are inputs too, and lie in the other workflow's folder."""
    copy(tmp_path / "outer" / "zoo")
    more = '    prefix: "gpu"'
    mine = outer(tmp_path / "outer", "'zoo/workflow/Snakefile'", f"gpu/{CELL}.torch.csv", more)
    printed = succeeded(mine, "--dry-run")
    assert re.search(rf"input: .*\bzoo/models/lstm.py, .*\n +output: gpu/{CELL}.torch-operators.csv", printed)
    assert "log: gpu/results/logs/lstm/train.torch.log" in printed


@pytest.mark.slow
def test_a_module_with_folders_of_its_own(tmp_path: Path) -> None:
    more = '    pathvars:\n        results="profiled"'
    mine = outer(tmp_path / "outer", repr(str(CHECKOUT / "Snakefile")), "profiled/report.html", more)
    printed = succeeded(mine, "--dry-run")
    assert "output: profiled/report.html" in printed and "output: profiled/figures/" in printed


@pytest.mark.slow
def test_a_module_by_git(tmp_path: Path) -> None:
    """As from GitHub, which git takes from a folder; what another commit leaves alone is not collected again."""
    repository = published(tmp_path / "hosted" / "owner" / "profzoo")
    first = git(repository, "rev-parse", "HEAD")
    hosted = 'github("owner/profzoo", path="workflow/Snakefile", branch="main")'
    mine = outer(tmp_path / "outer", hosted, f"{CELL}.torch.csv", named=" as zoo_*")
    mine.variables = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/hosted/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
    }
    assert "zoo_profile_torch" in succeeded(mine)
    facts = json.loads(mine.read(f"{CELL}.trace.json.gz.json"))
    assert facts["commit"] == first and facts["commit_changed"] is False
    collected = mine.root / f"{CELL}.trace.json.gz"
    when = collected.stat().st_mtime_ns
    figure = repository / "profzoo/figures/steps.py"
    figure.write_text(figure.read_text() + "\n# Changed.\n")
    changed(repository, "figure")
    assert "Nothing to be done" in succeeded(mine)
    model = repository / "models/lstm.py"
    model.write_text(model.read_text() + "\n# Changed.\n")
    changed(repository, "model")
    assert "zoo_profile_torch" in succeeded(mine, "--dry-run")
    assert collected.stat().st_mtime_ns == when


@pytest.mark.slow
def test_a_module_from_a_clone_at_a_commit(tmp_path: Path) -> None:
    repository = published(tmp_path / "clone")
    first = git(repository, "rev-parse", "HEAD")
    (repository / "models/lstm.py").unlink()
    changed(repository, "without the model")
    snakefile = f"'git+file://{repository}/workflow/Snakefile@{first}'"
    mine = outer(tmp_path / "outer", snakefile, f"{CELL}.time.csv")
    # As in a hook of another repository's.
    other = published(tmp_path / "other")
    (other / "notes.md").touch()
    second = changed(other, "another")
    mine.variables = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / ".git/index")}
    assert "rule time_training:" in succeeded(mine, "--dry-run")
    assert git(other, "rev-parse", "HEAD") == second and not git(other, "status", "--porcelain")
    assert git(mine.root / ".snakemake/profzoo/source", "rev-parse", "HEAD") == first


@pytest.mark.slow
def test_the_workflow_from_another_folder(tmp_path: Path) -> None:
    """Without a configuration there, that of the schema holds, and the command line's."""
    source, there = copy(tmp_path / "profzoo"), tmp_path / "there"
    there.mkdir()
    tiny = ["--configfile", "tiny.yaml"]
    target = f"{CELL}.time.csv"
    words = [target, "--directory", str(there), "--snakefile", "Snakefile"]
    code, printed = source.ended(*words, *tiny)
    assert code == 0, printed
    assert (there / target).exists() and not (source.root / "results").exists()
    code, printed = Project(there).ended(
        target, "-s", str(source.root / "Snakefile"), "--dry-run", "-p", "--cores", "1"
    )
    # Made with other settings than those by default.
    assert code == 0 and "Params have changed" in printed, printed
