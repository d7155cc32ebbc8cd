"""Decides by the content of files which jobs of a run are done, where Snakemake goes by times and by its own records.

Snakemake's records are gone with its folder, and know nothing of another checkout that used the same results. So before
it judges, each job's outputs are held against the record that lies beside them.
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

# Digests of larger files, kept for the next run.
DIGESTS = Path(".snakemake/profzoo/digests.json")
# Inputs of a collecting job that its command is handed; others are reasons to run it, of which its own words tell.
HANDED_OVER = ("weights", "plan")
# Programs that leave a record of what a rule's command has made.
RECORDING = ("profzoo.collect ", "profzoo.records.keep ")
# So many lines at most tell of files that are made again, or cannot be used.
MOST_LINES = 4
# Of jobs that are made again because of their content, by their outputs: why.
Outputs = tuple[str, ...]
_reasons: dict[Outputs, str] = {}


@dataclass
class Decision:
    """What is decided of the jobs of a run: done are those that need not run, redone those that must, and why."""

    done: set[Any] = field(default_factory=set)
    redone: dict[Any, OutputVerdict] = field(default_factory=dict)
    damaged: dict[Any, OutputVerdict] = field(default_factory=dict)
    unknown: dict[Any, OutputVerdict] = field(default_factory=dict)


def decide(dag: Any, root: Path, decided: Callable[[Any], bool] = lambda job: False) -> Decision:
    """What the records say of the jobs of Snakemake's graph that have not run yet.

    root: the folder that holds the workflow. decided: whether a job is going to run, whatever its files hold by now.
    """
    made = Decision()
    # A job may be done only where all that it takes is.
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
    """Take for not done whose outputs were removed again, where a job that needs these is not done."""
    for level in reversed(internals.sort_jobs(dag)):
        for job in level:
            gone = job in made.done and not all(Path(str(path)).exists() for path in job.output)
            if gone and not all(
                one in made.done or internals.has_finished(dag, one) for one in internals.jobs_just_after(dag, job)
            ):
                made.done.discard(job)


def leaves_record(job: Any) -> bool:
    """Whether a job of Snakemake's leaves a record, and what it takes is known by now."""
    if not job.output or internals.waits_for_checkpoint(job):
        return False
    if any(map(internals.is_stored, (*job.output, *job.input))):
        return False
    shell, script = job.rule.shellcmd or "", job.rule.script
    # A workflow that uses this one may have scripts of its own.
    own = bool(script) and any(str(path).endswith(f"workflow/scripts/{Path(script).name}") for path in job.input)
    return own or any(word in shell for word in RECORDING)


def planned(job: Any) -> PlannedJob:
    """A job of Snakemake's, as records know it."""
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
    """Where a collecting job of Snakemake's leaves its record; None of any other job."""
    return Path(str(job.output.sidecar)) if internals.measures(job) else None


def hidden_files(job: Any) -> Iterator[Path]:
    """Where a job of Snakemake's leaves records, and what it has not finished when it is killed."""
    outputs = [Path(str(path)) for path in job.output] if leaves_record(job) else []
    for path in outputs:
        yield record.record_path(path)
        yield path.with_name(f"{path.name}{derived_outputs.PARTIAL}")
    yield from derived_outputs.private_folders(outputs).values()


def judge_by_content(root: Path, say: Callable[[str], None]) -> None:
    """From now on, have Snakemake take for done what records say is done, and run again what they say is not.

    root: the folder that holds the workflow. say: prints a line, once.
    """
    said: set[str] = set()
    again: dict[Outputs, OutputVerdict] = {}

    async def update_needrun(dag: Any, create_inventory: bool = False) -> None:
        # After a checkpoint all is judged once more, while jobs run whose files and records are half of the old ones.
        decided = {_outputs(job) for job in internals.decided_jobs(dag)}
        made = decide(dag, root, lambda job: _outputs(job) in decided)
        made.redone |= {
            job: again[_outputs(job)] for job in internals.all_jobs(dag) if _outputs(job) in decided & again.keys()
        }
        again.update({_outputs(job): verdict for job, verdict in made.redone.items()})
        await _update(dag, made, create_inventory)
        # A job that reads a damaged file says so itself.
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
    """Why a job's outputs are made again, where their content is the reason."""
    return _reasons.get(_outputs(job))


def describe_damage(made: Decision, read: Collection[str] = ()) -> list[str]:
    """What a user is told of files that are damaged.

    read: files that jobs of this run are about to read, and to complain of by themselves.
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
    """Why a job's outputs are made again, in a few words.

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
    """Whether any output, or a record of one that has been removed again, is there."""
    return any(Path(str(path)).exists() or internals.is_temporary(path) for path in job.output)


def _all_done(dag: Any, job: Any, made: Decision) -> bool:
    return all(one in made.done or internals.has_finished(dag, one) for one in internals.jobs_just_before(dag, job))


def _listed(files: Any) -> list[str]:
    return [str(files)] if isinstance(files, str) else [str(path) for path in files]


def _outputs(job: Any) -> Outputs:
    """What a job makes, by which it is known: it is another object once more is known of its inputs."""
    return tuple(map(str, job.output))


async def _update(dag: Any, made: Decision, create_inventory: bool) -> None:
    """Snakemake's own judgement, with jobs that are done left out, and those that must run forced."""
    again = [str(path) for job in made.redone for path in job.output]
    await internals.judge_by_times(dag, create_inventory, made.done, again)
    for job, verdict in made.redone.items():
        settings = verdict.why[:2] if verdict.settings or not verdict.others else None
        internals.explain_run(dag, job, map(str, verdict.others), settings)
        _reasons[_outputs(job)] = describe_reason(verdict)
