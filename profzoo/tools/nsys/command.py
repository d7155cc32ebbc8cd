"""Builds the command line of Nsight Systems, names its reports, and rejects settings that it cannot combine."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.errors import CollectError, ConfigError, DataError, suggest_nearest
from profzoo.machine import external_programs
from profzoo.range_names import DOMAIN, WINDOW, make_nvtx_name
from profzoo.tools import defaults

if TYPE_CHECKING:
    from profzoo.cell.tool_types import NsysSettings

# Options of `nsys profile` that `nsys.extra` may not hold beside those that the workflow gives itself, and why.
OTHER_LAUNCHES = "traces other launches than the launches of the cell's steps"
# Why each is refused.
REFUSED = {
    "-p": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--nvtx-capture": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "-Y": f"{OTHER_LAUNCHES}; nsys.delay says when recording begins",
    "--start-later": f"{OTHER_LAUNCHES}; nsys.delay says when recording begins",
    "--start-frame-index": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--duration-frames": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--hotkey-capture": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--cuda-trace-scope": f"{OTHER_LAUNCHES} where it is `system-wide`",
    "--nvtx-domain-include": "may leave out the ranges by which steps are found",
    "--nvtx-domain-exclude": "may leave out the ranges by which steps are found",
    "--kill": "may end the program before it has written the files that the workflow needs",
    "--wait": "may end the recording before all processes have",
    "-x": "may leave the recording open once the program has ended",
    "--stop-on-exit": "may leave the recording open once the program has ended",
    "-n": "may take from the program the variables that it needs",
    "--inherit-environment": "may take from the program the variables that it needs",
    "-e": "runs another program under nsys than under the other tools; let variables through by `variables`",
    "--env-var": "runs another program under nsys than under the other tools; let variables through by `variables`",
    "--command-file": "gives options that the workflow does not see; give them in nsys.extra",
    "-h": "records nothing",
    "--help": "records nothing",
}
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
    defaults.check("nsys.extra", nsys["extra"], OWN_OPTIONS, REFUSED)
    return nsys


# Runs `nsys stats` on an export and leaves each report as a CSV of its own.

# Under this locale, numbers and messages are the same on all machines.
LOCALE = {"LC_ALL": "C"}
SKIPPED = re.compile(r"SKIPPED: (?:.*? )?(does not contain .*?)\.?$")


def main(sqlite: str, outputs: Mapping[str, str]) -> None:
    """Write each report to its file.

    If the trace has no data for a report, nsys skips it or writes no row. Its CSV then has one column, `skipped`, with
    the reason.

    Raises:
        DataError: nsys fails, or skips a report without a reason.
    """
    offered = _run("stats", "--help-reports").stdout
    names = dict(zip(outputs, offered_names(list(outputs), offered), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        words = ["stats", "--format=csv", f"--output={folder}/x", "--force-overwrite=true"]
        words += [word for name in names.values() for word in ("--report", name)]
        # nsys treats a path as a URI, and finds no table in a file whose name has `?`, `#`, `%41` or a quote.
        plain = Path(folder) / "x.sqlite"
        plain.symlink_to(Path(sqlite).absolute())
        answer = _run(*words, str(plain))
        print(answer.stdout, answer.stderr, sep="\n", file=sys.stderr)
        reasons = _reasons(answer.stdout + answer.stderr, list(outputs))
        for report, output in outputs.items():
            made = Path(folder) / f"x_{names[report]}.csv"
            text = made.read_text(encoding="utf-8").lstrip() if made.exists() else ""
            if made.exists() and not text and not answer.returncode:
                reasons.setdefault(report, "holds no row of this report")
            if not text and report not in reasons:
                raise DataError(f"nsys stats left no {report} of {sqlite} (exit code {answer.returncode}); see the log")
            Path(output).write_text(text or f'skipped\n"{reasons[report]}"\n', encoding="utf-8")


def _reasons(printed: str, reports: Sequence[str]) -> dict[str, str]:
    """Return the reason for each skipped report; nsys prints it after the name of the report's script."""
    reasons, current = {}, ""
    for line in printed.splitlines():
        if script := re.search(r"/(\w+)\.py\]", line):
            current = current_names([script[1]])[0]
        if (skipped := SKIPPED.search(line)) and current in reports:
            reasons[current] = skipped[1]
    return reasons


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["nsys", *words], capture_output=True, text=True, check=False, env=os.environ | LOCALE)
    except FileNotFoundError:
        raise DataError("nsys is not on PATH, and reading its reports needs it; `snakemake doctor` says more") from None
