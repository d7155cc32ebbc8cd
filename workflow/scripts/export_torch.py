"""Exports torch.profiler's operators and launches."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.torch import export

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given = snakemake.input
    integrity.require([given.trace, given.operators, given.sidecar])
    export.main(given.operators, given.trace, given.sidecar, dict(snakemake.output.items()), say)
