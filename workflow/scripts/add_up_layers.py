"""Makes a cell's tables of layers, operators and their kernels."""

from profzoo.files import listed, reported
from profzoo.tables import add_up_layers

snakemake = globals()["snakemake"]
given = snakemake.input
with reported(snakemake.log[0]):
    others = add_up_layers.Others(
        census=given.get("census", ""),
        steps=snakemake.params.steps,
        sets=listed(given.get("sets", [])),
        nsys=given.get("nsys", ""),
        sidecar=given.get("nsys_sidecar", ""),
        peaks=given.get("peaks", ""),
    )
    add_up_layers.main(given.launches, given.modules, given.sidecar, others, dict(snakemake.output.items()))
