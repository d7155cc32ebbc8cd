"""Asks NVIDIA's scheduler of counters in how many passes a GPU counts metrics; it needs no GPU, but a real ncu."""

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROFILER = 1
NAMES = {
    "pMetricName": ctypes.c_char_p,
    "pChipName": ctypes.c_char_p,
    "isolated": ctypes.c_uint8,
    "keepInstances": ctypes.c_uint8,
    "activityKind": ctypes.c_int,
}


@functools.cache
def load_library() -> ctypes.CDLL:
    """Return the library that ncu schedules counters by, ready for use."""
    (path,) = Path(os.environ["PROFZOO_NCU"], "nsight-compute").rglob("libnvperf_host.so")
    library = ctypes.CDLL(str(path))
    call(library, "NVPW_InitializeHost")
    return library


def struct(*names: str, **values: object) -> Any:
    """Return a parameter as nvperf_host.h declares them: its size, a null, and these members in this order."""
    members = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p)]
    members += [(name, NAMES.get(name, ctypes.c_void_p)) for name in names]
    kind = type("Parameter", (ctypes.Structure,), {"_fields_": members})
    last = getattr(kind, members[-1][0])
    return kind(structSize=last.offset + last.size, **values)


def call(library: ctypes.CDLL, function: str, *names: str, **values: object) -> Any:
    """Call a function of the library with a parameter, and return the parameter; other answers than success fail."""
    given = struct(*names, **values)
    answer = getattr(library, function)(ctypes.byref(given))
    assert answer == 0, f"{function} answers {answer}"
    return given


def raw_counters(metrics: Sequence[str], chip: str) -> dict[str, set[bytes]]:
    """Return the counters of the hardware that each metric is made of; none for metrics that are not of the hardware."""
    library = load_library()
    sized = call(library, "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", "pChipName", "image", "size",
                 pChipName=chip.encode())  # fmt: skip
    scratch = ctypes.create_string_buffer(sized.size)
    of_chip = ("scratch", "size", "pChipName", "image", "data", "data_size", "evaluator")
    evaluator = call(library, "NVPW_CUDA_MetricsEvaluator_Initialize", *of_chip, pChipName=chip.encode(),
                     scratch=ctypes.addressof(scratch), size=sized.size).evaluator  # fmt: skip
    return {metric: _raw_counters(library, evaluator, metric) for metric in metrics}


def _raw_counters(library: ctypes.CDLL, evaluator: int, metric: str) -> set[bytes]:
    request, size = ctypes.create_string_buffer(16), 12
    named = struct("evaluator", "pMetricName", "request", "size", evaluator=evaluator, pMetricName=metric.encode(),
                   request=ctypes.addressof(request), size=size)  # fmt: skip
    if library.NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(ctypes.byref(named)):
        return set()
    members = ("evaluator", "requests", "count", "size", "stride", "names", "number", "optional", "optional_number")
    asked = {"evaluator": evaluator, "requests": ctypes.addressof(request), "count": 1, "size": size, "stride": 16}
    function = "NVPW_MetricsEvaluator_GetMetricRawDependencies"
    known = call(library, function, *members, **asked)
    needed, optional = ((ctypes.c_char_p * (count or 1))() for count in (known.number, known.optional_number))
    call(library, function, *members, **asked, names=ctypes.addressof(needed), number=known.number,
         optional=ctypes.addressof(optional), optional_number=known.optional_number)  # fmt: skip
    return {name for name in needed if name}


def count_passes(metrics: Sequence[str], chip: str) -> int:
    """Return the passes in which a chip counts these metrics; those of patched machine code need passes of their own."""
    library = load_library()
    config = call(library, "NVPW_CUDA_RawMetricsConfig_Create_V2", "activityKind", "pChipName", "image", "config",
                  activityKind=PROFILER, pChipName=chip.encode()).config  # fmt: skip
    call(library, "NVPW_RawMetricsConfig_BeginPassGroup", "config", "most", config=config)
    for name in set.union(*raw_counters(metrics, chip).values()):
        one = struct("pMetricName", "isolated", "keepInstances", pMetricName=name, isolated=1, keepInstances=1)
        call(library, "NVPW_RawMetricsConfig_AddMetrics", "config", "requests", "count", config=config,
             requests=ctypes.addressof(one), count=1)  # fmt: skip
    call(library, "NVPW_RawMetricsConfig_EndPassGroup", "config", config=config)
    passes = call(library, "NVPW_RawMetricsConfig_GetNumPasses", "config", "together", "alone", config=config)
    return (passes.together or 0) + (passes.alone or 0)
