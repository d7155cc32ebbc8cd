"""`snakemake compare` and `trials`: sides take turns, only what depends on a change runs again, mistakes are one line."""

import csv
import io
import json
import shutil
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from profzoo.plans import plan_table
from profzoo.referee import states
from tests import slow
from tests.columns import undescribed
from tests.workflow.project import CHECKOUT, STANDINS, Project, copy, list_jobs, models, rules


@pytest.fixture
def pretending(fresh: Project) -> Project:
    """A copy of which cells only pretend to run: bf16 is faster."""
    fresh.variables = {"PYTHONPATH": str(STANDINS / "cell")}
    return fresh


# Cells that only pretend to run leave no trace.
BF16 = ("compare", "--config", "tool=time", "candidate=bf16", "repeats=3")
ONE = (*BF16, "models=lstm", "phases=train")
TURNS = "results/lstm/train.plain-vs-bf16.rounds.csv"


def test_sides_take_turns_and_the_verdict_is_said(pretending: Project) -> None:
    run = pretending.snakemake(*ONE)
    assert "bf16 against plain: 3 processes each, times per step, alternating" in run.stdout + run.stderr
    assert "1.25 times as fast" in run.stdout + run.stderr and "1 faster" in run.stdout + run.stderr
    sidecar = json.loads(pretending.read(f"{TURNS}.json"))
    order = ["plain", "bf16", "bf16", "plain", "plain", "bf16"]
    assert sidecar["order"] == [process["side"] for process in sidecar["processes"]] == order
    rows = [line.split(",")[:3] for line in pretending.read(TURNS).splitlines()]
    assert rows[0] == ["side", "process", "step"] and [row[0] for row in rows[1::2]] == order
    tables = {"tables/compare.csv", "tables/compare_latency.csv"}
    assert pretending.files() >= {"compare.html", "figures/comparison.svg", *tables}
    assert "report.html" not in pretending.files() and undescribed(pretending.root / "results") == []
    # What was measured is not measured again; it is said again.
    made = {"tabulate_comparison", "draw_comparison", "write_comparison", "compare"}
    assert rules(pretending.dry(*ONE, "equivalence_margin=0.3")) == made


@pytest.mark.slow
def test_only_what_depends_on_a_change_is_measured_again(pretending: Project) -> None:
    pretending.snakemake(*BF16, "-j2")
    assert rules(pretending.dry(*BF16)) == {"compare"}
    again = rules(pretending.dry("compare", "--config", "tool=time", "candidate=bf16", "repeats=4"))
    made = {"tabulate_comparison", "draw_comparison", "write_comparison", "compare"}
    assert again == {"time_in_turn", "tabulate_compared_latency", *made}
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
        "compare", "--config", "tool=time", "models=lstm", "phases=train", "reference=bf16", "candidate=plain",
        "repeats=2",
    )  # fmt: skip
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
        states.unpack(tar, pretending.root)
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
            (["candidate=bf17"], "candidate = 'bf17' is not a variant, run or folder: did you mean 'bf16'?"),
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
    sections = ("report", "--dry-run", "--config", "tool=nsys", "models=lstm", "phases=train")
    without, with_it = (pretending.snakemake(*sections, *more).stdout for more in ((), ("candidate=bf16",)))
    assert not rules(list_jobs(without)) & {"time_in_turn", "tabulate_comparison"} and "comparison.svg" not in without
    assert rules(list_jobs(with_it)) >= {"tabulate_comparison", "tabulate_parts", "draw_figures", "write_report"}
    assert "comparison.svg" in with_it and "waterfall.svg" in with_it and "write_comparison" not in with_it


@pytest.mark.slow
def test_repeats_of_a_cell_are_in_the_tables(pretending: Project) -> None:
    pretending.snakemake("results/lstm/train.time.csv", "--config", "repeats=3")
    rows = pretending.read("results/lstm/train.time.csv").splitlines()
    assert rows[0].startswith("side,process,step") and len(rows) == 7
    assert {job.rule for job in pretending.dry("results/lstm/train.time.csv")} == {"time_training"}


CONFIG = {
    "models": {"planted": {"module": "planted_numerics"}},
    "tool": "time", "device": "cpu", "phases": ["train"], "threads": 1, "repeats": 2, "time": {"window": 6},
    "variants": {"skipping": {"changed": "skipped_layers"}, "written": {"changed": "written_out"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project whose only model skips layers in a variant, and is written in another way in another one."""
    made = copy(tmp_path_factory.mktemp("numerics") / "project", json.dumps(CONFIG))
    shutil.copy(CHECKOUT / "tests/planted_numerics.py", made.root)
    return made


@pytest.mark.slow
def test_a_candidate_that_skips_layers_is_not_faster(project: Project) -> None:
    run = project.snakemake("compare", "--config", "candidate=skipping,written", "fail_on=different", ok=False)
    printed = run.stdout + run.stderr
    assert run.returncode != 0 and "computes something else" in printed and "faster," not in printed
    table = pd.read_csv(project.root / "results/tables/compare.csv").set_index("candidate")
    assert table["numerics"].to_dict() == {"skipping": "different", "written": "same"}
    skipping = table.loc["skipping"]
    assert skipping["verdict"] != "faster" and skipping["ratio"] < 0.8
    assert skipping["numerics_by"] == "parameters with a gradient" and "operations" in skipping["work"]
    assert undescribed(project.root / "results") == []
    assert project.snakemake("compare", "--config", "candidate=skipping,written").returncode == 0


@pytest.mark.slow
def test_a_named_run_is_compared_as_closely_as_sides_in_turn(project: Project) -> None:
    """What it computed is repeated apart from the timing, which is not measured again for it."""
    project.snakemake("results/planted/train.time.csv")
    assert "double_precision" not in json.loads(project.read("results/planted/train.time.csv.json"))
    named = ("--config", "reference=before", "candidate=skipping,written")
    project.snakemake("all", "--config", "run=before")
    assert "double_precision" in json.loads(project.read("runs/before/planted/train.numerics.json"))
    assert rules(project.dry("compare", *named)) >= {"repeat_steps", "tabulate_comparison"}
    project.snakemake("compare", *named)
    table = pd.read_csv(project.root / "results/tables/compare.csv").set_index("candidate")
    assert table["numerics"].to_dict() == {"skipping": "different", "written": "same"}
    made = rules(project.dry("compare", "--config", "reference=before", "candidate=plain"))
    assert "repeat_steps" in made and not made & {"time_training", "time_in_turn"}


@pytest.mark.slow
def test_settings_that_skip_layers_are_not_advised(project: Project) -> None:
    panel = "trials={panel: [skipping], max_settings: 1, budget: 120s, repeats: 2}"
    run = project.snakemake("trials", "--config", panel)
    rows = pd.read_csv(project.root / "results/tables/trials.csv").set_index("settings")
    row = rows.loc["skipping"]
    assert row["gain"] > 1.2 and row["numerics"] == "different" and row["verdict"] != "faster" and not row["chosen"]
    printed = run.stdout + run.stderr
    assert "no setting is clearly faster" in printed and "computes something else" in printed


def sidecar(project: Project) -> dict[str, object]:
    """The sidecar of the compared processes."""
    (path,) = Path(project.root, "results/planted").glob("*.rounds.csv.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


@pytest.mark.slow
def test_the_first_process_of_each_side_alone_repeats_its_steps(project: Project) -> None:
    processes = sidecar(project)["processes"]
    assert isinstance(processes, list) and len(processes) == 6
    repeated = [process["side"] for process in processes if "double_precision" in process]
    assert sorted(repeated) == ["plain", "skipping", "written"]
    assert all(len(process["first_steps"]["losses"]) == 9 for process in processes)


@pytest.mark.slow
def test_sides_of_inference_start_with_the_same_weights_unless_one_asks_for_others(fresh: Project) -> None:
    given = ["tool=time", "models=lstm", "phases=inference", "repeats=1", "variants={kept: {weights: trained}}"]
    fresh.snakemake("compare", "--config", *given, "candidate=channels_last,kept")
    table = pd.read_csv(fresh.root / "results/tables/compare.csv").set_index("candidate")
    assert table["numerics"].to_dict() == {"channels_last": "same", "kept": "undecided"}
    assert table.loc["kept", "numerics_why"] == "the sides begin with other weights"
    (path,) = Path(fresh.root, "results/lstm").glob("*.rounds.csv.json")
    weights = {process["side"]: process["weights_from"] for process in json.loads(path.read_text())["processes"]}
    assert weights == {"plain": "initial", "channels_last": "initial", "kept": "lstm/weights.pt"}


TRIALS = ["trials", "--config", "models=lstm", "phases=train", "tool=time"]


@pytest.mark.slow
def test_trials_of_a_cell_end_with_their_budget(fresh: Project) -> None:
    small = "trials={panel: [fused, bf16], budget: 1s, repeats: 2}"
    assert rules(fresh.dry(*TRIALS, small)) == {"try_settings", "tabulate_trials", "trials"}
    run = fresh.snakemake(*TRIALS, small)
    assert "lstm train: no setting is clearly faster" in run.stdout + run.stderr
    facts = json.loads(fresh.read("results/lstm/train.trials.csv.json"))
    # On a CPU, the cell runs beside the first setting; without expectations, these are in the order of the panel.
    assert facts["ended"] == "budget" and {one["side"] for one in facts["processes"]} == {"", "fused"}
    assert facts["tried"][:2] == ["fused", "bf16"]
    rows = list(csv.DictReader(io.StringIO(fresh.read("results/tables/trials.csv"))))
    # A CPU has no CUDA graphs.
    assert {row["settings"]: row["verdict"] for row in rows}.items() >= {
        ("bf16", "not tried"),
        ("graph=true", "refused"),
    }
    assert undescribed(fresh.root / "results") == []
    assert rules(fresh.dry(*TRIALS, small)) == {"trials"}
    # A longer budget tries more.
    assert "try_settings" in rules(fresh.dry(*TRIALS, small.replace("1s", "2s")))


@pytest.mark.slow
def test_of_a_plan_that_cannot_run_the_rest_is_tried_and_what_failed_comes_first_no_more(tmp_path: Path) -> None:
    """A network that adds rows of bf16 to those of fp32, which torch refuses."""
    several = {"precision": "bf16", "cudnn_benchmark": True, "threads": 2, "optimizer": "foreach"}
    config = {**CONFIG, "models": {"adding": {"module": "adding_rows", "sequence_length": 8}},
              "variants": {"several": several, "faster": {"threads": 2, "optimizer": "foreach"}}}  # fmt: skip
    made = copy(tmp_path / "project", json.dumps(config))
    scores = "torch.zeros(len(words), 2).index_add_(0, torch.arange(len(words)), self.head(hidden[-1]))"
    source = (CHECKOUT / "models/lstm.py").read_text()
    assert source.count("self.head(hidden[-1])") == 1
    made.write("adding_rows.py", source.replace("self.head(hidden[-1])", scores))
    line = next(number for number, text in enumerate(made.read("adding_rows.py").splitlines(), 1) if scores in text)
    run = made.snakemake("trials", "--config", "trials={panel: [several], max_settings: 1, budget: 120s, repeats: 2}")
    rows = {row["settings"]: row for row in csv.DictReader(io.StringIO(made.read("results/tables/trials.csv")))}
    why = "adding train failed with RuntimeError: index_add_(): self (Float) and source (BFloat16) must have the same"
    where = f"(adding_rows.py:{line})"
    assert rows["precision=bf16"]["verdict"] == rows["several"]["verdict"] == "failed"
    assert rows["precision=bf16"]["why"] == f"{why} scalar type {where}"
    assert rows["several"]["why"] == f"because of `precision=bf16`: {why} scalar type {where}"
    rest = rows["cudnn_benchmark=true optimizer=foreach threads=2"]
    assert rest["processes"] == "2" and float(rest["gain"]) > 0 and rest["numerics"] == "same"
    (said,) = [text for text in run.stdout.splitlines() if text.startswith("  several ")]
    assert said.endswith(f"failed: {rows['several']['why']}")
    assert undescribed(made.root / "results") == []
    # A table of plans from elsewhere has it first.
    advice = [("precision=bf16 threads=2", 3.0), ("optimizer=foreach threads=2", 2.0)]
    plans = [{"model": "adding", "phase": "train", "rank": rank, "settings": words, "gain": gain, "advised": False}
             for rank, (words, gain) in enumerate(advice, 1)]  # fmt: skip
    pd.DataFrame(plans, columns=plan_table.COLUMNS).to_csv(made.root / "plans.csv", index=False)
    made.snakemake("trials", "--config", "trials={panel: [], budget: 1s, repeats: 2, plans: plans.csv}")
    facts = json.loads(made.read("results/adding/train.trials.csv.json"))
    assert facts["tried"][0] == "optimizer=foreach threads=2" and facts["ended"] == "budget"
    assert "precision=bf16 threads=2" not in facts["tried"]
    assert facts["failed"] == {"precision=bf16": f"{why} scalar type {where}"}


@pytest.mark.slow
def test_cells_are_tried_by_the_advice_of_another_machine(fresh: Project) -> None:
    """Nothing is profiled: what is expected of bf16 stands in a table that was copied here."""
    given = "trials={panel: [bf16, fused], budget: 1s, repeats: 2, plans: other/plans.csv}"
    missing = fresh.snakemake(*TRIALS, given, ok=False)
    assert missing.returncode and "other/plans.csv" in missing.stdout + missing.stderr
    advice = {"model": "lstm", "phase": "train", "rank": 1, "settings": "precision=bf16", "verdicts": "memory-bound",
              "gain": 1.7, "gain_low": 1.5, "gain_high": 1.9, "advised": True}  # fmt: skip
    (fresh.root / "other").mkdir()
    pd.DataFrame([advice], columns=plan_table.COLUMNS).to_csv(fresh.root / "other/plans.csv", index=False)
    assert rules(fresh.dry(*TRIALS, given)) == {"expect_gains", "try_settings", "tabulate_trials", "trials"}
    fresh.snakemake(*TRIALS, given)
    rows = {row["settings"]: row for row in csv.DictReader(io.StringIO(fresh.read("results/tables/trials.csv")))}
    assert (rows["bf16"]["advised_by"], rows["bf16"]["expected"]) == ("memory-bound", "1.7")
    assert rows["fused"]["expected"] == ""
