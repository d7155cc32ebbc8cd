"""Writes the page of a comparison."""

from profzoo.files import listed, reported
from profzoo.report import page

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    tables = {name: path for name in page.COMPARED if (path := given.get(name))}
    page.of_comparison(tables, listed(given["figures"]), snakemake.output[0])
