"""What fails is left out by name, in every stage, and the report is made of the rest."""

import csv
import io
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.faults.jobs import wait
from tests.workflow.project import Project, finished
from tests.workflow.test_ncu import BY_NSYS, trace_of_standin, traced

UNLIKE = [*BY_NSYS[:-1], "ncu={set: roofline, census: nsys}"]
MADE = "report  results/report.html, from the results that succeeded"


def rows(project: Project, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(project.read(f"results/tables/{name}.csv"))))


def without(project: Project, why: str) -> list[str]:
    """What the page says to be missing for this reason, each once."""
    page = project.read("results/report.html")
    notices = re.findall(r'<div class="notice failed">(.*?)</div>', page, re.DOTALL)
    items = [item for notice in notices for item in re.findall(r"<li>(.*?)</li>", notice, re.DOTALL)]
    return [item for item in items if why in item]


def streamless(project: Project) -> dict[str, str]:
    """What cannot be made of a trace without streams, and why, as its log ends."""
    logs = {part: f"results/logs/lstm/train.{log}.log" for part, log in
            (("host", "replay"), ("program", "replay"), ("replay", "replay"), ("timeline", "timeline"))}  # fmt: skip
    return {part: project.read(log).splitlines()[-1].removeprefix("profzoo: ") for part, log in logs.items()}


@pytest.mark.slow
def test_steps_that_launch_otherwise_cost_the_counters_alone(counted: Project, tmp_path: Path) -> None:
    """The report has what nsys traced, although ncu cannot be planned by it."""
    traced(counted, trace_of_standin(tmp_path / "standin.sqlite", more_in=4))
    counted.draw_one()
    run = counted.snakemake("report", "--config", *UNLIKE, ok=False)
    assert run.returncode and MADE in run.stderr.splitlines()
    # Ten steps of 468 launches, and one more.
    (step,) = rows(counted, "steps")
    assert (step["model"], float(step["launches"])) == ("lstm", pytest.approx(468, abs=1))
    assert {row["source"] for row in rows(counted, "kernels")} == {"nsys"}
    why = "step 5 of 10 launches other kernels than step 1"
    assert len(without(counted, why)) == 1 and run.stderr.count(why) <= 3
    # A copy of these results, in which nobody knows of the failure but by its log, is drawn as well.
    again = counted.snakemake("report", "--config", *UNLIKE, "collect=false", ok=False)
    # The made-up trace does not say on which streams kernels ran, so that no step can be run again.
    assert MADE in again.stderr.splitlines() and without(counted, "streamId") == [
        f"{part} of lstm train: {line}" for part, line in streamless(counted).items()
    ]
    assert again.stderr.count("warning: no results of ncu in 1 cell (lstm train): ") == 1
    assert len(without(counted, why)) == 1


@pytest.mark.slow
def test_counters_of_an_earlier_census_wait_for_their_own(counted: Project, tmp_path: Path) -> None:
    """What ncu counted stands beside a trace that cannot tell its launches: nobody can join the two."""
    counted.draw_one()
    counted.snakemake("results/lstm/train.ncu.csv", "results/lstm/train.ncu-details.csv", "--config", *BY_NSYS[1:-1],
                    "tool=ncu", "ncu={set: roofline}")  # fmt: skip
    traced(counted, trace_of_standin(tmp_path / "standin.sqlite", more_in=4))
    counted.snakemake("results/lstm/train.nsys.csv", "results/lstm/train.time.csv", "--config", *UNLIKE)
    run = counted.snakemake("report", "--config", *UNLIKE, "collect=false", ok=False)
    assert MADE in run.stderr.splitlines()
    assert {row["source"] for row in rows(counted, "kernels")} == {"nsys"}
    assert without(counted, "train.nsys-launches.csv is missing")


@pytest.mark.slow
def test_each_stage_of_the_report_goes_on_without_what_fails_in_it(built: Project) -> None:
    """A measurement that was cut short costs its tool's part of a cell; tables and figures of their own cost themselves."""
    for path in (built.root / "profzoo" / "figures").glob("*.py"):
        if path.stem not in ("step_time", "top_kernels") and "def draw(" in path.read_text():
            path.unlink()
    broken = ("figures/step_time", "draw", "no ink"), ("verdicts/causes/verdict_table", "main", "no judge")
    for path, name, why in broken:
        with (built.root / f"profzoo/{path}.py").open("a") as file:
            file.write(f"\n\ndef {name}(*given, **more):\n    raise ValueError({why!r})\n")
    trace = built.root / "results/unet/train.trace.json.gz"
    trace.write_bytes(trace.read_bytes()[:-20])
    (built.root / "results/unet/train.torch.csv").unlink()
    run = built.snakemake("report", ok=False)
    assert run.returncode and MADE in run.stderr.splitlines(), run.stderr + built.read("results/logs/report.rest.log")
    assert {(row["model"], row["phase"]) for row in rows(built, "activity")} == {
        ("lstm", "train"), ("lstm", "inference"), ("unet", "inference")
    }  # fmt: skip
    assert len(rows(built, "cells")) == 4
    assert without(built, "no ink") == ["figure step_time: ValueError: no ink"]
    assert without(built, "no judge") == [f"table {name}: ValueError: no judge" for name in ("verdicts", "waits")]
    (cut,) = without(built, "train.trace.json.gz")
    assert "unet train" in cut
    for part in ("without figure step_time: ", "without table verdicts: "):
        assert sum(line.startswith(part) for line in run.stderr.splitlines()) <= 1
    page = built.read("results/report.html")
    assert 'id="lstm-train"' in page and "top_kernels" in page


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_ended_leaves_the_report_of_what_it_made_unless_time_is_short(
    fresh: Project, recorded: Path, number: signal.Signals
) -> None:
    fresh.draw_one()
    fresh.recording, fresh.variables = recorded, {"PYTHON_PAUSE": "inference 600"}
    fresh.replace("tiny.yaml", "models: [lstm, unet]", "models: [lstm]")
    first = ("results/lstm/train.time.csv", "results/lstm/train.torch.csv")
    process = fresh.begun("all", "--prioritize", *first, "--configfile", "tiny.yaml")
    logs = [fresh.root / f"results/logs/lstm/inference.{tool}.log" for tool in ("time", "torch")]
    wait(lambda: any(log.exists() for log in logs) or process.poll() is not None, 240)
    wait(lambda: all((fresh.root / path).exists() for path in first), 240)
    assert process.poll() is None
    # As a terminal, or `timeout`, ends it.
    os.killpg(process.pid, number)
    told = time.monotonic()
    code, printed = finished(process)
    assert code and "Traceback" not in printed and "CalledProcessError" not in printed, printed
    if number is signal.SIGTERM:
        # Batch systems kill what has not ended after 30 seconds.
        assert time.monotonic() - told < 20 and MADE not in printed.splitlines(), printed
        assert "report  none, because the run was told to end: `snakemake report " in printed, printed
        return
    assert MADE in printed.splitlines(), printed
    assert " failed" not in printed and printed.count("Will exit after") <= 1
    assert [(row["model"], row["phase"]) for row in rows(fresh, "cells")] == [("lstm", "train")]
    assert "<b>1 of 2 cells is missing</b>" in fresh.read("results/report.html")
