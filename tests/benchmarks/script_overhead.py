"""What it costs a script per step to be followed, in CPU time of its own process.

    python -m tests.benchmarks.script_overhead [ROUNDS]

A small training script measures the CPU time of each of its steps itself. Processes of it alternate: alone, and with
profzoo attached and timing all of them. Beside that, the ranges of the zoo's own step loop, of which a step has seven.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from profzoo.harness.ranges import Ranges
from profzoo.range_names import PARTS, STEP

SCRIPT = """
import statistics, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(4800, 20), torch.randint(0, 5, (4800,)))
model = nn.Sequential(*[nn.Linear(20, 20) for _ in range(10)], nn.Linear(20, 5))
optimizer, criterion, times = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), []
for _ in range(2):
    for inputs, target in DataLoader(data, batch_size=8):
        began = time.process_time_ns()
        criterion(model(inputs), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time_ns() - began)
print("step", statistics.median(times[100:]) / 1e3)
"""
STEPS = 1100
REPEATS = 5000


def step_us(command: list[str], folder: str) -> float:
    """Median CPU time of a step in microseconds, as the script prints it."""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    printed = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
    return float(next(line.split()[1] for line in printed.splitlines() if line.startswith("step ")))


def ranges_us() -> float:
    """CPU time in microseconds of opening and closing the ranges of one step, without a profiler."""
    ranges = Ranges()
    began = time.process_time_ns()
    for _ in range(REPEATS):
        with ranges(STEP):
            for part in PARTS:
                with ranges(part):
                    pass
    return (time.process_time_ns() - began) / REPEATS / 1e3


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "own.py").write_text(SCRIPT)
        alone = [sys.executable, "own.py"]
        words = ["mine", "train", f"command={sys.executable} own.py", f"window={STEPS}", "finish=true"]
        followed = [sys.executable, "-m", "profzoo.run", *words, "--facts", "f.json", "--steps", "s.csv"]
        pairs = [(step_us(alone, folder), step_us(followed, folder)) for _ in range(rounds)]
    for one, other in pairs:
        print(f"alone {one:7.1f} us, followed {other:7.1f} us, {other - one:+6.1f} us")
    print(f"median of the differences {statistics.median(other - one for one, other in pairs):+.1f} us")
    print(f"ranges of a step of the zoo's loop {statistics.median(ranges_us() for _ in range(5)):.1f} us")


if __name__ == "__main__":
    main()
