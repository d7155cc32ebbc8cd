"""Puts the clocks of several hosts onto one, by operations that end on all of them at the same time."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.errors import DataError
from profzoo.op_costs.collectives import TOGETHER

# Part of the residuals that the stated error of aligned clocks covers.
COVERED = 0.95
# How the times of processes came to one clock: they share a host, or their operations end together.
SHARED, ENDS = "host", "ends"


@dataclass(frozen=True)
class Clocks:
    """How to put times onto the clock of the first rank's host.

    offsets_ns: what to subtract from the times of each host. kind: SHARED or ENDS. error_ns: largest deviation of the
    ends of an operation on two hosts, in COVERED of all cases; None with one host, whose clock needs no alignment.
    """

    offsets_ns: Mapping[str, int]
    kind: str
    error_ns: float | None


def align_clocks(operations: pd.DataFrame) -> Clocks:
    """Find the offsets of hosts' clocks.

    operations: one row per operation and process, with columns operation, collective, host, rank and end_ns.

    Raises:
        DataError: a host took part in no operation that ends on it and on another host together.
    """
    first = str(operations.sort_values("rank", kind="stable")["host"].iloc[0])
    hosts = sorted(set(operations["host"]))
    if len(hosts) == 1:
        return Clocks({first: 0}, SHARED, None)
    together = operations[operations["collective"].isin(TOGETHER)]
    # Times since 1970 in ns are too large for floating-point numbers, which the pivot makes of them.
    together = together.assign(end_ns=together["end_ns"] - operations["end_ns"].min())
    ends = together.pivot_table(index="operation", columns="host", values="end_ns", aggfunc="max")
    offsets = {first: 0}
    while missing := [host for host in hosts if host not in offsets]:
        known = [host for host in offsets if host in ends]
        found = {host: _offset(ends, host, known, offsets) for host in missing if host in ends}
        reached = {host: offset for host, offset in found.items() if offset is not None}
        if not reached:
            raise DataError(
                f"the clock of {missing[0]} cannot be compared with that of {first}: no collective operation joins them"
            )
        offsets |= reached
    aligned = ends[hosts] - pd.Series(offsets)
    residuals = aligned.sub(aligned.median(axis=1), axis=0).abs().stack()
    return Clocks(offsets, ENDS, float(residuals.quantile(COVERED)) * 2)


def _offset(ends: pd.DataFrame, host: str, known: list[str], offsets: Mapping[str, int]) -> int | None:
    """Return the offset of a host's clock from that of the known hosts; None if no operation joins them."""
    reference = (ends[known] - pd.Series({one: offsets[one] for one in known})).median(axis=1)
    apart = (ends[host] - reference).dropna()
    return round(apart.median()) if len(apart) else None
