"""Writes the report."""

from profzoo.files import listed, reported
from profzoo.report import page

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    tables = {name: given[name] for name in page.TABLES}
    page.main(tables, listed(given.ranks), listed(given.figures), snakemake.params.tools, snakemake.output[0])
