"""Reads GPU values from NVML, the driver's library, through NVIDIA's own binding (nvidia-ml-py)."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

LIBRARY = "libnvidia-ml.so.1"
# Values of a reading.
READ = ("power_mw", "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "gpu_utilisation_pct",
        "memory_utilisation_pct", "memory_used_bytes", "throttle_reasons", "energy_mj")  # fmt: skip
# Reasons that lower a GPU's clock rate.
REASONS = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal slowdown by software",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "thermal slowdown by hardware",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}
INSTANT, MEAN = "instant", "mean of the last second"


class NvmlError(RuntimeError):
    """NVML is missing or refuses a call; the message begins with `NVML: `."""


class NoNvmlError(NvmlError):
    """NVML is missing."""


class Nvml:
    """The library, initialised."""

    def __init__(self) -> None:
        """Load and initialise the library.

        Raises:
            NoNvmlError: the library is missing.
            NvmlError: it finds no driver.
        """
        try:
            # The binding loads it by the same name, and does not say why that fails.
            ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoNvmlError(f"NVML: {error}") from error
        self.call(pynvml.nvmlInit)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of one of the binding's functions.

        Raises:
            NvmlError: NVML refuses the call.
        """
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML: {function.__name__}: {error}") from error

    def driver(self) -> str:
        """Return the driver's version."""
        return str(self.call(pynvml.nvmlSystemGetDriverVersion))

    def present(self) -> list[dict[str, str]]:
        """Return name and UUID of each GPU, in the order of nvidia-smi."""
        found = []
        for number in range(self.call(pynvml.nvmlDeviceGetCount)):
            handle = self.call(pynvml.nvmlDeviceGetHandleByIndex, number)
            name, uuid = (self.call(one, handle) for one in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetUUID))
            found.append({"gpu": name, "gpu_uuid": uuid})
        return found

    def device(self, uuid: str) -> "Device":
        """Return the GPU, or the part of a GPU (MIG), with this UUID."""
        return Device(uuid, self.call(pynvml.nvmlDeviceGetHandleByUUID, uuid))


class Device:
    """A GPU, read value by value; a value that the GPU does not report is None."""

    def __init__(self, uuid: str, handle: Any) -> None:
        """Keep the GPU's UUID and the handle that the library gave it."""
        self.uuid, self._handle = uuid, handle
        instant = self._instant_power_mw()
        # How its power is to be taken: INSTANT or MEAN.
        self.power_is = MEAN if instant is None else INSTANT
        self.power_limit_mw = self._told(pynvml.nvmlDeviceGetEnforcedPowerLimit)

    def reading(self) -> dict[str, int | None]:
        """Return the current values, in NVML's own units.

        Utilisation is the share of NVML's last sample period (1/6 to 1 s) in which kernels or copies ran, in percent.
        Memory that the driver keeps for itself counts as used.
        """
        told, instant = self._told, self.power_is == INSTANT
        used, memory = told(pynvml.nvmlDeviceGetUtilizationRates), told(pynvml.nvmlDeviceGetMemoryInfo)
        return {
            "power_mw": self._instant_power_mw() if instant else told(pynvml.nvmlDeviceGetPowerUsage),
            "sm_clock_mhz": told(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": told(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "temperature_c": told(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            "gpu_utilisation_pct": used and used.gpu,
            "memory_utilisation_pct": used and used.memory,
            "memory_used_bytes": memory and memory.used,
            # Drivers before 535 have it by no other name.
            "throttle_reasons": told(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
            "energy_mj": told(pynvml.nvmlDeviceGetTotalEnergyConsumption),
        }

    def _told(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return the result of one of the binding's functions for this GPU; None if GPU or driver do not support it."""
        try:
            return function(self._handle, *given)
        except pynvml.NVMLError:
            return None

    def _instant_power_mw(self) -> int | None:
        """Return the power at this moment in mW; None before driver 530.

        nvmlDeviceGetPowerUsage returns a mean over one second on GPUs since Ampere, except GA100.
        """
        fields = self._told(pynvml.nvmlDeviceGetFieldValues, [pynvml.NVML_FI_DEV_POWER_INSTANT])
        return fields[0].value.uiVal if fields and not fields[0].nvmlReturn else None


@contextmanager
def open_library() -> Iterator[Nvml]:
    """Load NVML while the body runs.

    Raises:
        NvmlError: the library is missing, or finds no driver.
    """
    library = Nvml()
    try:
        yield library
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
