"""Exports a section set of an ncu report."""

from profzoo.files import reported
from profzoo.tools.ncu import export

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given = snakemake.input
    pages = [given.mangled, given.demangled]
    census, parameters, made = given.get("census") or None, snakemake.params, snakemake.output
    export.main(pages, given.sidecar, census, parameters.launches, parameters.metrics, made.csv, made.sidecar, say)
