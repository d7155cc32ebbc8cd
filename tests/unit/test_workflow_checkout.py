"""profzoo.workflow.checkout: where the workflow's own files are, taken from a folder or by git."""

import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import GenericSourceFile, LocalGitFile, LocalSourceFile

from profzoo.workflow import checkout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "there"
    (home / "workflow/rules").mkdir(parents=True)
    (home / "workflow/rules/source.smk").write_text("# one\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(home), *words], check=True)
    monkeypatch.setattr(checkout, "CHECKOUT", tmp_path / "here")
    return home


def test_a_folder_is_taken_as_it_is() -> None:
    assert checkout.find_root(LocalSourceFile("/zoo/workflow/rules"), True) == Path("/zoo")


def test_a_repository_is_checked_out_once_per_run(repository: Path, tmp_path: Path) -> None:
    here = LocalGitFile(str(repository), "workflow/rules", ref="HEAD")
    root = checkout.find_root(here, True)
    assert root == tmp_path / "here" and (root / "workflow/rules/source.smk").read_text() == "# one\n"
    # Jobs of the run take what it has checked out.
    (root / "workflow/rules/source.smk").write_text("# another\n")
    assert checkout.find_root(here, False) == root
    assert (root / "workflow/rules/source.smk").read_text() == "# another\n"
    checkout.find_root(here, True)
    assert (root / "workflow/rules/source.smk").read_text() == "# one\n"


def test_what_git_complains_of_ends_the_run_in_one_line(repository: Path) -> None:
    with pytest.raises(WorkflowError, match=r"^profzoo: `git -C .* rev-parse .*` failed: fatal: .*$"):
        checkout.find_root(LocalGitFile(str(repository), "workflow/rules", ref="nowhere"), True)


def test_a_workflow_from_elsewhere_is_refused() -> None:
    with pytest.raises(WorkflowError, match="take it from a folder, or by git"):
        checkout.find_root(GenericSourceFile("https://example.org/rules"), True)


def test_modules_are_found_behind_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    checkout.import_from(Path("/zoo"))
    assert "" not in sys.path and sys.path.count(str(tmp_path)) == 1
    at = sys.path.index("/zoo")
    assert sys.path[at + 1] == str(tmp_path)
    assert all("python3" in path or path.endswith(".zip") or not path for path in sys.path[at - 1 : at])
