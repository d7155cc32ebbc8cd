"""What a run on a CPU is told of: planted bottlenecks by name, in the table, on the page, and as the run ends."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import read_json
from profzoo.plans import plan, plan_table
from profzoo.report import glossary
from profzoo.tables import layers, schemas
from profzoo.verdicts.causes import cpu_verdicts, verdicts
from profzoo.verdicts.verdict import UNDECIDED
from tests import known_rules
from tests import planted_on_cpu as planted
from tests.workflow.project import CHECKOUT, Project, copy, rules

WRONG = {"input-bound", "operator-bound", "overhead-bound"}
EXPECTED = {
    planted.LOADER: "input-bound",
    planted.PRODUCT: "operator-bound",
    planted.TINY: "overhead-bound",
    planted.BALANCED: verdicts.NOTHING,
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A copy in which the planted steps ran under torch.profiler, and what the run said."""
    given = {
        "tool": "torch", "models": list(planted.PROGRAMS), "phases": ["train"], "device": "cpu",
        "time": {"window": 12}, "torch": {"window": 6},
        "settings": {name: {"module": "planted_on_cpu", "program": name, "threads": 1} for name in planted.PROGRAMS},
    }  # fmt: skip
    # JSON is YAML.
    project = copy(tmp_path_factory.mktemp("planted") / "project", json.dumps(given))
    shutil.copy2(CHECKOUT / "tests" / "planted_on_cpu.py", project.root)
    said = project.snakemake("report")
    return project, said.stdout + said.stderr


@pytest.fixture(scope="module")
def found(ran: tuple[Project, str]) -> pd.DataFrame:
    """The verdicts, had the steps without the profiler been those under it: other programs may keep them from that."""
    results = ran[0].root / "results"
    ranges = schemas.read_table("ranges", results / "tables" / "ranges.csv")
    timed = schemas.read_table("cells", results / "tables" / "cells.csv").set_index("model", drop=False)
    for name in ("step_ns", "step_median_ns", "step_low_ns", "step_high_ns"):
        timed[name] = ranges.groupby("model")["ns_per_step"].sum()
    cells = [(name, "train") for name in planted.PROGRAMS]
    operators = {cell: reading.read(_file(results, *cell, "operators.csv"), layers.OPERATORS_TABLE) for cell in cells}
    ran_with = {cell: read_json(_file(results, *cell, "time.csv.json"), {"cell": {}})["cell"] for cell in cells}
    return cpu_verdicts.tabulate_cpu_verdicts(
        timed.assign(unsteady="", cpu_taken_share=0.0), ranges, operators, ran_with, known_rules.load(every=True)
    )


def _file(results: Path, model: str, phase: str, ending: str) -> Path:
    return results / model / f"{phase}.{ending}"


def of(found: pd.DataFrame, program: str, level: str = "cell") -> pd.DataFrame:
    return found[(found["model"] == program) & (found["level"] == level)]


@pytest.mark.slow
def test_a_batch_that_takes_long_to_make_is_named_first(found: pd.DataFrame) -> None:
    first = of(found, planted.LOADER).iloc[0]
    assert (first["verdict"], first["settings"], first["evidence"]) == ("input-bound", "workers=2", "ranges.csv: data")
    # Two workers make a batch in half of the time, which is then most of the step.
    assert first["share"] > 0.4 and first["gain"] == pytest.approx(1 / max(1 - first["share"], first["share"] / 2))


@pytest.mark.slow
def test_an_overwhelming_product_is_named_with_its_layer(found: pd.DataFrame) -> None:
    first, verdicts_on_it = of(found, planted.PRODUCT).iloc[0], set(of(found, planted.PRODUCT)["verdict"])
    assert (first["verdict"], first["function"]) == ("operator-bound", "aten::mm") and first["share"] > 0.6
    assert "100% of its time in large forward" in first["next_step"] and "overhead-bound" not in verdicts_on_it
    (layer,) = of(found, planted.PRODUCT, "layer").to_dict("records")
    assert (layer["module"], layer["direction"], layer["function"]) == ("large", "forward", "aten::mm")


@pytest.mark.slow
def test_hundreds_of_tiny_operators_call_for_a_larger_batch(found: pd.DataFrame) -> None:
    first, verdicts_on_it = of(found, planted.TINY).iloc[0], set(of(found, planted.TINY)["verdict"])
    assert (first["verdict"], first["settings"]) == ("overhead-bound", "batch=8") and first["share"] > 0.6
    assert "a larger batch, which costs almost nothing" in first["next_step"] and "operator-bound" not in verdicts_on_it


@pytest.mark.slow
def test_of_many_operators_that_take_about_as_long_none_is_named(found: pd.DataFrame) -> None:
    assert not set(found.loc[found["model"] == planted.BALANCED, "verdict"]) & WRONG


@pytest.mark.slow
def test_the_table_names_what_was_planted_or_leaves_it_open(ran: tuple[Project, str]) -> None:
    written = pd.read_csv(ran[0].root / "results/tables/verdicts.csv")
    for program in planted.PROGRAMS:
        # Other programs may keep steps from being steady, of which the table then says so instead of a wrong verdict.
        assert of(written, program).iloc[0]["verdict"] in (EXPECTED[program], UNDECIDED)


@pytest.mark.slow
def test_page_and_run_say_what_is_to_be_won(ran: tuple[Project, str]) -> None:
    project, said = ran
    html, written = project.read("results/report.html"), pd.read_csv(project.root / "results/tables/verdicts.csv")
    for row in written[written["rank"].eq(1) & written["level"].eq("cell")].to_dict("records"):
        place = glossary.load_meanings()[row["verdict"]]["anchor"]
        assert f'data-value="{row["verdict"]}"><a class="word" href="#{place}"' in html
    won = written[(written["level"] == "cell") & (written["gain"] > 1)]
    assert ("Optimise these" in html) == ("\ngains   " in said) == bool(len(won))
    plans = reading.read(project.root / "results/tables/plans.csv", plan_table.PLANS_TABLE)
    best = plans[plans["rank"].eq(1) & plans["outlook"].isin(plan.ADVISABLE)].set_index("model")
    for row in won[won["rank"].eq(1)].head(3).to_dict("records"):
        model = row["model"]
        # A cell begins with its best plan, and with the largest verdict only if it has none.
        begins = f"{best.loc[model, 'settings']}, at most" if model in best.index else f"{row['verdict']}, saves up to"
        assert f"{model} train: {begins}" in " ".join(said.split())
        assert model not in best.index or best.loc[model, "command"] in said


@pytest.mark.slow
def test_what_failed_in_a_trial_makes_plans_and_verdicts_again_and_leads_neither(ran: tuple[Project, str]) -> None:
    """After the tests of what the run said, as it changes the tables."""
    project, place = ran[0], f"results/{planted.TINY}/train.trials.csv.json"
    assert not {"tabulate_plans", "tabulate_verdicts"} & rules(project.dry("report"))
    words = {"all": ["batch=8", "workers=2"], "batch=8": ["batch=8"]}
    project.write(place, json.dumps({"words": words, "failed": {"all": "odd", "batch=8": "no room (tiny.py:3)"}}))
    again = rules(project.dry("report"))
    assert again >= {"tabulate_plans", "tabulate_verdicts"} and not again & {"try_settings", "time_training"}
    project.snakemake("report")
    plans = reading.read(project.root / "results/tables/plans.csv", plan_table.PLANS_TABLE)
    mine = plans[plans["model"] == planted.TINY].set_index("settings")
    why = "it failed in a trial: no room (tiny.py:3)"
    assert [words for words in mine.index if "batch=8" in words.split()] == ["batch=8"]
    assert mine.loc["batch=8", "not_possible"] == why and why in project.read("results/report.html")
    written = of(pd.read_csv(project.root / "results/tables/verdicts.csv"), planted.TINY)
    assert not written["settings"].eq("batch=8").any()
    # Without the record, it is a plan as before.
    (project.root / place).unlink()
    assert rules(project.dry("report")) >= {"tabulate_plans", "tabulate_verdicts"}


def test_every_cell_of_the_demo_s_kind_has_a_verdict(built: Project) -> None:
    written = pd.read_csv(built.root / "results/tables/verdicts.csv")
    first = written[written["rank"].eq(1) & written["level"].eq("cell")]
    assert sorted(zip(first["model"], first["phase"], strict=True)) == [
        (model, phase) for model in ("lstm", "unet") for phase in ("inference", "train")
    ]
    html = built.read("results/report.html")
    assert first["next_step"].notna().all() and set(first["verdict"]) <= WRONG | {UNDECIDED, verdicts.NOTHING}
    assert all(html.count(f'data-value="{verdict}"><a class="word"') for verdict in first["verdict"])
