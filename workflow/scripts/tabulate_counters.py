"""Makes the tables of occupancy, memory charts, pipe utilisation and warp states across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import cell_counters, counters_across

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    paths = {name: as_list(job.input.get(name, [])) for name in cell_counters.TABLES}
    counters_across.main(paths, dict(job.output.items()))
