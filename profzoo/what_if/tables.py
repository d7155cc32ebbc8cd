"""Makes a cell's tables of predicted gains and of host time."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, CPU, GPU, NINE_OF_TEN, NUMBER, TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys.events import trace
from profzoo.tools.nsys.steps.ranks import TABLE as RANKS
from profzoo.tools.time.tables import REPEATED
from profzoo.tools.time.tables import TABLE as STEPS
from profzoo.what_if import changes, graph_obstacles, host_time, predicted_gains, program, simulator, trace_events

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

REPLAYED = ["traced_ns", "replayed_ns", "step_ns", "slowdown"]
PARTS = [f"{name}_ns" for name in host_time.PARTS]
OF_GPU = ["busy_ns", "balance", "launches", "launch_call_ns", "latency_ns"]
# Relative error of sums that rounding may cause.
ROUNDING = 1e-6


def _closes(table: pd.DataFrame) -> str | None:
    sums = {"cpu_ns": PARTS, "traced_ns": ["cpu_ns", "ahead_ns"]}
    for whole, parts in sums.items():
        off = (table[parts].sum(axis=1) - table[whole]).abs() > 1 + ROUNDING * table[whole]
        if off.any():
            return f"row {int(off.argmax()) + 1}: {', '.join(parts)} do not add up to {whole}"
    return None


GAINS = Table(
    columns={
        "process": Column(COUNT, "Process ID in the trace.", tool="nsys"),
        "change": Column(TEXT, "Change that was simulated on the traced steps, such as `graph` or `host_2x`."),
        "step_ns": Column(
            AMOUNT, "Simulated step without the change, at the length of the unprofiled step.", "ns", clock=GPU),
        "predicted_ns": Column(AMOUNT, "Simulated step with the change.", "ns", clock=GPU),
        "gain": Column(AMOUNT, "Predicted speedup: `step_ns` over `predicted_ns`.", "ratio", interval=NINE_OF_TEN),
        "low": Column(AMOUNT.or_missing, "Lower end of the 90 % interval of `gain`; empty of a single step.", "ratio"),
        "high": Column(AMOUNT.or_missing, "Upper end of the 90 % interval of `gain`; empty of a single step.", "ratio"),
    },
    key=["process", "change"],
    ranges={"gain": ("low", "high")},
)  # fmt: skip
CHANGES = [*GAINS.columns]
TAX = Table(
    columns={
        **select(GAINS.columns, "process"),
        "steps": Column(COUNT, "Traced steps that the row is of.", "count", "nsys"),
        "traced_ns": Column(AMOUNT, "Step under nsys.", "ns", "nsys", CPU),
        "replayed_ns": Column(
            AMOUNT, "The same step as the simulation has it: how near it is to `traced_ns` tells how good it is.",
            "ns", "nsys", CPU),
        "step_ns": Column(
            AMOUNT, "Simulated step without the tracer, at the length of the unprofiled step.", "ns", clock=GPU),
        "slowdown": Column(AMOUNT, "How many times slower nsys makes the host.", "ratio", "nsys", CPU),
        "cpu_ns": Column(AMOUNT, "Host time per step under nsys: the sum of the parts that follow.", "ns", "nsys", CPU),
        "framework_ns": Column(
            AMOUNT, "Host time per step in Python and the framework, between calls of CUDA.", "ns", "nsys", CPU),
        "input_ns": Column(
            AMOUNT, "Host time per step in making and copying the input (ranges `data` and `transfer`).",
            "ns", "nsys", CPU),
        "library_ns": Column(
            AMOUNT, "Host time per step in cuDNN and cuBLAS, and in calls of CUDA that launch nothing.",
            "ns", "nsys", CPU),
        "launch_ns": Column(AMOUNT, "Host time per step in calls that launch, without waiting.", "ns", "nsys", CPU),
        "waiting_ns": Column(AMOUNT, "Host time per step of waiting for the GPU.", "ns", "nsys", CPU),
        "ahead_ns": Column(
            NUMBER, "How long before the GPU the host is done with a step; negative where it had been further ahead "
            "before.", "ns", "nsys", CPU),
        "busy_ns": Column(AMOUNT, "Time per step in which any GPU of the process did anything.", "ns", "nsys", GPU),
        "balance": Column(
            AMOUNT.or_missing, "Host time without waiting over `busy_ns`: above 1 the step waits for the host.",
            "ratio", "nsys"),
        "launches": Column(AMOUNT, "Calls that launch per step; a CUDA graph is one.", "count", "nsys"),
        "launch_call_ns": Column(AMOUNT.or_missing, "Median duration of a call that launches.", "ns", "nsys", CPU),
        "latency_ns": Column(
            AMOUNT.or_missing, "Median time from a launching call to the start, of launches that met an idle GPU.",
            "ns", "nsys", GPU),
        "helps": Column(TEXT, "Simulated change that spares the host and gains most; `none` where none is worth it."),
    },
    key=["process"],
    holds=_closes,
)  # fmt: skip
HOST = [*TAX.columns]


def read_programs(path: str | Path, whole_run: bool = False) -> Iterator[program.Program]:
    """Yield the program of each process in a trace; none if nothing was launched, for example on a CPU.

    Args:
        path: nsys export (SQLite).
        whole_run: the trace holds more than the window.

    Raises:
        DataError: the file is not an export of nsys.
    """
    for found in trace_events.read(path, whole_run):
        made = program.build_program(found)
        if made is not None:
            yield changes.mark_tuning(made)


def make_tables(
    path: str | Path,
    step_ns: float,
    whole_run: bool = False,
    host_ns: float | None = None,
    waiting: float | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, list[program.Program]]:
    """Return gains (a row per process and change) and host time (a row per process), per step.

    The third value holds the programs without the tracer's overhead.

    Gains refer to the unprofiled step; the parts of the CPU's time are the traced ones. `slowdown` is how many times
    slower the tracer made the CPU. `ahead_ns` is how long before the GPU the CPU finished. The parts and `ahead_ns` add
    up to the traced step. `ahead_ns` is negative if the CPU was further ahead at the begin of the step.

    Args:
        path: nsys export (SQLite).
        step_ns: unprofiled step in ns.
        whole_run: the trace holds more than the window.
        host_ns: CPU time in ns per unprofiled step, without waiting; None if unknown.
        waiting: part of the communication in which the process waits for others, 0 to 1; None if it runs alone.

    Raises:
        DataError: the file is not an export of nsys.
    """
    rows, hosts, leans = [], [], []
    for one, parts, lean, slowdown in _remove_tracing(path, step_ns, whole_run, host_ns, waiting):
        process = program.process_number(one.process)
        leans.append(lean)
        before = simulator.step_times(lean, simulator.simulate(lean))
        found = _predict_panel(lean, before)
        rows += [{"process": process, "change": name, **vars(gain)} for name, gain in found.items()]
        traced = simulator.step_times(one, simulator.measured_times(one)).mean()
        hosts.append(
            {
                "process": process,
                "traced_ns": traced,
                "replayed_ns": simulator.step_times(one, simulator.simulate(one)).mean(),
                "step_ns": before.mean(),
                "slowdown": slowdown,
                **parts,
                "ahead_ns": traced - parts["cpu_ns"],
                "helps": host_time.best_host_change({name: gain.gain for name, gain in found.items()}),
            }
        )
    with trace.open_trace(path) as opened:
        _leans[opened] = (step_ns, whole_run, host_ns, waiting), [*map(program.shorten_program, leans)]
    return pd.DataFrame(rows, columns=CHANGES), pd.DataFrame(hosts, columns=HOST), leans


# The first steps of the programs that tables were last made of, with what they depend on, by the open export. They are
# kept as long as it is, for the scripts of the same process that follow.
_leans: "WeakKeyDictionary[trace.Trace, tuple[tuple[object, ...], list[program.Program]]]" = WeakKeyDictionary()


def _remove_tracing(
    path: str | Path, step_ns: float, whole_run: bool, host_ns: float | None, waiting: float | None = None
) -> Iterator[tuple[program.Program, Mapping[str, float], program.Program, float]]:
    """Yield each process's program, its host time by part, the program without tracing, and the tracer's slowdown.

    path, step_ns, whole_run, host_ns, waiting: as for `make_tables`.
    """
    for one in (replace(own, waiting=waiting) for own in read_programs(path, whole_run)):
        parts = host_time.host_time_parts(one)
        known = (parts["cpu_ns"] - parts["waiting_ns"]) / host_ns if host_ns else 1.0
        yield one, parts, *predicted_gains.remove_tracing(one, step_ns, known)


def _predict_panel(one: program.Program, before: np.ndarray) -> dict[str, predicted_gains.Gain]:
    """Return the gain of each change that is simulated for every program; before: ns of the unchanged steps."""
    found, differ = {}, graph_obstacles.steps_differ(one)
    for name, change in predicted_gains.PANEL.items():
        other = change(one)
        after = simulator.step_times(other, simulator.simulate(other))
        found[name] = predicted_gains.gain_of_steps(before, after, differ=differ)
    return found


def host_step_ns(steps: pd.DataFrame) -> float | None:
    """Return the CPU time in ns of the step that waited least, as the median of processes; None for too few steps.

    At the begin of a window the GPU has no work left. The CPU then runs ahead of the GPU until the queue is full or a
    call waits. The last step is left out, because it contains the wait for the window's end.

    steps: frame with `wall_ns`, one row per step, and `process` if there are several.

    >>> host_step_ns(pd.DataFrame({"wall_ns": [8, 19, 25, 60]}))
    8.0
    """
    each = steps.groupby("process")["wall_ns"] if "process" in steps else [(0, steps["wall_ns"])]
    least = [walls.iloc[:-1].min() for _, walls in each if len(walls) > 1]
    return float(np.median(least)) if least else None


def unprofiled_step_ns(timed: "Sidecar") -> float:
    """Return the unprofiled step in ns, as the median of its processes; timed: the baseline's sidecar.

    >>> unprofiled_step_ns({"step_ns": 9.0, "processes": [{"step_ns": 9.0}, {"step_ns": 5.0}, {"step_ns": 6.0}]})
    6.0
    """
    return float(np.median([own["step_ns"] for own in timed.get("processes", [timed])]))


def process_spread(timed: "Sidecar") -> float:
    """Return by how much the mean of as many other processes may differ, relative and with 90 % confidence.

    timed: the baseline's sidecar. The result is 0 if the baseline ran in a single process.

    >>> several = {"processes": [{"step_ns": ns} for ns in (9.0, 10.0, 11.0)]}
    >>> round(process_spread(several), 2), process_spread({"step_ns": 9.0})
    (0.24, 0.0)
    """
    steps = np.log([own["step_ns"] for own in timed.get("processes", [timed])])
    if len(steps) < 2:
        return 0.0
    # Imported here, because it takes long and most importers read tables.
    from scipy import special  # type: ignore[import-untyped]

    return float(special.stdtrit(len(steps) - 1, 0.95) * np.std(steps, ddof=1) * np.sqrt(2 / len(steps)))


def read_lean_programs(sqlite: str, report_sidecar: str, time: str, time_sidecar: str) -> dict[int, program.Program]:
    """Return the first traced steps of each process by its ID, as `main` writes them of a cell on one GPU.

    sqlite, report_sidecar, time, time_sidecar: as for `main`.

    Raises:
        DataError: the files do not hold what they should.
    """
    whole_run, timed, steps = _read_given(report_sidecar, time, time_sidecar)
    asked = unprofiled_step_ns(timed), whole_run, host_step_ns(steps), None
    with trace.open_trace(sqlite) as opened:
        known, leans = _leans.get(opened, ((), []))
        if known != asked:
            leans = [program.shorten_program(lean) for _, _, lean, _ in _remove_tracing(sqlite, *asked)]
    apart = process_spread(timed)
    return {program.process_number(lean.process): replace(lean, apart=apart) for lean in leans}


def _read_given(report_sidecar: str, time: str, time_sidecar: str) -> "tuple[bool, Sidecar, pd.DataFrame]":
    """Return whether the trace is of a whole run, the baseline's sidecar, and its steps."""
    whole_run = read_json(report_sidecar, {"capture": fact.TEXT})["capture"] == "run"
    timed = read_facts(time_sidecar, {"step_ns": fact.POSITIVE})
    return whole_run, timed, reading.read(time, REPEATED if "processes" in timed else STEPS)


def main(
    sqlite: str,
    report_sidecar: str,
    time: str,
    time_sidecar: str,
    outputs: Mapping[str, str],
    ranks: str | None = None,
) -> None:
    """Read the trace, the baseline's steps and both sidecars; write the two tables and the programs.

    Args:
        sqlite, report_sidecar: the trace and its sidecar.
        time, time_sidecar: the baseline and its sidecar.
        outputs: paths by name: the tables `changes` and `host`, and the `program`.
        ranks: table of the processes of a cell on several GPUs; None for others.
    """
    whole_run, timed, steps = _read_given(report_sidecar, time, time_sidecar)
    if lacking := trace.explain_no_steps(sqlite, whole_run):
        # This goes to the log only; the export of the same trace tells the user.
        print(f"{outputs['changes']} has no row, as {sqlite} {lacking}")
    waiting = predicted_gains.find_waiting_share(reading.read(ranks, RANKS)) if ranks else None
    found, host, leans = make_tables(sqlite, unprofiled_step_ns(timed), whole_run, host_step_ns(steps), waiting)
    if (timed.get("imported") or {}).get("whole"):
        print(f"{outputs['changes']} has no row: no step repeats in the report, so that there is no gain per step")
        found, host = found.iloc[:0], host.assign(helps="")
    write_csv(found, outputs["changes"])
    write_csv(host.replace([np.inf], np.nan), outputs["host"])
    spread = process_spread(timed)
    program.write_programs([replace(lean, apart=spread) for lean in leans], outputs["program"])
