"""Calls NVML by ctypes: only the functions needed for sampling, from the driver's library.

Numbers of fields, clocks and structures are those of nvml.h.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
TEXT_BYTES = 96
# NVML_ERROR_FUNCTION_NOT_FOUND
NOT_THERE = 13
SM_CLOCK, MEMORY_CLOCK, GPU_TEMPERATURE = 1, 2, 0
# NVML_FI_DEV_POWER_INSTANT, from driver 530 on. What nvmlDeviceGetPowerUsage tells is, from Ampere on (but for GA100),
# the mean of the last second.
POWER_INSTANT = 186
# What a reading holds.
READ = ("power_mw", "sm_clock_mhz", "memory_clock_mhz", "temperature_c", "gpu_utilisation_pct",
        "memory_utilisation_pct", "memory_used_bytes", "throttle_reasons", "energy_mj")  # fmt: skip
# Bits of nvmlClocksEventReasons that slow a GPU down, which drivers before 535 call throttle reasons.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}
INSTANT, MEAN = "instant", "mean of the last second"


class NvmlError(RuntimeError):
    """NVML is missing or refuses a call; the message begins with `NVML: `."""


class NoNvmlError(NvmlError):
    """NVML is missing."""


class Utilisation(ctypes.Structure):
    """nvmlUtilization_t: percent of the last sample period of NVML's, 1/6 to 1 s, that kernels and copies took."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes; what the driver keeps for itself counts as used."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t of a field whose value is an unsigned int."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("code", ctypes.c_int),
        ("value", ctypes.c_uint),
        # The value is a union of 8 bytes.
        ("rest", ctypes.c_uint),
    ]


class Nvml:
    """The library, initialised."""

    def __init__(self) -> None:
        """Load it.

        Raises:
            NoNvmlError: it is not there. NvmlError: it finds no driver.
        """
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoNvmlError(f"NVML: {error}") from error
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def try_call(self, name: str, *arguments: Any) -> int:
        """Call a function; its code, which is 0 where that went well, and NOT_THERE of one that the driver lacks."""
        function = getattr(self._library, name, None)
        return function(*arguments) if function else NOT_THERE

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise NvmlError if it fails."""
        if code := self.try_call(name, *arguments):
            raise NvmlError(f"NVML: {name}: {self._library.nvmlErrorString(code).decode()}")

    def driver(self) -> str:
        """Return the driver's version."""
        return self._text("nvmlSystemGetDriverVersion")

    def present(self) -> list[dict[str, str]]:
        """Name and UUID of each GPU, in nvidia-smi's order."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for number in range(count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
            name, uuid = self._text("nvmlDeviceGetName", handle), self._text("nvmlDeviceGetUUID", handle)
            found.append({"gpu": name, "gpu_uuid": uuid})
        return found

    def device(self, uuid: str) -> "Device":
        """The GPU, or part of one (MIG), of that UUID."""
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        return Device(self, uuid, handle)

    def _text(self, name: str, *before: Any) -> str:
        text = ctypes.create_string_buffer(TEXT_BYTES)
        self.call(name, *before, text, ctypes.c_uint(TEXT_BYTES))
        return text.value.decode()


class Device:
    """Reads the state of one GPU; values that the GPU does not report are None."""

    def __init__(self, library: Nvml, uuid: str, handle: ctypes.c_void_p) -> None:
        """handle: as the library gave it."""
        self.uuid, self._library, self._handle = uuid, library, handle
        instant = self._instant_power_mw()
        # How its power is to be taken: INSTANT or MEAN.
        self.power_is = MEAN if instant is None else INSTANT
        self.power_limit_mw = self._number("nvmlDeviceGetEnforcedPowerLimit")

    def reading(self) -> dict[str, int | None]:
        """Return the current values in NVML's own units."""
        instant = self.power_is == INSTANT
        used, memory = Utilisation(), Memory()
        utilised = self._told("nvmlDeviceGetUtilizationRates", used)
        return {
            "power_mw": self._instant_power_mw() if instant else self._number("nvmlDeviceGetPowerUsage"),
            "sm_clock_mhz": self._number("nvmlDeviceGetClockInfo", SM_CLOCK),
            "memory_clock_mhz": self._number("nvmlDeviceGetClockInfo", MEMORY_CLOCK),
            "temperature_c": self._number("nvmlDeviceGetTemperature", GPU_TEMPERATURE),
            "gpu_utilisation_pct": used.gpu if utilised else None,
            "memory_utilisation_pct": used.memory if utilised else None,
            "memory_used_bytes": memory.used if self._told("nvmlDeviceGetMemoryInfo", memory) else None,
            "throttle_reasons": self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong),
            "energy_mj": self._number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong),
        }

    def _told(self, name: str, *arguments: Any) -> bool:
        *given, out = arguments
        return not self._library.try_call(name, self._handle, *map(ctypes.c_int, given), ctypes.byref(out))

    def _number(self, name: str, *given: int, kind: type = ctypes.c_uint) -> int | None:
        out = kind()
        return out.value if self._told(name, *given, out) else None

    def _instant_power_mw(self) -> int | None:
        asked = FieldValue(field=POWER_INSTANT)
        return asked.value if self._told("nvmlDeviceGetFieldValues", 1, asked) and not asked.code else None


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
        library.try_call("nvmlShutdown")
