"""Finds the folder of the whole workflow, and checks it out if a workflow uses it as a module from a git repository.

Snakemake can read rules from a repository, but jobs import the package and the zoo from a folder. This file runs before
the package can be imported, so it imports nothing from the package.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile

# Folder of checkouts, below the folder that snakemake runs in; all nodes of a cluster share it.
CHECKOUT = Path(".snakemake/profzoo/source").absolute()


def find_root(here: Any, refresh: bool) -> Path:
    """Find the folder that contains the workflow; here: the folder of its rules, as Snakemake knows it.

    refresh: whether to check out again at the start of a run, even if a checkout exists.

    Raises:
        WorkflowError: the workflow comes neither from a folder nor from a git repository, or git fails.
    """
    if isinstance(here, LocalSourceFile):
        return Path(here.path).parents[1]
    if isinstance(here, LocalGitFile):
        return check_out(here.repo_path, here.ref, refresh)
    if isinstance(here, HostingProviderFile):
        # Snakemake has cloned the repository to read the rules.
        return check_out(here.hosted_repo.repo_clone, here.ref, refresh)
    raise WorkflowError(f"profzoo: module from {here}: take it from a folder, or by git (github(...), git+file:...)")


def check_out(repository: str | Path, reference: str, refresh: bool) -> Path:
    """Check out the commit for jobs, which import more files than Snakemake itself reads; returns the folder.

    Files that do not differ between commits keep their modification times, so that their results stay up to date.
    """
    if not refresh and CHECKOUT.exists():
        return CHECKOUT
    commit = run_git(repository, "rev-parse", "--verify", f"{reference}^{{commit}}")
    run_git(".", "init", "--quiet", CHECKOUT)
    run_git(CHECKOUT, "fetch", "--quiet", "--force", repository, "HEAD:refs/head", "refs/*:refs/all/*")
    run_git(CHECKOUT, "checkout", "--quiet", "--force", "--detach", commit)
    return CHECKOUT


def run_git(folder: str | Path, *words: object) -> str:
    """Run git and return its output; an error of git ends the run with one line."""
    command = ["git", "-C", str(folder), *map(str, words)]
    # Without GIT_DIR and similar variables: in a git hook they would name another repository.
    seen = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=seen)
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no output"])[-1]
        raise WorkflowError(f"profzoo: `{' '.join(command)}` failed: {reason}")
    return answer.stdout.strip()


def import_from(root: Path) -> None:
    """Let this process import the workflow's modules, and the user's models from the folder that snakemake runs in.

    Both folders follow Python's own modules on the path, as a user's file may have the name of one of them.
    """
    own = [str(root), str(Path.cwd())]
    sys.path[:] = [path for path in sys.path if path not in ("", *own)]
    standard = (str(Path(os.__file__).parent), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED"))
    behind = max((place for place, path in enumerate(sys.path) if path in standard), default=-1) + 1
    sys.path[behind:behind] = own
