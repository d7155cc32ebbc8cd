"""The unprofiled baseline in a process of its own, and in that which torch.profiler then profiles."""

import csv
import io
import json

import pytest

from tests.workflow.project import Project, rules

SHARED = ["--config", "models=lstm", "phases=train", "tool=torch", "torch={window: 1, baseline: 3}"]
CELL = "results/lstm/train"


@pytest.mark.slow
def test_one_process_times_a_cell_and_profiles_it(fresh: Project) -> None:
    fresh.draw_one()
    jobs = fresh.dry("all", *SHARED)
    assert "profile_torch_timed" in rules(jobs) and not rules(jobs) & {"time_training", "profile_torch"}
    fresh.snakemake("all", *SHARED)
    made = {path for path in fresh.files() if path.startswith("lstm/")}
    tables = (
        "torch.launches", "torch.modules", "layers", "operators", "layer-kernels", "owners", "ranges", "repetition",
        "step-launches", "torch.ranges", "torch.dtypes", "fusion", "fusion-kernels",
    )  # fmt: skip
    owners = [f"{name}.csv" for name in tables]
    ends = ("torch-operators.csv", "torch.csv", *owners, *(f"{one}{end}" for one in ("torch-time.csv", "trace.json.gz")
                                                  for end in ("", ".json")))  # fmt: skip
    assert made == {f"lstm/train.{end}" for end in ends}
    own, timed = (json.loads(fresh.read(f"{CELL}.{name}.json")) for name in ("trace.json.gz", "torch-time.csv"))
    rows = list(csv.DictReader(io.StringIO(fresh.read(f"{CELL}.torch-time.csv"))))
    assert (own["tool"], own["steps"], own["cell"]["profiler"]["baseline"]) == ("torch", 1, 3)
    assert (timed["tool"], timed["steps"], timed["cell"]["window"]) == ("time", 3, 3) and len(rows) == 3
    # Both say which process they are of, and only one of them what was not profiled.
    assert timed["process"] == {"tool": "torch", "sidecar": "train.trace.json.gz.json"} and "baseline" not in own
    assert timed["command"] == own["command"] and timed["run"] == own["run"]
    assert timed["window_began_ns"] + timed["window_wall_ns"] <= own["window_began_ns"]
    (cell,) = csv.DictReader(io.StringIO(fresh.read("results/tables/cells.csv")))
    assert float(cell["step_ns"]) == timed["step_ns"] and cell["steps"] == "3"
    assert float(cell["loss"]) == timed["loss"] != own["loss"]
    assert fresh.dry("all", *SHARED) == []


@pytest.mark.slow
def test_the_baseline_by_itself_is_only_that(fresh: Project) -> None:
    assert rules(fresh.dry(f"{CELL}.time.csv", *SHARED)) == {"time_training"}
    assert rules(fresh.dry(f"{CELL}.torch.csv", *SHARED)) == {"profile_torch_timed", "export_torch"}
    fresh.snakemake(f"{CELL}.time.csv", *SHARED)
    assert fresh.files() == {"lstm/train.memory.csv", "lstm/train.time.csv", "lstm/train.time.csv.json"}
    # It is of use where torch.profiler does not run, whatever is said of that.
    own = [word.replace("tool=torch", "tool=time") for word in SHARED]
    assert not rules(fresh.dry("report", *own)) & {"time_training", "profile_torch_timed"}


@pytest.mark.slow
def test_another_choice_collects_what_it_concerns(built: Project) -> None:
    assert built.dry("all") == []
    jobs = built.dry("all", "--config", "torch={window: 1, baseline: 3}")
    assert {"profile_torch_timed", "derive_from_torch", "tabulate"} <= rules(jobs)
    assert not rules(jobs) & {"time_training", "time_inference", "train_weights"}
    again = built.dry("all", "--config", "torch={window: 1, baseline: 0}")
    assert again == []
