"""Our export of a large nsys trace beside `nsys stats -r cuda_gpu_kern_gb_sum` on the same file.

python -m tests.benchmarks.nsys_export SMALL.sqlite [LAUNCHES [ROUNDS]]

SMALL is any nsys export; it is enlarged to LAUNCHES first (a million). Runs alternate; prints medians of wall and CPU
time, peak memory, and the ratio of the table of kernels. Our second row has the parts of steps too.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.enlarge_nsys import enlarge

EXPORT = (
    "import sys; from profzoo.io import scripts; from profzoo.tools.nsys import tables as nsys_tables; "
    "from profzoo.tools.nsys.events.trace import open_trace; "
)
KERNELS = f"{EXPORT}scripts.write_csv(nsys_tables.summarise(sys.argv[1]), sys.argv[2])"
WITH_STEPS = f"""{EXPORT}
with open_trace(sys.argv[1]) as trace:
    scripts.write_csv(nsys_tables.summarise(trace), sys.argv[2])
    scripts.write_csv(nsys_tables.nsys_steps.where_time_goes(trace), sys.argv[2])
"""


def run(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MiB of a command and its children."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    small, launches, rounds = [*sys.argv[1:], *["", "1000000", "5"][len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.sqlite"
        count = enlarge(Path(small), large, int(launches))
        ours = [[sys.executable, "-c", made, str(large), f"{folder}/ours.csv"] for made in (KERNELS, WITH_STEPS)]
        stats = ["nsys", "stats", "-r", "cuda_gpu_kern_gb_sum", "-f", "csv", "--force-overwrite", "true"]
        commands = [*ours, [*stats, "-o", f"{folder}/theirs", str(large)]]
        results = [[run(command) for command in commands] for _ in range(int(rounds))]
    print(f"{count:,} launches")
    medians = []
    for name, column in zip(("profzoo", "with steps", "nsys stats"), zip(*results, strict=True), strict=True):
        wall, cpu, memory = (statistics.median(values) for values in zip(*column, strict=True))
        medians.append(wall)
        print(f"{name:<10} {wall:6.2f} s  {cpu:6.2f} s CPU  {memory:6.0f} MiB")
    print(f"ratio      {medians[0] / medians[2]:6.2f}")


if __name__ == "__main__":
    main()
