"""Writes the report."""

from profzoo.io.scripts import derived, listed
from profzoo.report import page

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    tables = {name: path for name in (*page.TABLES, *page.OPTIONAL) if (path := given.get(name))}
    if known := listed(job.params.trials):
        tables["trials"] = known[0]
    ranks, sidecars, figures = (listed(given[name]) for name in ("ranks", "sidecars", "figures"))
    more = {name: job.params[name] for name in ("tools", "lacking", "perfetto")}
    more["timelines"] = listed(given.get("timelines", []))
    page.main(tables, ranks, sidecars, figures, more, job.output[0], job.folder)
