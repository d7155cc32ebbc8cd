"""Makes the table of percentiles of the step on each side of a comparison."""

from profzoo.compare import comparison_table
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, names = job.input, job.params.sides
    alone = {name: as_list(given.get(f"side_{place}", [])) for place, name in enumerate(names)}
    comparison_table.write_latency_table(names, as_list(given.get("turns", [])), alone, job.output.csv)
