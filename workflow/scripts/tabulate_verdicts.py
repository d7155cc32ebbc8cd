"""Judges every cell and its top kernels by the tables across the zoo."""

from collections.abc import Sequence

import pandas as pd

from workflow.scripts.lib import verdicts
from workflow.scripts.lib.cell_tables import cell_of
from workflow.scripts.lib.files import reported, write_csv
from workflow.scripts.lib.roofline import read_peaks


def main(steps: str, kernels: str, roofline: str | None, peaks: str | None, details: Sequence[str], csv: str) -> None:
    """Read the tables, write the verdicts; details: ncu's details pages, which may hold no advice."""
    rates = read_peaks(peaks) if peaks else {}
    held = pd.read_csv(roofline, low_memory=False) if roofline else None
    cells = (cell_of(path) for path in details)
    advice = {(cell["model"], cell["phase"]): pd.read_csv(path, low_memory=False)
              for cell, path in zip(cells, details, strict=True)}  # fmt: skip
    kernel_table = pd.read_csv(kernels, low_memory=False)
    write_csv(verdicts.table(pd.read_csv(steps), kernel_table, held, rates, advice, verdicts.rules()), csv)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        given = snakemake.input
        details = given.get("details", [])
        main(
            given.steps,
            given.kernels,
            given.get("roofline") or None,
            given.get("peaks") or None,
            [details] if isinstance(details, str) else details,
            snakemake.output.csv,
        )
