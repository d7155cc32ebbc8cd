"""Lists the files that a run makes and, after its end, its failures, unrun jobs and missing reports."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from profzoo.collect import failure_summary, transaction
from profzoo.collect.failure_summary import Failure
from profzoo.workflow import snakemake_internals, up_to_date

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


def failed_jobs(dag: Any, scheduler: Any, told: Told | None, said: Mapping[int, str]) -> Iterator[Failure]:
    """Yield the failed jobs; in a failed group, only the jobs whose outputs are missing.

    told: terminal output, which knows the jobs that the user ended; these did not fail. said: messages of the batch
    system, by job number.
    """
    for job, grouped in snakemake_internals.failed_jobs(scheduler):
        if told and told.ended_by_user(job.jobid):
            continue
        if not (grouped and job.output and all(Path(path).exists() for path in job.output)):
            files = list(map(str, job.output)), list(map(str, job.log))
            more = unrun_measurements(dag, job), said.get(job.jobid, "")
            yield Failure(job.rule.name, dict(job.wildcards_dict), job.params.get("job"), *files, *more)


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
        failure_summary.job_title(
            Failure(job.rule.name, dict(job.wildcards_dict), job.params.get("job"), list(job.output), [])
        )
        for job in waited
    )


def unfinished_files(dag: Any) -> list[str]:
    """The files that this run was to make, and did not."""
    return [str(path) for job in _unfinished_jobs(dag) for path in job.output]


def can_report_rest(dag: Any, lost: Collection[Failure]) -> bool:
    """Whether a run should have written the report and did not, and there are new results or failures to show."""
    ended = (job for job in snakemake_internals.jobs_to_run(dag, ended_too=True) if _ended(dag, job))
    new = any(map(snakemake_internals.measures, ended))
    return bool(unwritten_reports(dag)) and (bool(report_failures(dag, lost)) or new)


def unwritten_reports(dag: Any) -> list[Any]:
    """Unfinished jobs that write the report, at most one."""
    return [job for job in _unfinished_jobs(dag) if job.rule.name == REPORT]


def report_failures(dag: Any, lost: Collection[Failure]) -> list[Failure]:
    """Failures on which the report depends; failures of other targets do not concern it."""
    before = snakemake_internals.jobs_before(dag, unwritten_reports(dag))
    needed = {path for job in before for path in job.output}
    return [one for one in lost if needed & set(one.outputs)]


def count_unrun(dag: Any, scheduler: Any) -> int:
    """Number of jobs that did not run because other jobs failed."""
    over = {job for job, _ in snakemake_internals.failed_jobs(scheduler)}
    return sum(job not in over for job in _unfinished_jobs(dag))


def _ended(dag: Any, job: Any) -> bool:
    return snakemake_internals.has_finished(dag, job)


def _unfinished_jobs(dag: Any) -> list[Any]:
    return [job for job in snakemake_internals.jobs_to_run(dag) if not _ended(dag, job)]
