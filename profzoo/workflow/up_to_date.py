"""Decides by file contents which jobs of a run are done; Snakemake goes by modification times and its own records.

Snakemake's records vanish with its folder, and do not cover another checkout that used the same results. Therefore each
job's outputs are compared with the record beside them before Snakemake decides.
"""

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo import import_graph, import_statements
from profzoo.io import file_checks
from profzoo.records import derived_outputs, digests, output_status, record
from profzoo.records.output_status import OutputState, OutputVerdict, PlannedJob
from profzoo.workflow import snakemake_internals as internals

# Cache of the digests of large files, kept for the next run.
DIGESTS = Path(".snakemake/profzoo/digests.json")
# Names of inputs that a collecting job's command reads; other inputs only run the job again, and its text covers them.
HANDED_OVER = ("weights", "plan")
# Programs that write a record for the outputs of a rule's command.
RECORDING = ("profzoo.collect ", "profzoo.records.keep ")
# Largest number of lines about files that are made again or cannot be used.
MOST_LINES = 4
# Reasons of jobs that run again because of file contents, by their outputs.
Outputs = tuple[str, ...]
_reasons: dict[Outputs, str] = {}


@dataclass
class Decision:
    """Decision about the jobs of a run; done: jobs that need not run; redone: jobs that must run, with reasons."""

    done: set[Any] = field(default_factory=set)
    redone: dict[Any, OutputVerdict] = field(default_factory=dict)
    damaged: dict[Any, OutputVerdict] = field(default_factory=dict)
    unknown: dict[Any, OutputVerdict] = field(default_factory=dict)


def decide(dag: Any, root: Path, decided: Callable[[Any], bool] = lambda job: False) -> Decision:
    """Decide by records about the jobs of Snakemake's graph that have not run yet.

    root: folder of the workflow. decided: function that tells whether a job runs in any case.
    """
    made = Decision()
    # A job may be done only if all jobs that make its inputs are done.
    for level in internals.sort_jobs(dag):
        for job in level:
            if internals.has_finished(dag, job) or decided(job) or not leaves_record(job):
                continue
            verdict = (
                output_status.judge_outputs(planned(job), root) if _there(job) else OutputVerdict(OutputState.ABSENT)
            )
            if verdict.state is OutputState.ABSENT:
                continue
            collects = internals.measures(job)
            if (
                verdict.state is OutputState.SAME
                and not internals.is_asked_for_again(dag, job)
                and _all_done(dag, job, made)
            ):
                made.done.add(job)
            elif verdict.state is OutputState.DAMAGED and collects:
                made.damaged[job] = verdict
            elif verdict.state is OutputState.UNKNOWN and collects:
                made.unknown[job] = verdict
            elif verdict.state is not OutputState.SAME:
                made.redone[job] = verdict
    _keep_makers(dag, made)
    return made


def _keep_makers(dag: Any, made: Decision) -> None:
    """Mark jobs with removed outputs as not done, if a job that needs these outputs is not done."""
    for level in reversed(internals.sort_jobs(dag)):
        for job in level:
            gone = job in made.done and not all(Path(str(path)).exists() for path in job.output)
            if gone and not all(
                one in made.done or internals.has_finished(dag, one) for one in internals.jobs_just_after(dag, job)
            ):
                made.done.discard(job)


def leaves_record(job: Any) -> bool:
    """Whether a Snakemake job leaves a record, and its inputs are known by now."""
    if not job.output or internals.waits_for_checkpoint(job):
        return False
    if any(map(internals.is_stored, (*job.output, *job.input))):
        return False
    shell, script = job.rule.shellcmd or "", job.rule.script
    # A workflow that uses this one as a module may have other scripts.
    own = bool(script) and any(str(path).endswith(f"workflow/scripts/{Path(script).name}") for path in job.input)
    return own or any(word in shell for word in RECORDING)


def planned(job: Any) -> PlannedJob:
    """Convert a Snakemake job to the form that records use."""
    outputs = [Path(str(path)) for path in job.output]
    loose = frozenset(Path(str(path)) for path in job.input if internals.is_ancient(path))
    passing = frozenset(Path(str(path)) for path in job.output if internals.is_temporary(path))
    if internals.measures(job):
        named = {str(path) for name in dict(job.input.items()) for path in _listed(job.input[name])}
        sources = [Path(str(path)) for path in job.input if str(path) not in named]
        read = [Path(path) for name in HANDED_OVER for path in _listed(job.input.get(name, []))]
        goes_by = json.loads(job.params.job)
        return PlannedJob(goes_by, outputs, sources, read, loose, Path(str(job.output.sidecar)), passing)
    code, read = derived_outputs.split_inputs([str(path) for path in job.input], import_graph.PROJECT)
    rule, params = (
        (job.rule.name, derived_outputs.collect_params(job.params))
        if job.rule.script
        else (derived_outputs.IN_SHELL, {})
    )
    return PlannedJob(derived_outputs.describe_job(rule, params), outputs, code, read, loose, None, passing)


def sidecar(job: Any) -> Path | None:
    """Path of the sidecar in which a collecting job leaves its record; None for other jobs."""
    return Path(str(job.output.sidecar)) if internals.measures(job) else None


def hidden_files(job: Any) -> Iterator[Path]:
    """Paths of a job's records, and of its unfinished files if it is killed."""
    outputs = [Path(str(path)) for path in job.output] if leaves_record(job) else []
    for path in outputs:
        yield record.record_path(path)
        yield path.with_name(f"{path.name}{derived_outputs.PARTIAL}")
    yield from derived_outputs.private_folders(outputs).values()


def judge_by_content(root: Path, say: Callable[[str], None]) -> None:
    """From now on, let records decide which of Snakemake's jobs are done and which run again.

    root: folder of the workflow. say: function that prints a line once.
    """
    said: set[str] = set()
    again: dict[Outputs, OutputVerdict] = {}

    async def update_needrun(dag: Any, create_inventory: bool = False) -> None:
        # After a checkpoint Snakemake decides again, while running jobs have replaced only some of their old files.
        decided = {_outputs(job) for job in internals.decided_jobs(dag)}
        made = decide(dag, root, lambda job: _outputs(job) in decided)
        made.redone |= {
            job: again[_outputs(job)] for job in internals.all_jobs(dag) if _outputs(job) in decided & again.keys()
        }
        again.update({_outputs(job): verdict for job, verdict in made.redone.items()})
        await _update(dag, made, create_inventory)
        # A job that reads a damaged file reports it itself.
        dry = internals.is_dry_run(dag)
        read = set() if dry else {str(path) for job in internals.jobs_to_run(dag) for path in job.input}
        for line in describe_damage(made, read):
            if line not in said:
                said.add(line)
                say(line)
        if not dry:
            digests.save_digests(DIGESTS)
            import_statements.save_statements()

    internals.replace_judgement(update_needrun)


def reason_of(job: Any) -> str | None:
    """Reason why a job runs again, if file contents are the reason; else None."""
    return _reasons.get(_outputs(job))


def describe_damage(made: Decision, read: Collection[str] = ()) -> list[str]:
    """Format lines for the user about damaged files.

    read: files that jobs of this run are about to read; these jobs report the damage themselves.
    """
    damaged = [
        f"{verdict.file} is damaged ({verdict.why[0]}): {file_checks.describe_remedy(str(verdict.file))}"
        for verdict in made.damaged.values()
        if str(verdict.file) not in read
    ]
    again = [
        f"{verdict.file} is damaged ({verdict.why[0]}), and is made again"
        for verdict in made.redone.values()
        if verdict.state is OutputState.DAMAGED
    ]
    return [*_some(damaged), *_some(again)]


def describe_reason(verdict: OutputVerdict) -> str:
    """Describe in a few words why a job's outputs are made again.

    >>> why = ("cell.batch was 4 and is 7", "seed is 1, and was not given", "a", "b")
    >>> describe_reason(OutputVerdict(OutputState.OTHER, why))
    'cell.batch was 4 and is 7; seed is 1, and was not given; and 2 more'
    """
    shown = verdict.why[:2]
    more = len(verdict.why) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def _some(told: list[str]) -> list[str]:
    rest = len(told) - MOST_LINES
    return told if rest <= 0 else [*told[:MOST_LINES], f"and {rest} more files: `snakemake verify` names all"]


def _there(job: Any) -> bool:
    """Whether any output exists, or the record of a removed output."""
    return any(Path(str(path)).exists() or internals.is_temporary(path) for path in job.output)


def _all_done(dag: Any, job: Any, made: Decision) -> bool:
    return all(one in made.done or internals.has_finished(dag, one) for one in internals.jobs_just_before(dag, job))


def _listed(files: Any) -> list[str]:
    return [str(files)] if isinstance(files, str) else [str(path) for path in files]


def _outputs(job: Any) -> Outputs:
    """Outputs of a job, which identify it: Snakemake replaces the job object when it learns more about its inputs."""
    return tuple(map(str, job.output))


async def _update(dag: Any, made: Decision, create_inventory: bool) -> None:
    """Run Snakemake's own decision, with done jobs left out and jobs that must run forced."""
    again = [str(path) for job in made.redone for path in job.output]
    await internals.judge_by_times(dag, create_inventory, made.done, again)
    for job, verdict in made.redone.items():
        settings = verdict.why[:2] if verdict.settings or not verdict.others else None
        internals.explain_run(dag, job, map(str, verdict.others), settings)
        _reasons[_outputs(job)] = describe_reason(verdict)
