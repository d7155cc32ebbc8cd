"""Steps that wait for a simulated device in known ways, their programs as profzoo reads them, and verdicts on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.cell.job_types import GradientSync
from profzoo.tools.nsys.steps import steps as where
from profzoo.verdicts.causes import verdicts
from profzoo.verdicts.rules.cell_facts import CellFacts, NotedFacts
from profzoo.what_if import predicted_gains, tables
from profzoo.what_if.program import Program, process_number
from tests import known_rules, launched, simulated
from tests.simulated import Act

STEPS = 8
# What nsys makes of the CPU's time.
TRACED = 1.2
GIVEN = {"precision": "fp32", "graph": False, "compile": False, "channels_last": False, "workers": 0}
CELL = ("m", "train")
Inside = Sequence[Act] | Callable[[int], Sequence[Act]]
# Adds to an export, by its path, what the simulation does not record of these calls.
Amend = Callable[[Path, simulated.Recording], None]


def operator(ns: float, host_ns: float = 8e3, part: str = "forward", group: int = 0) -> Act:
    """An operator that launches one kernel of `ns`, for which the CPU takes `host_ns`."""
    return Act("kernel", 0, part, 0.6 * host_ns, 0.4 * host_ns, ns=ns, group=group)


def item(host_ns: float = 8e3, part: str = "forward") -> list[Act]:
    """`.item()`: an operator that copies a number to the host and waits for its stream."""
    return [Act("pageable", 0, part, 0.6 * host_ns, 0.4 * host_ns, ns=1200.0), Act("stream_sync", 0, part, 500, 1500)]


def steps(inside: Inside, slower: float = 1.0) -> list[Act]:
    """Steps of these acts, or of those that a function gives for a step's number; slower: the CPU, by a tracer."""
    acts = []
    for number in range(STEPS):
        mine = inside(number) if callable(inside) else inside
        acts.append(Act("begin", number, before=2e4))
        acts += [replace(one, step=number) for one in mine]
        acts.append(Act("end", number, before=1e4))
    return [replace(one, before=one.before * slower, call=one.call * slower) for one in acts]


def step_ns(inside: Inside) -> float:
    """What such a step takes untraced."""
    return simulated.simulate(steps(inside)).step_ns()


@dataclass(frozen=True)
class Told:
    """A cell: its program, its row of the table of steps, its verdicts, and its kernels."""

    program: Program
    row: pd.Series
    verdicts: pd.DataFrame
    kernels: pd.DataFrame

    @property
    def of_cell(self) -> pd.DataFrame:
        return self.verdicts[self.verdicts["level"] == "cell"].reset_index(drop=True)

    @property
    def settings(self) -> set[str]:
        """All settings that any row names."""
        return {word for words in self.verdicts["settings"].dropna() for word in str(words).split()}


def traced(inside: Inside, folder: Path, amend: Amend | None = None) -> tuple[Program, pd.DataFrame]:
    """The program of such steps as nsys would have traced them, without its overhead, and the table of its steps."""
    # Of several in one folder each has a file of its own.
    path = folder / f"{len([*folder.iterdir()])}.sqlite"
    made = simulated.simulate(steps(inside, TRACED))
    trace = simulated.record(made, path)
    if amend:
        amend(trace, made)
    (one,) = tables.read_programs(trace)
    return predicted_gains.remove_tracing(one, step_ns(inside))[0], where.where_time_goes(trace)


def told(
    inside: Inside,
    folder: Path,
    lines: Sequence[Any] | None = None,
    amend: Amend | None = None,
    every_rule: bool = False,
    noted: NotedFacts | None = None,
    sync: GradientSync | None = None,
    kernel: str | None = None,
    **ran_with: Any,
) -> Told:
    """Verdicts on a cell with such steps; lines: at which it waits; ran_with: settings besides GIVEN.

    every_rule: whether every known rule judges it. noted: what its unprofiled process noted.
    sync: how it sends gradients. kernel: name of all its kernels.
    """
    program, rows = traced(inside, folder, amend)
    number, took = process_number(program.process), step_ns(inside)
    rows = rows.assign(model="m", phase="train", step_ns=took, step_median_ns=took, process=number, waiting_ns=0.0)
    rows["busy_share"] = (rows["busy_ns"] / took).clip(upper=1)
    kernels = launched.configurations(program)
    names = {
        "function": kernels["mangled"],
        "kernel": kernel or kernels["mangled"],
        "class": "gemm",
        "multiprocessors": 1,
    }
    kernels = kernels.assign(model="m", phase="train", **names)
    used = known_rules.load(every_rule)
    found = verdicts.tabulate_verdicts(
        rows, kernels, None, {}, {}, {CELL: GIVEN | ran_with}, used, None, {CELL: {number: program}},
        lines=None if lines is None else {CELL: lines}, facts=CellFacts(noted={CELL: noted} if noted else {}, syncs={CELL: sync} if sync else {}),
    )  # fmt: skip
    return Told(program, rows.iloc[0], known_rules.keep_to_amdahl(found), kernels)
