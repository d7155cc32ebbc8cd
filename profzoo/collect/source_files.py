"""Finds the source files that a collecting job's program consists of: the workflow's and the user's own."""

from collections.abc import Mapping
from pathlib import Path

from profzoo import import_graph, tools
from profzoo.cell import programs
from profzoo.cell.job_types import Job
from profzoo.errors import ConfigError
from profzoo.records import digests, record

# Modules of jobs that measure the GPU itself, by tool.
OF_GPU = {"peaks": "profzoo/calibration/peaks.py", "probe": "profzoo/calibration/launch_costs.py",
          "links": "profzoo/calibration/links.py"}  # fmt: skip
SURROUNDINGS = "profzoo/collect/job_environment.py"
IN_TURN, TRIALS = "profzoo/experiments/interleaved_runs.py", "profzoo/experiments/trial_runner.py"


def job_sources(job: Job) -> list[Path]:
    """Source files of a job, sorted; its rule lists the same files as inputs.

    job: description of the collecting job.

    Raises:
        UnusableError: a file cannot be read, or is not valid Python.
    """
    if own := OF_GPU.get(job["tool"]):
        return list(import_graph.files_of(own, SURROUNDINGS))
    cell = job["cell"]
    found = {*programs.source_files(programs.find_program(cell["model"], cell))}
    if {"order", "repeats"} & set(job):
        found |= {*import_graph.files_of(IN_TURN)}
    if own_tool := tools.commands().get(job["tool"]):
        found |= {*import_graph.files_of(*own_tool.BESIDE)}
    if "trials" in job:
        found |= {*import_graph.files_of(TRIALS)}
    return sorted(found)


def current_digests(job: Job) -> dict[str, str]:
    """Current digests of these files, by their record keys; empty if the job's model has no file.

    Raises:
        OSError: a file cannot be read.
    """
    try:
        files = job_sources(job)
    except (ConfigError, KeyError):
        # The job need not run a model; for models, the rule has checked the files before.
        return {}
    return {record.source_key(path, import_graph.PROJECT): digests.compute_digest(path) for path in files}


def changed_sources(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Keys of files that were added, removed or changed.

    >>> changed_sources({"a.py": "1", "b.py": "2"}, {"a.py": "1", "b.py": "3", "c.py": "4"})
    ('b.py', 'c.py')
    """
    return tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))
