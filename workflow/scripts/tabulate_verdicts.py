"""Judges every cell, its top kernels and its layers."""

from profzoo.files import listed, reported
from profzoo.verdicts import tabulate

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    several = {name: listed(given.get(name, [])) for name in ("details", "launches", "sidecars")}
    held, peaks = given.get("roofline") or None, given.get("peaks") or None
    layers = listed(given.get("owned", [])), listed(given.get("trees", []))
    tabulate.main(given.steps, given.kernels, held, peaks, **several, layers=layers, csv=snakemake.output.csv)
