"""Finds the folder that holds the whole workflow, and checks it out where the workflow comes by git as a module.

Snakemake reads rules from wherever they are; jobs import the package and the zoo from a folder. This file runs before
the package can be imported, so it imports nothing of the package.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile

# Below the folder that snakemake runs in, which nodes of a cluster share.
CHECKOUT = Path(".snakemake/profzoo/source").absolute()


def find_root(here: Any, refresh: bool) -> Path:
    """The folder that holds the workflow, where Snakemake knows its rules as files in the folder `here`.

    refresh: check it out once more, as at the start of a run, although that was done before.

    Raises:
        WorkflowError: the workflow comes from somewhere else than a folder or a repository, or git fails.
    """
    if isinstance(here, LocalSourceFile):
        return Path(here.path).parents[1]
    if isinstance(here, LocalGitFile):
        return check_out(here.repo_path, here.ref, refresh)
    if isinstance(here, HostingProviderFile):
        # Snakemake has cloned it to read the rules.
        return check_out(here.hosted_repo.repo_clone, here.ref, refresh)
    raise WorkflowError(f"profzoo: module from {here}: take it from a folder, or by git (github(...), git+file:...)")


def check_out(repository: str | Path, reference: str, refresh: bool) -> Path:
    """A checkout of the commit, as jobs import more than the files that Snakemake itself reads.

    Files that are the same in another commit keep their times, so that what was made of them is not made again.
    """
    if not refresh and CHECKOUT.exists():
        return CHECKOUT
    commit = run_git(repository, "rev-parse", "--verify", f"{reference}^{{commit}}")
    run_git(".", "init", "--quiet", CHECKOUT)
    run_git(CHECKOUT, "fetch", "--quiet", "--force", repository, "HEAD:refs/head", "refs/*:refs/all/*")
    run_git(CHECKOUT, "checkout", "--quiet", "--force", "--detach", commit)
    return CHECKOUT


def run_git(folder: str | Path, *words: object) -> str:
    """What git prints; what it complains about ends the run in one line."""
    command = ["git", "-C", str(folder), *map(str, words)]
    # By GIT_DIR and the like, as in a hook of git's, it would be at work on another repository than it is told.
    seen = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=seen)
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no output"])[-1]
        raise WorkflowError(f"profzoo: `{' '.join(command)}` failed: {reason}")
    return answer.stdout.strip()


def import_from(root: Path) -> None:
    """Let this process import the workflow's modules, and models of the user's from the folder that snakemake runs in.

    Behind Python's own modules, of which a file there may have the name.
    """
    own = [str(root), str(Path.cwd())]
    sys.path[:] = [path for path in sys.path if path not in ("", *own)]
    standard = (str(Path(os.__file__).parent), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED"))
    behind = max((place for place, path in enumerate(sys.path) if path in standard), default=-1) + 1
    sys.path[behind:behind] = own
