"""Reads the instants of a trace at which memory was taken or given back, which `torch.memory` records."""

from profzoo.json_types import JsonObject

CATEGORY, NAME = "cpu_instant_event", "[memory]"
# What an instant tells: when, bytes taken (negative: given back), totals of the device's allocator after it, and where.
COLUMNS = ("start", "bytes", "allocated", "reserved", "device_type", "device", "address")
KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr")
# Columns that may need 64 bits.
WIDE = ("bytes", "allocated", "reserved", "address")


def read_event(event: JsonObject) -> tuple[int, ...] | None:
    """Return COLUMNS of an instant of memory; None for any other event, and for one that tells less.

    Times are in ns, sizes in bytes.

    >>> told = {"Bytes": -8, "Total Allocated": 0, "Total Reserved": 64, "Device Type": 1, "Device Id": 0, "Addr": 9}
    >>> read_event({"cat": CATEGORY, "name": NAME, "ts": 1.5, "args": told})
    (1500, -8, 0, 64, 1, 0, 9)
    """
    if event.get("cat") != CATEGORY or event.get("name") != NAME:
        return None
    start, told = event.get("ts"), event.get("args")
    if not isinstance(start, int | float) or not isinstance(told, dict):
        return None
    values = [value for key in KEYS if isinstance(value := told.get(key), int)]
    return (round(start * 1000), *values) if len(values) == len(KEYS) else None
