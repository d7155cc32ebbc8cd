"""Lists the error messages of NVML, each with its remedy."""

from collections.abc import Sequence

CAUSES: Sequence[tuple[str, str]] = (
    (
        r"NVML: libnvidia-ml",
        "NVML, which comes with the NVIDIA driver, cannot be loaded: install the driver, and start a container with "
        "its GPUs (apptainer --nv, docker --gpus)",
    ),
    (
        r"NVML: .*[Vv]ersion [Mm]ismatch",
        "the NVIDIA driver was updated while it ran, and NVML refuses the older part: restart the machine",
    ),
    (
        r"NVML: .*[Dd]river [Nn]ot [Ll]oaded",
        "the NVIDIA driver is not loaded: load its kernel module, or run where there is a GPU",
    ),
    (r"NVML: .*[Pp]ermission", "NVML may not see the GPU: have the container or the batch system give it to this job"),
    (
        r"NVML: no GPU is visible",
        "NVML sees no GPU of this job: look at CUDA_VISIBLE_DEVICES and at what `nvidia-smi -L` lists",
    ),
    (r"NVML: ", "NVML does not answer for a GPU of this job: see what it says in the log"),
)
