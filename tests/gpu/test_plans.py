"""The best plan of a cell on a real GPU: its command runs as it stands, and its gain is within the expected interval."""

import shlex
from pathlib import Path

import pandas as pd

import profzoo
from profzoo.plans import plan
from tests.gpu.running import run_snakemake


def snakemake(results: Path, *words: str) -> None:
    run_snakemake(*words, f"pathvars={{results: {results}}}")


def test_the_best_plan_is_measured_by_its_own_command(tmp_path: Path) -> None:
    """The LSTM's training, which its CPU holds back, so that a graph is part of its best plan."""
    results = tmp_path / "results"
    own = ["models=lstm", "phases=train", "tool=nsys", "repeats=3"]
    snakemake(results, f"{results}/tables/plans.csv", "--config", *own)
    best = profzoo.load(results).plans.iloc[0]
    assert best["rank"] == 1 and "graph=true" in best["settings"] and best["outlook"] in plan.ADVISABLE
    program, target, option, *given = shlex.split(best["command"])
    assert (program, target, option) == ("snakemake", "compare", "--config")
    snakemake(results, target, option, *given)
    (row,) = pd.DataFrame(profzoo.load(results).compare).to_dict("records")
    gain = 1 / row["ratio"]
    # Of a wide interval there is only the upper end.
    assert row["verdict"] != "slower" and not gain < best["gain_low"] and gain <= best["gain_high"]
