"""Computes the theoretical occupancy of a launch, what limits it, and what it would be with fewer resources.

The rules are those of CUDA's occupancy calculator for GPUs of compute capability 7.0 and later: registers are allocated
per warp in units of 256, each of the four partitions of an SM holds a quarter of its 65,536 registers, and blocks share
the shared memory of an SM. tests/unit/test_occupancy.py compares the result with ncu's own for every launch of recorded
cells, and what other numbers of registers and threads would give with the curves that ncu computes.
"""

from dataclasses import dataclass, replace

WARP_THREADS = 32
REGISTERS_PER_SM, PARTITIONS, REGISTER_UNIT = 65_536, 4, 256
MAX_THREADS = 1024
# Unit in which shared memory is allocated: of GPUs that reserve some of it per block (from compute capability 8.0 on),
# and of earlier ones.
SHARED_UNIT, EARLIER_SHARED_UNIT = 128, 256
REGISTERS, SHARED, WARPS, BLOCKS, BARRIERS = LIMITERS = ("registers", "shared memory", "warps", "blocks", "barriers")


@dataclass(frozen=True)
class Resources:
    """What a launch needs, and what an SM has.

    Attributes:
        threads: threads of a block.
        registers: registers of a thread.
        shared_bytes: shared memory allocated for a block, with what the driver reserves.
        reserved_bytes: the part of it that the driver reserves.
        capacity_bytes: shared memory of an SM, as it was configured for the launch.
        most_warps, most_blocks: warps and blocks that an SM can hold.
        most_by_barriers: blocks that an SM can hold with the barriers that a block uses.
    """

    threads: int
    registers: int
    shared_bytes: int
    reserved_bytes: int
    capacity_bytes: int
    most_warps: int
    most_blocks: int
    most_by_barriers: int

    @property
    def warps(self) -> int:
        """Return the warps of a block; a block has at least one."""
        return max(-(-self.threads // WARP_THREADS), 1)


def limit_blocks(given: Resources) -> dict[str, int]:
    """Return the blocks that an SM can hold at once, by what limits them (LIMITERS).

    >>> limit_blocks(Resources(128, 166, 17_920, 1024, 135_168, 64, 32, 32))
    {'registers': 3, 'shared memory': 7, 'warps': 16, 'blocks': 32, 'barriers': 32}
    """
    per_warp = max(-(-given.registers * WARP_THREADS // REGISTER_UNIT), 1) * REGISTER_UNIT
    warps = REGISTERS_PER_SM // PARTITIONS // per_warp * PARTITIONS
    shared = given.capacity_bytes // given.shared_bytes if given.shared_bytes else given.most_blocks
    by_warps = given.most_warps // given.warps
    return dict(
        zip(LIMITERS, (warps // given.warps, shared, by_warps, given.most_blocks, given.most_by_barriers), strict=True)
    )


def resident_warps(given: Resources) -> int:
    """Return the warps that an SM can hold at once."""
    return min(limit_blocks(given).values()) * given.warps


def occupancy_pct(given: Resources) -> float:
    """Return the theoretical occupancy in %.

    >>> occupancy_pct(Resources(128, 166, 17_920, 1024, 135_168, 64, 32, 32))
    18.75
    """
    return 100 * resident_warps(given) / given.most_warps


def name_limiters(given: Resources) -> str:
    """Return what limits the occupancy, joined by ` + ` if several limits are equal; empty if the SM is full.

    >>> name_limiters(Resources(256, 202, 50_176, 1024, 65_536, 64, 32, 32))
    'registers + shared memory'
    """
    if resident_warps(given) >= given.most_warps:
        return ""
    limits = limit_blocks(given)
    least = min(limits.values())
    if given.most_by_barriers >= given.most_blocks:
        # ncu has the most blocks there, if barriers limit nothing.
        del limits[BARRIERS]
    return " + ".join(name for name, blocks in limits.items() if blocks == least)


def next_registers(given: Resources) -> int | None:
    """Return the largest number of registers per thread, below the present one, with which more warps fit; else None.

    >>> next_registers(Resources(128, 166, 17_920, 1024, 135_168, 64, 32, 32))
    128
    """
    unit = REGISTER_UNIT // WARP_THREADS
    now = resident_warps(given)
    fewer = range((given.registers - 1) // unit * unit, 0, -unit)
    return next((count for count in fewer if resident_warps(replace(given, registers=count)) > now), None)


def next_shared_bytes(given: Resources) -> int | None:
    """Return the most shared memory of a block, with the reserved part, with which more warps fit; None if less does
    not help.

    >>> next_shared_bytes(Resources(128, 80, 26_624, 1024, 167_936, 64, 32, 32)) is None
    True
    >>> next_shared_bytes(Resources(128, 32, 26_624, 1024, 167_936, 64, 32, 32))
    23936
    """
    unit = SHARED_UNIT if given.reserved_bytes else EARLIER_SHARED_UNIT
    now = min(limit_blocks(given).values())
    fitting = given.capacity_bytes // (now + 1) // unit * unit
    if not given.reserved_bytes <= fitting < given.shared_bytes or not fitting:
        return None
    return fitting if resident_warps(replace(given, shared_bytes=fitting)) > resident_warps(given) else None


def best_threads(given: Resources) -> int | None:
    """Return the block size, in whole warps, with which the most warps fit, the nearest of several; None if the present
    one is among the best.

    Registers of a thread and shared memory of a block are taken to stay as they are.

    >>> best_threads(Resources(192, 32, 1024, 1024, 32_768, 64, 32, 32))
    128
    """
    sizes = range(WARP_THREADS, MAX_THREADS + 1, WARP_THREADS)
    fitting = {size: resident_warps(replace(given, threads=size)) for size in sizes}
    most = max(fitting.values())
    if resident_warps(given) >= most:
        return None
    best = [size for size, warps in fitting.items() if warps == most]
    return min(best, key=lambda size: (abs(size - given.threads), size))


def apply_change(given: Resources, name: str, value: int | None) -> tuple[int, float] | None:
    """Return a changed value and the occupancy in % with it; None without a value. name: attribute of Resources."""
    return None if value is None else (value, occupancy_pct(replace(given, **{name: value})))
