"""What of Snakemake is used without its promise: a version that lacks it is named here, before a run fails by it."""

import ast
import asyncio
import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import snakemake.cli  # noqa: F401
from snakemake.dag import DAG
from snakemake.jobs import Reason
from snakemake.persistence import ParamsChange
from snakemake.scheduling.job_scheduler import JobScheduler

from profzoo import import_graph, shutdown
from profzoo.workflow import snakemake_attributes, snakemake_internals, up_to_date
from profzoo.workflow.up_to_date import Decision

DECLARED = [(owner, name) for owner, names in snakemake_attributes.USED.items() for name in names]
# Where attributes of Snakemake's graph and scheduler may stand, besides the table.
HERE = {"snakemake_internals.py", "run_locks.py"}
# Names that objects of this project have as well, or that Snakemake's documentation has.
COMMON = {
    "dag",
    "failed",
    "finished",
    "jobs",
    "logger",
    "reason",
    "running",
    "workflow",
    "persistence",
    "rules",
    "cores",
}


@pytest.mark.parametrize(("owner", "name"), DECLARED, ids=".".join)
def test_the_installed_version_has_what_is_used(owner: str, name: str) -> None:
    assert f"{owner}.{name}" not in snakemake_attributes.find_missing([owner])


def test_what_a_version_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert snakemake_attributes.describe_missing() == ""
    used = {
        "snakemake.dag.DAG": {"bfs": "jobs after a job", "_dives": "jobs before a job"},
        "snakemake.gone.It": {"a": "b"},
    }
    monkeypatch.setattr(snakemake_attributes, "USED", used)
    line = snakemake_attributes.describe_missing()
    assert "has no snakemake.dag.DAG._dives (jobs before a job), snakemake.gone.It.a (b): take the version" in line
    assert "bfs" not in line and "\n" not in line


def test_other_modules_leave_the_graph_and_the_scheduler_to_one() -> None:
    """Attributes of a job are read where there is one; those of its graph are not."""
    of_graph = {name for owner, name in DECLARED if owner.endswith(("DAG", "JobScheduler", "LoggerManager"))} - COMMON
    found = [
        f"{path.name}:{node.lineno}: {node.attr}"
        for path in (import_graph.PROJECT / "profzoo").rglob("*.py")
        if path.name not in HERE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in of_graph and isinstance(node.value, ast.Name)
        if node.value.id in ("dag", "scheduler", "workflow", "DAG", "JobScheduler")
    ]
    # It is handed the class, and so imports nothing of Snakemake.
    assert [one for one in found if not one.startswith("output_refusals.py")] == []


def test_what_rules_ask_of_the_workflow_is_declared() -> None:
    texts = [path.read_text() for path in (import_graph.PROJECT / "workflow").rglob("*.smk")]
    asked = {name for text in texts for name in re.findall(r"(?<![\w.])workflow\.([a-z_]+)\b", text)} - {
        "rst",
        "config",
    }
    assert asked and asked <= set(snakemake_attributes.USED["snakemake.workflow.Workflow"])


def test_a_graph_is_judged_by_one_function() -> None:
    given = inspect.signature(snakemake_internals._judge_by_times).parameters
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
    monkeypatch.setattr(up_to_date, "decide", decide)
    monkeypatch.setattr(up_to_date, "_update", update)
    up_to_date.judge_by_content(Path(), print)
    asyncio.run(DAG.update_needrun(Graph(running)))  # type: ignore[arg-type]
    assert seen == [(True, False)]
