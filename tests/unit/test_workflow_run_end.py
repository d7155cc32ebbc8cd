"""profzoo.workflow.run_end: what failed, what did not run because of it, and whether there is something to report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.io import AnnotatedString
from snakemake.iocontainers import InputFiles, Log, OutputFiles, Params

from profzoo.records import derived_outputs
from profzoo.records.output_status import OutputState
from profzoo.workflow import run_end, up_to_date


class Job:
    def __init__(self, rule: str, output: str, measures: bool = False, number: int = 0) -> None:
        self.rule, self.jobid = SimpleNamespace(name=rule, shellcmd="", script=None), number
        self.output, self.log = OutputFiles(fromdict={"sidecar": output}), Log(["a.log"])
        self.input, self.benchmark = InputFiles(), None
        self.params = Params(fromdict={"job": "{}", "made": []} if measures else {"other": 1})
        self.wildcards = self.wildcards_dict = {"model": "lstm", "phase": "train"}

    def is_group(self) -> bool:
        return False


class Group:
    def __init__(self, *jobs: Job) -> None:
        self.jobs = jobs

    def is_group(self) -> bool:
        return True


class Graph:
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


def test_of_a_job_with_several_parts_those_failed_whose_outputs_are_not_as_planned(tmp_path: Path) -> None:
    job = Job("derive", str(tmp_path / "sidecar"))
    paths = {name: tmp_path / f"{name}.csv" for name in ("early__table", "late__table")}
    job.output = OutputFiles(fromdict={name: AnnotatedString(str(path)) for name, path in paths.items()})
    job.log, job.rule.script = Log(fromdict={"early": "early.log", "late": "late.log"}), "derive.py"
    early, late = up_to_date.planned(job)
    for part in (early, late):
        part.outputs[0].write_text("made")
        derived_outputs.keep_record(part.outputs, part.job, {}, {})
    paths["late__table"].write_text("of an earlier run")
    (one,) = failed(Graph(job), job)
    assert (one.rule, one.outputs, one.logs) == ("late", [str(paths["late__table"])], ["late.log"])
    # A run goes by the parts that it asks for.
    read, root = SimpleNamespace(depending={job: {"reader": [str(paths["early__table"])]}}, targetfiles=set()), tmp_path
    assert up_to_date._judge(read, job, root).state is OutputState.SAME
    paths["early__table"].unlink()
    assert up_to_date._judge(read, job, root).state is OutputState.ABSENT
    read.targetfiles = {str(paths["late__table"])}
    assert up_to_date._judge(read, job, root).state is OutputState.DAMAGED


def test_rules_make_apart_what_a_joint_job_lost_without_need(tmp_path: Path) -> None:
    job, later, late = (Job(name, str(tmp_path / name)) for name in ("derive", "replay", "kernels"))
    paths = {
        name: str(tmp_path / f"{name}.csv") for name in ("steps__csv", "streams__csv", "layers__csv", "chains__csv")
    }
    job.output = OutputFiles(fromdict={name: AnnotatedString(path) for name, path in paths.items()})
    read = {"layers__counters": "counters.csv", "chains__steps": paths["steps__csv"]}
    job.input = InputFiles(fromdict={name: AnnotatedString(path) for name, path in read.items()})
    for file in job.input:
        file.is_ancient = False
    job.log = Log(fromdict={name.split("__")[0]: f"{name}.log" for name in paths})
    job.rule.script = "derive.py"
    later.input, late.input = (
        InputFiles([paths["chains__csv"]]),
        InputFiles([str(later.output[0]), paths["streams__csv"]]),
    )
    graph = Graph(job, later, late, Job("write_report", str(tmp_path / "page")))
    graph.chain[-1].wildcards_dict = {}
    lost = [run_end.Failure("streams", {}, None, [paths["streams__csv"]], []),
            run_end.Failure("count", {}, None, ["counters.csv"], [])]  # fmt: skip
    wanted = [paths["steps__csv"], paths["chains__csv"], str(later.output[0])]
    assert run_end.files_apart(graph, lost) == wanted
    # Without a joint job, everything that could be made was made.
    assert run_end.files_apart(Graph(later, late), lost) == []
    # A part that was made is neither made again nor counted as unfinished.
    part = up_to_date.planned(job)[0]
    part.outputs[0].write_text("made")
    derived_outputs.keep_record(part.outputs, part.job, {}, {})
    assert run_end.files_apart(graph, lost) == wanted[1:]
    assert run_end.unfinished_files(Graph(job)) == list(paths.values())[1:]


def test_a_report_of_the_rest_is_written_where_there_is_something_new(chain: list[Job]) -> None:
    first = failed(Graph(*chain), chain[0])
    assert run_end.can_report_rest(Graph(*chain), first)
    assert run_end.report_failures(Graph(*chain), first) == first
    # Something was measured, and what failed is not a part of the report.
    assert run_end.can_report_rest(Graph(*chain, over=1), [])
    assert not run_end.can_report_rest(Graph(*chain), [])
    # The report is there, or was not asked for.
    assert not run_end.can_report_rest(Graph(*chain, over=4), first)
    assert not run_end.can_report_rest(Graph(*chain[:3]), first)
    assert run_end.unfinished_files(Graph(*chain, over=2)) == [str(job.output[0]) for job in chain[2:]]
