"""profzoo.workflow.run_end: what failed, what did not run because of it, and whether there is something to report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.iocontainers import Log, OutputFiles, Params

from profzoo.workflow import run_end


class Job:
    """One of Snakemake's, as far as a run's end asks."""

    def __init__(self, rule: str, output: str, measures: bool = False, number: int = 0) -> None:
        self.rule, self.jobid = SimpleNamespace(name=rule, shellcmd="", script=None), number
        self.output, self.log = OutputFiles(fromdict={"sidecar": output}), Log(["a.log"])
        self.input, self.benchmark = (), None
        self.params = Params(fromdict={"job": "{}", "made": []} if measures else {"other": 1})
        self.wildcards_dict = {"model": "lstm", "phase": "train"}

    def is_group(self) -> bool:
        return False


class Group:
    """Several jobs of Snakemake's in one."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = jobs

    def is_group(self) -> bool:
        return True


class Graph:
    """A chain of jobs, of which some are over."""

    def __init__(self, *chain: Job, over: int = 0) -> None:
        self.chain, self.over = chain, set(chain[:over])
        self.dependencies, self.depending = "before", "after"

    def finished(self, job: Job) -> bool:
        return job in self.over

    def needrun(self, job: Job) -> bool:
        return True

    def needrun_jobs(self, exclude_finished: bool = True) -> list[Job]:
        return [job for job in self.chain if not (exclude_finished and job in self.over)]

    def bfs(self, direction: str, *start: Job) -> list[Job]:
        places = [self.chain.index(job) for job in start]
        if not places:
            return []
        return list(self.chain[: max(places) + 1] if direction == "before" else self.chain[min(places) :])


@pytest.fixture
def chain(tmp_path: Path) -> list[Job]:
    names = [("time_training", True), ("profile_nsys", True), ("export_nsys", False), ("write_report", False)]
    return [Job(rule, str(tmp_path / rule), measures, at) for at, (rule, measures) in enumerate(names)]


def failed(graph: Graph, *jobs: Any, told: Any = None, said: dict | None = None) -> list:
    return list(run_end.failed_jobs(graph, SimpleNamespace(failed=set(jobs)), told, said or {}))


def test_a_failure_names_the_measurements_that_waited_for_it(chain: list[Job]) -> None:
    graph = Graph(*chain)
    (one,) = failed(graph, chain[0], said={0: "Slurm ended it"})
    assert one.rule == "time_training" and one.batch == "Slurm ended it"
    assert len(one.unrun) == 1 and "nsys" in one.unrun[0]
    assert run_end.count_unrun(graph, SimpleNamespace(failed={chain[0]})) == 3


def test_jobs_that_their_user_ended_have_not_failed(chain: list[Job]) -> None:
    told = SimpleNamespace(ended_by_user=lambda number: number == 0)
    assert [one.rule for one in failed(Graph(*chain), *chain[:2], told=told)] == ["profile_nsys"]


def test_of_a_group_those_failed_that_made_nothing(chain: list[Job]) -> None:
    Path(chain[0].output[0]).touch()
    assert [one.rule for one in failed(Graph(*chain), Group(*chain[:2]))] == ["profile_nsys"]
    # One by itself has, whatever it left.
    assert [one.rule for one in failed(Graph(*chain), chain[0])] == ["time_training"]


def test_a_report_of_the_rest_is_written_where_there_is_something_new(chain: list[Job]) -> None:
    first = failed(Graph(*chain), chain[0])
    assert run_end.can_report_rest(Graph(*chain), first)
    assert run_end.report_failures(Graph(*chain), first) == first
    # Something was measured, and what failed is no part of the report.
    assert run_end.can_report_rest(Graph(*chain, over=1), [])
    assert not run_end.can_report_rest(Graph(*chain), [])
    # The report is there, or was not asked for.
    assert not run_end.can_report_rest(Graph(*chain, over=4), first)
    assert not run_end.can_report_rest(Graph(*chain[:3]), first)
    assert run_end.unfinished_files(Graph(*chain, over=2)) == [str(job.output[0]) for job in chain[2:]]


def test_all_that_jobs_make_is_noted_with_what_they_keep_until_the_end(chain: list[Job]) -> None:
    assert list(run_end.made_files([chain[2]])) == [chain[2].output[0], "a.log"]
    assert len(list(run_end.made_files([chain[1]]))) == 3
