"""The report's tables on a cell's several processes: its collective operations, and which process comes late."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo.formatting import duration, size
from profzoo.json_types import TemplateVariables
from profzoo.report.value_formats import format_value
from profzoo.tables import cell_tables
from profzoo.tables.schemas import rows_of_cell
from profzoo.tools.torch import collective_tables, rank_skew

# Tables by name, with the ends of their files' names.
FILES = {"collectives": ("torch-collectives.csv", collective_tables.TABLE), "skew": ("torch-skew.csv", rank_skew.TABLE)}
# Most operations shown per cell, those with the longest transfers.
MOST = 10
BETWEEN = "between parts"


def read_tables(paths: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Read the files of all cells on several GPUs, as one table for each of FILES that any cell has."""
    found = {}
    for name, (ending, table) in FILES.items():
        frames = [
            rows.assign(**cell) for cell, rows in cell_tables.read([p for p in paths if p.endswith(ending)], table)
        ]
        if frames:
            found[name] = pd.concat(frames, ignore_index=True)
    return found


def describe_processes(tables: Mapping[str, pd.DataFrame], cell: tuple[str, str]) -> TemplateVariables:
    """Return the template's variables on the processes of a cell; tables: of read_tables, and others."""
    operations, skew = (rows_of_cell(tables[name], *cell) if name in tables else pd.DataFrame() for name in FILES)
    return {
        "collectives": [_format_operation(row) for row in operations.head(MOST).to_dict("records")],
        "unshown_collectives": max(len(operations) - MOST, 0),
        "link": operations["link"].iloc[0] if len(operations) else "",
        "late": _format_lateness(skew) if len(skew) else [],
    }


def _format_operation(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        "name": str(row["collective"]).replace("_", "-"),
        "size": size(row["bytes"]),
        "count": f"{row['count']:,}",
        "transfer": duration(row["transfer_ns"]),
        "waiting": duration(row["waiting_ns"]),
        "rate": format_value(row["bus_bytes_per_s"], _format_rate),
        "probe": format_value(row["probe_bus_bytes_per_s"], _format_rate),
        "share": format_value(row["probe_share"], "{:.0%}".format),
    }


def _format_rate(rate: float) -> str:
    """Format a bandwidth.

    >>> _format_rate(250e9), _format_rate(1.5e8), _format_rate(2e5)
    ('250.00 GB/s', '0.15 GB/s', '0.20 MB/s')
    """
    return f"{rate / 1e9:,.2f} GB/s" if rate >= 1e8 else f"{rate / 1e6:,.2f} MB/s"


def _format_lateness(skew: pd.DataFrame) -> list[dict[str, str]]:
    """Return one row per process: means over the steps, and the part in which it lost most."""
    steps = skew["step"].nunique()
    rows = []
    for (rank, host), own in skew.groupby(["rank", "host"]):
        parts = own.groupby("range")["late_ns"].sum() / steps
        worst = parts.idxmax()
        rows.append(
            {
                "rank": f"{rank}",
                "host": str(host),
                "last": f"{own['last'].sum():,} of {own['operations'].sum():,}",
                "late": duration(max(parts.sum(), 0.0)),
                "part": f"{worst or BETWEEN} ({duration(parts[worst])})" if parts[worst] > 0 else "",
                "waiting": duration(own["waiting_ns"].sum() / steps),
            }
        )
    return rows
