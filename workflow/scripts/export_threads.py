"""Makes the tables of what a cell's threads did."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys.host import host_tables

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    host_tables.main(given.sqlite, given.sidecar, dict(job.output.items()), job.say)
