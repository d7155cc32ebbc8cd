"""The same tables from the same recordings by profzoo and by its peers, one after another.

    python -m tests.benchmarks.peers TRACE EXPORT [--rounds N] [--hta PYTHON] [--tracelens PYTHON] [--nsys-ai PYTHON]

TRACE is one of torch.profiler (.json.gz), EXPORT one of nsys (SQLite). Each PYTHON has that peer installed; a peer
without one is left out, as is `nsys stats` where no nsys is on the PATH. Each round runs everyone once, in a process of
its own and on a fresh copy of the file, because nsys-ai keeps a cache beside it. Prints medians: CPU seconds until
everything is imported, and of the work; wall seconds and peak memory of the whole process; and what was found, which
has to agree: kernels, their time, and the time in which the GPU was busy.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Each program has `path`, and says what it found as `kernels`, `total_ms` and `busy_ms`.
FRAME = """\
import json, os, sys
path = sys.argv[1]
def cpu():
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
{imports}
start = cpu()
{work}
print(json.dumps([start, cpu() - start, int(kernels), float(total_ms), float(busy_ms)]))
"""
TORCH_IMPORTS = """\
import numpy as np, pandas as pd
from profzoo.tools import stream_overlap
from profzoo.tools.torch import export, streams, trace
"""
KERNELS_AND_TIME = """\
found = trace.read_trace(path)
launches, kinds = found.launches, np.array([*streams.KINDS.values()])[found.launches["kind"]]
by_name = pd.DataFrame({"name": launches["name"], "ns": launches["ns"].astype("int64")})[kinds == "kernel"]
table = by_name.groupby("name")["ns"].agg(["size", "sum", "mean", "std", "min", "max"])
table.index = [found.texts[code] for code in table.index]
spans = pd.DataFrame({"start": launches["start"], "end": launches["start"] + launches["ns"], "kind": kinds})
window = np.array([[spans["start"].min(), spans["end"].max()]])
busy = stream_overlap.tabulate_streams(spans.assign(stream=launches["queue"]), window).set_index("stream")["busy_ns"]
kernels, total_ms, busy_ms = table["size"].sum(), table["sum"].sum() / 1e6, busy["all"] / 1e6
"""
HTA = """\
analysis = TraceAnalysis(trace_files={0: path})
idle = analysis.get_temporal_breakdown(visualize=False)
_, table = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6)
own = table[~table["name"].str.startswith(("Memcpy", "Memset"))]
kernels, total_ms = (own["sum (us)"] / own["mean (us)"]).round().sum(), own["sum (us)"].sum() / 1e3
busy_ms = (idle["kernel_time(us)"] - idle["idle_time(us)"]).iloc[0] / 1e3
"""
TRACELENS = """\
analysis = TreePerfAnalyzer.from_file(path)
idle = analysis.get_df_gpu_timeline().set_index("type")["time ms"]
table = analysis.get_df_kernels().groupby("Kernel name")["Kernel duration (µs)"]
table = table.agg(["size", "sum", "mean", "std", "min", "max"])
kernels, total_ms, busy_ms = table["size"].sum(), table["sum"].sum() / 1e3, idle["busy_time"]
"""
NSYS_AI = """\
with Profile(path) as profile:
    found = [gpu_summary(profile, gpu) for gpu in profile.meta.devices]
kernels = sum(one["kernel_count"] for one in found)
total_ms, idle = (sum(one["timing"][key] for one in found) for key in ("compute_ms", "idle_ms"))
busy_ms = sum(one["timing"]["span_ms"] for one in found) - idle
"""
NSYS_TABLES = """\
with open_trace(path) as trace:
    table, times = summarise(trace), where_time_goes(trace)
kernels, total_ms = table["launches"].sum(), table["total_ns"].sum() / 1e6
busy_ms = (times["busy_ns"] * times["steps"]).sum() / 1e6
"""
OWN = "profzoo"
# By kind of recording and tables: what everyone runs, by name.
PROGRAMS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "trace: kernels and idle time": {
        OWN: (TORCH_IMPORTS, KERNELS_AND_TIME),
        "hta": ("from hta.trace_analysis import TraceAnalysis", HTA),
        "tracelens": ("from TraceLens import TreePerfAnalyzer", TRACELENS),
    },
    "trace: operators too": {
        OWN: (TORCH_IMPORTS, KERNELS_AND_TIME + "operators = export.tabulate_dtypes(found, True)"),
        "tracelens": (
            "from TraceLens import TreePerfAnalyzer",
            TRACELENS + "analysis.get_df_kernel_launchers_summary(analysis.get_df_kernel_launchers())",
        ),
    },
    "export: kernels and idle time": {
        OWN: (
            "from profzoo.tools.nsys.events.trace import open_trace\n"
            "from profzoo.tools.nsys.steps.steps import where_time_goes\n"
            "from profzoo.tools.nsys.tables import summarise",
            NSYS_TABLES,
        ),
        "nsys_ai": ("from nsys_ai.profile import Profile\nfrom nsys_ai.summary import gpu_summary", NSYS_AI),
    },
    "export: kernels": {
        OWN: (
            "from profzoo.tools.nsys.tables import summarise",
            'table = summarise(path)\nkernels, total_ms = table["launches"].sum(), table["total_ns"].sum() / 1e6\n'
            'busy_ms = float("nan")',
        ),
        "nsys stats": ("", ""),
    },
}
Run = Sequence[float]


def run(name: str, program: tuple[str, str], python: str, recording: Path) -> Run:
    """Return start-up and work in CPU seconds, wall seconds, peak MiB, kernels, their ms, and busy ms of one run."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copyfile(recording, Path(folder) / recording.name)
        words = [python, "-c", FRAME.format(imports=program[0], work=program[1]), str(copy)]
        if name == "nsys stats":
            words = ["nsys", "stats", "-r", "cuda_gpu_kern_sum", "-f", "csv", "-o", f"{folder}/table", str(copy)]
        began = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        printed = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed: {printed[-1000:]}")
    whole = wall, used.ru_maxrss / 1024
    if name == "nsys stats":
        return [0.0, used.ru_utime + used.ru_stime, *whole, *[float("nan")] * 3]
    start, work, *found = json.loads(printed.splitlines()[-1])
    return [start, work, *whole, *found]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("export", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    for peer in ("hta", "tracelens", "nsys-ai"):
        parser.add_argument(f"--{peer}", metavar="PYTHON")
    options = parser.parse_args()
    pythons = {OWN: sys.executable, "nsys stats": shutil.which("nsys"), **vars(options)}
    print("| tables | by | start, CPU s | work, CPU s | wall s | MiB | kernels | their ms | busy ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for tables, programs in PROGRAMS.items():
        recording = options.trace if tables.startswith("trace") else options.export
        there = {name: program for name, program in programs.items() if pythons[name]}
        rounds = [
            {name: run(name, program, str(pythons[name]), recording) for name, program in there.items()}
            for _ in range(options.rounds)
        ]
        for name in there:
            figures = [statistics.median(column) for column in zip(*(one[name] for one in rounds), strict=True)]
            print(f"| {tables} | {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |", flush=True)


if __name__ == "__main__":
    main()
