"""Writes the report."""

from profzoo.files import listed, reported
from profzoo.report import page

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    tables = {name: path for name in (*page.TABLES, *page.OPTIONAL) if (path := given.get(name))}
    if known := listed(snakemake.params.trials):
        tables["trials"] = known[0]
    ranks, sidecars, figures = (listed(given[name]) for name in ("ranks", "sidecars", "figures"))
    more = {name: snakemake.params[name] for name in ("tools", "lacking", "perfetto")}
    more["timelines"] = listed(given.get("timelines", []))
    page.main(tables, ranks, sidecars, figures, more, snakemake.output[0])
