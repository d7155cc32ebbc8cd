"""Holds the operations that ncu counted in each cell's step against those that its convolutions and products need.

python -m tests.benchmarks.counted_work [RESULTS]

after `snakemake all --config tool=ncu,nsys 'ncu={set: roofline}'` (or survey). What a step needs is torch's own count
(FlopCounterMode), from a run of it on the CPU. Normalisation, activations and optimizers come on top in ncu's count;
convolutions by FFT or Winograd's method need fewer, tiles that jut out over a small image more.
"""

import contextlib
import io
import sys
import warnings
from pathlib import Path

import pandas as pd
from torch.utils.flop_counter import FlopCounterMode

from profzoo import run


def needed(model: str, phase: str) -> float:
    """Operations of a step's convolutions, products and attention; NaN where it does not run under torch's counter."""
    quiet = io.StringIO()
    with (
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        FlopCounterMode(display=False) as counter,
    ):
        code = run.main([model, phase, "window=1", "warmup=0", "device=cpu"])
    return float("nan") if code else counter.get_total_flops()


def main(results: str = "results") -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    table = pd.read_csv(Path(results) / "tables" / "roofline.csv", low_memory=False)
    print("| cell | counted Gflop | needed | ratio |\n|---|---|---|---|")
    for _, cell in table[table["level"] == "cell"].iterrows():
        counted, least = cell["simt_flop"] + cell["tensor_flop"], needed(cell["model"], cell["phase"])
        ratio = f"{counted / least:.2f}" if least > counted / 1000 else ""
        print(f"| {cell['model']} {cell['phase']} | {counted / 1e9:,.1f} | {least / 1e9:,.1f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
