"""Makes a cell's tables of layers, operators and their kernels."""

from profzoo.files import derived, listed
from profzoo.tables import add_up_layers

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    others = add_up_layers.Others(
        census=given.get("census", ""),
        steps=job.params.steps,
        sets=listed(given.get("sets", [])),
        nsys=given.get("nsys", ""),
        sidecar=given.get("nsys_sidecar", ""),
        peaks=given.get("peaks", ""),
    )
    add_up_layers.main(given.launches, given.modules, given.sidecar, others, dict(job.output.items()))
