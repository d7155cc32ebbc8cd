"""Replaces Snakemake's own messages by the messages of this package, unless the user has asked for Snakemake's.

Snakemake finds logger plugins only among installed packages, before it reads the Snakefile. This plugin is part of a
checkout, so it replaces Snakemake's own after the Snakefile is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profzoo.terminal import job_durations, job_titles, rule_list, unavailable_tools
from profzoo.terminal.log_handler import LogHandler
from profzoo.terminal.progress import Progress
from profzoo.terminal.run_plan import Place
from profzoo.workflow import snakemake_internals, up_to_date

# Snakemake's reasons for running a job, in a few words.
REASONS = {
    "missing_output": "not made yet",
    "incomplete_output": "was interrupted",
    "params_changed": "settings have changed",
    "code_changed": "code has changed",
    "input_changed": "inputs have changed",
    "updated_input": "inputs are newer",
    "forced": "forced",
}


def take_over(workflow: Any) -> LogHandler | None:
    """Replace Snakemake's log handler; return None if the user wants Snakemake's messages (--logger, -q, -p ...)."""
    theirs = snakemake_internals.own_stream_handler(workflow)
    if theirs is None:
        return None
    handler = LogHandler(workflow.output_settings, None)
    handler.attach(
        theirs.stream,
        lambda: plan_jobs(workflow),
        lambda: typed_rules(workflow),
        # The configuration is read after this function returns.
        lambda: bool(workflow.config.get("collect", True)),
    )
    snakemake_internals.replace_stream_handler(workflow, theirs, handler)
    return handler


def typed_rules(workflow: Any) -> list[str]:
    """Return the rules that a user may type."""
    return [rule.name for rule in workflow.rules if rule.name in rule_list.TYPED]


def list_rules(workflow: Any, only_targets: bool = False) -> None:
    """Print the rules for `snakemake --list`; only_targets: only rules without wildcards."""
    rules = [rule for rule in workflow.rules if not (only_targets and rule.has_wildcards())]
    print(rule_list.format_rules({rule.name: rule.docstring or "" for rule in rules}))


def plan_jobs(workflow: Any) -> tuple[Progress, Place, float, Mapping[int, Sequence[str]]]:
    """Return the jobs of a run with expected durations, their place, the guessed share of the time, and their reasons.

    Reasons are given by number of the job, and only in a dry run.
    """
    dag, place = workflow.dag, find_place(workflow)
    jobs = {job.jobid: job for job in snakemake_internals.jobs_to_run(dag)}
    mine = {number: job_titles.describe_job(job) for number, job in jobs.items()}
    if not place.remote:
        chosen = dict.fromkeys(task.what.split()[0] for task in mine.values() if task.measures)
        place = replace(place, unable=unavailable_tools.find_unavailable(chosen, workflow.config.get("device", "auto")))
    folder = next((Path(task.benchmark).parents[1] for task in mine.values() if task.benchmark), Path("benchmarks"))
    earlier = job_durations.read_benchmarks(folder, bool(place.gpus) or place.remote)
    expected = {
        # A job that cannot run takes no time.
        number: (0.0, True) if task.what.split()[0] in place.unable else job_durations.expect_duration(task, earlier)
        for number, task in mine.items()
    }
    total = sum(seconds for seconds, _ in expected.values())
    guessed = sum(seconds for seconds, sure in expected.values() if not sure) / total if total else 0.0
    cores = max(1, snakemake_internals.limit_of(workflow, "_cores") or 1)
    progress = Progress(mine, {number: seconds for number, (seconds, _) in expected.items()})
    progress.followers = {
        number: [other.jobid for other in snakemake_internals.jobs_just_after(dag, job) if other.jobid in jobs]
        for number, job in jobs.items()
    }
    progress.measured_at_once, progress.at_once = min(cores, max(1, place.gpus)) if place.gpus else 1, cores
    reasons = {number: job_reason(dag, job) for number, job in jobs.items()} if workflow.dryrun else {}
    return progress, place, guessed, reasons


def job_reason(dag: Any, job: Any) -> list[str]:
    """Explain why a job would run: from changed content, else from Snakemake's own reasons."""
    known = up_to_date.reason_of(job)
    return [known] if known else describe_reason(snakemake_internals.reason_for(dag, job))


def describe_reason(reason: Any) -> list[str]:
    """Return Snakemake's reasons for running a job; a job that only follows other jobs has none."""
    return [said for name, said in REASONS.items() if getattr(reason, name)]


def find_place(workflow: Any) -> Place:
    """Return the place where jobs run: how many GPUs at a time."""
    if not workflow.local_exec:
        return Place(0, True)
    here = unavailable_tools.count_gpus()
    if workflow.config.get("device") == "cpu" or not here:
        return Place(0, False)
    return Place(min(here, snakemake_internals.limit_of(workflow, "gpu") or here), False)
