"""The way of a trial: the cell as it is, what the budget leaves out, the table, and what is said."""

import csv
import io
import json

from tests.workflow.project import Project, rules

TRIALS = ["trials", "--config", "models=lstm", "phases=train", "tool=time"]


def test_trials_of_a_cell_end_with_their_budget(fresh: Project) -> None:
    small = "trials={panel: [bf16], budget: 1s, repeats: 2}"
    assert rules(fresh.dry(*TRIALS, small)) == {"try_settings", "tabulate_trials", "trials"}
    run = fresh.snakemake(*TRIALS, small)
    assert "lstm train: nothing that was tried is surely faster" in run.stdout + run.stderr
    facts = json.loads(fresh.read("results/lstm/train.trials.csv.json"))
    assert facts["ended"] == "budget" and [one["side"] for one in facts["processes"]] == [""]
    rows = list(csv.DictReader(io.StringIO(fresh.read("results/tables/trials.csv"))))
    # A CPU has no CUDA graphs.
    assert {row["settings"]: row["verdict"] for row in rows}.items() >= {
        ("bf16", "not tried"),
        ("graph=true", "refused"),
    }
    assert rules(fresh.dry(*TRIALS, small)) == {"trials"}
    # A longer budget tries more.
    assert "try_settings" in rules(fresh.dry(*TRIALS, small.replace("1s", "2s")))
