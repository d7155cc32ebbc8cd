"""Writes the page of a comparison."""

from profzoo.io.scripts import derived, listed
from profzoo.report import page

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    tables = {name: path for name in page.COMPARED if (path := given.get(name))}
    page.of_comparison(tables, listed(given["figures"]), job.output[0])
