"""Prints, of each cell of a results folder, its measured step, the same step replayed, and how far off that is.

python -m tests.benchmarks.replayed [RESULTS]

After `snakemake all --config tool=nsys`. Of starts of operations on the GPU it prints the median distance. That a
program unchanged takes as long as it took says that nothing was lost; whether it predicts is for
tests/unit/test_replay_predictions.py, and for trials on a GPU. Nor does it say that waits were found: a wait that is
taken for the CPU's own time replays as well. So the CPU's time without its waits is held against `host_ns` of the steps,
which other code counts (profzoo.tools.nsys.steps.steps); that needs no traces, only `{phase}.host.csv`.

The last two columns say how long a simulation takes: the median over PAIRS runs of the program and of each change of the
panel, by stretches, and row by row as a share of that, in turn and as the median of pairs.
"""

import sys
import time
from pathlib import Path
from statistics import median

import pandas as pd

from profzoo.io.scripts import read_json
from profzoo.tables.cell_tables import cell_of
from profzoo.what_if import predicted_gains, simulator, tables
from profzoo.what_if.program import Program, shorten_program

CLOSE, CPU_CLOSE = 0.03, 0.2
PAIRS = 10


def cpu_apart(results: Path) -> None:
    """Print the cells whose CPU's own time differs by more than CPU_CLOSE from that of the steps."""
    cells = sorted(results.glob("*/*.host.csv"))
    apart = 0
    for path in cells:
        steps = path.with_name(path.name.replace(".host.csv", ".nsys-steps.csv"))
        both = pd.read_csv(path).merge(pd.read_csv(steps), on="process", suffixes=("", "_steps"))
        ratios = (both["cpu_ns"] - both["waiting_ns"]) / both["host_ns"]
        far = ratios[(ratios - 1).abs() > CPU_CLOSE]
        apart += len(far) > 0
        for ratio in far:
            print(f"{' '.join(cell_of(path).values())}: the CPU's own time is {ratio:.2f} x that of steps")
    print(f"CPU's own time: {len(cells) - apart} of {len(cells)} cells within {CPU_CLOSE:.0%} of what steps say")


def time_simulations(program: Program) -> tuple[float, float]:
    """Return the median seconds of a simulation by stretches, and how many times as long it takes row by row."""
    kept = shorten_program(program)
    changed = [kept, *(change(kept) for change in predicted_gains.PANEL.values())]
    times = []
    for _ in range(PAIRS):
        for one in changed:
            began = time.perf_counter()
            simulator._simulate_rows(one)
            between = time.perf_counter()
            simulator.simulate(one)
            times.append((between - began, time.perf_counter() - between))
    return median(quick for _, quick in times), median(slow / quick for slow, quick in times)


def main(results: Path) -> None:
    found = []
    print("| cell | process | launches | measured ms | replayed ms | off | starts off, us | s | simulation ms | rows |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for trace in sorted(results.glob("*/*.nsys.sqlite")):
        capture = read_json(trace.with_name(trace.name.replace(".sqlite", "-rep.json"))).get("capture")
        began = time.monotonic()
        for program in tables.read_programs(trace, capture == "run"):
            off, starts = simulator.simulation_error(program)
            measured = simulator.step_times(program, simulator.measured_times(program)).mean()
            replayed = simulator.step_times(program, simulator.simulate(program)).mean()
            cell = " ".join(cell_of(trace).values())
            took = time.monotonic() - began
            quick, times = time_simulations(program)
            print(
                f"| {cell} | {program.process >> 24 & 0xFFFFFF} | {len(program.gpu):,} | {measured / 1e6:.3f} "
                f"| {replayed / 1e6:.3f} | {off:.2%} | {starts / 1e3:.2f} | {took:.2f} "
                f"| {quick * 1e3:.2f} | {times:.1f} x |"
            )
            found.append(abs(off))
    print(f"\n{sum(off <= CLOSE for off in found)} of {len(found)} within {CLOSE:.0%}")
    cpu_apart(results)


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["results"]))
