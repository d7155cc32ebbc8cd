"""Exports the collective operations of a cell on several GPUs, and which of its processes comes late to them."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tools.torch import collective_tables

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, links = job.input, as_list(job.input.get("links", []))
    collective_tables.export_collectives(given.ranks, given.sidecar, links, dict(job.output.items()), job.say)
