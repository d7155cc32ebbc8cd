"""Exports the snapshot of the GPU's allocator and the blocks at its peak."""

from profzoo.io.scripts import begin_script
from profzoo.tools.torch import allocator_snapshot

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    allocator_snapshot.main(given.more, job.output.pickle, job.output.csv)
