"""Judges every cell and its top kernels by the tables across the zoo."""

from collections.abc import Sequence

from profzoo.files import read_json, write_csv
from profzoo.reading import tables as reading
from profzoo.tables import across, layer_kernels
from profzoo.tables import layers as layer_tables
from profzoo.tables.cell_tables import cell_of
from profzoo.tables.roofline import read_peaks
from profzoo.tools.ncu import details as ncu_details
from profzoo.tools.ncu import exported
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts import verdicts


def main(
    steps: str,
    kernels: str,
    roofline: str | None,
    peaks: str | None,
    details: Sequence[str],
    launches: Sequence[str],
    sidecars: Sequence[str],
    layers: tuple[Sequence[str], Sequence[str]],
    csv: str,
) -> None:
    """Read the tables, write the verdicts.

    details: ncu's details pages, which may hold no advice; launches: exported launches of the same reports, in the same
    order; sidecars: of the unprofiled runs; layers: kernels by owner, and the trees of layers, in the same order.
    """
    rates = read_peaks(peaks) if peaks else {}
    held = across.read("roofline", roofline) if roofline else None
    advice = {
        _cell(page): (ncu_details.read(page), reading.read(rows, exported.TABLE))
        for page, rows in zip(details, launches, strict=True)
    }
    ran_with = {_cell(path): read_json(path, {"cell": {}})["cell"] for path in sidecars}
    kernel_table = across.read("kernels", kernels)
    trees = {
        _cell(path): (reading.read(path, layer_kernels.TABLE), reading.read(tree, layer_tables.TABLE))
        for path, tree in zip(*layers, strict=True)
    }
    rules, timed = verdict_rules.load(), across.read("steps", steps)
    write_csv(verdicts.table(timed, kernel_table, held, rates, advice, ran_with, rules, trees), csv)


def _cell(path: str) -> tuple[str, str]:
    cell = cell_of(path)
    return cell["model"], cell["phase"]
