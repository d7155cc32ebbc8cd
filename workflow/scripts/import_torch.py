"""Imports a trace of torch.profiler."""

from profzoo.foreign_reports import torch_import
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    asked, made = job.params, dict(job.output.items())
    torch_import.main(asked.files[0], job.wildcards.model, asked.step, made, job.say)
