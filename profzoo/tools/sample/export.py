"""Exports the samples of a cell's window to one tidy CSV."""

from collections.abc import Callable

import pandas as pd

from profzoo.errors import DataError
from profzoo.files import read_json, write_csv, write_json
from profzoo.reading import facts as fact
from profzoo.reading import tables as reading
from profzoo.tools.sample import tables

NEEDS: fact.Needs = {
    "window_began_ns?": fact.COUNT,
    "window_wall_ns": fact.COUNT,
    "device_uuid?": fact.maybe(fact.TEXT),
    "ranks?": fact.PROCESSES,
    "warnings": fact.LIST,
}


def main(samples: str, samples_sidecar: str, csv: str, sidecar: str, say: Callable[[str], object] = print) -> None:
    """Read the sampler's file and its sidecar, write the CSV and its own.

    That is the samples' and, besides, `samples` (of the GPU that has the fewest), `interval_reached_ms`, how power is
    to be taken, the GPUs' power limits, and `gaps`: why they say nothing of the cell.

    Raises:
        DataError: there is no sample, or the run did not say when its window began.
    """
    facts, raw = read_json(samples_sidecar, NEEDS), reading.read(samples, tables.SAMPLES)
    if raw.empty or "window_began_ns" not in facts:
        raise DataError(f"{samples} holds nothing that can be told from the rest of the run: collect it again")
    table = tables.within(raw, facts["window_began_ns"], facts["window_wall_ns"])
    ran_on = [one["device_uuid"] for one in facts.get("ranks", [facts]) if one["device_uuid"]]
    gaps = tables.gaps(table, facts["window_wall_ns"], ran_on)
    for gap in gaps:
        say(f"{csv}: {gap}")
    limits = raw.groupby("gpu_uuid")["power_limit_mw"].first() / 1e3
    more = {
        "samples": int(table.groupby("gpu_uuid").size().min()) if len(table) else 0,
        "interval_reached_ms": tables.interval_ms(table),
        "power_is": raw["power_is"].iloc[0],
        "power_limits_w": {uuid: limit for uuid, limit in limits.items() if pd.notna(limit)},
        "gaps": gaps,
        "warnings": [*facts["warnings"], *gaps],
    }
    write_csv(table, csv)
    write_json({**facts, **more}, sidecar)
