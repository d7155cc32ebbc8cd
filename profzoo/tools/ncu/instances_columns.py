"""Declares the table of metrics with several values per launch."""

from collections.abc import Mapping

from profzoo.io import column_types
from profzoo.io.columns import GPU, Column
from profzoo.io.csv_tables import Table

_NCU = "ncu"
OF_KERNEL = ("place", "id", "function", "mangled")
ABOUT: Mapping[str, Column] = {
    "place": Column("Place of the kernel among those of the report by GPU time, the most expensive first."),
    "id": Column("Number of the launch in the report, of those of this kernel the longest one.", tool=_NCU),
    "metric": Column("Metric under NVIDIA's name; before a point or colon what samples it, such as `pmsampling:`."),
    "unit": Column("Unit of `value`; empty where ncu names none."),
    "kind": Column(
        "What the values differ in: `time` (PM sampling), `opcode`, `occupancy` (warps of an SM by block, registers or "
        "shared memory), `link` (GPUs and links), or `other`."
    ),
    "instance": Column("What this value is of, as ncu says it, such as an opcode; empty for samples over time."),
    "time_ns": Column(
        "Time of the sample from the start of the kernel in the replay that took it; negative before the kernel.",
        "ns",
        _NCU,
        GPU,
    ),
    "value": Column("The value, where it is a number.", "see unit", _NCU),
    "text": Column("The value, where it is no number.", tool=_NCU),
}
_TEXTS = ("function", "mangled", "metric", "unit", "kind", "instance", "text")
TABLE = Table(
    columns={name: column_types.TEXT if name in _TEXTS else column_types.COUNT for name in (*OF_KERNEL, *ABOUT)}
    | {
        "time_ns": column_types.or_missing(column_types.WHOLE),
        "value": column_types.or_missing(column_types.NUMBER),
    },
    about=ABOUT,
)
