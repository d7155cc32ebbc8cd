"""Makes a report of the existing measurements after a failed or ended run, so that no outdated page remains."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.collect import completeness, logs, missing_parts
from profzoo.collect.failure_summary import Failure

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config

# Files beside Snakemake's own: the failures, and the configuration of the report.
NOTED = Path(".snakemake/profzoo/salvage")
WITHOUT = "without.json"
# File of the failed parts of the report itself; the report is made again without them, at most this many times.
AGAIN = "again.json"
ATTEMPTS = 8
# Advice: the command that makes a report at any time, without collecting.
LATER = "`snakemake report --config collect=false` makes one"


def report_command(page: str, snakefile: str, cores: int) -> list[str]:
    """Command line of a run that makes the partial report in this folder, even while it is locked."""
    here = ["--nolock", "--executor", "local", "--workflow-profile", "none", "--rerun-incomplete", "--keep-going"]
    words = [page, "--snakefile", snakefile, "--cores", str(cores), *here]
    return [sys.executable, "-m", "snakemake", *words, "--configfile", str(NOTED / "config.json")]


def make_partial_report(
    page: str,
    failed: Sequence[Failure],
    unmade: Sequence[str],
    config: "Config",
    run: tuple[str, int],
    log: Path,
) -> str:
    """Make the report without failed parts; returns lines about the result.

    Args:
        page: path of the report's page.
        unmade: paths that the run should have made and did not.
        config: configuration of the run.
        run: the run's Snakefile, and its number of parallel jobs.
        log: path of the log of this step.
    """
    noted, again, results = NOTED / WITHOUT, NOTED / AGAIN, str(Path(page).parent)
    NOTED.mkdir(parents=True, exist_ok=True)
    (NOTED / "config.json").write_text(json.dumps({**config, "collect": False}))
    known, unfound, told = _settled(failed), dict[str, str](), ""
    log.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(ATTEMPTS):
        again.unlink(missing_ok=True)
        completeness.write_failures(known, unmade, config, noted, results, unfound)
        try:
            code = _ran(report_command(page, *run), noted, log)
        except KeyboardInterrupt:
            return f"report  none, because you ended it: {LATER} from the results so far"
        if not code:
            more = {
                path: why for path, why in missing_parts.read_missing(str(noted)).items() if path not in _own(failed)
            }
            without = map(_without, missing_parts.missing_rows(more))
            return "\n".join([f"report  {page}, from the results that succeeded", *without])
        found = _settled([Failure(**one) for one in json.loads(again.read_text())] if again.exists() else [])
        gone = missing_parts.parse_missing_inputs(logs.read_excerpt(log))
        if all(one in known for one in found) and gone.keys() <= unfound.keys():
            break
        known, unfound = [*known, *found], unfound | gone
        told = next((one.why for one in found), told)
    stands = f"; {page} is the report of an earlier run" if Path(page).exists() else ""
    why = f": {told}" if told else ""
    return f"report  none could be made from the results that succeeded{stands}: see {log}{why}"


def note_failures(failed: Sequence[Failure]) -> None:
    """Record the failures of the report's own jobs, for the run that started them."""
    (NOTED / AGAIN).write_text(json.dumps([asdict(one) for one in failed]))


def _settled(failed: Sequence[Failure]) -> list[Failure]:
    """Fix the failures' reasons as they are now: the next attempt overwrites the logs."""
    return [replace(one, batch=one.why) for one in failed]


def _ran(words: Sequence[str], noted: Path, log: Path) -> int:
    # Without a profile, which might run the jobs on other machines.
    environment = {name: value for name, value in os.environ.items() if name != "SNAKEMAKE_PROFILE"}
    with log.open("w") as file:
        environment[completeness.WITHOUT] = str(noted)
        return subprocess.run(words, stdout=file, stderr=file, env=environment, check=False).returncode


def _own(failed: Sequence[Failure]) -> set[str]:
    """Files that the main run should have made; the main run reports their failures itself."""
    return {path for one in failed for path in one.outputs}


def _without(one: Mapping[str, str]) -> str:
    return f"without {one['part']}: {one['why']}"
