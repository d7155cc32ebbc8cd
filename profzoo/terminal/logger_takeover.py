"""Replaces Snakemake's own messages by the messages of this package, unless the user has asked for Snakemake's.

Snakemake finds logger plugins among installed packages only, and by then has read its command line; this one is part of
a checkout, so it takes over once the Snakefile is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profzoo import snakemake_internals
from profzoo.terminal import job_durations, job_titles, rule_list, unavailable_tools
from profzoo.terminal.log_handler import LogHandler
from profzoo.terminal.progress import Progress
from profzoo.terminal.run_plan import Place

STREAM = "DefaultStreamHandler"
# What reasons of Snakemake come to in a word or two.
REASONS = {
    "missing_output": "not there yet",
    "incomplete_output": "was cut off",
    "params_changed": "settings have changed",
    "code_changed": "code has changed",
    "input_changed": "other inputs",
    "updated_input": "inputs are newer",
    "forced": "forced",
}


def take_over(workflow: Any) -> LogHandler | None:
    """Have this workflow's run told so; None where Snakemake is to tell it, by --logger, -q, -p, --verbose or such."""
    settings, manager = workflow.output_settings, workflow.logger_manager
    theirs = next((one for one in manager.logger.handlers if one.name == STREAM), None)
    chosen = settings.quiet or settings.printshellcmds or settings.verbose or settings.debug_dag
    if theirs is None or chosen or settings.show_failed_logs or settings.log_handler_settings:
        return None
    handler = LogHandler(settings, None)
    handler.attach(theirs.stream, lambda: plan_jobs(workflow), lambda: typed_rules(workflow))
    manager.logger.addHandler(handler)
    manager.logger.removeHandler(theirs)
    return handler


def typed_rules(workflow: Any) -> list[str]:
    """Return the rules that a user may type."""
    return [rule.name for rule in workflow.rules if rule.name in rule_list.TYPED]


def list_rules(workflow: Any, only_targets: bool = False) -> None:
    """Print the rules, in the place of Snakemake's own list, which has them all by name."""
    rules = [rule for rule in workflow.rules if not (only_targets and rule.has_wildcards())]
    print(rule_list.format_rules({rule.name: rule.docstring or "" for rule in rules}))


def plan_jobs(workflow: Any) -> tuple[Progress, Place, float, Mapping[int, Sequence[str]]]:
    """The jobs of a run with what they should take, where they run, how much is a guess, and why each does."""
    dag, place = workflow.dag, find_place(workflow)
    jobs = {job.jobid: job for job in dag.needrun_jobs()}
    mine = {number: job_titles.describe_job(job) for number, job in jobs.items()}
    if not place.remote:
        chosen = dict.fromkeys(task.what.split()[0] for task in mine.values() if task.measures)
        place = replace(place, unable=unavailable_tools.find_unavailable(chosen, workflow.config.get("device", "auto")))
    folder = next((Path(task.benchmark).parents[1] for task in mine.values() if task.benchmark), Path("benchmarks"))
    earlier = job_durations.read_benchmarks(folder, bool(place.gpus) or place.remote)
    expected = {
        # What cannot run takes no time.
        number: (0.0, True) if task.what.split()[0] in place.unable else job_durations.expect_duration(task, earlier)
        for number, task in mine.items()
    }
    total = sum(seconds for seconds, _ in expected.values())
    guessed = sum(seconds for seconds, sure in expected.values() if not sure) / total if total else 0.0
    cores = max(1, _limit(workflow, "_cores") or 1)
    progress = Progress(mine, {number: seconds for number, (seconds, _) in expected.items()})
    progress.followers = {
        # Which makes an entry for whatever it is asked by index.
        number: [other.jobid for other in dag.depending.get(job, {}) if other.jobid in jobs]
        for number, job in jobs.items()
    }
    progress.measured_at_once, progress.at_once = min(cores, max(1, place.gpus)) if place.gpus else 1, cores
    reasons = {number: job_reason(dag, job) for number, job in jobs.items()} if workflow.dryrun else {}
    return progress, place, guessed, reasons


def job_reason(dag: Any, job: Any) -> list[str]:
    """Explain why a job would run: from changed content, else from Snakemake's own reasons."""
    known = snakemake_internals.reason(job)
    return [known] if known else describe_reason(dag.reason(job))


def describe_reason(reason: Any) -> list[str]:
    """Why a job would run; those that only follow others have no reason of their own."""
    return [said for name, said in REASONS.items() if getattr(reason, name)]


def find_place(workflow: Any) -> Place:
    """Return the place where jobs run: how many GPUs at a time."""
    if not workflow.local_exec:
        return Place(0, True)
    here = unavailable_tools.count_gpus()
    if workflow.config.get("device") == "cpu" or not here:
        return Place(0, False)
    return Place(min(here, _limit(workflow, "gpu") or here), False)


def _limit(workflow: Any, name: str) -> int | None:
    """How many of a resource there are at a time; None where that is not said."""
    given = workflow.global_resources.get(name)
    value = getattr(given, "value", given)
    return value if isinstance(value, int) else None
