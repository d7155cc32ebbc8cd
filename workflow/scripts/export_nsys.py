"""Exports an nsys trace: a row a launch configuration and range, and where the window's time goes."""

from workflow.scripts.lib import nsys_steps, nsys_tables
from workflow.scripts.lib.files import DataError, read_json, reported, write_csv


def main(sqlite: str, sidecar: str, csv: str, steps: str) -> None:
    """Read the export and its sidecar, write both CSV; without launches only where the cell ran on a CPU."""
    table = nsys_tables.summarise(sqlite)
    if table.empty and read_json(sidecar)["device_type"] == "cuda":
        raise DataError(
            f"{sqlite} holds no kernel launch although the cell ran on a GPU: trace cuda (nsys.traces), "
            "and see the log of the profiling job"
        )
    write_csv(table, csv)
    write_csv(nsys_steps.where_time_goes(sqlite), steps)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        main(snakemake.input.sqlite, snakemake.input.sidecar, snakemake.output.csv, snakemake.output.steps)
