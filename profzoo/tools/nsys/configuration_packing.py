"""How a launch configuration is packed into three integers of at most 63 bits, by SQLite.

Fetching a column of a million rows into Python takes longer than all else.
"""

# Each part: (our name, nsys's name, bits); widths by CUDA's limits (grid 2^31-1 x 65535 x 65535, block 1024 x 1024 x
# 64, shared memory under 2^20 bytes, 255 registers).
PACKED = (
    (("mangled", "mangledName", 31), ("grid_x", "gridX", 31)),
    (
        ("grid_y", "gridY", 16),
        ("grid_z", "gridZ", 16),
        ("block_x", "blockX", 11),
        ("block_y", "blockY", 11),
        ("block_z", "blockZ", 7),
    ),
    (
        ("smem_static_bytes", "staticSharedMemory", 24),
        ("smem_dynamic_bytes", "dynamicSharedMemory", 24),
        ("registers", "registersPerThread", 9),
    ),
)
