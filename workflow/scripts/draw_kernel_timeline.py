"""Draws what units of the GPU do over time inside kernels."""

from profzoo.figures import kernel_timeline
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    kernel_timeline.main(given.instances, given.launches, given.sidecar, list(job.output), job.params.dpi)
