"""Summarizes a finished measurement in a few words: time per step, GPU utilisation, rate."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from profzoo import formatting, tools
from profzoo.terminal import phrases
from profzoo.terminal.job_titles import Task, cell_folder

WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
# Larger traces are not read, because that takes too long for a summary.
LARGEST_BYTES = 200 << 20


def summarise_measurement(task: Task, took_s: float) -> list[str]:
    """Return the words that summarise a measurement, without unknown values; took_s: duration of the job in seconds."""
    sidecar = _read(Path(task.sidecar))
    tool = task.what.split()[0]
    found = []
    step = sidecar.get("step_ns")
    # A tool that counts runs launches alone, so its step takes many times as long.
    counting = tools.that(tools.COUNT)
    if tool in tools.names() and tool not in counting and isinstance(step, int | float) and step > 0:
        found.append(f"{formatting.duration(step)}/step")
        if (
            tool in tools.that(tools.TRACE)
            and (busy := _busy(cell_folder(task) / f"{task.cell.split()[-1]}.{tool}.sqlite")) is not None
        ):
            found.append(f"{busy:.0%} busy".replace("%", " %"))
        elif tool in tools.that(tools.TIME) and sidecar.get("steps") and sidecar.get("items"):
            rate = sidecar["items"] / sidecar["steps"] / step * 1e9
            found.append(f"{rate:,.0f} samples/s" if rate >= 100 else f"{rate:.3g} samples/s")
    elif tool in counting and isinstance(launches := (sidecar.get("plan") or {}).get("launches"), int):
        found.append(f"{launches:,} launches")
    return found or [f"in {phrases.format_duration(took_s)}"]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _busy(trace: Path) -> float | None:
    """Return the share of time in which the GPU works, between its first and last work in an nsys trace, 0 to 1."""
    try:
        if trace.stat().st_size > LARGEST_BYTES:
            return None
        database = sqlite3.connect(f"{trace.absolute().as_uri()}?mode=ro", uri=True)
    except (OSError, sqlite3.Error):
        return None
    try:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        parts = [f"SELECT start, end FROM {name}" for name in WORK if name in tables]
        spans = database.execute(f"{' UNION ALL '.join(parts)} ORDER BY start") if parts else iter(())
        return _covered(spans)
    except (sqlite3.Error, TypeError):
        # The file is no database, or lacks times.
        return None
    finally:
        database.close()


def _covered(spans: Any) -> float | None:
    first = reached = None
    busy = 0
    for start, end in spans:
        if reached is None:
            first = reached = start
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    return busy / (reached - first) if reached is not None and reached > first else None
