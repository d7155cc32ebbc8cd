"""Names the columns of the table of source lines, and says what each of them means."""

import re
from collections.abc import Mapping

from profzoo.io import column_types
from profzoo.io.column_types import Kind
from profzoo.io.columns import COUNT, FRACTION, Column
from profzoo.io.csv_tables import Table

# Values of the column `level`.
OF_LINE, OF_INSTRUCTION = "line", "instruction"
SAMPLES, EXECUTED, LOADS, STORES = "samples", "inst_executed", "local_loads", "local_stores"
# Instructions that access local memory, in which the compiler keeps spilled registers.
LOCAL = {"LDL": LOADS, "STL": STORES}

# Names by the labels that ncu prints; of a name with several labels the first one counts that a page has.
NAMES: Mapping[str, str] = {
    "# Samples": SAMPLES,
    "Warp Stall Sampling (All Samples)": SAMPLES,
    "Warp Stall Sampling (All Cycles)": SAMPLES,
    "Warp Stall Sampling (Not-issued Samples)": "samples_not_issued",
    "Warp Stall Sampling (Not-issued Cycles)": "samples_not_issued",
    "Instructions Executed": EXECUTED,
    "Thread Instructions Executed": "thread_inst_executed",
    "Predicated-On Thread Instructions Executed": "thread_inst_executed_true",
    "L2 Theoretical Sectors Local": "l2_sectors_local",
    "L2 Theoretical Sectors Global": "l2_sectors_global",
    "L2 Theoretical Sectors Global Ideal": "l2_sectors_global_ideal",
    "L2 Theoretical Sectors Global Excessive": "l2_sectors_global_excessive",
}
# ncu's short names of stall reasons, with the names of their metrics.
REASONS = {
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instructions",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
}
STALL = re.compile(r"stall_(\w+)( \(Not[ -]Issued\))?", re.IGNORECASE)
# Means and widths, which do not add up over instructions.
NOT_ADDITIVE = re.compile(r"avg_|l1_conflicts_shared_n_way|access_size|.*registers|.*_pct$|.*policies$")


def name_column(label: str) -> str:
    """Return the name of the column for a label of ncu's source page.

    >>> name_column("# Samples"), name_column("stall_long_sb (Not Issued)"), name_column("L1 Tag Requests Global")
    ('samples', 'stall_long_scoreboard_not_issued', 'l1_tag_requests_global')
    """
    if found := STALL.fullmatch(label):
        reason = found[1].lower()
        return f"stall_{REASONS.get(reason, reason)}{'_not_issued' if found[2] else ''}"
    return NAMES.get(label) or re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


def adds_up(name: str) -> bool:
    """Return whether the values of a column add up over instructions.

    >>> adds_up("inst_executed"), adds_up("avg_threads_executed")
    (True, False)
    """
    return not NOT_ADDITIVE.match(name)


_NCU = "ncu"
ABOUT: Mapping[str, Column] = {
    "place": Column("Place of the kernel among those of the report by GPU time, the most expensive first."),
    "id": Column("Number of the launch in the report, of those of this kernel the longest one.", tool=_NCU),
    "level": Column("`line` (sums over the instructions of a source line) or `instruction` (SASS)."),
    "file": Column("Source file; empty where the kernel has no table of lines, or ncu did not find its source."),
    "line": Column("Number of the source line, from 1."),
    "source": Column("The source line."),
    "offset_bytes": Column("Address of the instruction from the first one of the kernel.", "byte"),
    "sass": Column("The machine instruction (SASS)."),
    "opcode": Column("Name of the machine instruction without modifiers."),
    "share": Column("Part of the kernel's warp samples.", FRACTION, _NCU),
    SAMPLES: Column("Samples of warps that were at this place (`smsp__pcsamp_sample_count`).", COUNT, _NCU),
    "samples_not_issued": Column("The same in cycles in which the scheduler issued no instruction.", COUNT, _NCU),
    EXECUTED: Column("Instructions that warps executed (`inst_executed`).", "instructions", _NCU),
    "thread_inst_executed": Column("The same, counted by thread.", "instructions", _NCU),
    "thread_inst_executed_true": Column("The same of threads that their guard lets through.", "instructions", _NCU),
    LOADS: Column("Loads from local memory (LDL): spilled registers and indexed arrays.", "instructions", _NCU),
    STORES: Column("Stores to local memory (STL): spilled registers and indexed arrays.", "instructions", _NCU),
    "l2_sectors_local": Column("Sectors of 32 bytes that local memory would ask L2 for.", "sectors", _NCU),
    "l2_sectors_global": Column("Sectors of 32 bytes that global memory would ask L2 for.", "sectors", _NCU),
    "l2_sectors_global_ideal": Column("The same with accesses side by side.", "sectors", _NCU),
    "l2_sectors_global_excessive": Column("Sectors beyond these.", "sectors", _NCU),
    "stall_*_not_issued": Column("Samples of warps that waited so while the scheduler was idle.", COUNT, _NCU),
    "stall_*": Column(
        "Samples of warps that waited for this reason (`smsp__pcsamp_warps_issue_stalled_*`); `selected` is no wait.",
        COUNT,
        _NCU,
    ),
    "*": Column("Counter that this version of ncu prints besides, named as on its source page.", "see name", _NCU),
}
OF_KERNEL = ("place", "id", "function", "mangled")
TEXTS = ("function", "mangled", "level", "file", "source", "sass", "opcode")
LEADING = (*OF_KERNEL, "level", "file", "line", "source", "offset_bytes", "sass", "opcode")
_MISSING = column_types.or_missing(column_types.COUNT)
_NUMBER = column_types.or_missing(column_types.NUMBER)


def _other(name: str) -> Kind:
    return column_types.MEASURED


TABLE = Table(
    columns={name: column_types.TEXT if name in TEXTS else column_types.COUNT for name in LEADING}
    | dict.fromkeys(("line", "offset_bytes"), _MISSING),
    # What a report lacks that was collected without the section SourceCounters, or by an older ncu.
    optional=dict.fromkeys([name for name in ABOUT if name not in LEADING and "*" not in name], _NUMBER),
    others=_other,
    about=ABOUT,
)
