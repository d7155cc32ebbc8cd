"""Exports the traces of a cell's processes: a row a process, what it did in a step."""

from pathlib import Path

from workflow.scripts.lib import ranks
from workflow.scripts.lib.files import read_json, reported, write_csv

if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        traces = Path(snakemake.input.ranks).glob("*.sqlite")
        processes = len(read_json(snakemake.input.sidecar)["ranks"])
        write_csv(ranks.of_traces(traces, processes), snakemake.output.csv)
