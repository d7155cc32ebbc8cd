"""Compares the counters of both sides of every cell, where they exist."""

from profzoo.compare import counter_table
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    files = {side: [path for path, _ in found] for side, found in job.params.counted.items()}
    counter_table.main(job.input.compared, files, job.output.csv)
