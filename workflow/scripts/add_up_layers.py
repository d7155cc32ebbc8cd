"""Makes a cell's tables of layers, operators and their kernels."""

from profzoo.io.scripts import begin_script
from profzoo.tables import layer_sums

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    others = layer_sums.name_others(given, job.params.steps)
    layer_sums.main(given.launches, given.modules, given.sidecar, others, dict(job.output.items()))
