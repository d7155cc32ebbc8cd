"""Runs the scripts of the rules that a job joins."""

from profzoo.io.scripts import run_joined

run_joined(globals()["snakemake"])
