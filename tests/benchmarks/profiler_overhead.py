"""Wall time of a cell's whole process under each profiler over that of the unprofiled process.

python -m tests.benchmarks.profiler_overhead [MODEL PHASE [ROUNDS]]

The command lines are those of the workflow's jobs, with each tool's own window; the unprofiled process runs the same
steps. Runs alternate, so that all see the same machine; prints medians and their ratio.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.tools.ncu import command as ncu
from profzoo.tools.nsys import command as nsys


def commands(model: str, phase: str, folder: str) -> dict[str, tuple[list[str], list[str]]]:
    """By tool, the unprofiled command and the profiled one."""
    filled = config.normalise_config({})
    words = {tool: ["python", "-m", "models.run", *settings.setting_words(settings.resolve_cell(model, phase, tool, filled))]
             for tool in ("ncu", "nsys")}  # fmt: skip
    ncu_words = ["ncu", *ncu.options(filled["ncu"], ncu.CENSUS), "--export", f"{folder}/a.ncu-rep"]
    nsys_words = ["nsys", "profile", *nsys.options(filled["nsys"]), "--output", f"{folder}/a.nsys-rep"]
    return {"ncu launch": (words["ncu"], ncu_words + words["ncu"]), "nsys": (words["nsys"], nsys_words + words["nsys"])}


def seconds(command: list[str]) -> float:
    """Wall time of a command that must succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    model, phase, rounds = [*sys.argv[1:], *["mobilenetv2", "train", "3"][len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        for tool, (plain, profiled) in commands(model, phase, folder).items():
            seconds(plain)
            pairs = [(seconds(plain), seconds(profiled)) for _ in range(int(rounds))]
            base, under = (statistics.median(column) for column in zip(*pairs, strict=True))
            size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
            print(
                f"{model} {phase} {tool:<10} {base:6.2f} s -> {under:6.2f} s  {under / base:5.2f} x  ({size:.1f} MiB)"
            )


if __name__ == "__main__":
    main()
