"""Runs the steps of a cell's trace again, changed."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.replay import tables

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given, made = snakemake.input, snakemake.output
    integrity.require([given.sqlite, given.sidecar])
    outputs = {name: made[name] for name in ("changes", "host", "program")}
    tables.main(given.sqlite, given.sidecar, given.time, given.time_sidecar, outputs)
