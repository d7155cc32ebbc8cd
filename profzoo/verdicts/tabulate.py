"""Judges every cell and its top kernels by the tables across the zoo."""

from collections.abc import Sequence

from profzoo.files import read_json, write_csv
from profzoo.reading import tables as reading
from profzoo.tables import across
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
    csv: str,
) -> None:
    """Read the tables, write the verdicts.

    details: ncu's details pages, which may hold no advice; launches: exported launches of the same reports, in the same
    order; sidecars: of the unprofiled runs.
    """
    rates = read_peaks(peaks) if peaks else {}
    held = across.read("roofline", roofline) if roofline else None
    advice = {
        _cell(page): (ncu_details.read(page), reading.read(rows, exported.TABLE))
        for page, rows in zip(details, launches, strict=True)
    }
    ran_with = {_cell(path): read_json(path, {"cell": {}})["cell"] for path in sidecars}
    kernel_table = across.read("kernels", kernels)
    rules = verdict_rules.load()
    write_csv(verdicts.table(across.read("steps", steps), kernel_table, held, rates, advice, ran_with, rules), csv)


def _cell(path: str) -> tuple[str, str]:
    cell = cell_of(path)
    return cell["model"], cell["phase"]
