"""What of Snakemake is used without its promise: a version that lacks it is named here, before a run fails by it."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import snakemake.cli  # noqa: F401
from snakemake.dag import DAG
from snakemake.jobs import Reason
from snakemake.persistence import ParamsChange
from snakemake.scheduling.job_scheduler import JobScheduler

from profzoo import planning, shutdown, snakemake_internals
from profzoo.planning import Decision

OF_DAG = (
    "_finished", "_needrun", "_len", "forcefiles", "forcerules", "finished", "reason", "toposorted", "dependencies",
    "depending", "needrun_jobs", "bfs",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_DAG)
def test_the_graph_of_jobs_has_what_is_used(name: str) -> None:
    assert name in inspect.getsource(DAG)


def test_a_graph_is_judged_by_one_function() -> None:
    given = inspect.signature(snakemake_internals._update_needrun).parameters
    assert list(given) == ["self", "create_inventory"]


def test_reasons_have_what_is_used() -> None:
    one = Reason()
    one.params_changed = ParamsChange(only_new={"batch was 4 and is 7"})
    one.updated_input.update({"models/lstm.py"})
    one.forced = False
    assert one and "models/lstm.py" in str(one)


def test_nothing_that_is_to_come_later_keeps_a_run_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobScheduler, "_schedule_reevalutation", JobScheduler._schedule_reevalutation)
    shutdown.end_at_once()
    scheduler = JobScheduler.__new__(JobScheduler)
    scheduler._open_jobs = threading.Semaphore(0)
    before = {*threading.enumerate()}
    scheduler._schedule_reevalutation(60)
    (timer,) = {*threading.enumerate()} - before
    assert timer.daemon
    timer.cancel()
    scheduler._schedule_reevalutation(0)
    assert scheduler._open_jobs.acquire(timeout=60)


class Graph:
    """A graph of jobs as far as judging asks, of which one runs."""

    workflow = type("Workflow", (), {"dryrun": True})()

    def __init__(self, running: object) -> None:
        self._needrun, self.jobs = {running}, [running]


def test_a_job_that_runs_is_not_judged_by_what_it_has_written_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a checkpoint, when its files may be whole and its end not yet seen."""
    running = type("Job", (), {"output": ["results/lstm/train.nsys.csv"]})()
    other = type("Job", (), {"output": ["results/tables/cells.csv"]})()
    seen: list[tuple[bool, bool]] = []

    def decide(dag: object, root: Path, decided: Callable[[object], bool]) -> Decision:
        seen.append((decided(running), decided(other)))
        return Decision()

    async def update(*_: object) -> None:
        return

    monkeypatch.setattr(DAG, "update_needrun", DAG.update_needrun)
    monkeypatch.setattr(planning, "decide", decide)
    monkeypatch.setattr(snakemake_internals, "_update", update)
    snakemake_internals.judge_by_content(Path(), print)
    asyncio.run(DAG.update_needrun(Graph(running)))  # type: ignore[arg-type]
    assert seen == [(True, False)]
