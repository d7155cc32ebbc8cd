"""`snakemake compare`: sides take turns, only what depends on a change runs again, what is wrong is said in one line."""

import json
import shutil
import tarfile

import pytest

from tests import slow
from tests.columns import undescribed
from tests.workflow.project import STANDINS, Project, models, rules


@pytest.fixture
def pretending(fresh: Project) -> Project:
    """A copy of which cells only pretend to run: bf16 is faster."""
    fresh.variables = {"PYTHONPATH": str(STANDINS / "cell")}
    return fresh


# Cells that only pretend to run leave no trace.
BF16 = ("compare", "--config", "tool=time", "candidate=bf16", "repeats=3")
TURNS = "results/lstm/train.plain-vs-bf16.rounds.csv"


def test_sides_take_turns_and_the_verdict_is_said(pretending: Project) -> None:
    run = pretending.snakemake(*BF16, "-j2")
    assert "bf16 against plain: 3 processes each, times per step, alternating" in run.stdout + run.stderr
    assert "1.25 times as fast" in run.stdout + run.stderr and "4 faster" in run.stdout + run.stderr
    sidecar = json.loads(pretending.read(f"{TURNS}.json"))
    order = ["plain", "bf16", "bf16", "plain", "plain", "bf16"]
    assert sidecar["order"] == [process["side"] for process in sidecar["processes"]] == order
    rows = [line.split(",")[:3] for line in pretending.read(TURNS).splitlines()]
    assert rows[0] == ["side", "process", "step"] and [row[0] for row in rows[1::2]] == order
    tables = {"tables/compare.csv", "tables/compare_latency.csv"}
    assert pretending.files() >= {"compare.html", "figures/comparison.svg", *tables}
    assert "report.html" not in pretending.files() and undescribed(pretending.root / "results") == []
    # What was measured is not measured again; it is said again.
    assert rules(pretending.dry(*BF16)) == {"compare"}
    made = {"tabulate_comparison", "draw_comparison", "write_comparison", "compare"}
    assert rules(pretending.dry(*BF16, "equivalence_margin=0.3")) == made
    again = pretending.dry("compare", "--config", "tool=time", "candidate=bf16", "repeats=4")
    assert rules(again) == {"time_in_turn", "tabulate_compared_latency", *made}
    pretending.write("models/unet.py", pretending.read("models/unet.py") + "\n# changed\n")
    assert models([job for job in pretending.dry(*BF16) if job.rule == "time_in_turn"]) == {"unet"}


@pytest.mark.slow
def test_rounds_go_on_until_they_decide(pretending: Project) -> None:
    """Without a number of repeats; what pretends takes the same time again and again, so two rounds decide."""
    until = ("compare", "--config", "tool=time", "candidate=bf16", "models=lstm", "phases=train")
    run = pretending.snakemake(*until)
    assert "bf16 against plain: 2 processes each" in run.stdout + run.stderr and "1 faster" in run.stdout + run.stderr
    sidecar = json.loads(pretending.read(f"{TURNS}.json"))
    assert [one["side"] for one in sidecar["processes"]] == sidecar["order"] and len(sidecar["order"]) == 4
    assert (sidecar["ended"], sidecar["most_rounds"]) == ("decided", 20)
    # The budget and the margin are no reason to measure again; to fork processes is one.
    assert "time_in_turn" not in rules(pretending.dry(*until, "trials={budget: 30s}", "equivalence_margin=0.03"))
    assert "time_in_turn" in rules(pretending.dry(*until, "fork=false"))
    pretending.snakemake("results/lstm/train.time.csv", "--config", "repeats=auto")
    assert len(json.loads(pretending.read("results/lstm/train.time.csv.json"))["processes"]) == 2


@pytest.mark.slow
def test_a_comparison_that_was_cut_off_is_shown_as_far_as_it_came(pretending: Project) -> None:
    pretending.snakemake(*BF16, "models=lstm")
    whole = pretending.snakemake(*BF16, "collect=false", "models=[lstm,unet]")
    assert "2 faster" in whole.stdout + whole.stderr


@pytest.mark.slow
def test_what_is_slower_fails_where_that_is_asked_for(pretending: Project) -> None:
    slower = (
        "compare",
        "--config",
        "tool=time",
        "models=lstm",
        "phases=train",
        "reference=bf16",
        "candidate=plain",
        "repeats=2",
    )
    run = pretending.snakemake(*slower, "fail_on=slower", ok=False)
    assert run.returncode != 0 and "1 slower" in run.stdout + run.stderr
    assert pretending.snakemake(*slower).returncode == 0


@pytest.mark.slow
def test_folders_of_results_are_compared_as_they_are(pretending: Project) -> None:
    times = ["results/lstm/train.time.csv", "results/unet/train.time.csv"]
    pretending.snakemake(*times, "--config", "repeats=2")
    # As a colleague has them.
    pretending.snakemake("share")
    with tarfile.open(pretending.root / "results/share.tar.gz") as tar:
        tar.extractall(pretending.root, filter="data")
    shutil.rmtree(pretending.root / "results")
    sides = ("tool=time", "reference=profzoo-results", "candidate=plain")
    run = pretending.snakemake("compare", "--config", "phases=train", "repeats=2", *sides)
    printed = run.stdout + run.stderr
    assert (
        "plain against profzoo-results: 2 processes each, times per step, measured at different times" in printed
        and "2 equivalent" in printed
    )


@pytest.mark.parametrize(
    ("words", "line"),
    slow.first(
        [
            (["candidate=bf17"], "candidate = 'bf17' is no variant, run or folder: did you mean 'bf16'?"),
            (["candidate=bf16", "models=lstm@fp16"], "models = 'lstm@fp16' names a variant"),
            ([], "compare: name a candidate"),
        ]
    ),
)
def test_what_cannot_be_compared_is_said_in_one_line(pretending: Project, words: list[str], line: str) -> None:
    run = pretending.snakemake("compare", *(["--config", *words] if words else []), ok=False)
    assert run.returncode != 0 and line in run.stderr and "Traceback" not in run.stderr


@pytest.mark.slow
def test_the_report_shows_a_comparison_where_one_is_asked_for(pretending: Project) -> None:
    sections = ("report", "--config", "tool=nsys", "models=lstm", "phases=train")
    assert not rules(pretending.dry(*sections)) & {"time_in_turn", "tabulate_comparison", "draw_comparison"}
    with_it = rules(pretending.dry(*sections, "candidate=bf16"))
    assert with_it >= {"tabulate_comparison", "tabulate_parts", "draw_comparison", "draw_waterfall", "write_report"}
    assert "write_comparison" not in with_it


@pytest.mark.slow
def test_repeats_of_a_cell_are_in_the_tables(pretending: Project) -> None:
    pretending.snakemake("results/lstm/train.time.csv", "--config", "repeats=3")
    rows = pretending.read("results/lstm/train.time.csv").splitlines()
    assert rows[0].startswith("side,process,step") and len(rows) == 7
    assert {job.rule for job in pretending.dry("results/lstm/train.time.csv")} == {"time_training"}
