"""Keeps a run from overwriting files that it did not make, and measurements of a GPU by measurements of a CPU."""

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError, DataError
from profzoo.io import sidecars
from profzoo.records import record
from profzoo.records.record import DamagedRecordError
from profzoo.workflow import up_to_date

# Number of files that a message names.
NAMED = 3
KEEP = "`--config collect=false` takes results as they are"


def check(jobs: Iterable[Any], made_here: Collection[str], gpu_missing: bool, collects: bool) -> None:
    """Raise ConfigError if jobs would overwrite foreign files, or measurements of a GPU by measurements of a CPU.

    jobs: jobs of Snakemake's graph. made_here: paths that earlier runs in this folder made. gpu_missing: whether jobs
    run on this machine and it has no GPU. collects: whether the run may measure (the setting `collect`).
    """
    mine = {_place(path) for path in made_here}
    foreign, measured = [], []
    for job in (one for one in jobs if up_to_date.leaves_record(one)):
        there = [Path(str(path)) for path in job.output if os.path.lexists(path)]
        foreign += [
            path for path in there if os.path.normpath(Path.cwd() / path) not in mine and not _recorded(job, path)
        ]
        if gpu_missing and (sidecar := up_to_date.sidecar(job)) and (gpu := measured_on(sidecar)):
            measured.append(f"{sidecar.with_suffix('')} was measured on {gpu}")
    if foreign:
        one = len(foreign) == 1
        # A run that does not measure replaces tables, figures and the page alone.
        advice = (
            f"; for results from elsewhere, {KEEP}" if collects else ", and new ones are made from the measurements"
        )
        raise ConfigError(
            f"{_listed(list(map(str, foreign)))} {'was' if one else 'were'} not made in this folder, according to "
            f"its records, and this run would replace {'it' if one else 'them'}: move {'it' if one else 'them'} away"
            f"{advice}"
        )
    if measured:
        raise ConfigError(
            f"{_listed(measured)}, and would be replaced by times of the CPU, because this machine has no GPU: {KEEP}, "
            "and `device=cpu` measures on the CPU all the same"
        )


def measured_on(sidecar: Path) -> str | None:
    """Name of the GPU on which a job with `device: auto` ran; None if it ran on a CPU."""
    try:
        known = sidecars.read_sidecar(sidecar, sidecars.NOTHING)
    except (DataError, OSError):
        return None
    cell = known.get("cell")
    if not isinstance(cell, Mapping) or cell.get("device") != "auto":
        return None
    gpu = known.get("gpu")
    return f"{gpu} of {known['host']}" if gpu and known.get("host") else gpu


def _place(path: str | Path) -> str:
    """Absolute path, without resolving links."""
    return os.path.normpath(Path.cwd() / path)


def _recorded(job: Any, path: Path) -> bool:
    """Whether an output has a record, complete or not."""
    sidecar = up_to_date.sidecar(job)
    try:
        return (record.read_sidecar_record(sidecar) if sidecar else record.read_output_record(path)) is not None
    except (DamagedRecordError, OSError):
        return True


def _listed(texts: list[str]) -> str:
    rest = len(texts) - NAMED
    return ", ".join([*texts[:NAMED], *([f"and {rest} more"] if rest > 0 else [])])
