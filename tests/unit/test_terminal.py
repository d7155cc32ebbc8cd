"""terminal/: what a run says of its plan, its measurements and its end, whatever Snakemake tells of them."""

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

from profzoo import import_graph, tools
from profzoo.terminal import (
    error_lines,
    job_durations,
    job_titles,
    largest_gains,
    log_handler,
    logger_takeover,
    measurement_summary,
    run_end,
    run_plan,
    unavailable_tools,
)
from profzoo.terminal.job_titles import Task
from profzoo.terminal.progress import Progress
from profzoo.terminal.run_plan import Place
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
) -> list[str]:
    """The lines that a handler prints of records, each a dictionary of its attributes."""
    mine = log_handler.LogHandler(settings, None)
    mine.attach(
        stream, lambda: (progress, Place(1, False), 0.0, reasons or {}), lambda: ["figures", "report"], lambda: collects
    )
    for record in records:
        level = record.get("levelno", logging.INFO)
        mine.handle(logging.makeLogRecord({"levelno": level, "msg": "", **record}))
    mine.close_run()
    return stream.getvalue().splitlines()


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
    assert found > set(job_titles.MEASURING) and all(job_titles.rule_kind(rule)[2] for rule in found)
    for where in ("gpu", "cpu"):
        # A tool may leave to the first run what its jobs take.
        assert {job_titles.rule_kind(rule)[0] for rule in found} - set(tools.names()) <= set(
            job_durations.shipped_durations()[where]
        )


def test_costs_of_shipped_tools_stand_with_the_tools() -> None:
    assert all(set(tools.names()) <= set(job_durations.shipped_durations()[where]) for where in ("gpu", "cpu"))
    assert (
        job_durations.shipped_durations()["gpu"]["ncu launch"] == 13
        and job_durations.shipped_durations()["cpu"]["sample"] == 10
    )
    new = task("perf")
    assert job_durations.expect_duration(new, job_durations.EarlierTimes({}, gpu=True)) == (
        job_durations.UNKNOWN_S,
        False,
    )


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
    assert re.fullmatch(r"unet train  nsys  26\.5 ms/step  75 % busy  1/2  ~\d+ s left", printed[1])
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
    run = SimpleNamespace(
        output_settings=SimpleNamespace(**{**flags, **off, **asked}), logger_manager=SimpleNamespace()
    )
    run.logger_manager.logger = logger
    mine = logger_takeover.take_over(run)
    assert logger.handlers == [theirs] if asked else logger.handlers == [mine]
    logger.warning("the disk is slow")
    assert theirs.stream.getvalue() == "the disk is slow\n"


def test_what_was_not_measured_is_left_out(tmp_path: Path) -> None:
    nsys = task(folder=tmp_path)
    assert measurement_summary.summarise_measurement(nsys, 3.0) == ["in 3.0 s"]
    time = task("time", folder=tmp_path)
    sidecar(time, step_ns=4.83e6, steps=3, items=30)
    assert measurement_summary.summarise_measurement(time, 3.0) == ["4.83 ms/step", "2,070 samples/s"]
    sidecar(nsys, step_ns=2e6)
    assert measurement_summary.summarise_measurement(nsys, 3.0) == ["2 ms/step"]
    (tmp_path / "unet" / "train.nsys.sqlite").write_bytes(b"no database")
    assert measurement_summary.summarise_measurement(nsys, 3.0) == ["2 ms/step"]
    Path(nsys.sidecar).write_text("[]")
    assert measurement_summary.summarise_measurement(nsys, 3.0) == ["in 3.0 s"]
    ncu = task("ncu deep", folder=tmp_path)
    sidecar(ncu, step_ns=9e9, plan={"launches": 1186})
    assert measurement_summary.summarise_measurement(ncu, 3.0) == ["1,186 launches"]


def test_nothing_but_text_where_nobody_looks() -> None:
    long = [task("torch", f"{'inceptionresnetv2' * 3} inference") for _ in range(2)]
    records = [{"event": "run_info"}, {"event": "job_finished", "job_id": 0}, {"event": "job_error", "jobid": 1}]
    plain = told_by(run_of(*long), records, io.StringIO())
    assert not re.search("[\r\033]", "".join(plain)) and any("1/2" in line for line in plain)


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


def test_warnings_are_said_once_and_noise_never() -> None:
    warning = {"levelno": logging.WARNING, "msg": "the disk is slow"}
    noise = [
        {"msg": "Select jobs to execute..."},
        {"msg": "Updating checkpoint dependencies."},
        {"msg": "DAG of jobs will be updated after completion."},
        {"msg": None},
        {"event": "shellcmd", "msg": "python"},
    ]
    debug = {"levelno": logging.DEBUG, "msg": "Selected jobs: 1"}
    known = {"msg": "Nothing to be done (all requested files are present and up to date)."}
    assert told_by(run_of(), [warning, *noise, debug, known, warning], io.StringIO()) == [
        "the disk is slow", known["msg"]
    ]  # fmt: skip


def test_where_snakemakes_log_is_is_said_of_a_run_that_fails() -> None:
    log = {"msg": "Complete log(s): a.log"}
    assert told_by(run_of(task()), [{"event": "job_finished", "job_id": 0}, log], io.StringIO())[1].startswith("new")
    assert told_by(run_of(task()), [{"event": "job_error", "jobid": 0}, log], io.StringIO())[1] == log["msg"]


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
    assert progress.failed == [0] and last == (
        "ended   by you: finished results are kept, and the same command continues the run"
    )


def test_a_job_that_measures_nothing_and_fails_is_named() -> None:
    table = Task("export_nsys", "unet train", "exports", False, ("a.csv",))
    assert told_by(run_of(table), [{"event": "job_error", "jobid": 0}], io.StringIO())[0] == (
        "export nsys unet train  failed"
    )


def test_a_mistake_in_a_handler_ends_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    told_by(run_of(task()), [{"event": "job_finished"}], io.StringIO())
    assert "AttributeError" in capsys.readouterr().err


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
        ("WorkflowError:\nAt least one job did not complete successfully.", ""),
        ('RuleException:\nCalledProcessError in file "a.smk", line 3:\nCommand returned non-zero exit status 1.', ""),
        ("LockException:\nError: Directory cannot be locked.", "LockException:\nError: Directory cannot be locked."),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_a_line(message: str, line: str) -> None:
    assert error_lines.shorten_error(message, ["figures", "report"], collects=True) == line


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
    earlier = job_durations.read_benchmarks(tmp_path / "benchmarks", gpu=True)
    elsewhere = job_durations.shipped_durations()["gpu"]["nsys"]
    assert job_durations.expect_duration(same, earlier) == (100, True)
    assert job_durations.expect_duration(new, earlier) == ((100 + 50 + 2 * elsewhere) / 4, True)
    assert job_durations.expect_duration(new, job_durations.read_benchmarks(tmp_path / "none", gpu=True)) == (
        elsewhere,
        False,
    )
    deep = task("ncu deep", folder=tmp_path)
    assert job_durations.expect_duration(deep, earlier) == (job_durations.shipped_durations()["gpu"]["ncu"], False)
    sidecar(deep, wall_s=101.2)
    assert job_durations.expect_duration(deep, earlier) == (101.2, True)
    (tmp_path / "benchmarks" / "unet" / "train.nsys.tsv").write_text("s\n")
    assert (
        job_durations.expect_duration(same, job_durations.read_benchmarks(tmp_path / "benchmarks", gpu=True))[0] < 100
    )


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
    turns = run_of(
        *(task("comparison", cell, rule="time_in_turn") for cell in ("unet train", "lstm train")), seconds=60
    )
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
    (tmp_path / "nvidia0").touch()
    assert unavailable_tools.find_unavailable(["ncu", "nsys", "sample"], "auto") == {}
    assert unavailable_tools.find_unavailable(["ncu", "nsys"], "cpu") == {
        "ncu": "it profiles GPUs only, and device is cpu"
    }
    # As the run says it.
    cells = [task(what, "a train") for what in ("time", "ncu")]
    place = Place(0, False, {"ncu": no_gpu})
    assert run_plan.plan_headline(run_of(*cells), place, 0.0) == "1 cell, ncu: cannot run here"
    both = run_of(*cells, task("torch", "a train"), seconds=100)
    assert run_plan.plan_headline(both, place, 0.0) == "1 cell, 2 tools: about 5 min on this CPU"
    assert unavailable_tools.list_unable_tools(place.unable) == [
        f"ncu cannot run here, because {no_gpu} (snakemake doctor says what can)"
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


def test_the_end_says_what_failed_first_and_where_most_is_to_be_won(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("profzoo: the cat is on the keyboard\n")
    verdicts = tmp_path / "verdicts.csv"
    verdicts.write_text(
        "model,phase,level,verdict,gain,settings,next_step,by\n"
        "a,train,cell,launch-bound,2,graph=true,,profzoo\na,train,cell,input-bound,1.1,,,profzoo\n"
        "b,train,cell,input-bound,1.25,,more workers; or less,profzoo\na,train,kernel,slow,9,,,profzoo\n"
        "c,train,cell,undecided,,,,profzoo\nd,train,cell,advice,9,,,ncu\n"
    )
    (tmp_path / "cells.csv").write_text(
        "model,phase,step_ns\na,train,10000000\nb,train,100000000\nc,train,1\nd,train,1000000\n"
    )
    mine = [task("torch", "a train", logs=(str(log),)), task("torch", "b train", logs=(str(log),)), task(),
            other("tabulate_verdicts", "tables", str(verdicts)), other("write_report", "pages", "results/report.html"),
            *(task("time", f"{name} train") for name in "ab")]  # fmt: skip
    progress = run_of(*mine)
    for number in (1, 0):
        progress.fail(number)
    for number in range(2, len(mine)):
        progress.finish(number, 0)
    assert run_end.format_run_end(progress, 224.09, 200) == [
        "failed  first: b train  torch: the cat is on the keyboard",
        "new     unet train under nsys, 2 cells under time; 1 table; in 3 min 44 s",
        "gains   b train: input-bound, saves up to 20 of 100 ms per step: more workers",
        "        a train: launch-bound, saves up to 5 of 10 ms per step: graph=true",
        "report  results/report.html",
    ]
    assert all(len(line) <= 40 for line in run_end.format_run_end(progress, 1, 40))
    assert " ".join(" ".join(run_end.format_run_end(progress, 1, 40)).split()) == " ".join(
        " ".join(run_end.format_run_end(progress, 1, 200)).split()
    )
    verdicts.unlink()
    assert len(run_end.format_run_end(progress, 1, 200)) == 3


def test_the_end_begins_with_a_change_of_the_program_that_saves_more_than_settings(tmp_path: Path) -> None:
    """By simulation; an upper limit, and a verdict whose settings plans combine, come after the plan."""
    verdicts, plans = tmp_path / "verdicts.csv", tmp_path / "plans.csv"
    verdicts.write_text(
        "model,phase,level,verdict,gain,settings,next_step,by,method\n"
        "a,train,cell,repeated gradient synchronisation,2,,use no_sync; then,profzoo,replay\n"
        "b,train,cell,launch-bound,2,graph=true,,profzoo,replay\nc,train,cell,input-bound,2,,more,profzoo,Amdahl\n"
        "d,train,cell,host work,1.2,,do less,profzoo,replay\n"
    )
    rows = [f"{model},train,1,precision=bf16,1.6,1.5,1.7,expected to help,replay,try" for model in "abcd"]
    head = "model,phase,rank,settings,gain,gain_low,gain_high,outlook,method,command"
    plans.write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "cells.csv").write_text("model,phase,step_ns\n" + "".join(f"{one},train,8000000\n" for one in "abcd"))
    told = {one.says.split()[0]: one.says for one in largest_gains.list_largest_gains(verdicts, plans)}
    assert told["a"] == "a train: repeated gradient synchronisation, saves 4 of 8 ms per step: use no_sync"
    assert list(told) == ["a", "b", "c"] and all("precision=bf16" in told[model] for model in "bc")


def test_the_end_says_which_steps_launch_differently(tmp_path: Path) -> None:
    table = tmp_path / "repetition.csv"
    rows = [f"m{number},train,the 4 traced steps launch differently (9 kernels each)" for number in range(5)]
    table.write_text("\n".join(["model,phase,says", *rows[:2]]))
    made = (str(tmp_path / "cells.csv"), str(table))
    progress = run_of(replace(other("tabulate", "tables"), outputs=made))
    progress.finish(0, 0)
    says = "train: the 4 traced steps launch differently (9 kernels each)"
    assert run_end.format_run_end(progress, 1, 200)[1:] == [f"differ  m0 {says}", f"        m1 {says}"]
    table.write_text("\n".join(["model,phase,says", *rows]))
    *_, third, more = run_end.format_run_end(progress, 1, 500)
    assert third == f"        m2 {says}" and more == f"        and 2 more cells, in {table}"
    table.write_text("model,phase,says\n")
    assert len(run_end.format_run_end(progress, 1, 200)) == 1
    table.unlink()
    assert len(run_end.format_run_end(progress, 1, 200)) == 1


def test_the_end_begins_with_the_best_plan_of_each_cell(tmp_path: Path) -> None:
    verdicts, plans = tmp_path / "verdicts.csv", tmp_path / "plans.csv"
    verdicts.write_text(
        "model,phase,level,verdict,gain,settings,next_step,by\n"
        "a,train,cell,launch-bound,1.9,graph=true,,profzoo\na,train,cell,undecided,,,,profzoo\n"
        "a,train,cell,memory-bound,,,,profzoo\n"
        "b,train,cell,input-bound,1.25,,more workers; or less,profzoo\n"
    )
    command = "snakemake compare --config models=a phases=train tool=time candidate=graph+bf16"
    plans.write_text(
        "model,phase,rank,settings,gain,gain_low,gain_high,outlook,method,command\n"
        f"a,train,1,graph=true precision=bf16,2.5,0.8,4,it may not help: `snakemake trials` measures it,replay,{command}\n"
        "a,train,2,graph=true,1.9,1.5,2.4,expected to help,replay,another\n"
        "b,train,1,precision=bf16,0.9,0.8,1.2,not expected to help,replay,another\n"
        "c,train,1,workers=2,1.5,1.2,1.5,expected to help,Amdahl,a third\n"
    )
    (tmp_path / "cells.csv").write_text("model,phase,step_ns\na,train,10000000\nb,train,9000000\nc,train,1000\n")
    mine = [other("tabulate_verdicts", "tables", str(verdicts)), other("tabulate_plans", "tables", str(plans))]
    progress = run_of(*mine)
    for number in range(len(mine)):
        progress.finish(number, 0)
    told = [
        "gains   a train: graph=true precision=bf16, expected to run 2.50 times as fast (0.80 to 4.00), which saves "
        "6 of 10 ms per step; bottlenecks: launch-bound, memory-bound; it may not help: `snakemake trials` measures it",
        f"        {command}",
        "        b train: input-bound, saves up to 1.8 of 9 ms per step: more workers",
        "        c train: workers=2, at most 1.50 times as fast (1.20 to 1.50), which saves 333 ns of 1 µs per step",
        "        a third",
    ]
    assert run_end.format_run_end(progress, 1, 300)[1:] == told
    # A command stays on one line, so that it can be copied.
    narrow = run_end.format_run_end(progress, 1, 60)
    assert f"        {command}" in narrow
    assert all(len(line) <= 60 for line in narrow if command not in line)
    # Without the table of plans, as where its job failed, verdicts stand for them.
    progress = run_of(*mine[:1])
    progress.finish(0, 0)
    assert run_end.format_run_end(progress, 1, 300)[1] == (
        "gains   a train: launch-bound, saves up to 4.74 of 10 ms per step: graph=true"
    )
