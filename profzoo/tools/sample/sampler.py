"""Samples the GPUs of a job while a program runs, from a process of its own.

python -m profzoo.tools.sample.sampler --interval-ms 20 --out FILE PROGRAM ...

The file has one row per sample and GPU. `time_ns` is the host's monotonic clock, which the program's sidecar uses too.
Without NVML, the program runs all the same, and the file has no rows. The sampler passes signals on to the program. It
ends with the program's exit code, or with 128 plus the number of the signal that ended the program.
"""

import argparse
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError
from profzoo.machine import gpus
from profzoo.tools.sample import nvml

# Before what is read.
HEADING = ("time_ns", "gpu_uuid", "power_is", "power_limit_mw")
PASSED_ON = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.tools.sample.sampler", description=__doc__)
    parser.add_argument("--interval-ms", type=int, required=True, help="from sample to sample")
    parser.add_argument("--out", type=Path, required=True, help="the CSV to write")
    parser.add_argument("--nothing", action="store_true", help="run the program alone, and leave a file without rows")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    interval_ns = options.interval_ms * 1_000_000
    if options.nothing:
        return run_unsampled(options.program, options.out, interval_ns, "the program runs on no GPU")
    try:
        with nvml.open_library() as library, options.out.open("w", newline="") as file:
            note = make_writer(visible_gpus(library), csv.writer(file, lineterminator="\n").writerow)
            return run_and_sample(options.program, note, interval_ns)
    except nvml.NoNvmlError as error:
        return run_unsampled(options.program, options.out, interval_ns, str(error))
    except (nvml.NvmlError, ConfigError) as error:
        print(error, file=sys.stderr)
        return 1


def run_unsampled(program: Sequence[str], out: Path, interval_ns: int, why: str) -> int:
    """Run the program, write a file without rows, and return the program's exit code."""
    print(f"nothing is sampled: {why}", file=sys.stderr)
    out.write_text(",".join([*HEADING, *nvml.READ]) + "\n")
    return run_and_sample(program, lambda: None, interval_ns)


def visible_gpus(library: nvml.Nvml) -> list[nvml.Device]:
    """Return the GPUs of the job: the GPUs that CUDA may see.

    Raises:
        NvmlError: no GPU is visible.
        ConfigError: it cannot be determined which GPUs are visible.
    """
    words = gpus.choose_candidates(os.environ, library.present())
    if not words:
        raise nvml.NvmlError("NVML: no GPU is visible to this job")
    return [library.device(word) for word in words]


def make_writer(devices: Sequence[nvml.Device], write: Callable[[Sequence[Any]], object]) -> Callable[[], None]:
    """Write the heading, and return a function that samples each GPU and writes its row."""
    write([*HEADING, *nvml.READ])

    def note() -> None:
        for device in devices:
            now, told = time.perf_counter_ns(), device.reading()
            write([now, device.uuid, device.power_is, device.power_limit_mw, *(told[name] for name in nvml.READ)])

    return note


def run_and_sample(program: Sequence[str], note: Callable[[], None], interval_ns: int) -> int:
    """Run the program, call `note` at each interval, and return the exit code."""
    # Blocked, signals wait until the sampler looks for them, between two samples.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    process = subprocess.Popen(program, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before))
    try:
        due = time.perf_counter_ns()
        while process.poll() is None:
            note()
            # Samples that could not be taken in time are left out.
            due = max(due + interval_ns, time.perf_counter_ns())
            _wait(process, due)
    finally:
        # Nobody would sample it.
        process.kill()
        process.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _wait(process: subprocess.Popen[bytes], due: int) -> None:
    """Wait until the time `due` or the end of the program; pass signals on."""
    while process.poll() is None:
        left = max(due - time.perf_counter_ns(), 0)
        caught = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, left / 1e9)
        if caught is None:
            return
        if caught.si_signo in PASSED_ON:
            process.send_signal(caught.si_signo)


if __name__ == "__main__":
    sys.exit(main())
