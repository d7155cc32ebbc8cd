"""Knows the failures of profilers and says in plain words what to do about each."""

import re
from collections.abc import Sequence

# Looked for in a job's log, the first that is found names the cause.
CAUSES: Sequence[tuple[str, str]] = (
    (
        r"ERR_NVGPUCTRPERM",
        "no permission to read the GPU's performance counters: run as root, or give the process CAP_SYS_ADMIN "
        "(CAP_PERFMON from driver 565 on), or have the administrator load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        r"[Dd]river resource (was )?unavailable",
        "another tool holds the GPU's performance counters, most often DCGM: pause it (`dcgmi profile --pause`) "
        "or close other profilers",
    ),
    (
        r"LibraryNotLoaded|failed to load.*(cupti|nvperf)",
        "ncu could not load its profiling library: the driver and Nsight Compute do not fit, or the GPU is "
        "virtualised without profiling",
    ),
    (
        r"(Failed|Unable) to find metric",
        "a metric of this section set does not exist on this GPU: see `ncu --query-metrics`, and change ncu.sets",
    ),
    (
        r"Could not find (any )?section|no section.*found",
        "a section of this set does not exist in this ncu: see `ncu --list-sections`, and change ncu.sets",
    ),
    (
        r"unrecogni[sz]ed option",
        "the tool does not know one of the options: see ncu.extra and nsys.extra, or its version is too old",
    ),
    (
        r"Unsupported API during capture",
        "the window makes calls that ncu cannot replay as a range: set ncu.replay to app-range, which runs the whole "
        "program once a pass instead",
    ),
    (r"[Nn]o space left on device", "no space is left on the disk"),
    (
        r"[Ff]ailed to import|Importer error|QdstrmImporter",
        "nsys traced the program but could not import its own trace: its importer is missing or broken (look for a "
        "missing library with `ldd` on QdstrmImporter)",
    ),
    (
        r"No kernels were profiled",
        "no kernel launch matched: look at ncu.kernel_name, ncu.devices and ncu.target_processes_filter, and whether "
        "the cell ran on a GPU",
    ),
)


def cause(log: str) -> str | None:
    """The cause of a failure, from what the job printed; a line of the model's own program goes first."""
    own = re.findall(r"^profzoo: (.*)$", log, re.MULTILINE)
    if own:
        return own[-1]
    return next((advice for pattern, advice in CAUSES if re.search(pattern, log)), None)


def warnings(log: str) -> list[str]:
    """The tool's own warnings, each once."""
    found = re.findall(r"^(?:==WARNING==|WARNING:|Warning:)\s*(.+)$", log, re.MULTILINE)
    return list(dict.fromkeys(line.strip() for line in found))
