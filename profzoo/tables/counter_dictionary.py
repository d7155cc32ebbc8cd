"""What the columns of the tables mean that are made of ncu's counters alone: occupancy, memory chart, pipes, states."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, FRACTION, GPU, NINE_OF_TEN, RATIO, Column

_RESIDENT = "Blocks that an SM can hold at once with"
_OCCUPANCY = "Warps that an SM can hold, of the most that fit"
_GROUPS: Mapping[str, Column] = {
    "level": Column("`cell` for all kernels, or `class` for one class of them."),
    "class": Column("Class of kernels by their names; empty for the whole cell."),
    "launches": Column("Launches per step.", COUNT),
    "total_ns": Column("GPU time of these launches per step, by the census.", "ns", clock=GPU),
    "counted_share": Column(
        "Share of `total_ns` in launches that ncu counted or that counted ones stand for. Nothing is filled in for the "
        "others.",
        FRACTION,
        clock=GPU,
    ),
}
OCCUPANCY: Mapping[str, Column] = {
    **{name: _GROUPS[name] for name in ("launches", "total_ns")},
    "threads": Column("Threads of a block.", COUNT, "ncu"),
    "shared_bytes": Column("Shared memory allocated for a block, with `reserved_bytes`.", "byte", "ncu"),
    "reserved_bytes": Column("Part of it that the driver reserves.", "byte", "ncu"),
    "capacity_bytes": Column("Shared memory of an SM, as the driver configured it for the launch.", "byte", "ncu"),
    "limit_registers": Column(f"{_RESIDENT} the registers of these blocks.", COUNT, "ncu"),
    "limit_shared": Column(f"{_RESIDENT} the shared memory of these blocks.", COUNT, "ncu"),
    "limit_warps": Column(f"{_RESIDENT} the warps of these blocks.", COUNT, "ncu"),
    "limit_blocks": Column("Blocks that an SM can hold at once in any case.", COUNT, "ncu"),
    "limit_barriers": Column(f"{_RESIDENT} the barriers of these blocks.", COUNT, "ncu"),
    "theoretical_pct": Column("Theoretical occupancy by ncu: warps that could be resident.", "%", "ncu"),
    "computed_pct": Column("The same as profzoo computes it from registers, shared memory and block size.", "%"),
    "limiter": Column(
        "What limits the occupancy: `registers`, `shared memory`, `warps`, `blocks` or `barriers`; empty if nothing "
        "does, or if ncu has another theoretical occupancy than computed."
    ),
    "achieved_pct": Column("Achieved occupancy: warps that were resident, while an SM had any.", "%", "ncu"),
    "waves": Column("Waves per SM: blocks of the grid, of the blocks that the GPU holds at once.", RATIO, "ncu"),
    "registers_next": Column("Registers per thread to go down to, for more warps to fit; empty if none do.", COUNT),
    "registers_next_pct": Column(f"{_OCCUPANCY}, with `registers_next`.", "%"),
    "shared_next_bytes": Column(
        "Shared memory per block to go down to, with `reserved_bytes`, for more warps to fit; empty if none do.", "byte"
    ),
    "shared_next_pct": Column(f"{_OCCUPANCY}, with `shared_next_bytes`.", "%"),
    "threads_best": Column(
        "Threads per block with which the most warps fit, with as many registers per thread and as much shared memory "
        "per block; empty if none fit better.",
        COUNT,
    ),
    "threads_best_pct": Column(f"{_OCCUPANCY}, with `threads_best`.", "%"),
}
MEMORY_CHART: Mapping[str, Column] = {
    **_GROUPS,
    "link": Column(
        "What the bytes are: loads and stores of global, local and shared memory, reads and writes of L2, DRAM and the "
        "host's memory; `l1`, `l2` and `dram` are both directions together."
    ),
    "source": Column("Part of the memory system that the bytes come from; SM stands for its registers."),
    "target": Column("Part of the memory system that the bytes go to."),
    "bytes": Column(
        "Bytes per step, of the launches that `counted_share` is about. Those of shared memory are wavefronts of 128 "
        "bytes, so bank conflicts count.",
        "byte", "ncu", interval=NINE_OF_TEN,
    ),
    "bytes_per_s": Column("The same bytes per second of these launches' GPU time.", "byte/s", "ncu", GPU),
    "peak_pct": Column("Part of the link's peak bandwidth by ncu, as a mean over the launches' time.", "%", "ncu"),
    "hit_pct": Column("Sectors that the cache at this link answers (hit rate).", "%", "ncu"),
    "otherwise_bytes": Column(
        "Bytes of this link by a counter of another unit, as a check. L2 may be asked for less than SMs get or send, "
        "by what several of them read, and by additions to memory.",
        "byte", "ncu",
    ),
}  # fmt: skip
PIPES: Mapping[str, Column] = {
    **_GROUPS,
    "pipe": Column("Pipe of the SM, such as `FMA`, `ALU`, `tensor`, `XU` or `LSU`."),
    "busy_pct": Column("How busy the pipe is, of its peak, while an SM has warps.", "%", "ncu"),
    "counted": Column("What was counted: `cycles` in which the pipe was active, or `instructions` that it executed."),
}
WARP_STATES: Mapping[str, Column] = {
    **_GROUPS,
    "state": Column(
        "State of a warp, by ncu's name for why it does not issue; `selected` when it issues, `unknown` for what was "
        "not collected."
    ),
    "cycles": Column("Cycles in this state per instruction that a warp issues.", "cycles", "ncu"),
    "share": Column("Part of a warp's time; the states of a group add up to 1.", FRACTION, "ncu"),
    "warp_cycles": Column("Cycles from a warp's instruction to its next, by a metric of its own.", "cycles", "ncu"),
}
