"""Makes a cell's tables of occupancy, memory chart, pipe utilisation and warp states."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import cell_counters

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, made = job.input, dict(job.output.items())
    census = given.get("census") or None
    owned = as_list(given.get("owned", []))
    cell_counters.main(as_list(given.get("sets", [])), census, job.params.steps, made, owned)
