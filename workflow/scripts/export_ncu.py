"""Exports a section set of an ncu report to a tidy CSV, with its units in the sidecar."""

import sys
from collections.abc import Sequence

import pandas as pd

from workflow.scripts.lib import ncu_tables
from workflow.scripts.lib.files import read_json, reported, write_csv, write_json

OTHER_CHOICES = "kernels that the census of this cell's launches lacks, so that their launches are not known; "
OTHER_CHOICES += "cuDNN or cuBLAS chose otherwise in this run, which `deterministic: true` prevents"


def main(
    mangled: str,
    demangled: str,
    report_sidecar: str,
    census: str | None,
    counted: bool,
    metrics: Sequence[str],
    csv: str,
    sidecar: str,
) -> None:
    """Read the printed pages, write the CSV and its sidecar.

    census: CSV of all launches of the window; counted: whether the report itself holds all of them. Without
    either, how many launches a configuration has is not known. metrics: those asked for; ncu leaves out without a
    word what the GPU does not have, which the sidecar names, as it does kernels that the census lacks.
    """
    raw, units = ncu_tables.read_raw(mangled)
    names, _ = ncu_tables.read_raw(demangled)
    window = pd.read_csv(census) if census else None
    table, kept = ncu_tables.tidy(
        raw, units, names, None if window is None else ncu_tables.configuration_counts(window)
    )
    if window is None and not counted:
        table["launches"] = pd.NA
    other = [] if window is None else ncu_tables.other_choices(table, window)
    if other:
        print(f"profzoo: {csv}: {OTHER_CHOICES}: {'; '.join(other)}", file=sys.stderr)
    write_csv(table, csv)
    missing = [name for name in metrics if ":" not in name and not any(c.startswith(name) for c in table.columns)]
    facts = {"units": kept, "rows": len(table), "missing_metrics": missing, "other_choices": other}
    write_json({**read_json(report_sidecar), **facts}, sidecar)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        main(
            snakemake.input.mangled,
            snakemake.input.demangled,
            snakemake.input.sidecar,
            snakemake.input.get("census") or None,
            snakemake.params.launches == "all",
            snakemake.params.metrics,
            snakemake.output.csv,
            snakemake.output.sidecar,
        )
