# Needs: git, where this workflow is a module that comes by git. Makes: ROOT, the folder that holds all of the workflow,
# for this process and its jobs to import the package and the zoo from; and MAIN, whether it is a module of no other.
import gc
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile

# What Snakemake has loaded stays as long as it runs: to look for garbage in it again and again is a fifth of a start.
gc.freeze()
MAIN = workflow.modifier.is_main_snakefile()
# Below the folder that snakemake runs in, which nodes of a cluster share.
CHECKOUT = Path(".snakemake/profzoo/source").absolute()


def root(here):
    """The folder that holds the workflow, where this file is known to Snakemake as in the folder `here`."""
    if isinstance(here, LocalSourceFile):
        return Path(here.path).parents[1]
    if isinstance(here, LocalGitFile):
        return checkout(here.repo_path, here.ref)
    if isinstance(here, HostingProviderFile):
        # Snakemake has cloned it to read this file.
        return checkout(here.hosted_repo.repo_clone, here.ref)
    raise WorkflowError(f"profzoo: module from {here}: take it from a folder, or by git (github(...), git+file:...)")


def checkout(repository, reference):
    """A checkout of the commit, as jobs import more than the files that Snakemake itself reads.

    Files that are the same in another commit keep their times, so that what was made of them is not made again.
    """
    if not workflow.is_main_process and CHECKOUT.exists():
        return CHECKOUT
    commit = git(repository, "rev-parse", "--verify", f"{reference}^{{commit}}")
    git(".", "init", "--quiet", CHECKOUT)
    git(CHECKOUT, "fetch", "--quiet", "--force", repository, "HEAD:refs/head", "refs/*:refs/all/*")
    git(CHECKOUT, "checkout", "--quiet", "--force", "--detach", commit)
    return CHECKOUT


def git(folder, *words):
    """What git prints; what it complains about ends the run in one line."""
    command = ["git", "-C", str(folder), *map(str, words)]
    # By GIT_DIR and the like, as in a hook of git's, it would be at work on another repository than it is told.
    seen = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=seen)
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no output"])[-1]
        raise WorkflowError(f"profzoo: `{' '.join(command)}` failed: {reason}")
    return answer.stdout.strip()


ROOT = root(workflow.current_basedir)
# This workflow's own modules, and those of the folder that snakemake runs in, which may hold models of the user's: behind
# Python's own, of which a file there may have the name.
OWN_PATHS = [str(ROOT), str(Path.cwd())]
sys.path[:] = [path for path in sys.path if path not in ("", *OWN_PATHS)]
STANDARD = (str(Path(os.__file__).parent), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED"))
BEHIND = max((place for place, path in enumerate(sys.path) if path in STANDARD), default=-1) + 1
sys.path[BEHIND:BEHIND] = OWN_PATHS
