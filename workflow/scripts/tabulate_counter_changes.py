"""Compares the counters of both sides of every cell, where they exist."""

from profzoo.compare import counter_changes
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, existing = job.input, job.params.counted
    files = {
        name: as_list(given.get(f"counters_{place}", [path for path, _ in existing.get(name, [])]))
        for place, name in enumerate(job.params.sides)
    }
    counter_changes.write_counter_table(given.compared, files, job.output.csv)
