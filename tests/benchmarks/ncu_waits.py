"""What ncu jobs on several GPUs wait for inside the kernel of the operating system, by samples of their threads' stacks.

python -m tests.benchmarks.ncu_waits METRICS LAUNCHES [GPUS]

As root, on a machine whose kernel shows /proc/PID/task/TID/stack. Runs mobilenetv2 train under ncu on each GPU at once,
and prints how often a thread was found in a call into the NVIDIA driver, by its state and where it was.
"""

import collections
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

EVERY_S = 0.05
DEPTH = 8


def start(gpu: int, folder: str, metrics: str, launches: str) -> subprocess.Popen[bytes]:
    """Ncu on one GPU, with files of its own."""
    ncu = ["ncu", "--export", f"{folder}/{gpu}", "--clock-control", "none", "--cache-control", "none",
           "--import-sass", "no", "--profile-from-start", "off", "--launch-count", launches, "--metrics", metrics]  # fmt: skip
    program = [sys.executable, "-m", "models.run", "mobilenetv2", "train", "window=1"]
    own = tempfile.mkdtemp(dir=folder)
    env = os.environ | {"CUDA_VISIBLE_DEVICES": str(gpu), "TMPDIR": own}
    return subprocess.Popen([*ncu, *program], env=env, stdout=subprocess.DEVNULL)


def family(roots: Sequence[int]) -> set[int]:
    """Process ids of the roots and all that descend from them."""
    found = set(roots)
    for root in roots:
        with contextlib.suppress(psutil.Error):
            found |= {child.pid for child in psutil.Process(root).children(recursive=True)}
    return found


def in_the_driver(processes: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """Of each thread that is in the driver: its program, its state (R runs, D waits), and its stack, innermost first."""
    for process in processes:
        for thread in Path(f"/proc/{process}/task").glob("*"):
            with contextlib.suppress(OSError):
                stack = [line.split("] ")[-1].split("+")[0] for line in (thread / "stack").read_text().splitlines()]
                if any(name.startswith(("nvidia_", "_nv", "rm", "os_acquire")) for name in stack):
                    program, rest = (thread / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
                    yield program, rest.split()[0], " < ".join(stack[:DEPTH])


def main(metrics: str, launches: str, gpus: str = "2") -> None:
    seen: collections.Counter[tuple[str, str, str]] = collections.Counter()
    rounds = 0
    with tempfile.TemporaryDirectory() as folder:
        jobs = [start(gpu, folder, metrics, launches) for gpu in range(int(gpus))]
        while any(job.poll() is None for job in jobs):
            seen.update(in_the_driver(family([job.pid for job in jobs])))
            rounds += 1
            time.sleep(EVERY_S)
    print(f"{rounds} rounds; exit codes {[job.returncode for job in jobs]}")
    for (program, state, stack), count in seen.most_common():
        print(f"{count:6d} {state} {program}: {stack}")


if __name__ == "__main__":
    main(*sys.argv[1:])
