"""What of Snakemake is used without its promise: a version that lacks it is named here, before a run fails by it."""

import ast
import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.cli  # noqa: F401
from snakemake.dag import DAG
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.script import PythonScript
from snakemake.settings.types import GroupSettings

from profzoo.records import import_graph
from profzoo.workflow import shutdown, snakemake_internals, up_to_date
from profzoo.workflow.up_to_date import Decision
from tests import parsed
from tests.unit.workflow_runs import fork_snakemake

DECLARED = [(owner, name) for owner, names in snakemake_internals.USED.items() for name in names]
# Where attributes of Snakemake's graph and scheduler may stand, besides the table.
HERE = {"snakemake_internals.py", "run_locks.py"}
# Names that objects of this project have as well, or that Snakemake's documentation has.
COMMON = {
    "dag", "failed", "finished", "jobs", "logger", "reason", "running", "workflow", "persistence", "rules", "cores",
}  # fmt: skip


def test_the_installed_version_has_what_is_used() -> None:
    assert snakemake_internals.find_missing() == []


def test_what_a_version_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert snakemake_internals.describe_missing() == ""
    used = {
        "snakemake.dag.DAG": {"bfs": "jobs after a job", "_dives": "jobs before a job"},
        "snakemake.gone.It": {"a": "b"},
    }
    monkeypatch.setattr(snakemake_internals, "USED", used)
    line = snakemake_internals.describe_missing()
    assert "has no snakemake.dag.DAG._dives (jobs before a job), snakemake.gone.It.a (b): take the version" in line
    assert "bfs" not in line and "\n" not in line


def test_other_modules_leave_the_graph_and_the_scheduler_to_one() -> None:
    """Attributes of a job are read where there is one; those of its graph are not."""
    of_graph = {name for owner, name in DECLARED if owner.endswith(("DAG", "JobScheduler", "LoggerManager"))} - COMMON
    found = [
        f"{path.name}:{node.lineno}: {node.attr}"
        for path in (import_graph.PROJECT / "profzoo").rglob("*.py")
        if path.name not in HERE
        and re.search(rf"\b(?:dag|scheduler|workflow|DAG|JobScheduler)\.(?:{'|'.join(of_graph)})\b", path.read_text())
        for node in parsed.nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in of_graph and isinstance(node.value, ast.Name)
        if node.value.id in ("dag", "scheduler", "workflow", "DAG", "JobScheduler")
    ]
    # It is handed the class, and so imports nothing of Snakemake.
    assert [one for one in found if not one.startswith("failures.py")] == []


def test_what_rules_ask_of_the_workflow_is_declared() -> None:
    texts = [path.read_text() for path in (import_graph.PROJECT / "workflow").rglob("*.smk")]
    asked = {name for text in texts for name in re.findall(r"(?<![\w.])workflow\.([a-z_]+)\b", text)}
    asked -= {"rst", "config"}
    assert asked and asked <= set(snakemake_internals.USED["snakemake.workflow.Workflow"])


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

    workflow = type("Workflow", (), {"dryrun": True, "group_settings": GroupSettings(), "rules": ()})()

    def __init__(self, running: object) -> None:
        self._needrun, self.jobs = {running}, [running]


def test_a_job_that_runs_is_not_judged_by_what_it_has_written_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a checkpoint, when its files may be whole and its end not yet seen."""
    running = type("Job", (), {"output": ["results/lstm/train.nsys.csv"]})()
    other = type("Job", (), {"output": ["results/tables/cells.csv"]})()
    seen: list[tuple[bool, bool]] = []

    def decide(dag: object, root: Path, decided: Callable[[object], bool], changed: object) -> Decision:
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


KEPT = """
from profzoo.workflow import snakemake_internals
snakemake_internals.keep_old_outputs(lambda job: job.rule.name == "kept")
rule all:
    input: "kept.txt", "own.txt"
rule kept:
    output: "kept.txt"
    shell: "cp {output} seen.txt; exit 1"
rule own:
    output: "own.txt"
    shell: "test -e {output} && touch there; exit 1"
"""


def test_old_outputs_of_a_job_that_fails_are_kept_where_it_replaces_them_whole(tmp_path: Path) -> None:
    """They are there while it runs, and afterwards; other rules go as Snakemake has it."""
    (tmp_path / "Snakefile").write_text(KEPT)
    for name in ("kept.txt", "own.txt"):
        (tmp_path / name).write_text("old")
    run = fork_snakemake(tmp_path, "--keep-going", "--forceall")
    run.join(60)
    assert run.exitcode == 1
    assert (tmp_path / "kept.txt").read_text() == (tmp_path / "seen.txt").read_text() == "old"
    assert not (tmp_path / "own.txt").exists() and not (tmp_path / "there").exists()


PREFERRED = """
from pathlib import Path
from profzoo.workflow import snakemake_internals
def ask(wildcards):
    Path("asked").touch()
    return []
rule all:
    input: "one.txt"
rule apart:
    input: ask
    output: "{name}.txt"
    shell: "echo apart > {output}"
rule joint:
    output: "{name}.txt"
    shell: "echo joint > {output}"
ruleorder: joint > apart
snakemake_internals.prefer_rules({"joint": ["apart"]})
"""


def test_no_job_is_made_of_a_rule_to_which_another_is_preferred(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(PREFERRED)
    run = fork_snakemake(tmp_path)
    run.join(60)
    assert run.exitcode == 0 and (tmp_path / "one.txt").read_text() == "joint\n"
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("executor", ["local", "cluster-generic"])
def test_where_jobs_run_is_known_while_rules_are_read(tmp_path: Path, executor: str) -> None:
    """Snakemake's own answer is that they run here, until it begins."""
    asked = 'Path("here").write_text(f"{snakemake_internals.runs_here(workflow)} {workflow.local_exec}")'
    head = "from pathlib import Path\nfrom profzoo.workflow import snakemake_internals\n"
    (tmp_path / "Snakefile").write_text(f"{head}{asked}\nrule all:\n    input: []\n")
    submitted = ["--cluster-generic-submit-cmd", "true"] if executor != "local" else []
    run = fork_snakemake(tmp_path, "-n", "--executor", executor, *submitted)
    run.join(60)
    assert run.exitcode == 0 and (tmp_path / "here").read_text() == f"{executor == 'local'} True"


def test_a_dry_run_ends_once_its_jobs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobScheduler, "schedule", JobScheduler.schedule)
    monkeypatch.setattr(snakemake_internals, "_run_jobs", lambda scheduler: "went through the jobs")
    snakemake_internals.end_dry_runs_early()
    runs = [SimpleNamespace(workflow=SimpleNamespace(dryrun=dry)) for dry in (True, False)]
    assert list(map(JobScheduler.schedule, runs)) == [True, "went through the jobs"]


@pytest.mark.parametrize(("begin", "told"), [
    ("from profzoo.errors import shorten_interrupts; shorten_interrupts('profzoo: ended')", "profzoo: ended\n"),
    ("from profzoo.errors import shorten_interrupts; shorten_interrupts('')", ""),
    ("import os; os.environ['PROFZOO_OWNER'] = '1:1'; import profzoo", ""), (snakemake_internals.QUIET, ""),
])  # fmt: skip
def test_a_ctrl_c_is_one_line_or_none_and_an_error_is_told_as_by_python(begin: str, told: str) -> None:
    def printed(end: str) -> str:
        code = f"{begin}\nraise {end}"
        run = subprocess.run([sys.executable, "-c", code], cwd=import_graph.PROJECT, capture_output=True, text=True)
        assert run.returncode
        return run.stderr

    assert printed("KeyboardInterrupt") == told
    assert printed("ValueError('x')").endswith("ValueError: x\n")


def test_scripts_run_by_a_command_unless_they_have_software_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PythonScript, "execute_script", PythonScript.execute_script)
    snakemake_internals.run_scripts_by("fork of a server")
    # A second command, such as that of tests around this code, changes nothing.
    snakemake_internals.run_scripts_by("another")
    said: list[str] = []
    script = SimpleNamespace(
        container_img=None, conda_env=None, env_modules=None,
        _execute_cmd=lambda command, **given: said.append(command.replace("{python}", given.get("python", "own"))),
    )  # fmt: skip
    PythonScript.execute_script(script, "a.py")  # type: ignore[arg-type]
    script.container_img = "profzoo.sif"
    PythonScript.execute_script(script, "a.py")  # type: ignore[arg-type]
    assert said == ["fork of a server {fname:q}", "{py_exec} {fname:q}"]
