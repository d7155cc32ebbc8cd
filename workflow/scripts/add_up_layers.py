"""Makes a cell's tables of layers, operators and their kernels."""

from profzoo.io.scripts import derived, listed
from profzoo.tables import layer_sums

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    others = layer_sums.Others(
        census=given.get("census", ""),
        steps=job.params.steps,
        sets=listed(given.get("sets", [])),
        nsys=given.get("nsys", ""),
        sidecar=given.get("nsys_sidecar", ""),
        peaks=given.get("peaks", ""),
    )
    layer_sums.main(given.launches, given.modules, given.sidecar, others, dict(job.output.items()))
