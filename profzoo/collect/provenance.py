"""Records the git commit of the code that made a measurement."""

import os
import subprocess
from pathlib import Path
from typing import TypedDict

from profzoo.machine import external_programs

# Folders of the checkout with code that jobs run: untracked files in them count as changes.
CODE = ("Snakefile", "workflow", "profzoo", "models", "config", "profiles")


class GitState(TypedDict, total=False):
    """Commit of the workflow, and whether the working tree differs from it."""

    commit: str
    commit_changed: bool


def git_commit(folder: Path, module: str = "models") -> GitState:
    """Git commit of the workflow, and whether the working tree differs from it; empty if git knows none.

    module: module of the cell's model. Untracked files count in folders of code, but not among results.
    """
    package = module.partition(".")[0]
    head = _git(folder, "rev-parse", "HEAD", "--show-prefix")
    if head.returncode:
        return {}
    number, _, inside = head.stdout.partition("\n")
    # A copy inside an unrelated repository, which does not track it, has no commit.
    if inside.strip() and not _git(folder, "ls-files", "--", *CODE).stdout:
        return {}
    code = [*CODE, package, f"{package}.py"]
    asked = (["--untracked-files=no", "--", "."], ["--untracked-files=normal", "--", *code])
    changed = [_git(folder, "status", "--porcelain", *words) for words in asked]
    if any(answer.returncode for answer in changed):
        return {"commit": number}
    return {"commit": number, "commit_changed": any(answer.stdout.strip() for answer in changed)}


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a git command in the repository that contains the folder.

    GIT_DIR and similar variables are removed: in a git hook they would name another repository.
    """
    seen = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return external_programs.ask_program(["git", "-C", str(folder), *words], env=seen)
