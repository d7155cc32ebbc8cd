"""What the columns of the tables mean that are made of NVML's counters."""

from collections.abc import Mapping

from profzoo.io.columns import CPU, FRACTION, Column


def _nvml(means: str, unit: str = "", clock: str = "") -> Column:
    return Column(means, unit, "sample", clock)


GPU_STATE: Mapping[str, Column] = {
    "gpu_uuid": _nvml("UUID of the GPU."),
    "temperature_c": _nvml("Temperature of the GPU.", "°C"),
    "gpu_utilisation_pct": _nvml("Part of NVML's last sampling period in which a kernel ran.", "%"),
    "memory_utilisation_pct": _nvml("Part of NVML's last sampling period in which memory was read or written.", "%"),
    "memory_used_bytes": _nvml("GPU memory in use.", "byte"),
    "throttle_reasons": _nvml("Why the clock is lower than it could be, as a sum of NVML's bits."),
}
SAMPLES: Mapping[str, Column] = {
    **GPU_STATE,
    "process": Column("Number of the process, counted from 0."),
    "t_ns": _nvml("Time of the sample since the window began.", "ns", CPU),
    "power_w": _nvml("Power draw of the GPU.", "W"),
    "sm_clock_hz": _nvml("Clock of the SMs.", "Hz"),
    "memory_clock_hz": _nvml("Clock of the GPU's memory.", "Hz"),
    "energy_j": _nvml("Energy by the GPU's counter since the window's first sample.", "J"),
}
RAW: Mapping[str, Column] = {
    **GPU_STATE,
    "time_ns": _nvml("Time of the sample on the host's monotonic clock.", "ns", CPU),
    "power_is": _nvml("What NVML's power is: `instant`, or the mean of the last second."),
    "power_limit_mw": _nvml("Power limit of the GPU.", "mW"),
    "power_mw": _nvml("Power draw of the GPU.", "mW"),
    "sm_clock_mhz": _nvml("Clock of the SMs.", "MHz"),
    "memory_clock_mhz": _nvml("Clock of the GPU's memory.", "MHz"),
    "energy_mj": _nvml("Energy by the GPU's counter.", "mJ"),
}
# What the tool adds to the table of cells.
OF_CELL: Mapping[str, Column] = {
    "power_w": _nvml("Mean power of all GPUs of the cell together.", "W"),
    "step_energy_power_j": _nvml("Energy per step: power integrated over the window.", "J"),
    "step_energy_counter_j": _nvml("Energy per step by the GPUs' counters.", "J"),
    "item_energy_power_j": _nvml("Energy per sample of the data: power integrated over the window.", "J"),
    "item_energy_counter_j": _nvml("Energy per sample of the data by the GPUs' counters.", "J"),
    "energy_error": _nvml("One move of the energy counter, as a part of all its moves in the window.", FRACTION),
    "sm_clock_hz": _nvml("Mean clock of the SMs.", "Hz"),
    "sm_clock_high_hz": _nvml("Clock of the SMs that one sample in twenty exceeds.", "Hz"),
    "temperature_max_c": _nvml("Highest temperature.", "°C"),
    "throttled_share": _nvml("Part of the samples in which something slowed the GPU down.", FRACTION),
    "clocks": _nvml("How far the clock moved and what held it back; empty where it was steady."),
}
