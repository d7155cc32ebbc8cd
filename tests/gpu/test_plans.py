"""The best plan of a cell on a real GPU: its command runs as it stands, and its gain is within the expected interval."""

import shlex
from pathlib import Path

import pandas as pd
import torch

import profzoo
from profzoo.plans import plan
from tests.gpu.running import run_snakemake
from tests.unit import test_recipes


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


def test_the_lines_of_recipes_run_on_a_gpu_and_a_captured_step_trains_as_the_loop_does() -> None:
    """Three steps before the capture and three replays are six steps of the plain loop on equal batches."""
    names, plain = test_recipes.run_lines("graph=true", "cuda"), test_recipes.program("cuda")
    for _ in range(6):
        test_recipes.train(plain)
    torch.cuda.synchronize()
    assert torch.allclose(test_recipes.weights(names), test_recipes.weights(plain), atol=1e-5)
    assert not torch.equal(test_recipes.weights(names), test_recipes.weights(test_recipes.program("cuda")))
    for words, kind in (("precision=bf16", torch.bfloat16), ("precision=fp16", torch.float16)):
        assert test_recipes.run_lines(words, "cuda")["outputs"].dtype == kind
    loader = test_recipes.run_lines("workers=2 pin_memory=true", "cuda")
    assert loader["inputs"].is_cuda and next(iter(loader["loader"]))[0].is_pinned()
    for words in ("compile=true", "compile=reduce-overhead", "channels_last=true", "optimizer=fused", "precision=tf32"):
        assert test_recipes.train(test_recipes.run_lines(words, "cuda")).isfinite().all(), words
