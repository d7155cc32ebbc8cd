"""The commit of the code that a measurement was made with."""

from pathlib import Path
from typing import Any

from profzoo.machine import programs

# Of the checkout, what jobs run: files there count as changes of it even where git does not know them.
CODE = ("Snakefile", "workflow", "profzoo", "models", "config", "profiles")


def commit(folder: Path, module: str = "models") -> dict[str, Any]:
    """The git commit of the workflow, and whether code that a job may run differs from it; empty where git tells none.

    module: that of the cell's model. Files that git does not know count where code lies; results do not.
    """
    git, package = ["git", "-C", str(folder)], module.partition(".")[0]
    head = programs.answer([*git, "rev-parse", "HEAD"])
    if head.returncode:
        return {}
    status = [*git, "status", "--porcelain"]
    code = [*CODE, package, f"{package}.py"]
    asked = [[*status, "--untracked-files=no", "--", "."], [*status, "--untracked-files=normal", "--", *code]]
    changed = [programs.answer(command) for command in asked]
    if any(answer.returncode for answer in changed):
        return {"commit": head.stdout.strip()}
    return {"commit": head.stdout.strip(), "commit_changed": any(answer.stdout.strip() for answer in changed)}
