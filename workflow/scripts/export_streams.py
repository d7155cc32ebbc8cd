"""Exports what each stream of a GPU did, from an nsys trace."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys.steps import streams

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    streams.main(given.sqlite, given.sidecar, job.output.streams, job.output.copies, job.say)
