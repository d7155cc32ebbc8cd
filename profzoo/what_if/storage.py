"""Stores the programs of a cell without tracing overhead, so that changes can be simulated later."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.tools.nsys.launches import PACKS
from profzoo.what_if.program import END, Program

# Number of steps to store; the first of them is not counted. A single delayed step then matters little, and a program
# is still simulated quickly.
KEPT = 10
HOST = ("gap", "input", "library", "own", "overlaps", "wait", "target", "tail", "kind", "part", "step", "launches",
        "allocates")  # fmt: skip
# Of which a file of an earlier version has none.
MEASURED, MEASURED_GPU = ("waited", "locked", "loads"), ("inward", "pageable")
ROLES = ("kind", "node", "talking", "crossing", "gone", "host")
GPU = ("stream", "ns", "latency", "gap", "dep", "dep_gap", "room", *ROLES, *PACKS)
FACTS = "facts"


def shorten(program: Program) -> Program:
    """Return the first steps of a program, at most KEPT."""
    ends = np.flatnonzero(program.host["kind"] == END)
    rows = int(ends[min(KEPT, len(ends)) - 1]) + 1
    gpu = program.gpu[program.gpu["host"] < rows]
    # Operations of the removed steps can no longer be waited for.
    dep = np.where(gpu["dep"] < len(gpu), gpu["dep"], -1)
    return replace(program, host=program.host.iloc[:rows], gpu=gpu.assign(dep=dep))


def write(programs: Sequence[Program], path: str | Path) -> None:
    """Write the first steps of each program to a compressed NumPy archive, with the columns that a simulation needs."""
    arrays: dict[str, np.ndarray] = {}
    facts = []
    for place, one in enumerate(map(shorten, programs)):
        arrays |= {f"{place}.host.{name}": one.host[name].to_numpy() for name in (*HOST, *MEASURED) if name in one.host}
        arrays |= {f"{place}.gpu.{name}": one.gpu[name].to_numpy() for name in (*GPU, *MEASURED_GPU) if name in one.gpu}
        kernels = {str(number): name for number, name in one.kernels.items()}
        known = {"process": one.process, "after": one.after, "apart": one.apart, "waiting": one.waiting}
        facts.append({**known, "kernels": kernels})
    # An open file, because numpy appends an ending to a name.
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **(arrays | {FACTS: np.array(json.dumps(facts))}))


def read(path: str | Path) -> dict[int, Program]:
    """Read the programs of a file, by process ID as in the tables of changes.

    Raises:
        DataError: the file holds no programs, or is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            facts = json.loads(str(archive[FACTS]))
            return {process_number(known["process"]): _one(archive, place, known) for place, known in enumerate(facts)}
    except Exception as error:
        # numpy raises many kinds of errors for damaged archives and arrays.
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: no programs of steps ({why}): delete it, and the next run makes it again") from None


def process_number(process: int) -> int:
    """Return the process ID from nsys's global process ID.

    >>> process_number(1082 << 24)
    1082
    """
    return process >> 24 & 0xFFFFFF


def _one(archive: Mapping[str, np.ndarray], place: int, facts: Mapping) -> Program:
    host = _columns(archive, f"{place}.host", HOST, MEASURED)
    gpu = _columns(archive, f"{place}.gpu", GPU, MEASURED_GPU)
    kernels = {int(number): name for number, name in facts["kernels"].items()}
    return Program(facts["process"], host, gpu, facts["after"], kernels, facts["apart"], facts.get("waiting"))


def _columns(archive: Mapping[str, np.ndarray], of: str, names: Sequence[str], more: Sequence[str]) -> pd.DataFrame:
    """Read a table's columns; more: those that the file may lack."""
    there = [*names, *(name for name in more if f"{of}.{name}" in archive)]
    return pd.DataFrame({name: archive[f"{of}.{name}"] for name in there})
