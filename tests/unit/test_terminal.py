"""What a run says of its plan, its measurements and its end, whatever Snakemake tells of them."""

import io
import json
import logging
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo import tools
from profzoo.collect import failures
from profzoo.records import import_graph
from profzoo.terminal import log_handler, run_plan
from profzoo.terminal import run_end as terminal_run_end
from profzoo.terminal.run_plan import Place, Progress, Task
from profzoo.tools import unavailable_tools
from profzoo.workflow import run_end as workflow_run_end
from profzoo.workflow import snakemake_internals

QUIET = SimpleNamespace(nocolor=False, dryrun=False)


class Terminal(io.StringIO):
    """What is printed to a terminal."""

    def isatty(self) -> bool:
        return True


def task(what: str = "nsys", cell: str = "unet train", folder: Path = Path("results"), **more: object) -> Task:
    model, phase = cell.split()
    ending = {"nsys": "nsys-rep.json", "time": "time.csv.json", "torch": "trace.json.gz.json"}.get(what, "json")
    sidecar = str(folder / model / f"{phase}.{ending}")
    given = {"measures": True, "outputs": (sidecar,), "sidecar": sidecar}
    return Task(**{"rule": f"profile_{what}", "cell": cell, "what": what, **given, **more})


def other(rule: str = "draw_figure", what: str = "figures", output: str = "results/figures/a.svg") -> Task:
    return Task(rule, "", what, False, (output,))


def run_of(*mine: Task, seconds: float = 60.0) -> Progress:
    numbered = dict(enumerate(mine))
    return Progress(numbered, dict.fromkeys(numbered, seconds))


def told_by(
    progress: Progress,
    records: Sequence[Mapping[str, object]],
    stream: io.StringIO,
    reasons: Mapping[int, Sequence[str]] | None = None,
    settings: SimpleNamespace = QUIET,
    collects: bool = True,
    made: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """The lines that a handler prints of records, each a dictionary of its attributes."""
    mine = log_handler.LogHandler(settings, None)
    planned = (progress, Place(1, False), 0.0, reasons or {})
    mine.attach(stream, lambda: planned, lambda: ["figures", "report"], lambda: collects, lambda: made or {})
    for record in records:
        level = record.get("levelno", logging.INFO)
        mine.handle(logging.makeLogRecord({"levelno": level, "msg": "", **record}))
    mine.close_run()
    return stream.getvalue().splitlines()


def end_of(progress: Progress, seconds: float, width: int) -> list[str]:
    """The lines that end a run in which these jobs finished, and nothing was up to date before."""
    made = {progress.tasks[number].rule: progress.tasks[number].outputs for number in progress.took}
    return terminal_run_end.format_run_end(progress, seconds, terminal_run_end.format_answer(made, width), width, False)


def sidecar(of: Task, **facts: object) -> None:
    Path(of.sidecar).parent.mkdir(parents=True, exist_ok=True)
    Path(of.sidecar).write_text(json.dumps(facts))


def test_every_rule_that_measures_is_known() -> None:
    """A rule that runs what collects is called something."""
    found: set[str] = set()
    for path in (import_graph.PROJECT / "workflow" / "rules").glob("*.smk"):
        parts = re.split(r"^(?:use rule (\w+) as (\w+) with|rule (\w+)):$", path.read_text(), flags=re.MULTILINE)[1:]
        for base, derived, name, body in zip(*(parts[at::4] for at in range(4)), strict=True):
            if re.search(r"shell:\s+COLLECT$", body, re.MULTILINE):
                found.add(name)
            elif derived and base.startswith("profile_"):
                found.add(derived)
    assert found > set(run_plan.MEASURING) and all(run_plan.rule_kind(rule)[2] for rule in found)
    for where in ("gpu", "cpu"):
        # A tool may leave to the first run what its jobs take.
        kinds = {run_plan.rule_kind(rule)[0] for rule in found} - set(tools.names())
        # Costs of shipped tools stand with the tools.
        assert kinds | set(tools.names()) <= set(run_plan.shipped_durations()[where])
    durations = run_plan.shipped_durations()
    assert durations["gpu"]["ncu launch"] == 13 and durations["cpu"]["sample"] == 10
    new = task("perf")
    assert run_plan.expect_duration(new, run_plan.EarlierTimes({}, gpu=True)) == (run_plan.UNKNOWN_S, False)


def test_a_finished_measurement_is_a_line(tmp_path: Path) -> None:
    nsys, time = task(folder=tmp_path), task("time", folder=tmp_path)
    sidecar(nsys, step_ns=26.5e6)
    sidecar(time, step_ns=25e6, steps=20, items=80)
    with sqlite3.connect(tmp_path / "unet" / "train.nsys.sqlite") as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT)")
        # Two that overlap, and a gap of a quarter.
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)", [(100, 150), (175, 200)])
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (120, 150)")
    records = [
        {"event": "run_info"},
        {"event": "job_info", "msg": "rule profile_nsys"},
        {"event": "job_started", "jobs": [0]},
        {"event": "job_finished", "job_id": 0},
        {"event": "progress", "done": 1, "total": 2},
        {"event": "job_started", "jobs": [1]},
        {"event": "job_finished", "job_id": 1},
    ]
    printed = told_by(run_of(nsys, time), records, io.StringIO())
    assert printed[0] == "1 cell, nsys: about 2 min on 1 GPU"
    assert re.fullmatch(r"unet train  nsys  26\.5 ms/step profiled  75 % busy  1/2  ~\d+ s left", printed[1])
    assert printed[2] == "unet train  time  25 ms/step  160 samples/s  2/2"
    assert printed[3].startswith("new     unet train under nsys and time; in ")
    assert len(printed) == 4


@pytest.mark.parametrize(
    "asked",
    [{}, {"quiet": {"all"}}, {"printshellcmds": True}, {"verbose": True}, {"log_handler_settings": {"other": 1}}],
)
def test_whoever_asks_for_snakemakes_own_messages_has_them(asked: dict) -> None:
    off = {"quiet": set(), "log_handler_settings": {}}
    flags = dict.fromkeys(("printshellcmds", "verbose", "debug_dag", "show_failed_logs", "nocolor", "dryrun"), False)
    logger = logging.Logger("run")
    theirs = logging.StreamHandler(io.StringIO())
    theirs.name = snakemake_internals.STREAM
    logger.addHandler(theirs)
    settings = SimpleNamespace(**{**flags, **off, **asked})
    run = SimpleNamespace(output_settings=settings, logger_manager=SimpleNamespace(logger=logger))
    mine = log_handler.take_over(run)
    assert logger.handlers == [theirs] if asked else logger.handlers == [mine]
    logger.warning("the disk is slow")
    assert theirs.stream.getvalue() == "the disk is slow\n"


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    nsys = task(folder=tmp_path)
    assert terminal_run_end.summarise_measurement(nsys, 3.0) == ["in 3.0 s"]
    time = task("time", folder=tmp_path)
    sidecar(time, step_ns=4.83e6, steps=3, items=30)
    assert terminal_run_end.summarise_measurement(time, 3.0) == ["4.83 ms/step", "2,070 samples/s"]
    sidecar(nsys, step_ns=2e6)
    assert terminal_run_end.summarise_measurement(nsys, 3.0) == ["2 ms/step profiled"]
    (tmp_path / "unet" / "train.nsys.sqlite").write_bytes(b"no database")
    assert terminal_run_end.summarise_measurement(nsys, 3.0) == ["2 ms/step profiled"]
    Path(nsys.sidecar).write_text("[]")
    assert terminal_run_end.summarise_measurement(nsys, 3.0) == ["in 3.0 s"]
    ncu = task("ncu deep", folder=tmp_path)
    sidecar(ncu, step_ns=9e9, plan={"launches": 1186})
    assert terminal_run_end.summarise_measurement(ncu, 3.0) == ["1,186 launches"]


def test_a_terminal_has_colours_and_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    both = [task("torch", "inceptionresnetv2 inference"), task("torch", "unet train")]
    records = [{"event": "job_finished", "job_id": 0}, {"event": "job_error", "jobid": 1}]
    printed = told_by(run_of(*both), records, Terminal())
    assert "\033[31m" in printed[1]
    shown = [re.sub(r"\033\[\d+m", "", line) for line in printed]
    assert all(len(line) <= 40 for line in shown)
    assert shown[0].startswith("inceptionresnetv2 inference  torch")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in "".join(told_by(run_of(*both), records, Terminal()))
    plain = told_by(run_of(*both), records, io.StringIO())
    assert not re.search("[\r\033]", "".join(plain)) and any("1/2" in line for line in plain)


def test_warnings_are_said_once_and_noise_never() -> None:
    warning = {"levelno": logging.WARNING, "msg": "the disk is slow"}
    said = ["Select jobs to execute...", "Updating checkpoint dependencies.", None]
    said += ["DAG of jobs will be updated after completion."]
    noise = [*({"msg": one} for one in said), {"event": "shellcmd", "msg": "python"}]
    debug = {"levelno": logging.DEBUG, "msg": "Selected jobs: 1"}
    known = {"msg": "Nothing to be done (all requested files are present and up to date)."}
    shown = told_by(run_of(), [warning, *noise, debug, known, warning], io.StringIO())
    assert shown == ["the disk is slow", known["msg"]]


def test_where_snakemakes_log_is_is_said_of_a_run_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    log = {"msg": "Complete log(s): a.log"}
    assert told_by(run_of(task()), [{"event": "job_finished", "job_id": 0}, log], io.StringIO())[1].startswith("new")
    assert told_by(run_of(task()), [{"event": "job_error", "jobid": 0}, log], io.StringIO())[1] == log["msg"]
    # A job that measures nothing and fails is named.
    table = Task("export_nsys", "unet train", "exports", False, ("a.csv",))
    failed = told_by(run_of(table), [{"event": "job_error", "jobid": 0}], io.StringIO())
    assert failed[0] == "export nsys unet train  failed"
    # A mistake in a handler ends no run.
    told_by(run_of(task()), [{"event": "job_finished"}], io.StringIO())
    assert "AttributeError" in capsys.readouterr().err


def test_what_its_user_ends_has_not_failed() -> None:
    progress = run_of(task(), task("ncu survey"), task("torch"))
    records = [
        {"event": "job_error", "jobid": 0},
        {"msg": "Terminating processes on user request, this might take some time."},
        {"event": "job_error", "jobid": 1},
        {"event": "job_error", "jobid": 2},
    ]
    failed, _, *ended, last = told_by(progress, records, io.StringIO())
    assert "failed" in failed and [line.split()[-1] for line in ended] == ["ended", "ended"]
    kept = "ended   by you: finished results are kept, and the same command continues the run"
    assert progress.failed == [0] and last == kept


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("MissingRuleException:\nNo rule to produce figuers (if you use input functions make sure ...).",
         "no rule or file 'figuers': did you mean 'figures'? `snakemake help` says what can be made"),
        ("MissingRuleException:\nNo rule to produce qwerty (if you use input functions make sure ...).",
         "no rule or file 'qwerty'; `snakemake help` says what can be made"),
        ("MissingRuleException:\nNo rule to produce results/lstm/train.torch-skew.csv (if you use input functions ...",
         "no rule or file 'results/lstm/train.torch-skew.csv': only cells on several GPUs have it: set gpus to 2 or more"),
        ('WorkflowError in file "/a/config.smk", line 36:\ntool.0 = \'x\': did you mean \'y\'?\n'
         '  File "/a/config.smk", line 51, in <module>\n  File "/a/config.smk", line 36, in run_checked',
         "tool.0 = 'x': did you mean 'y'?"),
        ('MissingInputException in rule join in file "/a/analyze.smk", line 23:\nMissing input files for rule join:\n'
         "    output: a.csv\n    wildcards: model=lstm\n    affected files:\n        b.csv\n        c.csv\n        d.csv",
         "no rule of this run makes b.csv, c.csv and 1 more, which join needs; `snakemake help` says what can be made"),
        ('MissingInputException in rule time in file "/a/collect.smk", line 3:\nMissing input files for rule time:\n'
         "    output: a.csv\n    affected files:\n        /v/b.py (in storage)\n        /v/c.py (in storage)",
         "time needs /v/b.py, /v/c.py from the storage of the profile, and finds nothing there: call snakemake in the "
         "project on the volume that pods mount, at the path of default-storage-prefix"),
        ('MissingInputException in rule ranks in file "/a/export.smk", line 23:\nMissing input files for rule ranks:\n'
         "    output: a.csv\n    affected files:\n        lstm/train.nsys-ranks",
         "no rule of this run makes lstm/train.nsys-ranks, which ranks needs: only cells on several GPUs have it: "
         "set gpus to 2 or more"),
        ("WorkflowError:\nanother run makes the same files in this folder, process 1 on vm: wait until it has ended\n"
         '  File "/p/contextlib.py", line 137, in __enter__\n  File "/a/profzoo/workflow/run_locks.py", line 77, in lock',
         "another run makes the same files in this folder, process 1 on vm: wait until it has ended"),
        ('  File "/a/lock_owner.py", line 50, in start_owner\n    folder.mkdir(parents=True, exist_ok=True)\n\n'
         "OSError: [Errno 28] No space left on device: '/w/.snakemake/profzoo/owners'",
         "/w/.snakemake/profzoo/owners: No space left on device; " + failures.FULL),
        ("WorkflowError:\nError recording metadata for finished job ([Errno 28] No space left on device). Please ensure "
         "write permissions for the directory /w/.snakemake", ".snakemake: No space left on device; " + failures.FULL),
        ("RuleException:\nCalledProcessError in file \"a.smk\", line 27:\nCommand 'python x' died with <Signals.SIGTERM: 15>.",
         ""),
        ("WorkflowError:\nAt least one job did not complete successfully.", ""),
        ('RuleException:\nCalledProcessError in file "a.smk", line 3:\nCommand returned non-zero exit status 1.', ""),
        ("LockException:\nError: Directory cannot be locked.", "LockException:\nError: Directory cannot be locked."),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_a_line(message: str, line: str) -> None:
    assert log_handler.shorten_error(message, ["figures", "report"], collects=True) == line


@pytest.mark.parametrize("missing", ["b.csv", "lstm/train.nsys-ranks"])
def test_a_missing_result_is_explained_by_a_setting_only_where_that_is_set(missing: str) -> None:
    lines = ["MissingInputException in rule join in file a:", "    affected files:", f"        {missing}"]
    told = {
        collects: told_by(run_of(), [{"event": "error", "msg": "\n".join(lines)}], io.StringIO(), collects=collects)
        for collects in (True, False)
    }
    assert all(len(printed) == 1 and missing in printed[0] for printed in told.values())
    assert "collect=false" not in told[True][0]
    assert told[False][0].endswith("which join needs; with collect=false nothing is measured")


def test_a_plan_goes_by_what_earlier_runs_took(tmp_path: Path) -> None:
    def benchmark(model: str, took: float) -> str:
        path = tmp_path / "benchmarks" / model / "train.nsys.tsv"
        path.parent.mkdir(parents=True)
        path.write_text(f"s\th:m:s\n{took}\t0:01:40\n")
        return str(path)

    same = task(folder=tmp_path, benchmark=benchmark("unet", 100))
    benchmark("lstm", 50)
    new = task(cell="bert train", folder=tmp_path, benchmark=str(tmp_path / "benchmarks" / "bert" / "train.nsys.tsv"))
    earlier = run_plan.read_benchmarks(tmp_path / "benchmarks", gpu=True)
    elsewhere = run_plan.shipped_durations()["gpu"]["nsys"]
    assert run_plan.expect_duration(same, earlier) == (100, True)
    assert run_plan.expect_duration(new, earlier) == ((100 + 50 + 2 * elsewhere) / 4, True)
    assert run_plan.expect_duration(new, run_plan.read_benchmarks(tmp_path / "none", gpu=True)) == (elsewhere, False)
    deep = task("ncu deep", folder=tmp_path)
    assert run_plan.expect_duration(deep, earlier) == (run_plan.shipped_durations()["gpu"]["ncu"], False)
    sidecar(deep, wall_s=101.2)
    assert run_plan.expect_duration(deep, earlier) == (101.2, True)
    (tmp_path / "benchmarks" / "unet" / "train.nsys.tsv").write_text("s\n")
    assert run_plan.expect_duration(same, run_plan.read_benchmarks(tmp_path / "benchmarks", gpu=True))[0] < 100


def test_what_is_left_follows_what_jobs_take() -> None:
    progress = run_of(*(task() for _ in range(4)), seconds=100)
    assert progress.left_s(0) == 400
    progress.start(0, 0)
    assert progress.left_s(60) == 340
    progress.finish(0, 200)
    # Twice as long as expected, nearly believed.
    assert progress.left_s(200) == 550
    progress.fail(1)
    progress.fail(1)
    assert progress.counted(True) == (2, 4) and progress.failed == [1]
    # Tried once more, as batch systems do.
    progress.finish(1, 200)
    assert progress.counted(True) == (2, 4) and not progress.failed
    two = Progress(progress.tasks, progress.expected, measured_at_once=2, at_once=2)
    assert two.left_s(0) == 200


def test_what_waits_for_a_job_that_failed_is_not_waited_for() -> None:
    progress = run_of(task(), other(), other(), task(), other(), seconds=100)
    progress.followers = {0: [1], 1: [2], 3: [4]}
    progress.fail(0)
    assert progress.lost() == {0, 1, 2} and progress.left_s(0) == 200
    assert progress.counted(True) == (1, 2) and progress.counted(False) == (0, 1)
    progress.finish(0, 0)
    assert not progress.lost() and progress.counted(False) == (0, 3)


def test_a_headline_says_where_and_by_what() -> None:
    cells = [task(what, f"{model} {phase}") for model in ("a", "b") for phase in ("train", "inference") for what in
             ("time", "nsys", "torch")]  # fmt: skip
    progress = run_of(*cells, task("weights"), seconds=100)
    assert run_plan.plan_headline(progress, Place(1, False), 0) == "4 cells, 2 tools: about 22 min on 1 GPU"
    assert run_plan.plan_headline(progress, Place(0, False), 0.9).endswith("on this CPU, estimated from other machines")
    turns = run_of(*(task("comparison", cell, rule="time_in_turn") for cell in ("unet train", "lstm train")))
    assert run_plan.plan_headline(turns, Place(1, False), 0) == "2 cells, comparison: about 2 min on 1 GPU"
    remote = run_plan.plan_headline(progress, Place(0, True), 0)
    assert remote == "4 cells, 2 tools: about 22 min of GPU time, in jobs of the batch system"
    assert run_plan.plan_headline(run_of(other(), other()), Place(1, False), 0) == ""
    assert run_plan.plan_headline(run_of(*[other()] * 30, seconds=4), Place(0, False), 0) == (
        "30 post-processing jobs: about 2 min"
    )


def test_what_cannot_run_here_promises_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable_tools, "DEVICES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    no_gpu = "it profiles GPUs only, and there is no GPU"
    found = unavailable_tools.find_unavailable(["time", "torch", "weights", "ncu", "nsys", "sample"], "auto")
    # Jobs of `sample` end well on a CPU, in a file that says that nothing was sampled.
    assert found["ncu"] == no_gpu and list(found) == ["ncu", "nsys"]
    assert found["nsys"].startswith("it is not on PATH: install NVIDIA Nsight Systems")
    # nsys traces a CPU too; of a GPU under another name nvidia-smi knows.
    for name in ("nsys", "ncu"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert unavailable_tools.find_unavailable(["ncu", "nsys"], "auto") == {"ncu": no_gpu}
    # Nothing is measured on a GPU that is not there, and nobody is told that it were on this CPU.
    asked = unavailable_tools.find_unavailable(["time", "torch", "weights"], "cuda")
    assert set(asked) == {"time", "torch"} and "device is cuda, and there is no GPU: device=cpu" in asked["time"]
    (tmp_path / "nvidia0").touch()
    assert unavailable_tools.find_unavailable(["ncu", "nsys", "sample"], "auto") == {}
    on_cpu = unavailable_tools.find_unavailable(["ncu", "nsys"], "cpu")
    assert on_cpu == {"ncu": "it profiles GPUs only, and device is cpu"}
    # As the run says it.
    cells = [task(what, "a train") for what in ("time", "ncu")]
    place = Place(0, False, {"ncu": no_gpu})
    assert run_plan.plan_headline(run_of(*cells), place, 0.0) == "1 cell, ncu: cannot run here"
    timed = Place(0, False, {"time": "device is cuda, and there is no GPU"})
    assert run_plan.plan_headline(run_of(task("time", "a train")), timed, 0.0) == "1 cell, time: cannot run here"
    both = run_of(*cells, task("torch", "a train"), seconds=100)
    assert run_plan.plan_headline(both, place, 0.0) == "1 cell, 2 tools: about 5 min on this CPU"
    assert unavailable_tools.list_unable_tools(place.unable) == [
        f"ncu cannot run here, because {no_gpu} (tool=torch can; snakemake doctor says more)"
    ]


def test_a_dry_run_of_the_zoo_is_a_screen() -> None:
    models = [f"model{number:02}" for number in range(21)]
    cells = [f"{model} {phase}" for model in models for phase in ("train", "inference")]
    mine = [task(what, cell) for cell in cells for what in ("time", "ncu launch", "nsys", "torch")]
    mine += [other() for _ in range(11)] + [other("write_report", "pages", "results/report.html")]
    reasons = {number: ["not made yet"] for number in range(len(mine))}
    dry = SimpleNamespace(nocolor=False, dryrun=True)
    twice = [{"event": "run_info"}, {"event": "run_info"}]
    printed = told_by(run_of(*mine), twice, io.StringIO(), reasons, dry)
    assert printed[0] == "42 cells, 3 tools: about 3 h on 1 GPU"
    assert "  nsys        42 jobs  ~42 min  not made yet" in printed
    assert printed[-1] == "  makes results/report.html" and len(printed) < 24
    narrow = run_plan.dry_run_screen(run_of(*mine), reasons, 60)
    assert all(len(line) <= 60 for line in narrow) and "model20" in "".join(narrow)


HEAD = "model,phase,level,verdict,gain,settings,next_step,by"
PLAN_HEAD = "model,phase,rank,settings,gain,gain_low,gain_high,outlook,method,command,recipe"


def answered(folder: Path, verdicts: Sequence[str], cells: Mapping[str, float], plans: Sequence[str] = ()) -> Progress:
    """A run that made tables of these rows and nothing else; cells: the time per step of each model, in ms."""
    folder.mkdir(exist_ok=True)
    replay = ",method" if any(row.count(",") > HEAD.count(",") for row in verdicts) else ""
    (folder / "verdicts.csv").write_text("\n".join([HEAD + replay, *verdicts, ""]))
    rows = [f"{model},train,{round(ms * 1e6)}" for model, ms in cells.items()]
    (folder / "cells.csv").write_text("\n".join(["model,phase,step_ns", *rows, ""]))
    mine = [other("tabulate_verdicts", "tables", str(folder / "verdicts.csv"))]
    if plans:
        (folder / "plans.csv").write_text("\n".join([PLAN_HEAD, *plans, ""]))
        mine.append(other("tabulate_plans", "tables", str(folder / "plans.csv")))
    progress = run_of(*mine)
    for number in range(len(mine)):
        progress.finish(number, 0)
    return progress


def test_the_end_says_what_failed_first_and_where_most_is_to_be_won(tmp_path: Path) -> None:
    log, table = tmp_path / "log", tmp_path / "verdicts.csv"
    log.write_text("profzoo: the cat is on the keyboard\n")
    verdicts = ["a,train,cell,launch-bound,2,graph=true,,profzoo", "a,train,cell,input-bound,1.1,,,profzoo",
                "b,train,cell,input-bound,1.25,,more workers; or less,profzoo", "a,train,kernel,slow,9,,,profzoo",
                "c,train,cell,undecided,,,,profzoo", "d,train,cell,advice,9,,,ncu"]  # fmt: skip
    answered(tmp_path, verdicts, {"a": 10, "b": 100, "c": 1e-6, "d": 1})
    mine = [task("torch", "a train", logs=(str(log),)), task("torch", "b train", logs=(str(log),)), task(),
            other("tabulate_verdicts", "tables", str(table)), other("write_report", "pages", "results/report.html"),
            *(task("time", f"{name} train") for name in "ab")]  # fmt: skip
    progress = run_of(*mine)
    for number in (1, 0):
        progress.fail(number)
    for number in range(2, len(mine)):
        progress.finish(number, 0)
    assert end_of(progress, 224.09, 200) == [
        "failed  first: b train  torch: the cat is on the keyboard",
        "new     unet train under nsys, 2 cells under time; 1 table; in 3 min 44 s",
        "gains   b train: input-bound, saves up to 20 of 100 ms per step: more workers",
        "        a train: launch-bound, saves up to 5 of 10 ms per step: graph=true",
        "report  results/report.html",
    ]
    assert all(len(line) <= 40 for line in end_of(progress, 1, 40))
    assert " ".join(" ".join(end_of(progress, 1, 40)).split()) == " ".join(" ".join(end_of(progress, 1, 200)).split())
    table.unlink()
    assert len(end_of(progress, 1, 200)) == 3


def test_the_end_begins_with_a_change_of_the_program_that_saves_more_than_settings(tmp_path: Path) -> None:
    """By simulation; an upper limit comes after a plan that helps, a verdict whose settings plans combine after any."""
    verdicts = ["a,train,cell,repeated gradient synchronisation,2,,use no_sync; then,profzoo,replay",
                "b,train,cell,launch-bound,2,graph=true,,profzoo,replay", "c,train,cell,input-bound,2,,more,profzoo,Amdahl",
                "d,train,cell,host work,1.2,,do less,profzoo,replay"]  # fmt: skip
    plans = [f"{model},train,1,precision=bf16,1.6,1.5,1.7,expected to help,replay,try" for model in "abcd"]
    answered(tmp_path, verdicts, dict.fromkeys("abcd", 8), plans)
    found = terminal_run_end.list_largest_gains(tmp_path / "verdicts.csv", tmp_path / "plans.csv")
    told = {one.says.split()[0]: one.says for one in found}
    assert told["a"] == "a train: repeated gradient synchronisation, saves 4 of 8 ms per step: use no_sync"
    assert list(told) == ["a", "b", "c"] and all("precision=bf16" in told[model] for model in "bc")
    doubtful = [row.replace("expected to help", "it may not help: measure it") for row in plans]
    answered(tmp_path, verdicts, dict.fromkeys("abcd", 8), doubtful)
    found = terminal_run_end.list_largest_gains(tmp_path / "verdicts.csv", tmp_path / "plans.csv")
    told = {one.says.split()[0]: one.says for one in found}
    assert told["c"].startswith("c train: input-bound, saves up to") and "precision=bf16" in told["b"]


def test_the_answer_is_printed_once_and_where_nothing_had_to_run(tmp_path: Path) -> None:
    """At the end of the run, or after the report of what succeeded, which has the tables of it."""
    table = tmp_path / "tables" / "verdicts.csv"
    progress = answered(table.parent, ["a,train,cell,v,2,,do less,profzoo"], {"a": 8})
    nothing = [{"msg": "Nothing to be done (all requested files are present and up to date)."}]
    made = {"tabulate_verdicts": [str(table)], "write_report": ["results/report.html"]}
    gains = "gains   a train: v, saves up to 4 of 8 ms per step: do less"
    assert told_by(run_of(), nothing, io.StringIO(), made=made)[1:] == [gains, "report  results/report.html"]
    # A dry run makes nothing, and shows no results.
    dry = SimpleNamespace(nocolor=False, dryrun=True)
    assert len(told_by(run_of(), nothing, io.StringIO(), settings=dry)) == 1
    assert len(told_by(run_of(), nothing, io.StringIO())) == 1
    found = workflow_run_end.tables_of_answer(tmp_path, [])
    assert found == {"tabulate_verdicts": [str(table)]}
    assert workflow_run_end.tables_of_answer(tmp_path, [str(table)]) == {}
    for given in ({}, found):
        mine, stream = log_handler.LogHandler(QUIET, None), io.StringIO()
        mine.attach(stream, lambda: (progress, Place(1, False), 0.0, {}), list, bool, lambda given=given: given)
        mine.handle(logging.makeLogRecord({"levelno": logging.INFO, "msg": "", "event": "run_info"}))
        mine.close_run()
        mine.say_answer(found)
        assert stream.getvalue().count("gains   a train: v") == 1


FIRST_HEAD = PLAN_HEAD.removeprefix("model,phase,")


def first_plans(folder: Path, *rows: str, cell: str = "vit train") -> Task:
    """The job that makes a cell's first plans, with these rows."""
    path = folder / f"{cell.replace(' ', '/')}.first-plan.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([FIRST_HEAD, *rows]) + "\n")
    return Task("derive_from_nsys", cell, "exports", False, (str(path.with_name("train.nsys.csv")), str(path)))


GRAPH = "1,graph=true,2.2,1.4,3,expected to help,replay,try it"


def test_the_first_plan_of_a_cell_is_told_before_its_counters_have_come(tmp_path: Path) -> None:
    """Once, on lines that fit, and among those of the measurements."""
    mine = [
        task("nsys", "vit train", tmp_path),
        first_plans(tmp_path, GRAPH),
        replace(task("ncu", "vit train", tmp_path), what="ncu deep"),
    ]
    records = [{"event": "run_info"}, *({"event": "job_finished", "job_id": number} for number in (0, 1, 2))]
    printed = told_by(run_of(*mine), records, io.StringIO())
    (place,) = [place for place, line in enumerate(printed) if line.startswith("early")]
    told = "early   vit train: graph=true, expected to run 2.20 times as fast (1.40 to 3.00); counters may change it"
    assert printed[place] == told and printed[place - 1].startswith("vit train  nsys")
    assert printed[place + 1].startswith("vit train  ncu deep")
    narrow = terminal_run_end.format_first_plan(run_of(*mine), 1, 50)
    assert (
        len(narrow) > 1
        and all(len(line) <= 50 for line in narrow)
        and "  ".join(told.split()) == "  ".join(" ".join(narrow).split())
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        # The best of those that may be advised.
        (["1,batch=8,3,2,4,not advised: in trials,replay,", GRAPH], "graph=true, expected to run 2.20 times as fast (1.40 to 3.00)"),
        (["1,workers=4,1.5,,,it may not help: measure it,Amdahl,"], "workers=4, at most 1.50 times as fast; it may not help: measure it"),
        (["1,graph=true,0.9,0.8,1,not expected to help,replay,"], ""),
        (["1,graph=true,,,,not possible,,"], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_the_first_plan_is_the_best_that_may_help(tmp_path: Path, rows: Sequence[str], says: str) -> None:
    progress = run_of(first_plans(tmp_path, *rows), task("ncu", "vit train"))
    line = [f"early   vit train: {says}; counters may change it"] if says else []
    assert terminal_run_end.format_first_plan(progress, 0, 300) == line


def test_there_is_no_first_plan_where_no_counters_are_to_come(tmp_path: Path) -> None:
    """They are there already, or nobody has asked for them, or they have failed, or are those of another cell."""
    first, ncu = first_plans(tmp_path, GRAPH), task("ncu", "vit train")
    assert terminal_run_end.format_first_plan(run_of(first, ncu), 0, 300)
    others = [[], [task("torch", "vit train")], [task("ncu", "unet train")], [task("ncu", "vit inference")]]
    assert not any(terminal_run_end.format_first_plan(run_of(first, *more), 0, 300) for more in others)
    for ended in (lambda run: run.finish(1, 0), lambda run: run.fail(1)):
        ended(progress := run_of(first, ncu))
        assert terminal_run_end.format_first_plan(progress, 0, 300) == []
    assert terminal_run_end.format_first_plan(run_of(first, ncu), 0, 300, {"ncu": "there is no GPU"}) == []
    # What ncu waits for has failed.
    waits = run_of(first, ncu, other("plan_ncu", "exports"))
    waits.followers = {2: [1]}
    waits.fail(2)
    assert terminal_run_end.format_first_plan(waits, 0, 300) == []
    # A job that makes none, such as one of a single table; and a file that is gone.
    assert terminal_run_end.format_first_plan(run_of(replace(first, outputs=("train.replay.csv",)), ncu), 0, 300) == []
    Path(first.outputs[1]).unlink()
    assert terminal_run_end.format_first_plan(run_of(first, ncu), 0, 300) == []


def test_the_end_says_which_steps_launch_differently(tmp_path: Path) -> None:
    table, head = tmp_path / "repetition.csv", "model,phase,says"
    says = "train: the 4 traced steps launch differently (9 kernels each)"
    rows = [f"m{number},{says.replace(': ', ',')}" for number in range(5)]
    table.write_text("\n".join([head, *rows[:2]]))
    progress = run_of(replace(other("tabulate", "tables"), outputs=(str(tmp_path / "cells.csv"), str(table))))
    progress.finish(0, 0)
    assert end_of(progress, 1, 200)[1:] == [f"differ  m0 {says}", f"        m1 {says}"]
    table.write_text("\n".join([head, *rows]))
    *_, third, more = end_of(progress, 1, 500)
    assert third == f"        m2 {says}" and more == f"        and 2 more cells, in {table}"
    table.write_text(f"{head}\n")
    assert len(end_of(progress, 1, 200)) == 1
    table.unlink()
    assert len(end_of(progress, 1, 200)) == 1


def test_the_end_begins_with_the_best_plan_of_each_cell(tmp_path: Path) -> None:
    verdicts = ["a,train,cell,launch-bound,1.9,graph=true,,profzoo", "a,train,cell,undecided,,,,profzoo",
                "a,train,cell,memory-bound,,,,profzoo", "b,train,cell,input-bound,1.25,,more workers; or less,profzoo"]  # fmt: skip
    command = "snakemake compare --config models=a phases=train tool=time candidate=graph+bf16"
    plans = [
        f"a,train,1,graph=true precision=bf16,2.5,0.8,4,it may not help: measure it,replay,{command}",
        "a,train,2,graph=true,1.9,1.5,2.4,expected to help,replay,another",
        "b,train,1,precision=bf16,0.9,0.8,1.2,not expected to help,replay,another",
        "c,train,1,workers=2,1.5,1.2,1.5,expected to help,Amdahl,a third,DataLoader(num_workers=2)",
    ]
    cells = {"a": 10, "b": 9, "c": 1e-3}
    progress = answered(tmp_path, verdicts, cells, plans)
    assert end_of(progress, 1, 300)[1:] == [
        "gains   a train: graph=true precision=bf16, expected to run 2.50 times as fast (0.80 to 4.00), which saves "
        "6 of 10 ms per step; bottlenecks: launch-bound, memory-bound; it may not help: measure it",
        f"        {command}",
        "        b train: input-bound, saves up to 1.8 of 9 ms per step: more workers",
        "        c train: workers=2, at most 1.50 times as fast (1.20 to 1.50), which saves up to 333 ns of 1 µs per step",
        "        in your own code: DataLoader(num_workers=2)",
        "        a third",
    ]
    # A command stays on one line, so that it can be copied.
    narrow = end_of(progress, 1, 60)
    assert f"        {command}" in narrow
    assert all(len(line) <= 60 for line in narrow if command not in line)
    # Without the table of plans, as where its job failed, verdicts stand for them.
    first = end_of(answered(tmp_path, verdicts, cells), 1, 300)[1]
    assert first == "gains   a train: launch-bound, saves up to 4.74 of 10 ms per step: graph=true"


def test_the_user_of_a_script_is_told_the_lines_to_write(tmp_path: Path) -> None:
    """With their place, instead of settings of profzoo; at the end of the run and before counters have come."""
    command = "snakemake compare --config models='{mine: {command: python t.py}}' candidate=tf32"
    line = 'expected to help,replay,"{}",t.py:9: {}'.format(command, "torch.compile(model)")
    told = "t.py:9: torch.compile(model), expected to run 2.00 times as fast (1.80 to 2.20)"
    progress = answered(tmp_path, ["a,train,cell,x,,,,profzoo"], {"a": 8}, [f"a,train,1,compile=true,2,1.8,2.2,{line}"])
    lines = end_of(progress, 1, 80)[1:]
    assert (
        " ".join(lines[:2]).replace(" " * 9, " ")
        == f"gains   a train: {told}, which saves 4 of 8 ms per step; bottlenecks: x"
    )
    assert lines[2:] == [f"        {command}"] and "compile=true" not in "".join(lines)
    run = run_of(first_plans(tmp_path, f"1,compile=true,2,1.8,2.2,{line}"), task("ncu", "vit train"))
    (early,) = terminal_run_end.format_first_plan(run, 0, 300)
    assert early == f"early   vit train: {told}; counters may change it"


def test_a_run_without_expected_gains_ends_with_the_first_verdict_of_each_cell(tmp_path: Path) -> None:
    why = "operator-bound: 15% to 29% of the step was measured, undecided because steps vary"
    judged = [f'mine,train,cell,undecided,,,"{why}",profzoo', "mine,train,cell,input-bound,,,,profzoo",
              "mine,inference,layer,slow,,,,profzoo", "mine,inference,cell,advice,9,,,ncu",
              "mine,inference,cell,operator-bound,,,see the operator,profzoo"]  # fmt: skip
    progress = answered(tmp_path, judged, {"mine": 1e-5})
    table = tmp_path / "verdicts.csv"
    told = [f"mine train: {why}", "mine inference: operator-bound; see the operator"]
    assert terminal_run_end.list_cell_verdicts(table) == told
    assert end_of(progress, 1, 300)[1:] == [f"verdict {told[0]}", f"        {told[1]}"]
    progress = answered(tmp_path, [*judged, "mine,train,cell,launch-bound,2,graph=true,,profzoo"], {"mine": 1e-5})
    assert not any(line.startswith("verdict") for line in end_of(progress, 1, 300))
    answered(tmp_path, [f"m{number},train,cell,undecided,,,,profzoo" for number in range(9)], {})
    shown = [f"m{number} train: undecided" for number in range(terminal_run_end.SHOWN)]
    assert terminal_run_end.list_cell_verdicts(table) == shown
    answered(tmp_path, [], {})
    assert terminal_run_end.list_cell_verdicts(table) == terminal_run_end.list_cell_verdicts(tmp_path / "no.csv") == []
