"""What ranges of modules add to a job of torch.profiler: its wall time, its CPU time, and a step.

python -m tests.benchmarks.module_ranges [ROUNDS [MODEL PHASE [key=value ...]]]

The command lines are those of the workflow's jobs, with `torch.modules` and without. Runs alternate, so that both see the
same machine; prints medians and their ratio.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def ran(folder: Path, cell: list[str], marked: bool) -> dict[str, float]:
    """Wall and CPU seconds of a job, and ms of a step."""
    made = [f"--{name}={folder / name}.json.gz" for name in ("trace", "operators", "facts")]
    command = [sys.executable, "-m", "models.run", *cell, f"profiler.modules={json.dumps(marked)}", *made]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    facts = json.loads((folder / "facts.json.gz").read_text())
    return {"wall s": wall, "CPU s": busy, "step ms": facts["step_ns"] / 1e6}


def main() -> None:
    rounds, *cell = [*sys.argv[1:], *["5", "mobilenetv2", "train"][len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ran(folder, cell, True)
        pairs = [(ran(folder, cell, False), ran(folder, cell, True)) for _ in range(int(rounds))]
    for what in pairs[0][0]:
        without, marked = (statistics.median(one[what] for one in column) for column in zip(*pairs, strict=True))
        print(f"{' '.join(cell)}: {what:8} {without:8.2f} -> {marked:8.2f}  ({marked / without - 1:+.1%})")


if __name__ == "__main__":
    main()
