"""Makes a cell's tables of layers, operators and their kernels."""

from profzoo.io.scripts import begin_script
from profzoo.tables import layers

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    others = layers.name_others(given, job.params.steps)
    layers.write_layers(given.launches, given.modules, given.sidecar, others, dict(job.output.items()))
