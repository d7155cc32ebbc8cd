"""Puts the collective operations and the skew of all cells on several GPUs into tables."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import collectives_across

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    paths = {name: as_list(job.input.get(name, [])) for name in collectives_across.TABLES}
    collectives_across.main(paths, dict(job.output.items()))
