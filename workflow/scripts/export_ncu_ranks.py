"""Exports a section set of the ncu reports of a cell's processes to one tidy CSV: a row a launch, by host and rank."""

from pathlib import Path

import pandas as pd

from workflow.scripts.export_ncu import tabulate
from workflow.scripts.lib.files import DataError, read_json, reported, write_csv


def main(pages: str, sidecar: str, census: str | None, launches: str | int, csv: str) -> None:
    """Write the CSV.

    pages: folder of the printed pages, each named `{host}.{rank}.{mangled,demangled}.csv`. census: CSV of the first
    process's launches, of which the others have as many. launches: as of export_ncu.

    Raises:
        DataError: a process left no report.
    """
    facts, frames = read_json(sidecar), {}
    for path in Path(pages).glob("*.mangled.csv"):
        host, _, rank = path.name.removesuffix(".mangled.csv").rpartition(".")
        both = [str(path), str(path.with_name(f"{host}.{rank}.demangled.csv"))]
        table, _, _ = tabulate(both, facts, census, launches)
        table.insert(0, "host", host)
        table.insert(1, "rank", int(rank))
        frames[int(rank)] = table
    missing = [str(own["rank"]) for own in facts["ranks"] if own["rank"] not in frames]
    if missing:
        raise DataError(f"{len(facts['ranks'])} processes, but no report of rank {', '.join(missing)}")
    write_csv(pd.concat([frames[rank] for rank in sorted(frames)], ignore_index=True), csv)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        main(
            snakemake.input.pages,
            snakemake.input.sidecar,
            snakemake.input.get("census") or None,
            snakemake.params.launches,
            snakemake.output.csv,
        )
