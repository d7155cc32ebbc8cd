"""Writes the report."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.report import page

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    tables = {name: path for name in (*page.TABLES, *page.OPTIONAL_TABLES) if (path := given.get(name))}
    if known := as_list(job.params.trials):
        tables["trials"] = known[0]
    ranks, sidecars, figures = (as_list(given[name]) for name in ("ranks", "sidecars", "figures"))
    more: page.PageOptions = {
        "tools": job.params["tools"],
        "lacking": job.params["lacking"],
        "perfetto": job.params["perfetto"],
        "timelines": as_list(given.get("timelines", [])),
        "lines": [path for path, _ in job.params.lines],
        "of_cells": as_list(given.get("of_cells", [])),
    }
    page.main(tables, ranks, sidecars, figures, more, job.output[0], job.folder)
