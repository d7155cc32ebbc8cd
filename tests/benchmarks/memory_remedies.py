"""Holds predicted peaks of memory against measured ones, for each remedy on ten models.

python -m tests.benchmarks.memory_remedies --device cuda [--models a,b] [--processes 7] [--into FOLDER] [key=value ...]

Each model trains in a process of its own: as it is, by which its peak under each remedy is predicted, and then under
each remedy. On a GPU the measured peak is that of torch.cuda.max_memory_allocated in the step. On a CPU shapes are tiny.
The method was made on the first half of the models; errors of the other half say how good it is.
"""

import argparse
import contextlib
import gc
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from profzoo import run
from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.io import csv_tables
from profzoo.tools.time import tables
from tests import zoo

HALVES = {
    "made on": ("mobilenetv2", "bert", "lstm", "vit", "llama"),
    "held out": ("resnetv2_50", "unet", "convnext", "whisper", "deepseekmoe"),
}
# Batches whose activations are a good part of the peak, on a GPU; all ten models together need some 80 GB.
BATCHES = {"mobilenetv2": 64, "bert": 32, "lstm": 64, "vit": 64, "llama": 8, "resnetv2_50": 64, "unet": 8, "convnext": 64,
           "whisper": 16, "deepseekmoe": 8}  # fmt: skip
# A remedy that saves less than this share of the peak is none; errors of others are told apart.
LEAST_SAVED = 0.05
STEPS = {"warmup": 2, "window": 1}
CSV = "memory_remedies.csv"


def resolve(name: str, device: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a training; tiny shapes on a CPU."""
    own = {**zoo.TINY[name], "batch": 8} if device == "cpu" else {"batch": BATCHES.get(name, 8)}
    given = {**own, **STEPS, "device": device, **settings.parse_words(words)}
    checked = configuration.normalise_config({"settings": {name: given}})
    return {**settings.resolve_cell(name, "train", "time", checked)}


def measure(cell: dict[str, Any], folder: Path, *options: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Run a cell in this process; returns its rows of memory and its facts.

    Raises:
        RuntimeError: it cannot be run.
    """
    files = ["--memory", str(folder / "memory.csv"), "--facts", str(folder / "facts.json")]
    if run.main([*settings.setting_words(cell), *files, *options]):
        raise RuntimeError("the cell cannot be run so")
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return csv_tables.read(folder / "memory.csv", tables.MEMORY), json.loads((folder / "facts.json").read_text())


def score(name: str, device: str, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per remedy of a model."""
    torch.set_num_threads(1)
    cell, found = resolve(name, device, words), []
    remedies = settings.name_remedies(cell)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        rows, facts = measure(cell, Path(folder), "--remedies", json.dumps(remedies))
        plain = peak(rows, facts)
        expected = rows[rows["remedy"] != ""].set_index("remedy")
        for remedy, change in remedies.items():
            row = {"model": name, "remedy": "batch" if "batch" in change else remedy, "plain_bytes": plain,
                   "counted_bytes": int(rows["peak_bytes"][0])}  # fmt: skip
            if remedy in expected.index:
                row |= {"range": expected["range"][remedy], "predicted_bytes": int(expected["peak_bytes"][remedy])}
            try:
                tried = measure({**cell, **change}, Path(folder))
                row |= {"tried_bytes": peak(*tried), "tried_range": falls_in(tried[0])}
            except (RuntimeError, SystemExit) as error:
                print(f"{name} {remedy}: {error}")
            found.append(row)
    return found


def peak(rows: pd.DataFrame, facts: dict[str, Any]) -> int:
    """Return the allocator's own peak in the step, that of the rows on a CPU."""
    return int(facts["memory"]["allocator_peak_bytes"] or rows["peak_bytes"][0])


def falls_in(rows: pd.DataFrame) -> str:
    """Return the part of the step in which the peak falls."""
    parts = rows[(rows["module"] == "") & (rows["range"] != "step")]
    return str(parts["range"][parts["peak_bytes"].idxmax()])


def attempt(task: tuple[str, str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return the rows of a model; a model that fails has one without numbers."""
    try:
        return score(*task)
    except Exception as error:
        print(f"{task[0]}: {type(error).__name__}: {error}", file=sys.stderr)
        return [{"model": task[0], "remedy": "none", "plain_bytes": 0, "counted_bytes": 0}]


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Return median, largest error and number of cases by half and remedy, also of those that save something."""
    known = table.dropna(subset=["error"])
    sized = known.assign(error=known["error"].abs())
    both = pd.concat([sized, sized.assign(half="both")])
    both = pd.concat([both, both.assign(remedy="all")])
    parts = {"all": both, "saving": both[both["saved"] >= LEAST_SAVED]}
    return pd.concat(
        {
            name: part.groupby(["half", "remedy"])["error"].agg(["median", "max", "count"])
            for name, part in parts.items()
        },
        axis=1,
    ).round(4)


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default=",".join(one for half in HALVES.values() for one in half))
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--into", type=Path, default=Path())
    parser.add_argument("words", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args()
    half_of = {name: half for half, names in HALVES.items() for name in names}
    tasks = [(name, options.device, options.words) for name in options.models.split(",")]
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        rows = [row for found in pool.imap_unordered(attempt, tasks, chunksize=1) for row in found]
    table = pd.DataFrame(rows).reindex(
        columns=[
            "model",
            "remedy",
            "plain_bytes",
            "counted_bytes",
            "predicted_bytes",
            "tried_bytes",
            "range",
            "tried_range",
        ]
    )
    table.insert(0, "half", table["model"].map(half_of).fillna("other"))
    table["saved"] = 1 - table["tried_bytes"] / table["plain_bytes"]
    table["error"] = table["predicted_bytes"] / table["tried_bytes"] - 1
    table = table.sort_values(["half", "model", "remedy"])
    table.to_csv(options.into / CSV, index=False)
    print(table.round(4).to_string(index=False))
    print(summarise(table).to_string())


if __name__ == "__main__":
    main()
