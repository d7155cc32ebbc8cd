"""Compares the kernel tables of all cells with the peaks of the GPU that they ran on."""

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tables import roofline, schemas
from profzoo.tables.schemas import CELL, LAUNCH

LEVELS = {
    "cell": [],
    "class": ["class"],
    "range": ["range"],
    "launch": LAUNCH,
}
LEADING = ["level", *CELL, *LEVELS["launch"]]


def make_roofline(kernels: pd.DataFrame, peaks: dict[str, float]) -> pd.DataFrame:
    """Return one row per cell, then per class, range, and launch configuration by range.

    Times and counts are per launch in rows of launch configurations, and per step in all others. `counted_share` is the
    share of the GPU time that has counters.
    """
    frames = [
        roofline.bound_groups(kernels, [*CELL, *LEVELS[level]], peaks).assign(level=level)
        for level in ("cell", "class", "range")
    ]
    launches = roofline.bound_launches(kernels, peaks).assign(level="launch")
    launches["counted_share"] = launches["bound"].ne("").astype("float64")
    frames.append(pd.concat([kernels[[*CELL, *LEVELS["launch"]]], launches], axis=1))
    return pd.concat(frames, ignore_index=True).reindex(columns=[*LEADING, "counted_share", *roofline.COLUMNS])


def main(kernels: str, cells: str, peaks: str, csv: str) -> None:
    """Read the tables and write the CSV; raise DataError if cells ran on another device than the peaks."""
    measured, ran = (
        read_json(f"{peaks}.json", {"device": fact.TEXT})["device"],
        set(schemas.read_table("cells", cells)["device"]),
    )
    if ran != {measured}:
        others = ", ".join(sorted(ran - {measured}))
        raise DataError(
            f"{peaks} was measured on {measured}, but cells ran on {others}: measure the peaks of {others} under "
            "another name, and set the key gpu to that name"
        )
    write_csv(make_roofline(schemas.read_table("kernels", kernels), roofline.read_peaks(peaks)), csv)
