"""Lists the attributes of Snakemake that are used although its documentation does not promise them.

`find_missing` lists the attributes that the installed version lacks. Snakemake's start prints them in one line, and a
test fails if there are any.
"""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

# Imported first: Snakemake's modules import each other and load only in this order.
import snakemake.cli

# Used attributes and their purposes, by class or module of Snakemake.
USED: Mapping[str, Mapping[str, str]] = {
    "snakemake.workflow": {"FilePersistence": "locks name their run"},
    "snakemake.workflow.Workflow": {
        "config_settings": "what --config gives",
        "cores": "jobs at a time",
        "current_basedir": "the folder of the workflow",
        "dag": "the jobs of a run",
        "dag_settings": "targets of the command line",
        "deployment_settings": "whether jobs load modules of software",
        "dryrun": "checkpoints of a dry run",
        "execution_settings": "whether a run takes locks",
        "global_resources": "how many GPUs jobs share",
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
        "rules": "what a user may type",
        "scheduler": "jobs that failed",
        "source_path": "the file that finds the workflow's folder",
    },
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
        "toposorted": "jobs in their order",
        "update_needrun": "which jobs are going to run",
        "workflow": "the workflow of a graph",
    },
    "snakemake.jobs.Job": {
        "benchmark": "how long a job took",
        "input": "its files",
        "is_group": "groups of jobs",
        "jobid": "its number",
        "log": "its files",
        "output": "its files",
        "params": "the text that it goes by",
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
    "snakemake.iocontainers.Namedlist": {"get": "files by name", "items": "files by name", "keys": "params by name"},
    "snakemake.io._IOFile": {
        "flags": "temporary files and checkpoints",
        "is_ancient": "inputs whose age counts for nothing",
        "is_storage": "files in a remote storage",
        "storage_object": "files in a remote storage",
    },
    "snakemake.logging.LoggerManager": {"logger": "messages in the terminal"},
    "snakemake.rules.Rule": {
        "docstring": "the list of rules",
        "has_wildcards": "the list of rules",
        "name": "its name",
        "script": "whether a job leaves a record",
        "shellcmd": "whether a job leaves a record",
    },
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
