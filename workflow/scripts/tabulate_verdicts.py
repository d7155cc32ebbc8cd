"""Judges every cell, its top kernels and its layers."""

from profzoo.io.scripts import derived, listed
from profzoo.verdicts import verdict_table

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    several = {name: listed(given.get(name, [])) for name in ("details", "launches", "sidecars", "programs")}
    held, peaks = given.get("roofline") or None, given.get("peaks") or None
    layers = listed(given.get("owned", [])), listed(given.get("trees", []))
    cpus = given.cells, given.ranges, listed(given.get("operators", []))
    csv = job.output.csv
    verdict_table.main(given.steps, given.kernels, held, peaks, **several, layers=layers, on_cpus=cpus, csv=csv)
