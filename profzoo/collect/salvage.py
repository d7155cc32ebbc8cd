"""Makes the report of what succeeded, after a run in which cells failed, so that no old page stands in its place."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo.collect import left
from profzoo.collect.failures import Failure

# Beside Snakemake's own files: what failed, and the configuration that the report is made by.
NOTED = Path(".snakemake/profzoo/salvage")


def command(page: str, snakefile: str, cores: int) -> list[str]:
    """The command line of a run that makes the report of what is there, here and while the folder is locked."""
    here = ["--nolock", "--executor", "local", "--workflow-profile", "none", "--rerun-incomplete"]
    words = [page, "--snakefile", snakefile, "--cores", str(cores), *here]
    return [sys.executable, "-m", "snakemake", *words, "--configfile", str(NOTED / "config.json")]


def report(
    page: str,
    failed: Sequence[Failure],
    unmade: Sequence[str],
    config: Mapping[str, Any],
    run: tuple[str, int],
    log: Path,
) -> str:
    """Make the report without what has failed; a line on what came of it.

    Args:
        page: of the report; unmade: paths that the run was to make and did not; config: of the run; run: its Snakefile
            and how many jobs ran at a time; log: of this.
    """
    noted = NOTED / "without.json"
    left.note(failed, unmade, config, noted)
    (NOTED / "config.json").write_text(json.dumps({**config, "collect": False}))
    # A profile would have its jobs run elsewhere.
    environment = {name: value for name, value in os.environ.items() if name != "SNAKEMAKE_PROFILE"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        environment[left.WITHOUT] = str(noted)
        code = subprocess.run(command(page, *run), stdout=file, stderr=file, env=environment, check=False).returncode
    if code:
        stands = f"; {page} is that of before" if Path(page).exists() else ""
        return f"report  none could be made of what succeeded{stands}: see {log}"
    return f"report  {page}, of what succeeded"
