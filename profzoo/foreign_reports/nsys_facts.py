"""Reads what an export of Nsight Systems (SQLite) says of itself: version, GPU, driver, date."""

import sqlite3
from typing import Any

from profzoo.foreign_reports import sidecars
from profzoo.tools.nsys.export_columns import existing_columns
from profzoo.tools.nsys.trace import KERNEL_TABLE

DRIVERS = ("NvDriverVersion", "NvidiaDriverVersion", "NVIDIA driver version")


def read_facts(database: sqlite3.Connection) -> dict[str, Any]:
    """Return `device`, `started`, `driver` and `tool_version`, as far as the export has them."""
    found: dict[str, Any] = {"device": _device(database), "started": _started(database)}
    versions = dict(_rows(database, "META_DATA_EXPORT", "name", "value"))
    if version := versions.get("EXPORT_PRODUCT_VERSION"):
        found["tool_version"] = f"NVIDIA Nsight Systems version {version}"
    system = {str(name).replace(" ", "").lower(): value for name, value in
              _rows(database, "TARGET_INFO_SYSTEM_ENV", "name", "value")}  # fmt: skip
    driver = next((value for name in DRIVERS if (value := system.get(name.replace(" ", "").lower()))), None)
    # Without a GPU the driver is 0.
    return found | ({"driver": str(driver)} if driver and str(driver) != "0" else {})


def _device(database: sqlite3.Connection) -> str:
    """Return the name of the GPU that ran most launches."""
    names = dict(_rows(database, "TARGET_INFO_GPU", "id", "name"))
    used = None
    if "deviceId" in existing_columns(database, KERNEL_TABLE):
        used = database.execute(
            f"SELECT deviceId FROM {KERNEL_TABLE} GROUP BY deviceId ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
    return sidecars.device_name(names, used[0] if used else None)


def _started(database: sqlite3.Connection) -> str:
    rows = _rows(database, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "utcEpochNs")
    return sidecars.date_of(rows[0][0]) if rows and isinstance(rows[0][0], int) else ""


def _rows(database: sqlite3.Connection, table: str, *columns: str) -> list[tuple[Any, ...]]:
    if not set(columns) <= existing_columns(database, table):
        return []
    return database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
