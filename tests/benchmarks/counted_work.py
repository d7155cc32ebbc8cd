"""Holds the operations that ncu counted in each cell's step against those that its operators need.

python -m tests.benchmarks.counted_work [RESULTS]

after `snakemake all --config tool=ncu,nsys 'ncu={set: roofline}'` (or survey). What a step needs follows from the shapes
of its operators' inputs (profzoo/op_costs), in a trace of it on the CPU: products, and all other arithmetic. Convolutions
by FFT or Winograd's method may count fewer operations than are needed; tiles that few channels, images or rows do not
fill count more.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.harness import interface
from profzoo.harness.observers.recorders import Recorder
from profzoo.harness.step import step_loop
from tests.trace_calls import list_calls, needed_by_calls

CPU = torch.device("cpu")


def needed(model: str, phase: str) -> pd.Series:
    """What the operators of one step need together, by the columns of profzoo/op_costs/operators.py."""
    once = config.normalise_config({"settings": {model: {"warmup": 0, "window": 1}}, "device": "cpu"})
    cell = settings.resolve_cell(model, phase, "time", once)
    network = step_loop.make_network(cell, interface.load_functions(cell["module"]), CPU, None)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step_loop.run_steps(cell, network, CPU, Recorder(CPU))
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        return needed_by_calls(list_calls(json.loads(trace.read_text())["traceEvents"])).sum()


def main(results: str = "results") -> None:
    warnings.simplefilter("ignore")
    table = pd.read_csv(Path(results) / "tables" / "roofline.csv", low_memory=False)
    print("| cell | counted Gflop | products need | others | ratio |\n|---|---|---|---|---|")
    for _, cell in table[table["level"] == "cell"].iterrows():
        counted, least = cell["simt_flop"] + cell["tensor_flop"], needed(cell["model"], cell["phase"])
        products, others = least["needed_product_flop"], least["needed_other_flop"]
        numbers = f"{counted / 1e9:,.1f} | {products / 1e9:,.1f} | {others / 1e9:,.1f}"
        print(f"| {cell['model']} {cell['phase']} | {numbers} | {counted / (products + others):.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
