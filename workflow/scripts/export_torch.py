"""Exports torch.profiler's operators and kernels."""

from profzoo.files import reported
from profzoo.tools.torch import export

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    export.main(given.operators, given.trace, given.sidecar, snakemake.output.csv)
