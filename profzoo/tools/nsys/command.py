"""Builds the command line of Nsight Systems, names its reports, and rejects settings that it cannot combine."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.errors import CollectError, ConfigError, suggest_nearest
from profzoo.machine import external_programs
from profzoo.range_names import DOMAIN, WINDOW, make_nvtx_name
from profzoo.tools import extra_options
from profzoo.tools.nsys.refused_options import REFUSED

if TYPE_CHECKING:
    from profzoo.cell.tool_types import NsysSettings

PROGRAM = "nsys"
# Names of all, command lines and environments of those that it may read.
SEES_OTHERS = True
INSTALL = "install NVIDIA Nsight Systems, or load its module: `nsys --version` must work"

# Where there is no GPU nobody calls cudaProfilerStart, and an NVTX range opens the capture instead. With a GPU that
# range is of no use: nsys 2025.3 then captures no kernels.
GPU_CAPTURE = "--capture-range=cudaProfilerApi"
NVTX_CAPTURE = ("--capture-range=nvtx", f"--nvtx-capture={make_nvtx_name(WINDOW)}@{DOMAIN}")
GPU_METRICS = "--gpu-metrics-devices=cuda-visible"
# Current names of reports, with their names before nsys 2023.
REPORTS = {
    "cuda_api_gpu_sum": "apigpusum",
    "cuda_api_sum": "cudaapisum",
    "cuda_api_trace": "cudaapitrace",
    "cuda_gpu_kern_gb_sum": "gpukerngbsum",
    "cuda_gpu_kern_sum": "gpukernsum",
    "cuda_gpu_mem_size_sum": "gpumemsizesum",
    "cuda_gpu_mem_time_sum": "gpumemtimesum",
    "cuda_gpu_sum": "gpusum",
    "cuda_gpu_trace": "gputrace",
    "cuda_kern_exec_sum": "kernexecsum",
    "cuda_kern_exec_trace": "kernexectrace",
    "mpi_event_trace": None,
    "network_congestion": None,
    "nvtx_gpu_proj_sum": "nvtxgpuproj",
    "nvtx_gpu_proj_trace": None,
    "nvtx_kern_sum": "nvtxkernsum",
    "nvtx_pushpop_sum": "nvtxppsum",
    "nvtx_pushpop_trace": "nvtxpptrace",
    "nvtx_startend_sum": "nvtxsesum",
    "nvtx_sum": "nvtxsum",
    "openacc_sum": "openaccsum",
    "openmp_sum": "openmpevtsum",
    "osrt_sum": "osrtsum",
    "um_cpu_page_faults_sum": "umcpupagefaults",
    "um_sum": "unifiedmemory",
    "um_total_sum": "unifiedmemorytotals",
}
OWN_OPTIONS = {
    "-o": "the target file",
    "--output": "the target file",
    "-f": "the target file",
    "--force-overwrite": "the target file",
    "--export": "the target file",
    "-t": "nsys.traces",
    "--trace": "nsys.traces",
    "-s": "nsys.sample",
    "--sample": "nsys.sample",
    "--cpuctxsw": "nsys.cpuctxsw",
    "-b": "nsys.backtrace",
    "--backtrace": "nsys.backtrace",
    "-c": "nsys.capture",
    "--capture-range": "nsys.capture",
    "--capture-range-end": "nsys.capture",
    "-y": "nsys.delay",
    "--delay": "nsys.delay",
    "-d": "nsys.duration",
    "--duration": "nsys.duration",
    "--cuda-memory-usage": "nsys.cuda_memory_usage",
    "--cuda-graph-trace": "nsys.cuda_graph",
    "--gpu-metrics-device": "nsys.gpu_metrics",
    "--gpu-metrics-devices": "nsys.gpu_metrics",
    "--pytorch": "nsys.pytorch",
}


def options(nsys: "NsysSettings") -> list[str]:
    """Return the options of `nsys profile`, except the report's name, as the current release spells them."""
    words = [
        "--force-overwrite=true",
        "--export=sqlite",
        f"--trace={','.join(nsys['traces'])}",
        f"--sample={nsys['sample']}",
        f"--cpuctxsw={nsys['cpuctxsw']}",
        f"--backtrace={nsys['backtrace']}",
        f"--cuda-graph-trace={nsys['cuda_graph']}",
    ]
    if nsys["capture"] == "window":
        # The default end of a capture range also ends the program.
        words += [GPU_CAPTURE, "--capture-range-end=stop"]
    if nsys["delay"] is not None:
        words.append(f"--delay={nsys['delay']}")
    if nsys["duration"] is not None:
        words += [f"--duration={nsys['duration']}", "--kill=none", "--wait=all"]
    if nsys["cuda_memory_usage"]:
        words.append("--cuda-memory-usage=true")
    if nsys["gpu_metrics"]:
        words.append(GPU_METRICS)
    if nsys["pytorch"] != "none":
        words.append(f"--pytorch={nsys['pytorch']}")
    if nsys["modules"]:
        # nsys has no option for ranges that the measured program itself opens.
        words.append("--env-var=PROFZOO_MODULES=1")
    return words + nsys["extra"]


def wrap_command(options: Sequence[str], made: Mapping[str, Path], processes: int) -> list[str]:
    """Return the nsys command with its options and report; each of several processes gets a report by host and rank.

    >>> wrap_command(["--sample=none"], {"report": Path("x.nsys-rep")}, 1)
    ['nsys', 'profile', '--sample=none', '--output', 'x.nsys-rep']
    """
    target = made["ranks"] / "%h.%q{RANK}" if processes > 1 else made["report"]
    return [PROGRAM, "profile", *options, "--output", str(target)]


def output_files(made: Mapping[str, Path]) -> list[Path]:
    """Return the report and its export; the files of several processes are checked when they are read."""
    return [] if "ranks" in made else [made["report"], _exported(made)]


def arrange_outputs(made: Mapping[str, Path]) -> None:
    """Give the export its name; the first of several processes represents the cell."""
    if "ranks" not in made:
        _exported(made).rename(made["sqlite"])
        return
    for ending, target in ((".nsys-rep", made["report"]), (".sqlite", made["sqlite"])):
        found = sorted(made["ranks"].glob(f"*.0{ending}"))
        if len(found) != 1:
            raise CollectError(f"{len(found)} files *.0{ending} of the first process in {made['ranks']}, not one")
        shutil.copyfile(found[0], target)


def _exported(made: Mapping[str, Path]) -> Path:
    return made["report"].with_suffix(".sqlite")


def adapt_command(command: Sequence[str], gpu: bool) -> list[str]:
    """Return the command as the installed nsys spells it; gpu: whether the cell will run on a GPU.

    Raises:
        ConfigError: this nsys does not offer an option under any name, or the option needs a GPU.
    """
    answer = external_programs.ask_program([command[0], "profile", "--help"])
    end = next(index for index, word in enumerate(command) if word == "--output")
    return [*command[:2], *adapt_options(command[2:end], answer.stdout, gpu), *command[end:]]


def adapt_options(words: Sequence[str], help_text: str, gpu: bool) -> list[str]:
    """Return the options as the nsys with this `nsys profile --help` spells them; gpu: whether there is a GPU.

    Raises:
        ConfigError: this nsys does not offer an option under any name, or the option needs a GPU.
    """
    adapted: list[str] = []
    for word in words:
        if word == GPU_METRICS and not gpu:
            raise ConfigError(
                "nsys.gpu_metrics samples a GPU, and the cell runs on a CPU: set nsys.gpu_metrics to false, or device "
                "to cuda"
            )
        if word == GPU_CAPTURE and not gpu:
            adapted += NVTX_CAPTURE
            continue
        option, equals, value = word.partition("=")
        if option == "--gpu-metrics-devices" and f"{option}=" not in help_text and option not in help_text.split():
            option, value = "--gpu-metrics-device", "all"
        if option in ("--pytorch", "--gpu-metrics-device") and option not in help_text:
            raise ConfigError(
                f"this nsys offers no {option}: unset nsys.{option[2:].replace('-', '_').removesuffix('_device')} "
                "or install a newer Nsight Systems"
            )
        adapted.append(option + equals + value)
    return adapted


def current_names(reports: Sequence[str]) -> list[str]:
    """Return the reports under their current names.

    >>> current_names(["gpukernsum", "osrt_sum"])
    ['cuda_gpu_kern_sum', 'osrt_sum']
    """
    present = {old: new for new, old in REPORTS.items() if old}
    return list(dict.fromkeys(present.get(name, name) for name in reports))


def offered_names(reports: Sequence[str], help_text: str) -> list[str]:
    """Return the reports under the names in this `nsys stats --help-reports`."""
    known = set(help_text.replace("[", " ").split())
    return [name if name in known or REPORTS[name] not in known else str(REPORTS[name]) for name in reports]


def check_settings(nsys: "NsysSettings") -> "NsysSettings":
    """Check the configuration of nsys and return it with current names of reports.

    Raises:
        ConfigError: a report is unknown, nsys does not support a combination, or an option is given twice.
    """
    nsys = {**nsys, "reports": current_names(nsys["reports"])}
    for report in nsys["reports"]:
        if report not in REPORTS:
            raise ConfigError(f"nsys.reports holds '{report}': {suggest_nearest(report, REPORTS)}")
    if nsys["capture"] == "window":
        for key in ("delay", "duration"):
            if nsys[key] is not None:
                raise ConfigError(f"nsys.{key} is for whole runs: set nsys.capture to run, or unset nsys.{key}")
        if "nvtx" not in nsys["traces"]:
            raise ConfigError("nsys.capture = 'window' finds the window by NVTX: add nvtx to nsys.traces")
    if "none" in nsys["traces"] and len(nsys["traces"]) > 1:
        raise ConfigError("nsys.traces holds none beside others: drop one or the other")
    if nsys["pytorch"] != "none" and "nvtx" not in nsys["traces"]:
        raise ConfigError(f"nsys.pytorch = '{nsys['pytorch']}' annotates with NVTX: add nvtx to nsys.traces")
    if nsys["cuda_memory_usage"] and "cuda" not in nsys["traces"]:
        raise ConfigError("nsys.cuda_memory_usage needs the cuda trace: add cuda to nsys.traces")
    if nsys["backtrace"] != "none" and nsys["sample"] == "none" and "osrt" not in nsys["traces"]:
        raise ConfigError("nsys.backtrace has nothing to unwind: set nsys.sample to process-tree or trace osrt")
    extra_options.check("nsys.extra", nsys["extra"], OWN_OPTIONS, REFUSED)
    return nsys
