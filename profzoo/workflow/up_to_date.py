"""Decides by file contents which jobs of a run are done; Snakemake goes by modification times and its own records.

Snakemake's records vanish with its folder, and do not cover another checkout that used the same results. Therefore each
job's outputs are compared with the record beside them before Snakemake decides.
"""

import functools
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo.collect import environment
from profzoo.io import file_checks
from profzoo.records import derived_outputs, digests, import_graph, output_status, record
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
# States in which the records of a job are no reason to make its outputs again.
LEFT = (OutputState.SAME, OutputState.ABSENT)
# Reasons of jobs that run again because of file contents, by their outputs.
Outputs = tuple[str, ...]
_reasons: dict[Outputs, str] = {}


@dataclass
class Decision:
    """Decision about the jobs of a run; done: jobs that need not run; redone: jobs that must run, with reasons."""

    done: set[Any] = field(default_factory=set)
    redone: dict[Any, OutputVerdict] = field(default_factory=dict)
    damaged: dict[Any, OutputVerdict] = field(default_factory=dict)


def decide(
    dag: Any,
    root: Path,
    decided: Callable[[Any], bool] = lambda job: False,
    changed: Callable[[Path], str] = lambda path: "",
) -> Decision:
    """Decide by records about the jobs of Snakemake's graph that have not run yet.

    root: folder of the workflow. decided: function that tells whether a job runs in any case. changed: function that
    describes why a measurement that is as recorded runs again, by its sidecar; empty for no reason.
    """
    made = Decision()
    # A job may be done only if all jobs that make its inputs are done.
    for level in internals.sort_jobs(dag):
        for job in level:
            if internals.has_finished(dag, job) or decided(job) or not leaves_record(job):
                continue
            verdict = _judge(dag, job, root) if _there(job) else OutputVerdict(OutputState.ABSENT)
            if verdict.state is OutputState.ABSENT:
                continue
            collects = internals.measures(job)
            if collects and verdict.state is OutputState.SAME and (why := changed(Path(str(job.output.sidecar)))):
                verdict = OutputVerdict(OutputState.OTHER, (why,))
            if (
                verdict.state is OutputState.SAME
                and not internals.is_asked_for_again(dag, job)
                and _all_done(dag, job, made)
            ):
                made.done.add(job)
            elif verdict.state is OutputState.DAMAGED and collects:
                made.damaged[job] = verdict
            elif verdict.state is not OutputState.SAME:
                made.redone[job] = verdict
    _keep_makers(dag, made)
    return made


def _keep_makers(dag: Any, made: Decision) -> None:
    """Mark jobs with removed outputs that the run asks for as not done, if a job that needs outputs is not done."""
    for level in reversed(internals.sort_jobs(dag)):
        for job in level:
            gone = {str(path) for path in job.output if not Path(str(path)).exists()} if job in made.done else set()
            if not gone or not gone & internals.requested_files(dag, job):
                continue
            if not all(
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


def _judge(dag: Any, job: Any, root: Path) -> OutputVerdict:
    """Judge the parts of a job that the run asks for; a part to be made again precedes one that is absent."""
    parts = planned(job)
    if len(parts) > 1:
        asked = internals.requested_files(dag, job)
        parts = [part for part in parts if asked.intersection(map(str, part.outputs))] or parts
    verdicts = [output_status.judge_outputs(part, root) for part in parts]
    return max(verdicts, key=lambda one: (one.state is not OutputState.SAME) + (one.state not in LEFT))


def planned(job: Any) -> list[PlannedJob]:
    """Convert a Snakemake job to the form that records use, part by part."""
    return [_planned_part(job, part) for part in derived_outputs.split_job(job, job.rule.name)]


def _planned_part(job: Any, part: derived_outputs.JobPart) -> PlannedJob:
    outputs = part.outputs
    aged = [str(path) for path in job.input if internals.is_ancient(path)]
    code, read = derived_outputs.split_inputs(aged, import_graph.PROJECT)
    loose = frozenset([*_sources(code), *read])
    passing = frozenset(Path(str(path)) for path in job.output if internals.is_temporary(path))
    if internals.measures(job):
        named = {str(path) for name in dict(job.input.items()) for path in derived_outputs.as_list(job.input[name])}
        unnamed = [str(path) for path in job.input if str(path) not in named]
        code, own = derived_outputs.split_inputs(unnamed, import_graph.PROJECT)
        sources = [*_sources(code), *own]
        read = [Path(path) for name in HANDED_OVER for path in derived_outputs.as_list(job.input.get(name, []))]
        goes_by = json.loads(job.params.job)
        home, variables = Path(str(job.output.sidecar)), environment.rest_digests()
        return PlannedJob(goes_by, outputs, sources, read, loose, home, passing, variables)
    code, read = derived_outputs.split_inputs(derived_outputs.as_list(part.input), import_graph.PROJECT)
    rule, params = (
        (part.rule, derived_outputs.collect_params(part.params)) if job.rule.script else (derived_outputs.IN_SHELL, {})
    )
    text = derived_outputs.describe_job(rule, params)
    return PlannedJob(text, outputs, _sources(code), read, loose, None, passing)


def _sources(code: Sequence[Path]) -> list[Path]:
    """Source files that a job runs, by the code among its inputs, relative as these are."""
    return [_relative(path) for path in import_graph.files_of_inputs(code)]


@functools.cache
def _relative(path: Path) -> Path:
    return Path(os.path.relpath(path))


def sidecar(job: Any) -> Path | None:
    """Path of the sidecar in which a collecting job leaves its record; None for other jobs."""
    return Path(str(job.output.sidecar)) if internals.measures(job) else None


def hidden_files(job: Any) -> Iterator[Path]:
    """Paths of a job's records, and of its unfinished files if it is killed."""
    for part in derived_outputs.split_job(job, job.rule.name) if leaves_record(job) else ():
        for path in part.outputs:
            yield record.record_path(path)
            yield path.with_name(f"{path.name}{derived_outputs.PARTIAL}")
        yield from derived_outputs.private_folders(part.outputs).values()


def judge_by_content(root: Path, say: Callable[[str], None], changed: Callable[[Path], str] = lambda path: "") -> None:
    """From now on, let records decide which of Snakemake's jobs are done and which run again.

    root: folder of the workflow. say: function that prints a line once. changed: as for `decide`.
    """
    said: set[str] = set()
    again: dict[Outputs, OutputVerdict] = {}

    async def update_needrun(dag: Any, create_inventory: bool = False) -> None:
        internals.leave_out_groups(dag)
        # After a checkpoint Snakemake decides again, while running jobs have replaced only some of their old files.
        decided = {_outputs(job) for job in internals.decided_jobs(dag)}
        made = decide(dag, root, lambda job: _outputs(job) in decided, changed)
        made.redone |= {
            job: again[_outputs(job)] for job in internals.all_jobs(dag) if _outputs(job) in decided & again.keys()
        }
        again.update({_outputs(job): verdict for job, verdict in made.redone.items()})
        await _update(dag, made, create_inventory)
        # A job that reads a damaged file reports it itself.
        dry = internals.is_dry_run(dag)
        read = set() if dry else {str(path) for job in internals.jobs_to_run(dag) for path in job.input}
        for line in (*describe_damage(made, read), *([] if dry else describe_again(made))):
            if line not in said:
                said.add(line)
                say(line)
        if not dry:
            digests.save_digests(DIGESTS)
            _read_statements(dag)
        import_graph.save_statements()

    internals.replace_judgement(update_needrun)


def _read_statements(dag: Any) -> None:
    """Read what the code of the jobs that are going to run imports, so that no job parses it again."""
    scripts = {str(path) for job in internals.jobs_to_run(dag) if job.rule.script for path in job.input}
    import_graph.files_of_inputs(derived_outputs.split_inputs(sorted(scripts), import_graph.PROJECT)[0])


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


def describe_again(made: Decision) -> list[str]:
    """Format lines for the user about measurements that are made again although the same settings are asked for."""
    return _some([
        f"{at.with_suffix('')} is measured again: {describe_reason(verdict)}"
        for job, verdict in made.redone.items()
        if (at := sidecar(job)) and not verdict.settings and verdict.state is not OutputState.DAMAGED
    ], "`snakemake -n` says why")  # fmt: skip


def describe_reason(verdict: OutputVerdict) -> str:
    """Describe in a few words why a job's outputs are made again.

    >>> why = ("cell.batch was 4 and is 7", "seed is 1, and was not given", "a", "b")
    >>> describe_reason(OutputVerdict(OutputState.OTHER, why))
    'cell.batch was 4 and is 7; seed is 1, and was not given; and 2 more'
    """
    shown = verdict.why[:2]
    more = len(verdict.why) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def _some(told: list[str], named: str = "`snakemake verify` names all") -> list[str]:
    rest = len(told) - MOST_LINES
    return told if rest <= 0 else [*told[:MOST_LINES], f"and {rest} more files: {named}"]


def _there(job: Any) -> bool:
    """Whether any output exists, or the record of a removed output."""
    return any(Path(str(path)).exists() or internals.is_temporary(path) for path in job.output)


def _all_done(dag: Any, job: Any, made: Decision) -> bool:
    return all(one in made.done or internals.has_finished(dag, one) for one in internals.jobs_just_before(dag, job))


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
