"""Records the git commit of the code that made a measurement."""

import os
import subprocess
from pathlib import Path
from typing import TypedDict

from profzoo.machine import external_programs

# Of the checkout, what jobs run: files there count as changes of it even where git does not know them.
CODE = ("Snakefile", "workflow", "profzoo", "models", "config", "profiles")


class GitState(TypedDict, total=False):
    """Commit of the workflow, and whether the working tree differs from it."""

    commit: str
    commit_changed: bool


def git_commit(folder: Path, module: str = "models") -> GitState:
    """Git commit of the workflow, and whether the working tree differs from it; empty if git knows none.

    module: that of the cell's model. Files that git does not know count where code lies; results do not.
    """
    package = module.partition(".")[0]
    head = _git(folder, "rev-parse", "HEAD", "--show-prefix")
    if head.returncode:
        return {}
    number, _, inside = head.stdout.partition("\n")
    # A copy that lies in another repository, which knows nothing of it, is of no commit.
    if inside.strip() and not _git(folder, "ls-files", "--", *CODE).stdout:
        return {}
    code = [*CODE, package, f"{package}.py"]
    asked = (["--untracked-files=no", "--", "."], ["--untracked-files=normal", "--", *code])
    changed = [_git(folder, "status", "--porcelain", *words) for words in asked]
    if any(answer.returncode for answer in changed):
        return {"commit": number}
    return {"commit": number, "commit_changed": any(answer.stdout.strip() for answer in changed)}


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What git says of the repository that a folder lies in.

    By GIT_DIR and the like, as in a hook of git's, it would tell of another one, or of other files.
    """
    seen = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return external_programs.ask_program(["git", "-C", str(folder), *words], env=seen)
