"""Reads what NVML tells of GPUs, by NVIDIA's own binding (nvidia-ml-py) of the library that comes with the driver."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

LIBRARY = "libnvidia-ml.so.1"
# What a reading holds.
READ = ("power_mw", "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "gpu_utilisation_pct",
        "memory_utilisation_pct", "memory_used_bytes", "throttle_reasons", "energy_mj")  # fmt: skip
# What slows a GPU down.
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
        """Load it.

        Raises:
            NoNvmlError: it is not there. NvmlError: it finds no driver.
        """
        try:
            # The binding loads it by the same name, and does not say why that fails.
            ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoNvmlError(f"NVML: {error}") from error
        self.call(pynvml.nvmlInit)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of one of the binding's functions.

        Raises:
            NvmlError: NVML refuses.
        """
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML: {function.__name__}: {error}") from error

    def driver(self) -> str:
        """Return the driver's version."""
        return str(self.call(pynvml.nvmlSystemGetDriverVersion))

    def present(self) -> list[dict[str, str]]:
        """Name and UUID of each GPU, in nvidia-smi's order."""
        found = []
        for number in range(self.call(pynvml.nvmlDeviceGetCount)):
            handle = self.call(pynvml.nvmlDeviceGetHandleByIndex, number)
            name, uuid = (self.call(one, handle) for one in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetUUID))
            found.append({"gpu": name, "gpu_uuid": uuid})
        return found

    def device(self, uuid: str) -> "Device":
        """The GPU, or part of one (MIG), of that UUID."""
        return Device(uuid, self.call(pynvml.nvmlDeviceGetHandleByUUID, uuid))


class Device:
    """A GPU, read value by value; None stands for what it does not tell."""

    def __init__(self, uuid: str, handle: Any) -> None:
        """handle: as the library gave it."""
        self.uuid, self._handle = uuid, handle
        instant = self._instant_power_mw()
        # How its power is to be taken: INSTANT or MEAN.
        self.power_is = MEAN if instant is None else INSTANT
        self.power_limit_mw = self._told(pynvml.nvmlDeviceGetEnforcedPowerLimit)

    def reading(self) -> dict[str, int | None]:
        """What it tells now, in NVML's own units.

        Utilisation is the percent of NVML's last sample period, 1/6 to 1 s, that kernels and copies took. What the
        driver keeps of the memory for itself counts as used.
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
        """What one of the binding's functions tells of it; None where the GPU or its driver does not."""
        try:
            return function(self._handle, *given)
        except pynvml.NVMLError:
            return None

    def _instant_power_mw(self) -> int | None:
        """From driver 530 on. What nvmlDeviceGetPowerUsage tells is, from Ampere on but for GA100, a second's mean."""
        fields = self._told(pynvml.nvmlDeviceGetFieldValues, [pynvml.NVML_FI_DEV_POWER_INSTANT])
        return fields[0].value.uiVal if fields and not fields[0].nvmlReturn else None


@contextmanager
def open_library() -> Iterator[Nvml]:
    """Load NVML while the body runs.

    Raises:
        NvmlError: it is not there, or finds no driver.
    """
    library = Nvml()
    try:
        yield library
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
