"""Imports reports of Nsight Compute."""

from profzoo.foreign_reports import ncu_import
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    asked, made = job.params, dict(job.output.items())
    traced = as_list(job.input.get("traced", []))
    ncu_import.main(list(asked.files), job.wildcards.model, traced[0] if traced else None, made, job.say)
