"""Judges every cell, its top kernels and its layers."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.verdicts.causes import verdict_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    several = {name: as_list(given.get(name, [])) for name in ("details", "launches", "sidecars", "programs")}
    held, peaks = given.get("roofline") or None, given.get("peaks") or None
    layers = as_list(given.get("owned", [])), as_list(given.get("trees", []))
    cpus = given.cells, given.ranges, as_list(given.get("operators", []))
    verdict_table.main(
        given.steps,
        given.kernels,
        held,
        peaks,
        **several,
        layers=layers,
        on_cpus=cpus,
        csv=job.output.csv,
        waits=job.output.waits,
        chains=(as_list(given.get("chains", [])), as_list(given.get("chain_kernels", []))),
        activities=as_list(given.get("activities", [])),
        failed=job.params.failed,
    )
