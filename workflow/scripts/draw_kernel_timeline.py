"""Draws what units of the GPU do over time inside kernels."""

from profzoo.figures import kernel_timeline
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    kernel_timeline.main(job.input.instances, job.input.launches, job.input.sidecar, list(job.output))
