"""Takes the advice of verdicts on a GPU, and holds the gain against the one that they expect.

python -m tests.benchmarks.verdict_experiments VERDICTS.csv [ROUNDS]

VERDICTS.csv is `tables/verdicts.csv` of the zoo. Each cell runs as it is and with the advice applied, alternating;
gains are of samples a second, by medians, as advice may change the batch.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

# Cell and verdict; settings that follow the advice where its column `settings` has none.
EXPERIMENTS = (
    ("vgg19", "train", "compute-bound (SIMT)", None),
    ("lstm", "inference", "input-bound", "batch=40"),
    ("icnet", "inference", "latency-bound (small grid)", "batch=8"),
    ("mobilenetv2", "train", "launch-bound", "compile=true"),
    ("bert", "train", "compute-bound (SIMT)", None),
    ("bert", "train", "launch-bound", "compile=true"),
    ("srcnn", "inference", "compute-bound (SIMT)", None),
    ("gpt", "train", "memory-bound", None),
    ("vgg19", "inference", "compute-bound (SIMT)", None),
    ("pixelrnn", "inference", "launch-bound", "compile=true"),
    ("gpt", "inference", "launch-bound", "batch=8"),
)


def rate(model: str, phase: str, *settings: str) -> float:
    """Samples a second of a cell."""
    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "facts.json"
        command = [sys.executable, "-m", "models.run", model, phase, *settings, "--facts", str(facts)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        said = json.loads(facts.read_text())
    return said["items"] / said["steps"] / said["step_ns"] * 1e9


def main(path: str, rounds: str = "3") -> None:
    """Print the table."""
    verdicts = pd.read_csv(path)
    verdicts = verdicts[verdicts["level"] == "cell"].set_index(["model", "phase", "verdict"])[["gain", "settings"]]
    print("| cell | verdict | advice | expected | measured | rounds |\n|---|---|---|---|---|---|")
    for model, phase, verdict, own in EXPERIMENTS:
        if (model, phase, verdict) not in verdicts.index:
            print(f"| {model} {phase} | {verdict} | | not given here | | |", flush=True)
            continue
        expected, tried = verdicts.loc[(model, phase, verdict)]
        advice = own or tried
        cell = (model, phase, "window=20")
        pairs = [(rate(*cell), rate(*cell, *advice.split())) for _ in range(int(rounds))]
        gains = [after / before for before, after in pairs]
        each = ", ".join(f"{gain:.2f}" for gain in sorted(gains))
        print(f"| {model} {phase} | {verdict} | `{advice}` | {expected:.2f} x | "
              f"{statistics.median(gains):.2f} x | {each} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
