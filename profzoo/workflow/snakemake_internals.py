"""Uses undocumented attributes of Snakemake's job graph, scheduler, files and messages.

`snakemake_attributes` lists them all. Other modules call the functions here. They read only a job's own attributes,
such as its rule and its files, directly.
"""

import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any

# Imported first: Snakemake's modules import each other and load only in this order.
import snakemake.cli  # noqa: F401
from snakemake.common import async_run
from snakemake.dag import DAG
from snakemake.exceptions import RuleException, WorkflowError
from snakemake.persistence import ParamsChange
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.shell import shell

STREAM = "DefaultStreamHandler"
_judge_by_times = DAG.update_needrun


def jobs_to_run(dag: Any, ended_too: bool = False) -> list[Any]:
    """Jobs of a graph that are going to run; ended_too: also include jobs of this run that have ended."""
    return list(dag.needrun_jobs(exclude_finished=not ended_too))


def all_jobs(dag: Any) -> list[Any]:
    """All jobs of a graph, whether or not they are going to run."""
    return list(dag.jobs)


def is_going_to_run(dag: Any, job: Any) -> bool:
    """Whether a job was planned to run, whether or not it has by now."""
    return dag.needrun(job)


def has_finished(dag: Any, job: Any) -> bool:
    """Whether a job has succeeded, or counts as done."""
    return dag.finished(job)


def sort_jobs(dag: Any) -> list[list[Any]]:
    """All jobs in levels: each job is in a later level than the jobs that make its inputs."""
    return [list(level) for level in dag.toposorted()]


def jobs_making(dag: Any, path: str) -> list[Any]:
    """Jobs of this configuration that would make a file, the preferred one first; empty if no rule makes it."""
    try:
        return sorted(async_run(dag.file2jobs(path)), reverse=True)
    except (RuleException, WorkflowError):
        return []


def jobs_just_before(dag: Any, job: Any) -> list[Any]:
    """The jobs that make the inputs of a job."""
    # `get` instead of an index, which would add an entry to the defaultdict; likewise below.
    return list(dag.dependencies.get(job, ()))


def jobs_just_after(dag: Any, job: Any) -> list[Any]:
    """Jobs that use the outputs of a job."""
    return list(dag.depending.get(job, ()))


def jobs_before(dag: Any, jobs: Collection[Any]) -> list[Any]:
    """These jobs and all jobs that have to run before any of them."""
    return list(dag.bfs(dag.dependencies, *jobs))


def jobs_after(dag: Any, job: Any) -> list[Any]:
    """A job and all jobs that have to run after it."""
    return list(dag.bfs(dag.depending, job))


def decided_jobs(dag: Any) -> list[Any]:
    """Jobs that an earlier decision in the same run has selected to run."""
    return list(dag._needrun)


def reason_for(dag: Any, job: Any) -> Any:
    """Snakemake's own reasons to run a job."""
    return dag.reason(job)


def is_dry_run(dag: Any) -> bool:
    """Whether a graph belongs to a dry run."""
    return dag.workflow.dryrun


def is_asked_for_again(dag: Any, job: Any) -> bool:
    """Whether a job has to run again although it is done: it is forced, or its environment modules have changed."""
    if job.rule in dag.forcerules or not dag.forcefiles.isdisjoint(job.output):
        return True
    kept = dag.workflow.persistence
    return kept.has_metadata(job) and any(kept.software_stack_changed(job))


def measures(job: Any) -> bool:
    """Whether a job runs a model, or a benchmark of the GPU: such a job's rule names what it makes in `params.made`."""
    return "made" in dict(job.params.items())


def failed_jobs(scheduler: Any) -> Iterator[tuple[Any, bool]]:
    """Yield failed jobs, each with whether it was part of a group; the jobs of a group come one by one."""
    for job in scheduler.failed:
        for one in job.jobs if job.is_group() else [job]:
            yield one, job.is_group()


def waits_for_checkpoint(job: Any) -> bool:
    """Whether inputs of a job are not known before a checkpoint has run."""
    return any(file.flags.get("checkpoint_target") for file in job.input)


def is_stored(file: Any) -> bool:
    """Whether a file is kept in a remote storage."""
    return getattr(file, "is_storage", False)


def name_of(file: Any) -> str:
    """A file's path, or its address if it is kept in a remote storage."""
    return file.storage_object.query if is_stored(file) else str(file)


def is_temporary(file: Any) -> bool:
    """Whether Snakemake removes an output once no job needs it any more."""
    return bool(file.flags.get("temp"))


def is_ancient(file: Any) -> bool:
    """Whether the age of an input is no reason to run a job."""
    return file.is_ancient


def replace_judgement(judge: Callable[..., Awaitable[None]]) -> None:
    """Replace Snakemake's function that decides which jobs run; judge: takes a graph and `create_inventory`."""
    DAG.update_needrun = judge


async def judge_by_times(dag: Any, create_inventory: bool, done: Collection[Any], again: Iterable[str]) -> None:
    """Let Snakemake decide which jobs run; done: jobs to leave out; again: files whose jobs are forced."""
    forced, added = set(again) - dag.forcefiles, set(done) - dag._finished
    dag.forcefiles |= forced
    dag._finished |= added
    try:
        await _judge_by_times(dag, create_inventory)
    finally:
        dag._finished -= added
        dag.forcefiles -= forced
    dag._len = len(dag._finished | dag._needrun)


def explain_run(dag: Any, job: Any, inputs: Iterable[str], settings: Iterable[str] | None) -> None:
    """Give Snakemake's own reasons for a job that `judge_by_times` forced; settings: changed settings, or None."""
    reason = dag.reason(job)
    reason.forced = False
    reason.updated_input.update(inputs)
    if settings is not None:
        reason.params_changed = ParamsChange(only_new=set(settings))


def give_placeholders(workflow: Any, secret: str, placeholder: str) -> bool:
    """Replace a secret in the words that jobs get and Snakemake logs; returns whether any word contained it."""
    told = workflow.config_settings
    changed = [str(word).replace(secret, placeholder) for word in told.config_args or []]
    if changed == list(told.config_args or []):
        return False
    told.config_args = changed
    # Snakemake's log begins with the command line.
    sys.argv[1:] = [word.replace(secret, placeholder) for word in sys.argv[1:]]
    return True


def own_stream_handler(workflow: Any) -> Any:
    """Snakemake's handler of terminal messages; None if the user chose another handler, or more or less output."""
    settings = workflow.output_settings
    theirs = next((one for one in workflow.logger_manager.logger.handlers if one.name == STREAM), None)
    chosen = settings.quiet or settings.printshellcmds or settings.verbose or settings.debug_dag
    return None if chosen or settings.show_failed_logs or settings.log_handler_settings else theirs


def replace_stream_handler(workflow: Any, theirs: Any, mine: Any) -> None:
    """Have another handler print Snakemake's messages."""
    workflow.logger_manager.logger.addHandler(mine)
    workflow.logger_manager.logger.removeHandler(theirs)


def limit_of(workflow: Any, resource: str) -> int | None:
    """Limit of a resource that jobs share; None without a limit."""
    given = workflow.global_resources.get(resource)
    value = getattr(given, "value", given)
    return value if isinstance(value, int) else None


def executor_of(workflow: Any) -> Any:
    """Snakemake's executor, which runs jobs on this machine or submits them to a batch system."""
    return workflow.scheduler._executor


def end_gracefully(scheduler: Any) -> None:
    """Start no more jobs, and end after the running jobs."""
    scheduler.exit_gracefully()


def end_running(scheduler: Any, rules: Collection[str]) -> None:
    """Send a SIGTERM to the running jobs of these rules."""
    for job in list(scheduler.running):
        if job.rule.name in rules:
            shell.terminate(job.jobid)


def schedule_by(later: Callable[[Any, float], None]) -> None:
    """Set the function that schedules the next look for jobs; later: takes a scheduler and a delay in seconds."""
    JobScheduler._schedule_reevalutation = later


def look_again(scheduler: Any) -> None:
    """Have a scheduler look for jobs to start."""
    scheduler._open_jobs.release()
