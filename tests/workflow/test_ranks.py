"""A cell on several processes under torch.profiler: what is planned for it, and what its traces tell."""

import csv
import io

import pytest

from tests.workflow.project import Project, rules

CHOSEN = ["models=lstm@two", "phases=train", "variants={two: {gpus: 2, batch: 2}}", "torch={window: 4}"]
CELL = "results/lstm@two/train"


def test_all_processes_are_traced_and_their_link_is_measured(fresh: Project) -> None:
    planned = fresh.dry("all", "--resources", "gpu=2", "--config", "models=lstm,lstm@two", *CHOSEN[1:])
    assert {job.model for job in planned if job.rule in ("profile_torch_ranks", "export_collectives")} == {"lstm@two"}
    # A cell of one process has no traces of others.
    assert {job.model for job in planned if job.rule == "profile_torch"} == {"lstm"}
    assert [job.rule for job in planned].count("measure_links") == 1
    # One table joins the operations of all cells.
    assert [job.rule for job in planned].count("tabulate_collectives") == 1


@pytest.mark.slow
def test_replayed_steps_know_how_long_a_process_waits_for_others(fresh: Project) -> None:
    """By the table of the cell's processes, which a cell of one process has not."""
    chosen = ["models=lstm,lstm@two", *CHOSEN[1:3], "tool=nsys"]
    for name, alone in (("lstm@two", False), ("lstm", True)):
        planned = fresh.dry(f"results/{name}/train.replay.csv", "--resources", "gpu=2", "--config", *chosen)
        assert "replay_steps" in rules(planned) and ("export_ranks" in rules(planned)) != alone


@pytest.mark.slow
def test_a_baseline_in_the_same_processes_leaves_all_traces_too(fresh: Project) -> None:
    chosen = [*CHOSEN[:-1], "torch={window: 4, baseline: 4}"]
    assert rules(fresh.dry(f"{CELL}.torch-time.csv", "--config", *chosen)) == {"profile_torch_timed_ranks"}
    fresh.snakemake(f"{CELL}.torch-time.csv", "-j1", "--resources", "gpu=2", "--config", *chosen)
    traces = [path.name for path in (fresh.root / f"{CELL}.torch-ranks").glob("*.trace.json.gz")]
    assert sorted(name.split(".")[-4] for name in traces) == ["0", "1"]


@pytest.mark.slow
def test_traces_of_all_processes_tell_bandwidth_and_skew(fresh: Project) -> None:
    fresh.snakemake(f"{CELL}.torch-skew.csv", f"{CELL}.torch.csv", "-j1", "--resources", "gpu=2", "--config", *CHOSEN)
    assert {f"lstm@two/train.{name}.csv" for name in ("torch", "torch-skew", "torch-collectives")} <= fresh.files()
    rows = list(csv.DictReader(io.StringIO(fresh.read(f"{CELL}.torch-collectives.csv"))))
    assert {row["collective"] for row in rows} == {"all_reduce"} and all(float(row["probe_share"]) > 0 for row in rows)
    skew = list(csv.DictReader(io.StringIO(fresh.read(f"{CELL}.torch-skew.csv"))))
    assert {row["rank"] for row in skew} <= {"0", "1"} and {row["clock"] for row in skew} == {"host"}
    assert fresh.dry(f"{CELL}.torch-skew.csv", "--config", *CHOSEN) == []
