"""Writes the page of a comparison."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.report import page

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    tables = {name: path for name in page.COMPARISON_TABLES if (path := given.get(name))}
    page.write_comparison_page(tables, as_list(given["figures"]), job.output[0])
