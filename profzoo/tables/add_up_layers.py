"""Adds up a cell's launches by layer, operator and kernel, from what torch, nsys and ncu say of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from profzoo.files import read_json, write_csv
from profzoo.needed.operators import COLUMNS as NEEDS
from profzoo.reading import tables as reading
from profzoo.tables import layer_kernels, layers, owned, owner_coverage
from profzoo.tables.counted_steps import NEEDS as OF_SIDECAR
from profzoo.tables.counted_steps import profiled_steps
from profzoo.tables.owned import OWNER, Joined
from profzoo.tables.roofline import read_peaks
from profzoo.tools.ncu import exported
from profzoo.tools.nsys import by_step
from profzoo.tools.torch import owners

ALIGNED = ["step", "order", "kind", "name", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
           "smem_bytes", "ns"]  # fmt: skip


@dataclass(frozen=True)
class Others:
    """Files of other tools than torch, empty where they were not chosen.

    census: all launches of ncu's window, of so many steps; sets: what it counted, the first that counts first. nsys:
    its export, with the sidecar of its report. peaks: the GPU's measured ones.
    """

    census: str = ""
    steps: int = 1
    sets: Sequence[str] = ()
    nsys: str = ""
    sidecar: str = ""
    peaks: str = ""


def main(launches: str, modules: str, sidecar: str, others: Others, outputs: Mapping[str, str]) -> None:
    """Read the tables of owners and of modules and what others say, write `layers`, `operators`, `kernels`, `coverage`.

    sidecar: of torch's trace.
    """
    steps = profiled_steps(read_json(sidecar, OF_SIDECAR))
    peaks = read_peaks(others.peaks) if others.peaks else {}
    by_torch = layers.called(_parts(launches, [*OWNER, *NEEDS, "ns"]), steps)
    joined = _joined(launches, others)
    if joined is None:
        called, nothing = by_torch, Joined(pd.DataFrame(), steps)
        rows = _of_torch(launches, steps)
    else:
        copies = layers.called((owned.copies(part) for part in _parts(launches, [*OWNER, *NEEDS, "ns", "kind"])), steps)
        called, nothing = layers.carried(by_torch, joined, copies), joined
        rows = owned.kernels(joined)
    write_csv(layers.operators(called, nothing, peaks), outputs["operators"])
    known = reading.read(modules, owners.MODULES)
    write_csv(layers.layers(called, known, steps, nothing, peaks), outputs["layers"])
    write_csv(layer_kernels.table(rows, peaks), outputs["kernels"])
    write_csv(owner_coverage.table(called, joined), outputs["coverage"])


def _joined(launches: str, others: Others) -> Joined | None:
    """The launches of ncu's window, else of a step of nsys; None where neither tool was chosen."""
    if not (others.census or others.nsys):
        return None
    own = pd.concat(_parts(launches, [*ALIGNED, *OWNER]), ignore_index=True)
    nsys = None
    if others.nsys:
        facts = read_json(others.sidecar, OF_SIDECAR)
        traced = by_step.read(others.nsys, facts.get("capture") == "run")
        # On a CPU there is none.
        nsys = traced if len(traced) else None
    if others.census:
        sets = [reading.read(path, exported.TABLE) for path in others.sets]
        return owned.of_ncu(exported.read_census(others.census), others.steps, sets, own, nsys)
    return None if nsys is None else owned.of_nsys(nsys, own)


def _of_torch(launches: str, steps: int) -> pd.DataFrame:
    parts = (owned.of_torch(part, steps) for part in _parts(launches, [*ALIGNED, *OWNER]))
    rows = pd.concat(parts, ignore_index=True)
    sums = rows.groupby(owned.GROUPS, sort=False, dropna=False, observed=True)[["launches", "total_ns"]].sum()
    found = sums.reset_index().reindex(columns=rows.columns)
    return found.assign(mean_ns=found["total_ns"] / found["launches"])


def _parts(path: str, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """These columns of the table of owners, of which there may be more rows than fit into memory with all."""
    return (part[list(columns)] for part in reading.parts(path, owners.TABLE))
