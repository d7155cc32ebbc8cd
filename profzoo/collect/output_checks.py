"""Checks a job's outputs before they move into place: complete, and made by this job."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profzoo.cell.job_types import Job
from profzoo.cell.process_count import process_count
from profzoo.collect.inprocess_baseline import TIMED
from profzoo.errors import CollectError
from profzoo.io import file_checks


def read_program_facts(path: Path) -> dict[str, Any]:
    """Read the facts that a program wrote about its run; CollectError if they are no JSON object."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CollectError(f"the program left facts that are not JSON: {error}") from error
    if not isinstance(said, dict):
        raise CollectError(f"the program left facts that are not a JSON object: {str(said)[:40]!r}")
    return said


def check_outputs(job: Job, made: Mapping[str, Path], run: str) -> None:
    """Check that the files exist and are complete, and that sidecar and table agree with this job and run.

    Raises:
        CollectError: a file is missing or incomplete, or does not agree.
    """
    sidecar = read_program_facts(made["sidecar"])
    for key, value in {**job, "run": run}.items():
        if sidecar.get(key) != value:
            raise CollectError(f"the sidecar says {key} = {sidecar.get(key)!r}, but the job says {value!r}")
    for path in made.values():
        why = file_checks.find_flaw(path) if path.exists() else "it is not there"
        if why:
            raise CollectError(f"a collected file is damaged or incomplete: {path.name}: {why}")
    if steps := made.get("steps"):
        rows, said = (
            len(steps.read_text().splitlines()) - 1,
            read_program_facts(made.get(TIMED, made["sidecar"])).get("steps"),
        )
        if rows != said:
            raise CollectError(f"{steps.name} has {rows} steps, but the run had {said}")
    if ranks := made.get("ranks"):
        _check_ranks(ranks, process_count(job["cell"]))


def _check_ranks(folder: Path, count: int) -> None:
    """Check that each process left one file of each kind."""
    kinds: dict[str, int] = {}
    for path in folder.iterdir():
        kinds[path.suffix] = kinds.get(path.suffix, 0) + 1
    wrong = [f"{number} {kind}" for kind, number in sorted(kinds.items()) if number != count]
    if wrong or not kinds:
        raise CollectError(f"{count} processes left {', '.join(wrong) or 'no file'} in {folder.name}")
