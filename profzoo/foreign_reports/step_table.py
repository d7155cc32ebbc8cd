"""Makes the table of steps of an imported cell, by what its reports tell of them."""

import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv, write_json
from profzoo.tools.time import tables

STEPS: fact.Needs = {
    "device": fact.TEXT,
    "imported": {"steps_from": fact.TEXT, "wall_ns": fact.LIST, "gpu_ns": fact.or_null(fact.LIST)},
}
# What only whoever ran the program knows.
UNKNOWN = ("parameters", "batch", "items", "peak_memory_bytes", "peak_rss_bytes", "loss", "cpu_taken_share")
BY = {"torch": "torch.profiler", "nsys": "Nsight Systems", "ncu": "Nsight Compute"}


def main(told: Sequence[str], steps: str, sidecar: str) -> None:
    """Write the steps as the first of several sidecars tells them, and the sidecar of the table.

    told: sidecars of a cell's imported reports, that of the surest tool first.
    """
    facts = [read_json(path, STEPS) for path in told]
    first = facts[0]
    own = first["imported"]
    gpu_ns = own["gpu_ns"]
    table = pd.DataFrame({"step": range(len(own["wall_ns"])), "wall_ns": own["wall_ns"]})
    table["gpu_ns"] = pd.array(gpu_ns or [None] * len(table), dtype="Int64")
    table["items"] = pd.array([None] * len(table), dtype="Int64")
    write_csv(table[[name for name in tables.TABLE.columns if name in table]], steps)
    write_json(_facts(first, facts, gpu_ns or own["wall_ns"]), sidecar)


def _facts(first: dict[str, Any], facts: Sequence[dict[str, Any]], clock: Sequence[int]) -> dict[str, Any]:
    """Return what the table's sidecar says: as of a baseline, with null for what is not known."""
    known = {
        key: next((one[key] for one in facts if one.get(key)), first.get(key))
        for key in ("device", "started", "torch", "cuda", "driver")
    }
    kept = {key: value for key, value in first.items() if key not in ("traced_steps", "left_out", "capture")}
    about = {
        "steps_from": f"{first['imported']['steps_from']}, as {BY[first['tool']]} saw them",
        "files": [file for one in facts for file in one["imported"]["files"]],
        "coverage": [f"{BY[one['tool']]}: {line}" for one in facts for line in one["imported"].get("coverage", [])],
        "whole": bool(first["imported"].get("whole")),
    }
    return {
        **kept,
        **{key: value for key, value in known.items() if value is not None or key == "cuda"},
        **dict.fromkeys(UNKNOWN),
        "tool": "time",
        "steps": len(clock),
        "step_ns": float(statistics.median(clock)),
        "imported": about,
    }
