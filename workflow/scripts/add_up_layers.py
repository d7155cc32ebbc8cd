"""Makes a cell's tables of layers, operators and their kernels."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import layer_sums

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    others = layer_sums.Others(
        census=given.get("census", ""),
        steps=job.params.steps,
        sets=as_list(given.get("sets", [])),
        nsys=given.get("trace_database", ""),
        sidecar=given.get("trace_database_sidecar", ""),
        peaks=given.get("peaks", ""),
    )
    layer_sums.main(given.launches, given.modules, given.sidecar, others, dict(job.output.items()))
