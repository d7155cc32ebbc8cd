"""Tells which links a GPU has (NVLink, NUMA, C2C), by the columns of ncu's raw page that describe them."""

from collections.abc import Mapping, Sequence

import pandas as pd

# Families of columns, each with the columns of which one is not 0 where the GPU has such a link. `nvlink__max_count`
# is none of them, because it counts links that are not connected, too. Every GPU has an entry of the family numa; it
# says something where GPUs differ in it, or where the GPU's memory is a node.
FAMILIES: Mapping[str, Sequence[str]] = {
    "c2clink__": ("c2clink__present", "c2clink__enabled_mask"),
    "nvlink__": ("nvlink__enabled_mask", "nvlink__count_logical", "nvlink__count_physical"),
    "numa__": ("device__attribute_numa_config",),
}
DEVICES = "numa__dev_display_name_all"
# How ncu prints that a GPU has none, and that it does not know.
NONE = {"", "0", "n/a", "(!) n/a", "nan", "no data"}


def is_link(name: str) -> bool:
    """Return whether a column describes a link.

    >>> is_link("nvlink__bandwidth"), is_link("nvltx__bytes.sum")
    (True, False)
    """
    return name.startswith(tuple(FAMILIES))


def list_absent(raw: pd.DataFrame) -> tuple[str, ...]:
    """Return the families of columns about links that the GPU of a raw page does not have.

    raw: columns as text, as ncu prints them.

    >>> one = pd.DataFrame({"nvlink__enabled_mask": ["0"], "c2clink__present": ["1"], "numa__id_cpu": ["1"]})
    >>> list_absent(one), list_absent(one.assign(nvlink__enabled_mask="262143", numa__dev_display_name_all="2"))
    (('nvlink__', 'numa__'), ())
    """
    several = DEVICES in raw and any(value.isdecimal() and int(value) > 1 for value in raw[DEVICES].unique())
    present = {family for family, told in FAMILIES.items() if any(_holds(raw, name) for name in told)}
    present |= {"numa__"} if several else set()
    return tuple(family for family in FAMILIES if family not in present)


def _holds(raw: pd.DataFrame, name: str) -> bool:
    return name in raw and any(value.strip().lower() not in NONE for value in raw[name].unique())
