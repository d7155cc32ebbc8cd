"""Exports what nsys collected of the GPU over time."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys.over_time import gpu_metrics

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    made = job.output
    gpu_metrics.export_over_time(given.sqlite, given.sidecar, made.metrics, made.steps, made.memory, job.say)
