"""Lets jobs of one run share notes, in files beside Snakemake's own: printed messages and failed cells."""

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from profzoo import tools
from profzoo.cell.job_types import Job
from profzoo.machine import orphan_guard

# Folder of the notes, in the folder that snakemake runs in; all nodes of a cluster share it.
FOLDER = Path(".snakemake/profzoo/run")
# Pattern of the line by which a model's program reports a failure of its own, under any tool (profzoo/run.py).
OF_MODEL = re.compile(r"^\S+ (?:train|inference)(?: failed with \w+: |: .*; try another seed)")
# Failures that a profiler may have caused: it needs memory itself and may disturb kernels.
OF_GPU = re.compile(r"CUDA|cu[A-Z]\w+|NCCL|out of memory|Accelerator")
# Beginning of the line about a job that was skipped for a known failure.
NOT_RUN = "not run under"
UNPROFILED = (tools.BASELINE, "train")


def is_first_time(line: str) -> bool:
    """Whether no job of this run has printed this line yet; always true outside of a run."""
    folder = _folder()
    if not folder:
        return True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"said-{_digest(line)}").open("x").close()
    except FileExistsError:
        return False
    except OSError:
        # A repeated message does no harm.
        return True
    return True


def note_failure(job: Job, sidecar: Path, why: str) -> None:
    """Note that a job failed because of its model, so that the model would fail under any tool.

    sidecar: path of the job's sidecar, in the model's folder; why: the cause, in one line.
    """
    by_itself = OF_MODEL.match(why) and (job["tool"] in UNPROFILED or not OF_GPU.search(why))
    place = _place(job, sidecar)
    if place and by_itself:
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps({"tool": job["tool"], "why": why}))


def find_known_failure(job: Job, sidecar: Path) -> str | None:
    """Message that the job's model already failed in this run under another tool, and why; None if not."""
    place = _place(job, sidecar)
    try:
        told = json.loads(place.read_text()) if place else {}
    except (OSError, ValueError):
        return None
    if not told or told["tool"] == job["tool"]:
        return None
    under = "for its weights" if told["tool"] == "train" else f"under {told['tool']}"
    return f"{NOT_RUN} {job['tool']}, because it failed {under}: {told['why']}"


def failure_cause(line: str) -> str:
    """Extract the original cause from a line that may report a job skipped because of it.

    >>> failure_cause("not run under time, because it failed under torch: a cat"), failure_cause("a cat")
    ('a cat', 'a cat')
    """
    return re.sub(rf"^{NOT_RUN} \w+, because it failed [^:]*: ", "", line)


def forget_run(others: bool = False) -> None:
    """Delete this run's notes; others: those of every run."""
    if folder := FOLDER if others else _folder():
        shutil.rmtree(folder, ignore_errors=True)


def _place(job: Job, sidecar: Path) -> Path | None:
    """Path of the failure note of this job's cell; None for jobs that run several cells, or none."""
    folder, phase = _folder(), job["cell"].get("phase")
    alone = "sides" not in job and "trials" not in job
    return folder / f"failed-{_digest(f'{sidecar.parent}/{phase}')}" if folder and phase and alone else None


def _folder() -> Path | None:
    run = os.environ.get(orphan_guard.OWNER)
    return FOLDER / _digest(run) if run else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
