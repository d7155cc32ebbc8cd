"""Lists the files that a run makes and what it withholds; after its end its failures, unrun jobs, missing reports."""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from profzoo.collect import environment, failures, transaction
from profzoo.collect.failures import Failure
from profzoo.errors import ConfigError, DataError
from profzoo.io import sidecars
from profzoo.records import derived_outputs, import_graph, output_status, record
from profzoo.records.output_status import OutputState
from profzoo.records.record import DamagedRecordError
from profzoo.workflow import snakemake_internals, up_to_date

# Keeps a run from overwriting files that it did not make, and measurements of a GPU by measurements of a CPU.

# Number of files that a message names.
NAMED = 3
KEEP = "`--config collect=false` takes results as they are"


def check(jobs: Iterable[Any], made_here: Collection[str], gpu_missing: bool, collects: bool) -> None:
    """Raise ConfigError if jobs would overwrite foreign files, or measurements of a GPU by measurements of a CPU.

    jobs: jobs of Snakemake's graph. made_here: paths that earlier runs in this folder made. gpu_missing: whether jobs
    run on this machine and it has no GPU. collects: whether the run may measure (the setting `collect`).
    """
    mine = {_place(path) for path in made_here}
    foreign, measured = [], []
    for job in (one for one in jobs if up_to_date.leaves_record(one)):
        there = [Path(str(path)) for path in job.output if os.path.lexists(path)]
        foreign += [
            path for path in there if os.path.normpath(Path.cwd() / path) not in mine and not _recorded(job, path)
        ]
        if gpu_missing and (sidecar := up_to_date.sidecar(job)) and (gpu := measured_on(sidecar)):
            measured.append(f"{sidecar.with_suffix('')} was measured on {gpu}")
    if foreign:
        one = len(foreign) == 1
        # A run that does not measure replaces tables, figures and the page alone.
        advice = (
            f"; for results from elsewhere, {KEEP}" if collects else ", and new ones are made from the measurements"
        )
        raise ConfigError(
            f"{_listed(list(map(str, foreign)))} {'was' if one else 'were'} not made in this folder, according to "
            f"its records, and this run would replace {'it' if one else 'them'}: move {'it' if one else 'them'} away"
            f"{advice}"
        )
    if measured:
        raise ConfigError(
            f"{_listed(measured)}, and would be replaced by times of the CPU, because this machine has no GPU: {KEEP}, "
            "and `device=cpu` measures on the CPU all the same"
        )


def measured_on(sidecar: Path) -> str | None:
    """Name of the GPU on which a job with `device: auto` ran; None if it ran on a CPU."""
    try:
        known = sidecars.read_sidecar(sidecar, sidecars.NOTHING)
    except (DataError, OSError):
        return None
    cell = known.get("cell")
    if not isinstance(cell, Mapping) or cell.get("device") != "auto":
        return None
    gpu = known.get("gpu")
    return f"{gpu} of {known['host']}" if gpu and known.get("host") else gpu


def _place(path: str | Path) -> str:
    """Absolute path, without resolving links."""
    return os.path.normpath(Path.cwd() / path)


def _recorded(job: Any, path: Path) -> bool:
    """Whether an output has a record, complete or not."""
    sidecar = up_to_date.sidecar(job)
    try:
        return (record.read_sidecar_record(sidecar) if sidecar else record.read_output_record(path)) is not None
    except (DamagedRecordError, OSError):
        return True


def _listed(texts: list[str]) -> str:
    rest = len(texts) - NAMED
    return ", ".join([*texts[:NAMED], *([f"and {rest} more"] if rest > 0 else [])])


REPORT = "write_report"


class Told(Protocol):
    """The terminal output of a run."""

    def ended_by_user(self, number: int) -> bool:
        """Whether a job ended because the user ended the run."""


def made_files(jobs: Iterable[Any]) -> Iterator[str]:
    """Files that these jobs make: outputs, logs, benchmarks, and the private folders of measurements."""
    for job in jobs:
        for file in (*job.output, *job.log, job.benchmark):
            if file:
                yield snakemake_internals.name_of(file)
        yield from map(str, up_to_date.hidden_files(job))
        if snakemake_internals.measures(job):
            yield str(transaction.private_home(Path(job.output.sidecar)))


def describe_withheld(jobs: Iterable[Any], extra: Sequence[str]) -> str:
    """One line about environment variables that do not reach programs of the user's own; empty if no job runs one.

    extra: names of variables that every program gets.
    """
    own = any(
        environment.is_own(json.loads(job.params.job)["cell"]) for job in jobs if snakemake_internals.measures(job)
    )
    return environment.describe_withheld(os.environ, extra) if own else ""


def failed_jobs(dag: Any, scheduler: Any, told: Told | None, said: Mapping[int, str]) -> Iterator[Failure]:
    """Yield the failed jobs; in a failed group, only the jobs whose outputs are missing.

    told: terminal output, which knows the jobs that the user ended; these did not fail. said: messages of the batch
    system, by job number.
    """
    for job, grouped in snakemake_internals.failed_jobs(scheduler):
        if told and told.ended_by_user(job.jobid):
            continue
        if not (grouped and job.output and all(Path(path).exists() for path in job.output)):
            more = unrun_measurements(dag, job), said.get(job.jobid, "")
            for name, outputs, logs in _failed_parts(job):
                yield Failure(name, dict(job.wildcards_dict), job.params.get("job"), outputs, logs, *more)


def _failed_parts(job: Any) -> list[tuple[str, list[str], list[str]]]:
    """Name, outputs and logs of a failed job; of one with several parts, those of each part that failed."""
    whole = job.rule.name, list(map(str, job.output)), list(map(str, job.log))
    if len(derived_outputs.split_job(job, job.rule.name)) == 1:
        return [whole]
    unmade = _unmade_parts(job)
    gone = {path for part in unmade for path in map(str, part.outputs)}
    # Others were not run, because they read what these were to make.
    failed = [part for part in unmade if gone.isdisjoint(derived_outputs.as_list(part.input))]
    return [(part.rule, list(map(str, part.outputs)), list(map(str, part.log))) for part in failed] or [whole]


def unrun_measurements(dag: Any, failed: Any) -> list[str]:
    """Titles of measurements that did not run because a job failed; other waiting jobs are not named."""
    after = snakemake_internals.jobs_after(dag, failed)
    waited = {
        job
        for job in after
        if job is not failed and snakemake_internals.measures(job)
        if snakemake_internals.is_going_to_run(dag, job) and not snakemake_internals.has_finished(dag, job)
    }
    return sorted(
        failures.job_title(
            Failure(job.rule.name, dict(job.wildcards_dict), job.params.get("job"), list(job.output), [])
        )
        for job in waited
    )


def unfinished_files(dag: Any) -> list[str]:
    """The files that this run was to make, and did not; a joint job may have made some of its own."""
    return [path for job in _unfinished_jobs(dag) for path in _absent_files(job)]


def files_apart(dag: Any, lost: Iterable[Failure]) -> list[str]:
    """Tables of single cells that rules can make one by one, although a joint job failed or waits for what failed.

    A joint job (profzoo/workflow/joint_rules.py) is done only if all of its rules are. Each of these tables needs
    nothing that failed, neither at once nor through other jobs.
    """
    jobs = [job for job in _unfinished_jobs(dag) if "model" in job.wildcards_dict]
    parts = [part for job in jobs for part in derived_outputs.split_job(job, job.rule.name)]
    if len(parts) == len(jobs):
        return []
    measured = [job for job in jobs if snakemake_internals.measures(job)]
    gone = {path for one in lost for path in one.outputs} | {str(path) for job in measured for path in job.output}
    needing = [part for part in parts if not gone.intersection(map(str, part.output))]
    while without := [part for part in needing if gone.intersection(map(str, part.input))]:
        gone |= {str(path) for part in without for path in part.output}
        needing = [part for part in needing if part not in without]
    absent = {path for job in jobs for path in _absent_files(job)}
    return [path for part in needing for path in map(str, part.output) if path in absent]


def _absent_files(job: Any) -> list[str]:
    """The outputs of an unfinished job, but for those of parts that were made."""
    return [str(path) for part in _unmade_parts(job) for path in part.output]


def _unmade_parts(job: Any) -> list[derived_outputs.JobPart]:
    """The parts of an unfinished job that are not made as planned; a job of one part is unmade."""
    parts = derived_outputs.split_job(job, job.rule.name)
    if len(parts) == 1:
        return parts
    verdicts = [output_status.judge_outputs(part, import_graph.PROJECT) for part in up_to_date.planned(job)]
    return [part for part, one in zip(parts, verdicts, strict=True) if one.state is not OutputState.SAME]


def can_report_rest(dag: Any, lost: Collection[Failure]) -> bool:
    """Whether a run should have written the report and did not, and there are new results or failures to show."""
    ended = (job for job in snakemake_internals.jobs_to_run(dag, ended_too=True) if _ended(dag, job))
    new = any(map(snakemake_internals.measures, ended))
    return bool(unwritten_reports(dag)) and (bool(report_failures(dag, lost)) or new)


def unwritten_reports(dag: Any) -> list[Any]:
    """Unfinished jobs that write the report, at most one."""
    return [job for job in _unfinished_jobs(dag) if job.rule.name == REPORT]


def tables_of_answer(results: Path, lost: Collection[str]) -> dict[str, list[str]]:
    """Tables of verdicts and plans, and of differing steps, by the rules that make them; only those that exist.

    lost: paths that could not be made, so that tables there are of an earlier run.
    """
    names = {"tabulate": "repetition", "tabulate_verdicts": "verdicts", "tabulate_plans": "plans"}
    paths = {rule: results / "tables" / f"{name}.csv" for rule, name in names.items()}
    return {rule: [str(path)] for rule, path in paths.items() if path.exists() and str(path) not in lost}


def report_failures(dag: Any, lost: Collection[Failure]) -> list[Failure]:
    """Failures on which the report depends; failures of other targets do not concern it."""
    before = snakemake_internals.jobs_before(dag, unwritten_reports(dag))
    needed = {path for job in before for path in job.output}
    return [one for one in lost if needed & set(one.outputs)]


def count_unrun(dag: Any, scheduler: Any) -> int:
    """Number of jobs that did not run because other jobs failed."""
    over = {job for job, _ in snakemake_internals.failed_jobs(scheduler)}
    return sum(job not in over and bool(_absent_files(job) or not job.output) for job in _unfinished_jobs(dag))


def _ended(dag: Any, job: Any) -> bool:
    return snakemake_internals.has_finished(dag, job)


def _unfinished_jobs(dag: Any) -> list[Any]:
    return [job for job in snakemake_internals.jobs_to_run(dag) if not _ended(dag, job)]
