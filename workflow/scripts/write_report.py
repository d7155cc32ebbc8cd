"""Writes the report."""

from profzoo.files import listed, reported
from profzoo.report import page

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    tables = {name: path for name in (*page.TABLES, *page.COMPARED) if (path := given.get(name))}
    ranks, sidecars, figures = (listed(given[name]) for name in ("ranks", "sidecars", "figures"))
    page.main(tables, ranks, sidecars, figures, snakemake.params.tools, snakemake.output[0])
