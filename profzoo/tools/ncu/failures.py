"""Lists the error messages of ncu, each with its remedy."""

from collections.abc import Sequence

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
        r"Unsupported API during capture",
        "the window makes calls that ncu cannot replay as a range: set ncu.replay to app-range, which runs the whole "
        "program once per pass instead",
    ),
    (
        r"==ERROR== LaunchFailed",
        "a kernel failed when ncu ran it again, the last one in the log or the next one: leave it out by "
        "ncu.kernel_name; where a CUDA graph launches it, profile the cell without graph, which launches the same",
    ),
    (
        r"No kernels were profiled",
        "no kernel launch matched: look at ncu.kernel_name, ncu.devices and ncu.target_processes_filter, and whether "
        "the cell ran on a GPU",
    ),
)
