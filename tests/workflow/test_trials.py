"""The way of a trial: the cell as it is, what the budget leaves out, the table, and what is said."""

import csv
import io
import json

import pandas as pd
import pytest

from profzoo.plans import table_columns
from tests.columns import undescribed
from tests.workflow.project import Project, rules

TRIALS = ["trials", "--config", "models=lstm", "phases=train", "tool=time"]


def test_trials_of_a_cell_end_with_their_budget(fresh: Project) -> None:
    small = "trials={panel: [fused, bf16], budget: 1s, repeats: 2}"
    assert rules(fresh.dry(*TRIALS, small)) == {"try_settings", "tabulate_trials", "trials"}
    run = fresh.snakemake(*TRIALS, small)
    assert "lstm train: no setting is clearly faster" in run.stdout + run.stderr
    facts = json.loads(fresh.read("results/lstm/train.trials.csv.json"))
    assert facts["ended"] == "budget" and [one["side"] for one in facts["processes"]] == [""]
    # Without expectations in the order of the panel.
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
def test_cells_are_tried_by_the_advice_of_another_machine(fresh: Project) -> None:
    """Nothing is profiled: what is expected of bf16 stands in a table that was copied here."""
    given = "trials={panel: [bf16, fused], budget: 1s, repeats: 2, plans: other/plans.csv}"
    missing = fresh.snakemake(*TRIALS, given, ok=False)
    assert missing.returncode and "other/plans.csv" in missing.stdout + missing.stderr
    advice = {"model": "lstm", "phase": "train", "rank": 1, "settings": "precision=bf16", "verdicts": "memory-bound",
              "gain": 1.7, "gain_low": 1.5, "gain_high": 1.9, "advised": True}  # fmt: skip
    (fresh.root / "other").mkdir()
    pd.DataFrame([advice], columns=table_columns.COLUMNS).to_csv(fresh.root / "other/plans.csv", index=False)
    assert rules(fresh.dry(*TRIALS, given)) == {"expect_gains", "try_settings", "tabulate_trials", "trials"}
    fresh.snakemake(*TRIALS, given)
    rows = {row["settings"]: row for row in csv.DictReader(io.StringIO(fresh.read("results/tables/trials.csv")))}
    assert (rows["bf16"]["advised_by"], rows["bf16"]["expected"]) == ("memory-bound", "1.7")
    assert rows["fused"]["expected"] == ""
