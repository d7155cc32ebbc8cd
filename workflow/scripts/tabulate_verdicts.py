"""Judges every cell and its top kernels."""

from profzoo.files import listed, reported
from profzoo.verdicts import tabulate

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    several = {name: listed(given.get(name, [])) for name in ("details", "launches", "sidecars")}
    held, peaks = given.get("roofline") or None, given.get("peaks") or None
    tabulate.main(given.steps, given.kernels, held, peaks, **several, csv=snakemake.output.csv)
