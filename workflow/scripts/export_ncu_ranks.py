"""Exports a section set of the ncu reports of a cell's processes."""

from profzoo.files import reported
from profzoo.tools.ncu import export_ranks

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given = snakemake.input
    census = given.get("census") or None
    export_ranks.main(given.pages, given.sidecar, census, snakemake.params.launches, snakemake.output.csv, say)
