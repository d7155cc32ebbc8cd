"""Exports a section set of an ncu report to a tidy CSV, with its units in the sidecar."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from workflow.scripts.lib import ncu_tables, planning
from workflow.scripts.lib.files import read_json, reported, write_csv, write_json

OTHER_CHOICES = (
    "kernels that the census of this cell's launches lacks, so that their launches are not known; cuDNN or cuBLAS "
    "chose otherwise in this run, which `deterministic: true` prevents"
)


def tabulate(
    pages: Sequence[str], facts: Mapping[str, Any], census: str | None, launches: str | int
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """What was profiled as a table, its units, and in words the kernels that the census lacks.

    pages: raw, by mangled and by demangled names. facts: the report's sidecar. census: CSV of all launches of the
    window, if these are not in the report itself. launches: those that were profiled, `distinct`, `all` or the first N,
    or `ranges`.
    """
    raw, units = ncu_tables.read_raw(pages[0])
    if launches == "ranges":
        return *ncu_tables.tidy_ranges(raw, units), []
    names, _ = ncu_tables.read_raw(pages[1])
    window = pd.read_csv(census) if census else None
    counts = None if window is None else ncu_tables.configuration_counts(window)
    table, kept = ncu_tables.tidy(raw, units, names, counts)
    other = [] if window is None else ncu_tables.other_choices(table, window)
    if window is None and launches != "all":
        table["launches"] = pd.NA
    if launches == "distinct":
        # What a budget pays for may hold a configuration twice.
        table = table.drop_duplicates(ncu_tables.CONFIGURATION, ignore_index=True)
        if window is not None:
            chosen = planning.profiled(window, facts.get("plan", {}).get("options", []))
            typical = ncu_tables.typicality(table, window, chosen)
            where = table.columns.get_loc("launches") + 1
            table = pd.concat([table.iloc[:, :where], typical, table.iloc[:, where:]], axis=1)
    return table, kept, other


def main(
    pages: Sequence[str],
    report_sidecar: str,
    census: str | None,
    launches: str | int,
    metrics: Sequence[str],
    csv: str,
    sidecar: str,
    say: Callable[[str], object] = print,
) -> None:
    """Write the CSV of what was profiled, and its sidecar.

    pages, census, launches: as of tabulate. metrics: those asked for; ncu leaves out without a word what the GPU does
    not have, which the sidecar names, as it does kernels that the census lacks.
    """
    facts = read_json(report_sidecar)
    table, kept, other = tabulate(pages, facts, census, launches)
    if other:
        say(f"{csv}: {OTHER_CHOICES}: {'; '.join(other)}")
    write_csv(table, csv)
    missing = [name for name in metrics if ":" not in name and not any(c.startswith(name) for c in table.columns)]
    said = {"units": kept, "rows": len(table), "missing_metrics": missing, "other_choices": other}
    write_json({**facts, **said}, sidecar)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]) as say:
        main(
            [snakemake.input.mangled, snakemake.input.demangled],
            snakemake.input.sidecar,
            snakemake.input.get("census") or None,
            snakemake.params.launches,
            snakemake.params.metrics,
            snakemake.output.csv,
            snakemake.output.sidecar,
            say,
        )
