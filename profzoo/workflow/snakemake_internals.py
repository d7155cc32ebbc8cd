"""Uses undocumented attributes of Snakemake's job graph, scheduler, files and messages.

`snakemake_attributes` lists them all. Other modules call the functions here. They read only a job's own attributes,
such as its rule and its files, directly.
"""

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

# Imported first: Snakemake's modules import each other and load only in this order.
import snakemake.cli

# Imported first: Snakemake's modules import each other and load only in this order.
from snakemake.common import async_run
from snakemake.dag import DAG
from snakemake.exceptions import RuleException, WorkflowError
from snakemake.io import AnnotatedString, is_callable, strip_wildcard_constraints
from snakemake.iocontainers import Wildcards
from snakemake.jobs import Job
from snakemake.output_index import OutputIndex
from snakemake.persistence import ParamsChange
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.script import PythonScript
from snakemake.shell import shell

# Lists the attributes of Snakemake that are used although its documentation does not promise them.
#
# `find_missing` lists the attributes that the installed version lacks. Snakemake's start prints them in one line, and a
# test fails if there are any.

# Used attributes and their purposes, by class or module of Snakemake.
USED: Mapping[str, Mapping[str, str]] = {
    "snakemake.workflow": {"FilePersistence": "locks name their run"},
    "snakemake.workflow.Workflow": {
        "config_settings": "what --config gives",
        "current_basedir": "the folder of the workflow",
        "dag": "the jobs of a run",
        "dag_settings": "targets of the command line",
        "deployment_settings": "whether jobs load modules of software",
        "dryrun": "checkpoints of a dry run",
        "execute": "processes that are forked",
        "execution_settings": "whether a run takes locks",
        "global_resources": "how many GPUs jobs share",
        "group_settings": "jobs that run together on a cluster",
        "is_main_process": "what is said once per run",
        "list_rules": "the list of rules",
        "local_exec": "where jobs run",
        "logger_manager": "messages in the terminal",
        "main_snakefile": "the report of a run that failed",
        "modifier": "whether another workflow uses this one",
        "output_settings": "messages that a user asked for",
        "overwrite_configfiles": "the files of --configfile",
        "pathvars": "the folder of results",
        "persistence": "software that has changed",
        "ruleorder": "rules that are joined",
        "rules": "what a user may type",
        "scheduler": "jobs that failed",
        "source_path": "the file that finds the workflow's folder",
        "storage_settings": "rules that are joined",
    },
    "snakemake.cli": {"args_to_api": "where jobs run"},
    "snakemake.common": {"async_run": "whether a file is up to date"},
    "snakemake.dag.DAG": {
        "_finished": "jobs that are done by their records",
        "_len": "the number of jobs",
        "_needrun": "jobs that are going to run",
        "bfs": "jobs before and after a job",
        "check_and_touch_output": "why outputs are refused",
        "dependencies": "jobs before a job",
        "depending": "jobs after a job",
        "file2jobs": "whether a file is up to date",
        "finished": "whether a job has ended well",
        "forcefiles": "jobs that are forced",
        "forcerules": "jobs that are forced",
        "jobs": "all jobs",
        "needrun": "whether a job is going to run",
        "needrun_jobs": "the jobs that are going to run",
        "reason": "why a job runs",
        "targetfiles": "what a run asks for",
        "toposorted": "jobs in their order",
        "update_needrun": "which jobs are going to run",
        "workflow": "the workflow of a graph",
    },
    "snakemake.jobs.Job": {
        "benchmark": "how long a job took",
        "cleanup": "old outputs of a job that fails",
        "input": "its files",
        "is_group": "groups of jobs",
        "jobid": "its number",
        "log": "its files",
        "output": "its files",
        "params": "the text that it goes by",
        "remove_existing_output": "old outputs of a job that fails",
        "rule": "its rule",
        "wildcards_dict": "its cell",
    },
    "snakemake.jobs.GroupJob": {"is_group": "groups of jobs", "jobs": "the jobs of a group"},
    "snakemake.jobs.Reason": {
        "forced": "why a job runs",
        "incomplete_output": "why a job runs",
        "params_changed": "why a job runs",
        "updated_input": "why a job runs",
    },
    "snakemake.io": dict.fromkeys(
        ("AnnotatedString", "is_callable", "strip_wildcard_constraints"), "rules that are joined"
    ),
    "snakemake.iocontainers.Namedlist": {
        "_allitems": "rules that are joined",
        "_set_name": "rules that are joined",
        "get": "files by name",
        "items": "files by name",
        "keys": "params by name",
    },
    "snakemake.io._IOFile": {
        "flags": "temporary files and checkpoints",
        "is_ancient": "inputs whose age counts for nothing",
        "is_storage": "files in a remote storage",
        "storage_object": "files in a remote storage",
    },
    "snakemake.script.PythonScript": {
        "_execute_cmd": "scripts that are forked",
        "execute_script": "scripts that are forked",
        "get_preamble": "scripts that a Ctrl-C ends",
    },
    "snakemake.logging.LoggerManager": {"logger": "messages in the terminal"},
    "snakemake.rules.Rule": {
        "docstring": "the list of rules",
        "group": "jobs that run together on a cluster",
        "has_wildcards": "the list of rules",
        "name": "its name",
        "script": "whether a job leaves a record",
        "shellcmd": "whether a job leaves a record",
    },
    "snakemake.output_index.OutputIndex": {"match_producers": "rules that are joined"},
    "snakemake.persistence.PersistenceBase": {
        "has_metadata": "software that has changed",
        "software_stack_changed": "software that has changed",
    },
    "snakemake.persistence.file.FilePersistence": dict.fromkeys(
        ("_delete_locks", "_lockfile", "_read_locks", "_write_locks", "all_inputfiles", "all_outputfiles",
         "cleanup_locks", "dag", "lock", "locked", "path", "unlock"),
        "locks name their run",
    ),
    "snakemake.settings.types.DAGSettings": {
        "force_incomplete": "files of killed jobs",
        "targets": "targets of the command line",
    },
    "snakemake.scheduling.job_scheduler.JobScheduler": {
        "_executor": "what a batch system says",
        "_open_jobs": "the end of a run",
        "_schedule_reevalutation": "the end of a run",
        "exit_gracefully": "SIGTERM",
        "failed": "jobs that failed",
        "running": "jobs that end when they are told to",
        "schedule": "the end of a dry run",
    },
    "snakemake.shell.shell": {"terminate": "jobs that end when they are told to"},
    "snakemake_interface_executor_plugins.executors.base.AbstractExecutor": {
        "print_job_error": "what a batch system says",
    },
}  # fmt: skip


def find_missing(owners: Iterable[str] | None = None) -> list[str]:
    """Names of declared attributes that the installed Snakemake lacks; owners: classes and modules to check."""
    return [f"{owner}.{name}" for owner in owners or USED for name in USED[owner] if not _has(_found(owner), name)]


def describe_missing() -> str:
    """One line that names missing attributes, their purposes, and what to do; empty if none is missing."""
    lacking = [(name, USED[name.rpartition(".")[0]][name.rpartition(".")[2]]) for name in find_missing()]
    if not lacking:
        return ""
    told = ", ".join(f"{name} ({purpose})" for name, purpose in lacking)
    return f"Snakemake {snakemake.__version__} has no {told}: take the version that requirements.lock names"


def _found(path: str) -> Any:
    """A module or a class by its dotted name; None if it does not exist."""
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _has(owner: Any, name: str) -> bool:
    """Whether a module or a class has an attribute, or one of its functions names it, for example to set it."""
    if hasattr(owner, name):
        return True
    bases = owner.__mro__ if isinstance(owner, type) else ()
    functions = (one for base in bases for one in vars(base).values() if isinstance(one, FunctionType))
    return any(name in inspect.get_annotations(base) for base in bases) or any(
        name in function.__code__.co_names for function in functions
    )


STREAM = "DefaultStreamHandler"
# First line of each script of a rule.
QUIET = (
    "import sys; sys.excepthook = lambda kind, *more: "
    "None if issubclass(kind, KeyboardInterrupt) else sys.__excepthook__(kind, *more)"
)
_judge_by_times = DAG.update_needrun
_run_jobs = JobScheduler.schedule


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


def requested_files(dag: Any, job: Any) -> set[str]:
    """Outputs of a job that a run asks for: its targets, and files that other jobs of the graph read."""
    read = (path for paths in dag.depending.get(job, {}).values() for path in paths)
    return {str(path) for path in (*read, *dag.targetfiles)}


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


def make_wildcards(values: Mapping[str, str]) -> Any:
    """Make Snakemake's wildcards of their values."""
    return Wildcards(fromdict=dict(values))


def replace_wildcards(path: Any, values: Mapping[str, str]) -> Any:
    """Return a rule's pattern of a file with these values, without regular expressions of wildcards, with its marks."""
    text = str(strip_wildcard_constraints(str(path)))
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    made = AnnotatedString(text)
    made.flags.update(getattr(path, "flags", {}))
    if report := made.flags.get("report"):
        labels = report.labels
        told = labels(Wildcards(fromdict=dict(values))) if is_callable(labels) else labels
        made.flags["report"] = report._replace(labels=told)
    return made


def is_function(value: Any) -> bool:
    """Return whether a rule's parameter is a function of wildcards."""
    return is_callable(value)


def list_inputs(rule: Any, wildcards: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield the inputs of a rule for wildcards: the name, None for inputs without one, and a file or several.

    What its functions raise passes through, such as the exception by which a checkpoint says that it has not run.
    """
    for name, item in rule.input._allitems():
        if not is_callable(item):
            several: Any = [item] if isinstance(item, str) else item
            files = [one.apply_wildcards(wildcards) for one in several]
            yield name, files[0] if isinstance(item, str) else files
            continue
        # A function that is marked, as by `unpack`, lies in a text; one among files, in a file of this text.
        marked = getattr(item, "_file", item)
        found = getattr(marked, "callable", marked)(wildcards)
        if isinstance(found, dict) and not name:
            yield from found.items()
        else:
            yield name, found


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


def runs_here(workflow: Any) -> bool:
    """Whether jobs run on this machine; Snakemake tells its workflow only after it has read the rules."""
    frame = inspect.currentframe()
    while frame and frame.f_code is not snakemake.cli.args_to_api.__code__:
        frame = frame.f_back
    plugin = frame and frame.f_locals["executor_plugin"]
    return bool((plugin.common_settings if plugin else workflow).local_exec)


def before_jobs_here(workflow: Any, begin: Callable[[], None]) -> None:
    """Call a function before a run plans its jobs, if it is going to run them on this machine."""
    execute = workflow.execute

    def executing(*, executor_plugin: Any, **given: Any) -> Any:
        told = executor_plugin.common_settings
        if told.local_exec and not (told.dryrun_exec or told.touch_exec):
            begin()
        return execute(executor_plugin=executor_plugin, **given)

    workflow.execute = executing


def executor_of(workflow: Any) -> Any:
    """Snakemake's executor, which runs jobs on this machine or submits them to a batch system."""
    return workflow.scheduler._executor


def keep_old_outputs(keeps: Callable[[Any], bool]) -> None:
    """Let Snakemake leave the old outputs of jobs in place, before they run and after they fail.

    keeps: function that tells for which jobs: those that replace all outputs at once when these are whole.
    """
    remove, clean = Job.remove_existing_output, Job.cleanup

    async def remove_existing_output(job: Any) -> None:
        if not keeps(job):
            await remove(job)

    async def cleanup(job: Any, skip_outputs: Collection[Any]) -> None:
        await clean(job, [*job.output] if keeps(job) else skip_outputs)

    Job.remove_existing_output, Job.cleanup = remove_existing_output, cleanup


def shorten_script_interrupts() -> None:
    """Let scripts of rules that a Ctrl-C ends print nothing: the run says that it was ended."""
    preamble = PythonScript.get_preamble
    PythonScript.get_preamble = lambda script: f"{QUIET}\n{preamble(script)}"


def run_scripts_by(command: str) -> None:
    """Have scripts run by this command in place of Python, but for those with software or a command of their own."""
    by_itself = PythonScript.execute_script
    if by_itself.__module__ != PythonScript.__module__:
        return

    def execute_script(script: Any, fname: str, edit: bool = False) -> None:
        if edit or script.container_img or script.conda_env or script.env_modules:
            by_itself(script, fname, edit)
        else:
            script._execute_cmd("{python} {fname:q}", python=command, fname=fname, is_python_script=True)

    PythonScript.execute_script = execute_script


def prefer_rules(others: Mapping[str, Collection[str]]) -> None:
    """Make no jobs of these other rules for a file that a preferred rule makes; others: their names by its name.

    By `ruleorder` alone, Snakemake makes a job of each, and then uses one. It also looks for the rules of a file again
    for each job that reads it.
    """
    match = OutputIndex.match_producers
    known: dict[tuple[Any, str], set[Any]] = {}

    def match_producers(index: Any, path: str) -> set[Any]:
        if (index, path) not in known:
            found = match(index, path)
            less = {name for rule in found for name in others.get(rule.name, ())}
            known[index, path] = {rule for rule in found if rule.name not in less}
        return known[index, path]

    OutputIndex.match_producers = match_producers


def leave_out_groups(dag: Any) -> None:
    """Leave out the groups of jobs in a dry run whose profile groups none: Snakemake would check them.

    They are those of a cluster. A run on this machine has no groups either.
    """
    workflow = dag.workflow
    for rule in workflow.rules if workflow.dryrun and not workflow.group_settings.group_components else ():
        rule.group = None


def end_dry_runs_early() -> None:
    """Let a dry run end once its jobs are known: Snakemake would go through them, to print each."""
    JobScheduler.schedule = lambda scheduler: scheduler.workflow.dryrun or _run_jobs(scheduler)


def end_gracefully(scheduler: Any) -> None:
    """Start no more jobs, and end after the running jobs."""
    scheduler.exit_gracefully()


def end_running(scheduler: Any, rules: Collection[str]) -> None:
    """Send a SIGTERM to the running jobs of these rules."""
    for job in list(scheduler.running):
        if job.rule.name in rules:
            shell.terminate(job.jobid)


def schedule_by(later: Callable[[Any, float], None]) -> None:
    """Replace the function by which Snakemake looks for jobs again; later: takes a scheduler and a delay in seconds."""
    JobScheduler._schedule_reevalutation = later


def look_again(scheduler: Any) -> None:
    """Have a scheduler look for jobs to start."""
    scheduler._open_jobs.release()
