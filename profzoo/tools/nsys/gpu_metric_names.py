"""Maps the GPU metrics that nsys samples to columns; their names differ between generations of GPUs and nsys.

Sources: the lists of metrics that nsys 2023.4 ships for Turing, GA100, GA10x, AD10x and GH100, and exports of GB20x by
nsys 2025.3. A name ends with its unit in brackets, as in `SMs Active [Throughput %]`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PERCENT, HERTZ = "%", "Hz"
# Units by their names in an export; clocks are in MHz or, under the same name, in Hz.
UNITS: Mapping[str, str] = {"Throughput %": PERCENT, "MHz": HERTZ}


@dataclass(frozen=True)
class Quantity:
    """A sampled quantity: what it is called in tables, in tracks and by nsys.

    name: column of tables without its unit. title: name of its track; empty for none. pattern: regular expression for
    the name by nsys without its unit; metrics that match are parts of the quantity and are added up. unit: PERCENT of
    the most that the hardware can do, or HERTZ. means: meaning, as the start of a sentence.
    """

    name: str
    title: str
    pattern: str
    means: str
    unit: str = PERCENT

    @property
    def column(self) -> str:
        """Name of the column with its unit."""
        return f"{self.name}_{'hz' if self.unit == HERTZ else 'pct'}"


QUANTITIES: Sequence[Quantity] = (
    Quantity("gr_active", "", r"GR Active", "Cycles in which the graphics and compute engine had work"),
    Quantity("sm_active", "SMs active", r"SMs? Active", "Cycles in which an SM had a warp, mean over all SMs"),
    Quantity("sm_issue", "", r"SM Issue", "Instructions issued, of the most that SMs can issue"),
    Quantity("tensor_active", "tensor cores", r"Tensor Active.*", "Cycles in which the tensor cores worked"),
    Quantity("warps", "", r"Compute Warps in Flight", "Warps of kernels in flight, of the most that SMs can hold"),
    Quantity("unused_warps", "", r"Unallocated Warps in Active SMs", "Free places for warps on SMs that had a warp"),
    Quantity("dram_read", "DRAM read", r"DRAM Read (Bandwidth|Throughput)", "Cycles in which DRAM was read"),
    Quantity("dram_write", "DRAM write", r"DRAM Write (Bandwidth|Throughput)", "Cycles in which DRAM was written"),
    Quantity("pcie_rx", "PCIe to GPU", r"PCIe RX Throughput", "PCIe traffic to the GPU, with protocol"),
    Quantity("pcie_tx", "PCIe from GPU", r"PCIe TX Throughput", "PCIe traffic from the GPU, with protocol"),
    Quantity("nvlink_rx", "NVLink to GPU", r"NVLink RX .*Data", "NVLink traffic to the GPU, with protocol"),
    Quantity("nvlink_tx", "NVLink from GPU", r"NVLink TX .*Data", "NVLink traffic from the GPU, with protocol"),
    Quantity("gpc_clock", "", r"GPC Clock Frequency", "Clock of the SMs", HERTZ),
    Quantity("sys_clock", "", r"SYS Clock Frequency", "Clock of the copy engines and the front end", HERTZ),
)
BY_NAME: Mapping[str, Quantity] = {quantity.name: quantity for quantity in QUANTITIES}


def find_quantity(metric: str) -> Quantity | None:
    """Return the quantity of a metric by its name in an export; None for metrics that no table holds.

    >>> metrics = "SM Active [Throughput %]", "GPC Clock Frequency [MHz]", "Compute Warps in Flight [Avg]"
    >>> [found and found.column for found in map(find_quantity, metrics)]
    ['sm_active_pct', 'gpc_clock_hz', None]
    """
    parts = re.fullmatch(r"(.*?)(?: \[(.*)\])?", metric)
    name, unit = (parts[1], parts[2]) if parts else (metric, None)
    # Exports of earlier versions name no unit.
    known = PERCENT if unit is None and "Clock" not in name else UNITS.get(unit or "MHz")
    return next((one for one in QUANTITIES if one.unit == known and re.fullmatch(one.pattern, name)), None)
