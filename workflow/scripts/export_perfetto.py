"""Writes an nsys trace in the format that Perfetto opens."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys.pictures import perfetto

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    perfetto.main(job.input.sqlite, job.output.trace, job.say)
