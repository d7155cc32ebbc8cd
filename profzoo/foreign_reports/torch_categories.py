"""Names of events in traces of torch 1.8 to 2.11, of CUDA and HIP, by the category that profzoo reads them as."""

from collections.abc import Mapping
from typing import Any

OPERATOR, RANGE, RUNTIME, DRIVER = "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"
KERNEL, COPY, SET, LINK = "kernel", "gpu_memcpy", "gpu_memset", "fwdbwd"
ON_DEVICE, CALLS = (KERNEL, COPY, SET), (RUNTIME, DRIVER)
# In small letters, with `_` for a blank: torch up to 1.11 wrote `Operator`, `Kernel`, `Memcpy` and so on.
CATEGORIES: Mapping[str, str] = {
    **{name: name for name in (OPERATOR, RANGE, RUNTIME, DRIVER, KERNEL, COPY, SET, LINK)},
    "operator": OPERATOR,
    "cpu_operator": OPERATOR,
    "runtime": RUNTIME,
    "hip_runtime": RUNTIME,
    "cuda_driver": DRIVER,
    "hip_driver": DRIVER,
    "concurrent_kernel": KERNEL,
    "memcpy": COPY,
    "memset": SET,
    "forward_backward": LINK,
}
# The profiler of torch before 1.8.1 wrote no categories: the process says what an event is.
OF_PROCESSES = {"cpu functions": OPERATOR, "cuda functions": KERNEL}
# What torch itself marks by ranges, which were operators of the trace in torch 1.x.
MARKS = ("ProfilerStep#", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#",
         "DistributedDataParallel.forward", "FullyShardedDataParallel.forward")  # fmt: skip
# Devices whose work has categories of its own that are not read.
OTHER_DEVICES = {"mtia": "MTIA", "xpu": "XPU", "hpu": "HPU", "privateuse1": "another device", "npu": "NPU"}


def category_of(event: Mapping[str, Any]) -> str:
    """Return the category that profzoo reads an event as; empty for events that it does not read.

    >>> category_of({"ph": "X", "cat": "Kernel"}), category_of({"ph": "X", "cat": "python_function"})
    ('kernel', '')
    >>> category_of({"ph": "X", "cat": "Operator", "name": "ProfilerStep#3"})
    'user_annotation'
    """
    given, phase = event.get("cat"), event.get("ph")
    if given is None:
        found = OF_PROCESSES.get(str(event.get("pid")).lower(), "")
    else:
        found = CATEGORIES.get(str(given).lower().replace(" ", "_"), "")
    if (found == LINK) != (phase in ("s", "f")) or phase not in ("X", "s", "f"):
        return ""
    return RANGE if found == OPERATOR and str(event.get("name")).startswith(MARKS) else found


def other_device(category: object) -> str:
    """Return the device whose work a category is about and that profzoo does not read; empty for other categories.

    >>> other_device("mtia_ccp_events"), other_device("kernel")
    ('MTIA', '')
    """
    first = str(category).lower().partition("_")[0]
    return OTHER_DEVICES.get(first, "")
