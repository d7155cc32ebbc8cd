"""Exports the traces of a cell's processes: a row a process, what it did in a step."""

from pathlib import Path

from workflow.scripts.lib import ranks
from workflow.scripts.lib.files import read_json, reported, write_csv

if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        traces = Path(snakemake.input.ranks).glob("*.sqlite")
        facts = read_json(snakemake.input.sidecar)
        table = ranks.of_traces(traces, len(facts["ranks"]), facts["capture"] == "run")
        write_csv(table, snakemake.output.csv)
